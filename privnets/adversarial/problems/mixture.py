"""Two correlated bits in the plane, one to keep and one to hide: all that can be said exactly.

Section 7.2 of "Learning data-derived privacy preserving representations" (ICLR 2019 submission),
its eq. 20 corrected; see `privnets.measures.mixture`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from privnets import measures
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Examined, Problem, Releaser
from privnets.adversarial.problems.mixture_statement import EXACT, OPTIMA, GaussianMixtureStatement
from privnets.adversarial.records import Exposure, Pool, Splits
from privnets.adversarial.statement import Statement
from privnets.adversarial.training.releasers import LinearFilter, PerceptronReleaser
from privnets.measures.mixture import DATA_STD
from privnets.networks.architecture import Architecture
from privnets.networks.mlp import Perceptron
from privnets.randomness import generator

_SHOWN = 1_000
# Searches for linear filters between two pauses: 40 ms each on one core, 140 ms if alone.
_SEARCHED_AT_ONCE = 32


class GaussianMixture(Problem):
    """X ~ N((U, S), 0.05^2 I) with fair bits, P(U=1, S=1) = `dependence` / 4.

    Every configuration draws records of its own, from its seed and dependence.
    """

    statement: ClassVar[Statement] = GaussianMixtureStatement()

    def materials(
        self, configs: Sequence[AdversarialConfig], device: str
    ) -> tuple[Pool, list[Splits]]:
        """The records of every seed and dependence in turn, and each configuration's own."""
        sources = list(dict.fromkeys((config.seed, config.dependence) for config in configs))
        sizes = self.statement.sizes(configs[0])
        ends = np.cumsum([sizes.train, sizes.attack, sizes.validation, sizes.test])
        drawn = [_drawn(seed, dependence, int(ends[-1])) for seed, dependence in sources]
        x, secret, utility = (torch.cat(part).to(device) for part in zip(*drawn, strict=True))
        splits = []
        for config in configs:
            first = sources.index((config.seed, config.dependence)) * ends[-1]
            splits.append(Splits(*np.split(np.arange(first, first + ends[-1]), ends[:-1])))
        return Pool(x, secret, utility), splits

    def releaser(self, config: AdversarialConfig) -> Releaser:
        """A linear filter with Gaussian noise, or a perceptron."""
        if config.releaser == "linear":
            return LinearFilter(2)
        return PerceptronReleaser((2,), config.releaser_width)

    def adversary(self, config: AdversarialConfig) -> Architecture:
        """Infers the secret bit."""
        return Perceptron((2, config.adversary_width, config.adversary_width, 2))

    def utility(self, config: AdversarialConfig) -> Architecture:
        """Infers the useful bit."""
        return self.adversary(config)

    def attacking_networks(self, config: AdversarialConfig) -> Mapping[str, Architecture]:
        """One like the adversary, and one of twice its width and a layer more."""
        wide = 2 * config.adversary_width
        return {
            "network": self.adversary(config),
            "large_network": Perceptron((2, wide, wide, wide, 2)),
        }

    def dependence_bound(self, config: AdversarialConfig, secret: Tensor, utility: Tensor) -> float:
        """I(U;S), for X tells the bits but for 1e-20 nats."""
        return float(measures.mutual_information(measures.joint_us(config.dependence)))

    def probe(
        self, configs: Sequence[AdversarialConfig], parameters: Sequence[Tensor]
    ) -> Mapping[str, Tensor]:
        """Exact information of linear filters."""
        if configs[0].releaser != "linear":
            return {}
        found = _information(parameters[0].detach().double(), configs)
        return {"exact/leakage": found.leakage, "exact/censored": found.censored}

    def limits(
        self, configs: Sequence[AdversarialConfig]
    ) -> Generator[None, None, Sequence[Mapping[str, float]]]:
        """The least losses, of any release and of a linear one, where losses are squared-kl's."""
        found: dict[tuple[float, ...], tuple[float, float]] = {}
        unknown = (math.nan, math.nan)
        games = list(dict.fromkeys(_game(config) for config in configs if _weighed(config)))
        for start in range(0, len(games), _SEARCHED_AT_ONCE):
            some = games[start : start + _SEARCHED_AT_ONCE]
            linear, _ = measures.best_linear_loss(*np.array(some).T)
            for game, loss in zip(some, linear.tolist(), strict=True):
                found[game] = (measures.best_loss(*game[:2]), loss)
            yield None
        least = [found[_game(config)] if _weighed(config) else unknown for config in configs]
        return [dict(zip(OPTIMA, own, strict=True)) for own in least]

    def examine(
        self,
        config: AdversarialConfig,
        parameters: Sequence[Tensor],
        original: Exposure,
        released: Exposure,
    ) -> Examined:
        """Exact information of a linear filter, and where releases lie."""
        metrics, notes = dict.fromkeys(EXACT, math.nan), dict[str, str]()
        linear = config.releaser == "linear"
        if linear:
            metrics = _exact(config, parameters[0])
        else:
            notes |= dict.fromkeys(EXACT, "exact information is known of linear filters alone")
        if not _weighed(config):
            metrics["exact/loss"] = math.nan
            notes |= dict.fromkeys(
                ("exact/loss", *OPTIMA), "the loss (1 - a) B^2 + a A^2 is that of squared-kl"
            )
        scatter = _scatter(released, parameters[0] if linear else None)
        return Examined(metrics, notes, artifacts={"scatter.safetensors": scatter})


def _drawn(seed: int, dependence: float, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """X, S and U of one source's records."""
    random = generator(seed, f"gaussian mixture {dependence!r}")
    cells = random.choice(4, count, p=measures.joint_us(dependence).ravel())
    bits = np.stack(np.divmod(cells, 2), axis=1)
    x = bits + DATA_STD * random.standard_normal((count, 2))
    return (
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(bits[:, 1]),
        torch.from_numpy(bits[:, 0]),
    )


def _information(
    theta: Tensor, configs: Sequence[AdversarialConfig]
) -> measures.FilterInformation[Tensor]:
    """Exact information of filters [S, 2, 2]; NaN of one that diverged."""
    sound = theta.isfinite().flatten(1).all(1)
    noise = theta.new_tensor([config.noise_std for config in configs])
    joint = measures.joint_us(theta.new_tensor([config.dependence for config in configs]))
    found = measures.filter_information(torch.where(sound[:, None, None], theta, 0.0), noise, joint)
    return measures.FilterInformation(*(torch.where(sound, part, math.nan) for part in found))


def _exact(config: AdversarialConfig, theta: Tensor) -> dict[str, float]:
    found = _information(theta.double()[None], [config])
    leakage, censored = float(found.leakage), float(found.censored)
    loss = (1 - config.tradeoff) * censored**2 + config.tradeoff * leakage**2
    return dict(zip(EXACT, (leakage, censored, loss), strict=True))


def _weighed(config: AdversarialConfig) -> bool:
    return config.objective == "squared-kl"


def _game(config: AdversarialConfig) -> tuple[float, float, float]:
    """What least losses depend on; replicates share it."""
    return config.dependence, config.tradeoff, config.noise_std


def _scatter(released: Exposure, theta: Tensor | None) -> bytes:
    """Some releases with their labels, and the filter if it is linear."""
    assert released.utility is not None
    tensors = {
        "released": released.z[:_SHOWN].float(),
        "secret": released.secret[:_SHOWN],
        "utility": released.utility[:_SHOWN],
    }
    if theta is not None:
        tensors["filter"] = theta.float()
    return save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
