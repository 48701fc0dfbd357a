"""Training curves of a stack of games: what each step saw, averaged between two points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.training.losses import accuracy, cross_entropy
from privnets.adversarial.training.objectives import Seen, distortion
from privnets.networks.training import select_prefix
from privnets.points import Curve

# Steps whose logits are kept at most: enough for the arithmetic to be cheap, few for the memory.
_TOGETHER = 20


@dataclass(frozen=True, eq=False)
class _Step:
    """What is left of a step until its values are worked out, together with those of others.

    Attributes:
        values: Already known, shape [S] each.
        tensors: Labels and logits by name, shape [S, B, ...].
    """

    values: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]


class TrainingCurves:
    """Means over every so many steps, and what a problem finds of the releasers at those points.

    Each step only leaves its logits here. They are worked out for up to `_TOGETHER` steps at once,
    and what is left of them at a point, or when `settle` is called, as before a state is taken.
    """

    def __init__(self, problem: Problem, log_prior: Tensor, every: int) -> None:
        """Begin without a point.

        Args:
            problem: Examines releasers by `probe`.
            log_prior: Log frequencies of the secret's classes in training, shape [S, C].
            every: Steps between two points.
        """
        self._problem, self._log_prior, self._every = problem, log_prior, every
        self._unsettled: list[_Step] = []
        self._unprobed: list[list[Tensor]] = []
        self._since: dict[str, Tensor] = {}
        self._steps: list[int] = []
        self._history: dict[str, list[Tensor]] = {}

    def see(self, seen: Seen, loss: Tensor) -> None:
        """Take in a releaser's step and its loss, shape [S]."""
        values = {"loss/releaser": loss.detach(), "distortion": distortion(seen).detach()}
        tensors = {"adversary": seen.adversary, "secret": seen.batch.secret}
        if seen.utility is not None and seen.batch.utility is not None:
            tensors |= {"utility": seen.utility, "label": seen.batch.utility}
            if seen.reference is not None:
                tensors["reference"] = seen.reference
        self._unsettled.append(_Step(values, {n: t.detach() for n, t in tensors.items()}))
        if len(self._unsettled) == _TOGETHER:
            self._work_out()

    def reach(self, step: int, releasers: Sequence[Tensor]) -> None:
        """Draw a point if one is due after so many steps; parameters are stacked, [S, ...]."""
        if step % self._every:
            return
        self._work_out()
        for name, values in self._since.items():
            self._history.setdefault(name, []).append(values.mean(0))
        self._since = {}
        self._steps.append(step)
        self._unprobed.append([p.detach().clone() for p in releasers])

    def settle(self, configs: Sequence[AdversarialConfig]) -> None:
        """Work out what steps and points have left; configurations are the members'."""
        self._work_out()
        points, self._unprobed = self._unprobed, []
        for releasers in points:
            for name, values in self._problem.probe(configs, releasers).items():
                self._history.setdefault(name, []).append(values)

    def of(self, member: int) -> dict[str, Curve]:
        """One member's."""
        steps = tuple(self._steps)
        return {
            name: Curve(steps, tuple(torch.stack(values)[:, member].tolist()))
            for name, values in self._history.items()
        }

    def keep(self, index: Tensor) -> None:
        """Go on with some members; int64, shape [kept]."""
        self._log_prior = self._log_prior[index]
        self._since = {name: values[:, index] for name, values in self._since.items()}
        self._history = {name: [v[index] for v in vs] for name, vs in self._history.items()}

    def state(self) -> dict[str, Tensor]:
        """Settled curves, to `restore`; not copied."""
        found = {f"since.{name}": values for name, values in self._since.items()}
        if self._steps:
            found["steps"] = torch.tensor(self._steps)
            found |= {f"point.{name}": torch.stack(vs) for name, vs in self._history.items()}
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        device = self._log_prior.device
        self._unsettled, self._unprobed = [], []
        self._since = {n: values.to(device) for n, values in select_prefix(state, "since.").items()}
        self._steps = state["steps"].tolist() if "steps" in state else []
        self._history = {n: list(v.to(device)) for n, v in select_prefix(state, "point.").items()}

    @torch.no_grad()
    def _work_out(self) -> None:
        """Values of the steps that left logits, as one stack of all steps' members."""
        if not self._unsettled:
            return
        steps, self._unsettled = self._unsettled, []
        together = {n: torch.cat([step.tensors[n] for step in steps]) for n in steps[0].tensors}
        found = {
            name: values.view(len(steps), -1)
            for name, values in _inferred(together, self._log_prior.repeat(len(steps), 1)).items()
        }
        found |= {n: torch.stack([step.values[n] for step in steps]) for n in steps[0].values}
        for name, values in found.items():
            before = [self._since[name]] if name in self._since else []
            self._since[name] = torch.cat([*before, values])


def _inferred(seen: Mapping[str, Tensor], log_prior: Tensor) -> dict[str, Tensor]:
    """What inference networks knew, shape [S] each."""
    secret = seen["secret"]
    loss = cross_entropy(seen["adversary"], secret)
    values = {
        "loss/adversary": loss,
        "accuracy/adversary": accuracy(seen["adversary"], secret),
        "information/leakage": _prior_loss(log_prior, secret) - loss,
    }
    if "utility" in seen:
        values["loss/utility"] = cross_entropy(seen["utility"], seen["label"])
        values["accuracy/utility"] = accuracy(seen["utility"], seen["label"])
    if "reference" in seen:
        known = cross_entropy(seen["reference"], seen["label"])
        values["information/censored"] = values["loss/utility"] - known
    return values


def _prior_loss(log_prior: Tensor, secret: Tensor) -> Tensor:
    """Cross-entropy of the prior on a batch, shape [S]."""
    flat = secret.flatten(1)
    return cross_entropy(log_prior[:, None].expand(-1, flat.shape[1], -1), flat)
