"""Training curves of a stack of games: each point averages the steps since the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.training.inference_networks import accuracy, cross_entropy
from privnets.adversarial.training.losses import GameStep
from privnets.networks.training import select_prefix
from privnets.points import Curve

# Steps evaluated together: enough to be cheap, few enough for the memory of their logits.
_STEPS_TOGETHER = 20


@dataclass(frozen=True, eq=False)
class _StepRecord:
    """Values [S] by curve, and labels and logits [S, B, ...] by name, of a step to be evaluated."""

    values: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]


class TrainingCurves:
    """Means over a number of steps, and a problem's exact measures at the same points.

    A step only leaves its logits. They are evaluated for up to 20 steps at once; the rest is
    evaluated at a point of the curves or by `settle`, which must precede `state` and `member`.
    """

    def __init__(self, problem: Problem, log_prior: Tensor, interval: int) -> None:
        """Begins curves, with a point after every `interval` steps.

        `log_prior` [S, C] has class log frequencies of the secret in training.
        """
        self._problem, self._log_prior, self._interval = problem, log_prior, interval
        self._pending_steps: list[_StepRecord] = []
        self._pending_releasers: list[list[Tensor]] = []
        self._since: dict[str, Tensor] = {}  # values since the last point, [steps, S]
        self._steps: list[int] = []
        self._points: dict[str, list[Tensor]] = {}

    def add_step(self, step: GameStep, loss: Tensor, distortion: Tensor) -> None:
        """Records a releaser step, its loss [S] and its distortion [S]."""
        values = {"loss/releaser": loss.detach(), "distortion": distortion.detach()}
        tensors = {"adversary": step.adversary, "secret": step.batch.secret}
        if step.utility is not None and step.batch.utility is not None:
            tensors |= {"utility": step.utility, "label": step.batch.utility}
            if step.reference is not None:
                tensors["reference"] = step.reference
        detached = {name: tensor.detach() for name, tensor in tensors.items()}
        self._pending_steps.append(_StepRecord(values, detached))
        if len(self._pending_steps) == _STEPS_TOGETHER:
            self._evaluate_steps()

    def add_point(self, step: int, releasers: Sequence[Tensor]) -> None:
        """Adds a point if one is due at this step; parameters are stacked, [S, ...]."""
        if step % self._interval:
            return
        self._evaluate_steps()
        for name, values in self._since.items():
            self._points.setdefault(name, []).append(values.mean(0))
        self._since = {}
        self._steps.append(step)
        self._pending_releasers.append([p.detach().clone() for p in releasers])

    def settle(self, configs: Sequence[AdversarialConfig]) -> None:
        """Evaluates all pending steps and points; `configs` are the members'."""
        self._evaluate_steps()
        pending, self._pending_releasers = self._pending_releasers, []
        for releasers in pending:
            for name, values in self._problem.exact_curves(configs, releasers).items():
                self._points.setdefault(name, []).append(values)

    def member(self, member: int) -> dict[str, Curve]:
        """Curves of one member."""
        steps = tuple(self._steps)
        return {
            name: Curve(steps, tuple(torch.stack(values)[:, member].tolist()))
            for name, values in self._points.items()
        }

    def latest_means(self) -> dict[str, float]:
        """Last point of each settled curve, the mean over members."""
        return {name: float(values[-1].mean()) for name, values in self._points.items() if values}

    def keep(self, index: Tensor) -> None:
        """Continues with some members; int64, shape [kept]."""
        self._log_prior = self._log_prior[index]
        self._since = {name: values[:, index] for name, values in self._since.items()}
        self._points = {name: [v[index] for v in vs] for name, vs in self._points.items()}

    def state(self) -> dict[str, Tensor]:
        """Settled curves as tensors for `restore`, not copied."""
        state = {f"since.{name}": values for name, values in self._since.items()}
        if self._steps:
            state["steps"] = torch.tensor(self._steps)
            state |= {f"point.{name}": torch.stack(vs) for name, vs in self._points.items()}
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a saved state."""
        device = self._log_prior.device
        self._since = {n: v.to(device) for n, v in select_prefix(state, "since.").items()}
        self._steps = state["steps"].tolist() if "steps" in state else []
        self._points = {n: list(v.to(device)) for n, v in select_prefix(state, "point.").items()}

    @torch.no_grad()
    def _evaluate_steps(self) -> None:
        """Evaluates the pending steps as one stack of all steps' members."""
        if not self._pending_steps:
            return
        steps, self._pending_steps = self._pending_steps, []
        tensors = {n: torch.cat([step.tensors[n] for step in steps]) for n in steps[0].tensors}
        secret, adversary = tensors["secret"], tensors["adversary"]
        loss, flat = cross_entropy(adversary, secret), secret.flatten(1)
        log_prior = self._log_prior.repeat(len(steps), 1)
        of_prior = cross_entropy(log_prior[:, None].expand(-1, flat.shape[1], -1), flat)
        measures = {
            "loss/adversary": loss,
            "accuracy/adversary": accuracy(adversary, secret),
            "information/leakage": of_prior - loss,
        }
        if "utility" in tensors:
            measures["loss/utility"] = cross_entropy(tensors["utility"], tensors["label"])
            measures["accuracy/utility"] = accuracy(tensors["utility"], tensors["label"])
        if "reference" in tensors:
            reference_loss = cross_entropy(tensors["reference"], tensors["label"])
            measures["information/censored"] = measures["loss/utility"] - reference_loss
        values = {name: measure.view(len(steps), -1) for name, measure in measures.items()}
        values |= {n: torch.stack([step.values[n] for step in steps]) for n in steps[0].values}
        for name, new in values.items():
            before = [self._since[name]] if name in self._since else []
            self._since[name] = torch.cat([*before, new])
