"""The inference networks of a stack of games; those that are alike train as one stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.training.losses import cross_entropy
from privnets.networks.architecture import Architecture, stack_parameters
from privnets.networks.training import TrainingStack, differentiable
from privnets.randomness import generator

Role = Literal["adversary", "utility", "reference"]


@dataclass(frozen=True)
class Roles:
    """Which inference networks there are, and when each of them trains.

    `adversary` infers the secret from the release and `utility` the utility label; `reference`
    infers the utility label from raw records.

    Attributes:
        inner: At every adversary step.
        beside: Once beside each releaser step.
        fixed: On raw records beforehand, and never again.
    """

    inner: tuple[Role, ...]
    beside: tuple[Role, ...]
    fixed: tuple[Role, ...]

    @classmethod
    def of(cls, config: AdversarialConfig, has_utility: bool) -> Roles:
        """As objective and scenario say (eq. 8 to 10 of the ICLR 2019 submission)."""
        held = {"joint": 0, "fixed-utility": 1, "fixed-both": 2}[config.scenario]
        fixed: list[Role] = []
        inner: list[Role] = []
        beside: list[Role] = []
        (fixed if held == 2 else inner).append("adversary")
        if has_utility and held:
            fixed.append("utility")
        elif has_utility and config.objective == "alpha":
            beside.append("utility")
        elif has_utility:
            inner += ["utility", "reference"]
        return cls(tuple(inner), tuple(beside), tuple(fixed))

    @property
    def networks(self) -> tuple[Role, ...]:
        """All of them."""
        return (*self.inner, *self.beside, *self.fixed)

    @property
    def informed(self) -> tuple[Role, ...]:
        """Who says what raw records tell of the utility label, if a network was trained on them."""
        if "reference" in self.inner:
            return ("reference",)
        return ("utility",) if "utility" in self.fixed else ()


class Team:
    """Networks of one architecture and role: those of name i are i S to (i + 1) S of one stack.

    Attributes:
        names: In the order of the stack.
        stack: Of all of them.
    """

    def __init__(
        self,
        names: Sequence[Role],
        architecture: Architecture,
        configs: Sequence[AdversarialConfig],
        device: torch.device,
        betas: tuple[float, float],
    ) -> None:
        """Draw each network from its configuration's seed."""
        self.names, self.architecture, self._members = tuple(names), architecture, len(configs)
        networks = [architecture.initial(generator(c.seed, n)) for n in names for c in configs]
        rates = torch.tensor([c.adversary_learning_rate for c in configs] * len(names))
        parameters = [p.to(device) for p in stack_parameters(networks)]
        self.stack = TrainingStack(parameters, rates.to(device), betas)
        self._parts: dict[tuple[Role, ...], list[Tensor]] = {}

    def of(self, names: tuple[Role, ...]) -> list[Tensor]:
        """Parameters of some of the names, neighbours in the stack."""
        if names == self.names:
            return self.stack.parameters
        if names not in self._parts:
            first = self.names.index(names[0]) * self._members
            part = slice(first, first + len(names) * self._members)
            self._parts[names] = [p[part] for p in self.stack.parameters]
        return self._parts[names]

    def logits(self, names: Sequence[Role], x: Tensor) -> dict[Role, Tensor]:
        """What those of the names who are here say of records [S, n, ...]."""
        own = tuple(name for name in self.names if name in names)
        if not own:
            return {}
        outputs = self.architecture.forward(self.of(own), _joined([x] * len(own)))
        return dict(zip(own, torch.split(outputs, len(x)), strict=True))

    def train(self, x: Mapping[Role, Tensor], label: Mapping[Role, Tensor], scale: float) -> None:
        """One step of cross-entropy on everyone's records [S, n, ...] and labels [S, n, ...]."""
        records, labels = (_joined([part[n] for n in self.names]) for part in (x, label))
        with differentiable(self.stack.parameters):
            loss = cross_entropy(self.architecture.forward(self.stack.parameters, records), labels)
            gradients = torch.autograd.grad(loss.sum(), self.stack.parameters)
        self.stack.step(gradients, scale)

    def keep(self, index: Tensor) -> None:
        """Go on with some members; int64, shape [kept]."""
        self.stack.keep(torch.cat([index + i * self._members for i in range(len(self.names))]))
        self._members, self._parts = len(index), {}

    def finite(self) -> Tensor:
        """Whether all numbers of each member are, bool, shape [S]."""
        return self.stack.is_finite().view(len(self.names), -1).all(0)


def teams(
    problem: Problem,
    configs: Sequence[AdversarialConfig],
    roles: Roles,
    device: torch.device,
    betas: tuple[float, float],
) -> list[Team]:
    """The networks that a game needs, in as few stacks as may be.

    Args:
        problem: Says what networks look like.
        configs: Of one structure.
        roles: Who trains together.
        device: To compute on.
        betas: Decays of Adam's moments.
    """
    first = configs[0]
    adversary, utility = problem.adversary(first), problem.utility(first)
    found: list[Team] = []
    for role in (roles.inner, roles.beside, roles.fixed):
        shapes = {name: adversary if name == "adversary" else utility for name in role}
        while shapes:
            shape = next(iter(shapes.values()))
            assert shape is not None
            names = [name for name, other in shapes.items() if other == shape]
            shapes = {name: other for name, other in shapes.items() if name not in names}
            found.append(Team(names, shape, configs, device, betas))
    return found


def logits(among: Iterable[Team], names: Sequence[Role], x: Tensor) -> dict[Role, Tensor]:
    """What networks of these names say of records [S, n, ...]."""
    found: dict[Role, Tensor] = {}
    for team in among:
        found |= team.logits(names, x)
    return found


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
