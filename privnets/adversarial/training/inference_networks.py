"""Inference networks of a stack of games, their losses, and the steps that train them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import MISSING
from privnets.adversarial.training.user_networks import ModuleClassifier
from privnets.networks.convolution import ConvolutionalClassifier
from privnets.networks.image_classifiers import wide_resnet, xception
from privnets.networks.layers import Architecture, stack_parameters
from privnets.networks.mlp import Perceptron
from privnets.networks.module_stacks import ImageClassifier
from privnets.networks.recurrent import Recurrent
from privnets.networks.training import StackedAdam, differentiable
from privnets.randomness import generator
from privnets.references.models import NetworkReference

Role = Literal["adversary", "utility", "reference"]
"""`adversary` infers the secret from the release, `utility` the utility label from the release,
`reference` the utility label from raw records."""

_RECURRENT_LAYERS = 3


def build_inference_network(
    problem: Problem,
    config: AdversarialConfig,
    classes: int,
    width: int,
    *,
    sees_side: bool,
    large: bool = False,
) -> Architecture:
    """A network of `width` units or channels that infers one of `classes` labels.

    Its input is a record or a release. Where `sees_side`, side information is an input beside each
    step of a sequence. A `large` one has twice the width and another layer, or, for sequences, a
    second direction. Beside a separable network it is a wide residual one.
    """
    shape = problem.split_sizes(config).record_shape
    if problem.spec.network == "separable":
        make = wide_resnet if large else xception
        return ImageClassifier(make, (shape[0], shape[1], shape[2]), classes, width)
    width *= 2 if large else 1
    if problem.spec.network == "recurrent":
        inputs = 1 + (problem.spec.side_features if sees_side else 0)
        return Recurrent(inputs, width, _RECURRENT_LAYERS, classes, large)
    if problem.spec.network == "convolutional":
        return ConvolutionalClassifier(shape[-1], width, classes, large, shape[0])
    return Perceptron((math.prod(shape), *(width,) * (3 if large else 2), classes))


def build_game_networks(problem: Problem, config: AdversarialConfig) -> dict[Role, Architecture]:
    """The networks of the game by role: those of the problem's kind, or the user's."""
    spec, own = problem.spec, config.inference_network
    classes: dict[Role, int] = dict.fromkeys(("utility", "reference"), spec.utility_classes)
    classes["adversary"] = spec.secret_classes
    shape = problem.split_sizes(config).record_shape
    width, side = config.adversary_width, config.settings.shows_side_information
    networks: dict[Role, Architecture] = {}
    for role, count in classes.items():
        if count and isinstance(own, NetworkReference):
            label: Literal["secret", "utility"] = "secret" if role == "adversary" else "utility"
            networks[role] = module = ModuleClassifier(own, shape, count, label)
            module.check()
        elif count:
            networks[role] = build_inference_network(problem, config, count, width, sees_side=side)
    return networks


def log_softmax_over_classes(logits: Tensor) -> Tensor:
    """Logarithms of the softmax over the last dimension, shape [S, n, ..., C].

    Classes are few, and a vector unit processes records side by side. So records are innermost in
    the memory of the result, as in a perceptron's outputs.
    """
    return logits.movedim(-1, 1).log_softmax(1).movedim(1, -1)


def cross_entropy(logits: Tensor, label: Tensor, *, is_complete: bool = False) -> Tensor:
    """Mean negative log probability of the known labels, nats, shape [S].

    Logits are [S, n, C] or [S, n, T, C], labels [S, n] or [S, n, T]. If none is `MISSING`,
    `is_complete` saves to look for them.
    """
    losses = _losses(logits, label).flatten(1)
    return losses.mean(1) if is_complete else losses.sum(1) / _count(label != MISSING)


def accuracy(logits: Tensor, label: Tensor) -> Tensor:
    """Share of the known labels that have the largest logit, shape [S]."""
    is_known = label != MISSING
    is_right = (logits.argmax(-1) == label) & is_known
    return is_right.flatten(1).sum(1) / _count(is_known)


def append_side(z: Tensor, side: Tensor | None) -> Tensor:
    """Releases with side information appended along the last dimension."""
    return z if side is None else torch.cat([z, side], dim=-1)


@dataclass(frozen=True)
class TrainingSchedule:
    """The inference networks of a game, by the time at which they train.

    Attributes:
        adversary_step: Networks trained at every adversary step.
        releaser_step: Networks trained once beside each releaser step.
        pretrained: Networks trained on raw records before the game and fixed afterwards.
    """

    adversary_step: tuple[Role, ...]
    releaser_step: tuple[Role, ...]
    pretrained: tuple[Role, ...]

    @classmethod
    def from_config(cls, config: AdversarialConfig, has_utility: bool) -> TrainingSchedule:
        """The schedule of an objective and a scenario (ICLR 2019 submission, eq. 8 to 10)."""
        adversary: tuple[Role, ...] = ("adversary",)
        utility: tuple[Role, ...] = ("utility",) if has_utility else ()
        if config.scenario == "fixed-both":
            return cls((), (), (*adversary, *utility))
        if config.scenario == "fixed-utility":
            return cls(adversary, (), utility)
        if not OBJECTIVES.get(config.objective).compares_with_raw:
            return cls(adversary, utility, ())
        return cls((*adversary, *utility, "reference"), (), ())

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles."""
        return (*self.adversary_step, *self.releaser_step, *self.pretrained)

    @property
    def raw_data_role(self) -> Role | None:
        """The network trained on raw records to infer the utility label; None without one."""
        if "reference" in self.adversary_step:
            return "reference"
        return "utility" if "utility" in self.pretrained else None


