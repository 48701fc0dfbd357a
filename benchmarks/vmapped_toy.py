"""The toy game of several configurations as `torch.func` stacks it: modules under `vmap`.

`plain_games.Toy` with a dimension in front of everything; what PyTorch's tutorial on model
ensembling says, with a gradient and `torch.optim.Adam`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.optim import Adam

from benchmarks.plain_games import Toy, informations, squares
from privnets.adversarial.config import AdversarialConfig

_BETAS = (0.5, 0.999)
_MEMORY = 20

State = Mapping[str, Tensor]


class VmappedToy:
    """Games of one structure, played together."""

    def __init__(self, configs: Sequence[AdversarialConfig], device: str) -> None:
        """Draw records and networks, those of each configuration as a plain game has them."""
        self._config, games = configs[0], [Toy(config, device) for config in configs]
        self._records = [
            torch.stack(parts) for parts in zip(*(g.records for g in games), strict=True)
        ]
        self._bases = {n: copy.deepcopy(m).to("meta") for n, m in games[0].networks.items()}
        self._states = {
            name: stack_module_state([_own(game, name) for game in games])[0]
            for name in self._bases
        }
        rates = {"releaser": self._config.learning_rate}
        self._optimisers = {
            name: Adam(
                state.values(), rates.get(name, self._config.adversary_learning_rate), _BETAS
            )
            for name, state in self._states.items()
        }
        self._mean = torch.zeros(len(games), 2, device=device)
        tradeoff = torch.tensor([config.tradeoff for config in configs], device=device)
        self._weights = torch.stack([1 - tradeoff, tradeoff], 1)
        self._rows = torch.arange(len(games), device=device)[:, None]

    def step(self) -> None:
        """Steps of the inference networks, then one of the releasers."""
        for _ in range(self._config.adversary_steps):
            x, secret, utility = self._batch()
            with torch.no_grad():
                z = vmap(self._release)(self._states["releaser"], x, torch.randn_like(x))
            seen = {"adversary": (z, secret), "utility": (z, utility), "reference": (x, utility)}
            for name, (records, label) in seen.items():
                pull = vmap(grad(self._loss(name)))(self._states[name], records, label)
                self._move(name, pull)
        x, secret, _ = self._batch()
        others = [self._states[name] for name in ("adversary", "utility", "reference")]
        of_one = vmap(grad(self._releaser_loss, has_aux=True))
        pull, self._mean = of_one(
            self._states["releaser"], *others, x, torch.randn_like(x), secret, self._mean,
            self._weights,
        )  # fmt: skip
        self._move("releaser", pull)

    def _say(self, name: str, state: State, x: Tensor) -> Tensor:
        said: Tensor = functional_call(self._bases[name], dict(state), (x,))
        return said

    def _release(self, state: State, x: Tensor, noise: Tensor) -> Tensor:
        return self._say("releaser", state, x) + self._config.noise_std * noise

    def _loss(self, name: str):
        return lambda state, x, label: functional.cross_entropy(self._say(name, state, x), label)

    def _releaser_loss(
        self,
        state: State,
        adversary: State,
        utility: State,
        reference: State,
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        mean: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        z = self._release(state, x, noise)
        both = informations(
            self._say("adversary", adversary, z),
            self._say("utility", utility, z),
            self._say("reference", reference, x),
            secret,
        )
        mean = torch.lerp(mean, both.detach(), 1 / _MEMORY)
        return (weights * squares(both, mean)).sum(), mean.detach()

    def _move(self, name: str, gradients: State) -> None:
        for parameter, gradient in zip(
            self._states[name].values(), gradients.values(), strict=True
        ):
            parameter.grad = gradient
        self._optimisers[name].step()

    def _batch(self) -> list[Tensor]:
        size, device = (len(self._rows), self._config.batch_size), self._rows.device
        index = torch.randint(self._records[0].shape[1], size, device=device)
        return [values[self._rows, index] for values in self._records]


def _own(game: Toy, name: str) -> nn.Module:
    return game.networks[name]
