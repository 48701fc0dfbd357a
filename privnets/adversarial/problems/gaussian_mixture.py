"""Gaussian mixture: two correlated bits in the plane, one useful and one secret, known exactly.

Section 7.2 of "Learning data-derived privacy preserving representations" (ICLR 2019 submission),
with eq. 20 corrected; see `privnets.measures.mixture`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import Field

from privnets import measures
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import Parameters, Release
from privnets.adversarial.problem import (
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
)
from privnets.contract import InvalidField, State
from privnets.randomness import generator
from privnets.references.problems import ProblemSettings

EXACT: Final = ("exact/leakage", "exact/censored", "exact/loss")
"""Metrics of a trained linear filter."""

OPTIMA: Final = ("bound/loss", "optimum/linear_loss")
"""Least loss of any release, and of any linear filter."""

_ATTACK, _VALIDATION, _TEST, _LARGEST_SIZE = 8_192, 4_096, 16_384, 2**20
# Searches for linear filters between two pauses: 40 ms each on one core, 140 ms if alone.
_SEARCHES_PER_PAUSE = 32


class GaussianMixtureSettings(ProblemSettings):
    """Settings of the Gaussian mixture."""

    stackable: ClassVar[frozenset[str]] = frozenset({"dependence"})

    dependence: float = Field(
        1.0, ge=0, le=2, description="k of P(U=1, S=1) = k / 4; at 1 the bits are independent"
    )


class GaussianMixtureProblem(Problem):
    """X ~ N((U, S), 0.05^2 I) with fair bits U and S, and P(U=1, S=1) = `dependence` / 4.

    Each configuration draws its own records, from its seed and dependence.
    """

    spec = ProblemSpec(
        name="gaussian-mixture",
        secret_classes=2,
        utility_classes=2,
        releasers=("linear", "mlp"),
        copies_input=False,
        extra_metrics=(*EXACT, *OPTIMA),
        defaults={
            "objective": "squared-kl",
            "releaser": "linear",
            "releaser_width": 32,
            "adversary_width": 32,
            "batch_size": 256,
            "train_size": 8192,
            "learning_rate": 0.05,
            "adversary_learning_rate": 0.01,
        },
    )

    Settings = GaussianMixtureSettings

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """`train_size`, 8,192, 4,096 and 16,384 records."""
        train = int(config.train_size or self.spec.defaults["train_size"] or 0)
        return SplitSizes(train, _ATTACK, _VALIDATION, _TEST, (2,))

    def largest_train_size(self, config: AdversarialConfig) -> int:
        """Records are drawn, so their number is limited by memory only."""
        return _LARGEST_SIZE

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Adds an error for a missing `train_size`, as drawn records have no whole set."""
        errors = super().invalid_fields(config)
        if config.train_size is None:
            allowed = f"a number up to {_LARGEST_SIZE} with {self.spec.name}"
            errors.append(InvalidField("train_size", "null", allowed))
        return errors

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Name of the distribution and of the way it is sampled; no file is read."""
        return "gaussian-mixture, synthetic, drawn as of version 1"

    def has_exact_information(self, config: AdversarialConfig) -> bool:
        """Whether the releaser is a linear filter."""
        return config.releaser_name == "linear"

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """Draws the records of each distinct seed and dependence."""
        sources = list(dict.fromkeys((config.seed, dependence_of(config)) for config in configs))
        sizes = self.split_sizes(configs[0])
        ends = np.cumsum([sizes.train, sizes.attack, sizes.validation, sizes.test])
        drawn, splits = [], []
        for seed, dependence in sources:
            random = generator(seed, f"gaussian mixture {dependence!r}")
            cells = random.choice(4, int(ends[-1]), p=measures.joint_us(dependence).ravel())
            bits = np.stack(np.divmod(cells, 2), axis=1)
            points = bits + measures.DATA_STD * random.standard_normal(bits.shape)
            drawn.append((points.astype(np.float32), bits))
        x, bits = (np.concatenate(part) for part in zip(*drawn, strict=True))
        for config in configs:
            first = sources.index((config.seed, dependence_of(config))) * ends[-1]
            splits.append(Splits(*np.split(np.arange(first, first + ends[-1]), ends[:-1])))
        return RecordArrays(x, secret=bits[:, 1], utility=bits[:, 0]), splits

    def dependence_bound(self, config: AdversarialConfig) -> float:
        """I(U;S), as I(U;S|X) is below 1e-20 nats."""
        return float(measures.mutual_information(measures.joint_us(dependence_of(config))))

    def test_set(self, config: AdversarialConfig) -> None:
        """None, as every seed draws records of its own."""

    def exact_curves(self, configs: Sequence[AdversarialConfig], parameters: Parameters) -> State:
        """Exact leakage and censored utility of linear filters, nats."""
        if configs[0].releaser_name != "linear":
            return {}
        information = _filter_information(parameters, configs)
        return {"exact/leakage": information.leakage, "exact/censored": information.censored}

    def reference_metrics(
        self, configs: Sequence[AdversarialConfig]
    ) -> Generator[None, None, Sequence[Mapping[str, float]]]:
        """Least squared-KL losses of any release and of linear filters; NaN for `alpha`."""
        losses: dict[tuple[float, ...], tuple[float, float]] = {}
        # Settings that determine the least losses; replicates share them.
        own = [
            (dependence_of(c), c.tradeoff, c.noise_std) if c.objective == "squared-kl" else None
            for c in configs
        ]
        settings = [each for each in dict.fromkeys(own) if each is not None]
        for start in range(0, len(settings), _SEARCHES_PER_PAUSE):
            some = settings[start : start + _SEARCHES_PER_PAUSE]
            linear, _ = measures.best_linear_loss(*np.array(some).T)
            for setting, loss in zip(some, linear.tolist(), strict=True):
                losses[setting] = (measures.best_loss(*setting[:2]), loss)
            yield None
        least = [(math.nan, math.nan) if each is None else losses[each] for each in own]
        return [dict(zip(OPTIMA, pair, strict=True)) for pair in least]

    def release_details(self, release: Release) -> ReleaseDetails:
        """Exact measures of a linear filter."""
        config, metrics, notes = release.config, dict.fromkeys(EXACT, math.nan), dict[str, str]()
        if self.has_exact_information(config):
            information = _filter_information([release.parameters[0][None]], [config])
            leakage, censored = float(information.leakage), float(information.censored)
            loss = (1 - config.tradeoff) * censored**2 + config.tradeoff * leakage**2
            metrics = dict(zip(EXACT, (leakage, censored, loss), strict=True))
        else:
            notes |= dict.fromkeys(EXACT, "exact information is known for linear filters only")
        if config.objective != "squared-kl":
            metrics["exact/loss"] = math.nan
            reason = "the loss (1 - a) B^2 + a A^2 belongs to objective squared-kl"
            notes |= dict.fromkeys(("exact/loss", *OPTIMA), reason)
        return ReleaseDetails(metrics, notes)


def dependence_of(config: AdversarialConfig) -> float:
    """The setting `dependence` of a configuration of this problem."""
    assert isinstance(config.settings, GaussianMixtureSettings)
    return config.settings.dependence


def _filter_information(
    parameters: Parameters, configs: Sequence[AdversarialConfig]
) -> measures.FilterInformation[Any]:
    """Exact information of linear filters [S, 2, 2], shape [S]; NaN for diverged ones."""
    theta = parameters[0].detach().double()
    is_finite = theta.isfinite().flatten(1).all(1)
    noise = theta.new_tensor([config.noise_std for config in configs])
    joint = measures.joint_us(theta.new_tensor([dependence_of(config) for config in configs]))
    filters = theta.masked_fill(~is_finite[:, None, None], 0.0)
    information = measures.filter_information(filters, noise, joint)
    parts = (part.masked_fill(~is_finite, math.nan) for part in information)
    return measures.FilterInformation(*parts)