class NetworkGroup:
    """Inference networks of equal architecture and schedule, trained as one stack.

    The stack has the S networks of the first of `roles`, then those of the second, and so on.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        architecture: Architecture,
        configs: Sequence[AdversarialConfig],
        device: torch.device,
        betas: tuple[float, float],
        complete: Collection[str],
    ) -> None:
        """Draws each network from its configuration's seed."""
        self.roles, self.architecture, self._members = tuple(roles), architecture, len(configs)
        labels = {"secret" if role == "adversary" else "utility" for role in roles}
        self._is_complete = labels <= set(complete)
        self._weight: Tensor | None = None
        networks = [architecture.initial(generator(c.seed, r)) for r in roles for c in configs]
        rates = torch.tensor([c.adversary_learning_rate for c in configs] * len(roles))
        parameters = [p.to(device) for p in stack_parameters(networks)]
        trained = architecture.trained if isinstance(architecture, ModuleClassifier) else None
        self.stack = StackedAdam(parameters, rates.to(device), betas, trained)
        self._parts: dict[tuple[Role, ...], list[Tensor]] = {}

    def parameters(self, roles: tuple[Role, ...]) -> list[Tensor]:
        """Parameters of some roles, which are adjacent in the stack."""
        if roles == self.roles:
            return self.stack.parameters
        if roles not in self._parts:
            first = self.roles.index(roles[0]) * self._members
            part = slice(first, first + len(roles) * self._members)
            self._parts[roles] = [p[part] for p in self.stack.parameters]
        return self._parts[roles]

    def logits(self, x: Mapping[Role, Tensor]) -> dict[Role, Tensor]:
        """Logits of this group's networks among some roles, for records [S, n, ...] by role."""
        own = tuple(role for role in self.roles if role in x)
        if not own:
            return {}
        records = self._join_records([x[role] for role in own])
        outputs = self.architecture.forward(self.parameters(own), records).float()
        return dict(zip(own, torch.split(outputs, self._members), strict=True))

    def train(self, x: Mapping[Role, Tensor], label: Mapping[Role, Tensor], scale: Tensor) -> None:
        """Takes one step of cross-entropy on records [S, n, ...] and labels [S, n, ...] by role.

        Learning rates are multiplied by `scale`. Frozen parameters stay as they are.
        """
        if not self.stack.trained:
            return
        records = self._join_records([x[role] for role in self.roles])
        labels = _join([label[role] for role in self.roles])
        with differentiable(trained := self.stack.trained):
            logits = self.architecture.forward(self.stack.parameters, records).float()
            losses = _losses(logits, labels)
            if not self._is_complete:  # each label's weight in the mean over the known ones
                count = _count(labels != MISSING).view(-1, *[1] * (labels.ndim - 1))
                weights = (1 / count).expand(labels.shape)
            else:
                if self._weight is None:  # batches are of equal size
                    share = 1 / labels[0].numel()
                    self._weight = torch.full((), share, device=labels.device)
                weights = self._weight.expand(labels.shape)
            gradients = torch.autograd.grad(losses, trained, weights, materialize_grads=True)
        self.stack.step(gradients, scale)

    def keep(self, index: Tensor) -> None:
        """Continues with some members; int64, shape [kept]."""
        self.stack.keep(torch.cat([index + i * self._members for i in range(len(self.roles))]))
        self._members, self._parts = len(index), {}

    def is_finite(self) -> Tensor:
        """Whether all parameters of each member are finite, bool, shape [S]."""
        return self.stack.is_finite().view(len(self.roles), -1).all(0)

    def _join_records(self, parts: Sequence[Tensor]) -> Tensor:
        """Records [S, n, ...] of several roles in one tensor, for a perceptron in its own order."""
        if isinstance(self.architecture, Perceptron) and parts[0].ndim == 3:
            return _join([part.mT for part in parts]).mT
        return _join(parts)


def build_groups(
    problem: Problem,
    configs: Sequence[AdversarialConfig],
    schedule: TrainingSchedule,
    device: torch.device,
    betas: tuple[float, float],
    complete: Collection[str],
) -> list[NetworkGroup]:
    """The inference networks of a stack, in as few groups as possible.

    `betas` are the decay rates of Adam's moments; `complete` the labels of which none is missing.
    """
    networks = build_game_networks(problem, configs[0])
    groups: list[NetworkGroup] = []
    for roles in (schedule.adversary_step, schedule.releaser_step, schedule.pretrained):
        shapes = {role: networks[role] for role in roles}
        while shapes:
            shape = next(iter(shapes.values()))
            same = [role for role, other in shapes.items() if other == shape]
            shapes = {role: other for role, other in shapes.items() if role not in same}
            groups.append(NetworkGroup(same, shape, configs, device, betas, complete))
    return groups


def infer_logits(groups: Iterable[NetworkGroup], x: Mapping[Role, Tensor]) -> dict[Role, Tensor]:
    """Logits of the networks of some roles for records [S, n, ...] by role."""
    logits: dict[Role, Tensor] = {}
    for group in groups:
        logits |= group.logits(x)
    return logits


def _losses(logits: Tensor, label: Tensor) -> Tensor:
    """Negative log probability of each label, of its shape; 0 where it is missing."""
    log_p = logits.movedim(-1, 1).log_softmax(1)
    return nll_loss(log_p, label, ignore_index=MISSING, reduction="none")


def _count(is_known: Tensor) -> Tensor:
    return is_known.flatten(1).sum(1).clamp_min(1)


def _join(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
