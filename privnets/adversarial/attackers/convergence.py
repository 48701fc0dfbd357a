"""Training of stacked classifiers until their validation loss converges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import MISSING
from privnets.adversarial.training.inference_networks import cross_entropy
from privnets.networks.capture import StepRunner
from privnets.networks.layers import Architecture, stack_parameters
from privnets.networks.training import StackedAdam, differentiable
from privnets.points import Curve
from privnets.randomness import generator

InputRedraw = Callable[[Sequence[int], str], Tensor]
"""Returns inputs [m, n, ...] of some members of a stack, with the noise of a named stream."""

CONVERGED_GAIN = 5e-3
"""Nats; training has converged if the last quarter of its steps gained less validation loss."""

_LEARNING_RATE = 2e-3  # of Adam
_MIN_INTERVAL, _MAX_INTERVAL = 50, 75  # steps between evaluations; one pass if it is between
_INTERVAL_SHARE = 0.1  # of the steps so far, where that is longer
_PATIENCE = 4  # evaluations without gain before a member has converged
_MIN_GAIN = 1e-3  # nats of validation loss
_LONG_TRAINING = 2_500  # from here on, a gain below `CONVERGED_GAIN` ends training
_AVERAGE_POWER = 8  # the average reaches over about a ninth of the steps
_INPUTS_AT_ONCE = 2**20  # numbers evaluated together
_INPUTS_REDRAWN = 2**26  # numbers drawn together, for memory
_CURVE_STEPS = 24  # of the curve that shows convergence


@dataclass(frozen=True, eq=False)
class LabelledStack:
    """Records of a stack of classifiers, and each classifier's share of them.

    Attributes:
        x: Inputs, shape [N, ...].
        label: Classes from 0, int64, shape [N], or [N, T] for sequences; `MISSING` if unknown.
        rows: Each member's records, int64, shape [M, n].
    """

    x: Tensor
    label: Tensor
    rows: Tensor


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """Data and settings for training a stack of classifiers.

    Attributes:
        architecture: Network with logits [M, n, C], or [M, n, T, C] for sequences.
        validation: Records that choose parameters.
        purpose: Names the random draws, so that they differ from those of other networks.
        redraw: Returns inputs of training records with fresh noise, which replace those in
            `training` before each pass over the records but the first.
        redrawn: Members whose inputs change.
    """

    architecture: Architecture
    training: LabelledStack
    validation: LabelledStack
    seeds: Sequence[int]
    purpose: str
    redraw: InputRedraw | None = None
    redrawn: Collection[int] = ()
    batch_size: int = 64


@dataclass(frozen=True, eq=False)
class FittedClassifiers:
    """Classifiers with their best parameters on validation.

    Attributes:
        parameters: Each of shape [M, ...].
        validation_loss: Cross-entropy, nats, shape [M].
        remaining_gains: Validation loss, nats, that as many steps again may still remove where the
            steps ran out, as much as the last half of them did; 0 where training converged.
        draws: Different inputs of its training records that each was trained on, at least 1.
        curves: Lowest validation loss of each so far, nats. Their steps follow from the most that
            training may take, are evenly spaced on a logarithmic scale, and are the same for each.
    """

    parameters: list[Tensor]
    validation_loss: Tensor
    remaining_gains: tuple[float, ...]
    draws: tuple[int, ...]
    curves: tuple[Curve, ...]


def stack_records(members: Sequence[tuple[Tensor, Tensor]]) -> LabelledStack:
    """Joins the inputs [n, ...] and labels [n] or [n, T] of members that share no record."""
    x = torch.cat([inputs for inputs, _ in members])
    rows = torch.arange(len(x), device=x.device).view(len(members), -1)
    return LabelledStack(x, torch.cat([labels for _, labels in members]), rows)


def train_until_converged(
    task: TrainingTask, most_steps: int
) -> Generator[float, None, FittedClassifiers]:
    """Trains a stack of classifiers by cross-entropy, pausing at each evaluation.

    Validation judges the average of a member's parameters over its last steps, which lies where
    small learning rates would lead (Shamir and Zhang, arXiv 1212.1824, section 4). Evaluations
    become rarer as training goes on. A member has converged after several without gain, and leaves
    the stack. It depends on its own records and seed alone.

    Yields:
        Share of the work done, in (0, 1].
    """
    stack = _ClassifierStack(task)
    while stack.step < most_steps and stack.members:
        interval = max(stack.interval, int(_INTERVAL_SHARE * stack.step))
        stack.advance(min(stack.step + interval, most_steps))
        yield stack.step / most_steps
    monitor = stack.monitor
    steps = np.geomspace(min(stack.interval, most_steps), most_steps, _CURVE_STEPS)
    return FittedClassifiers(
        monitor.best,
        monitor.loss,
        tuple(monitor.remaining_gains().tolist()),
        tuple(stack.draws),
        monitor.curves(np.unique(steps.round())),
    )


@torch.no_grad()
def log_probabilities(
    architecture: Architecture, parameters: Sequence[Tensor], x: Tensor, rows: Tensor
) -> Tensor:
    """Log probabilities [M, n, C] or [M, n, T, C] of classifiers, in parts of bounded size.

    Parameters have the shape [M, ...]; inputs and rows are those of a `LabelledStack`.
    """
    step = max(1, _INPUTS_AT_ONCE // (len(rows) * x[0].numel()))
    parts = (x[part] for part in torch.split(rows, step, 1))
    return torch.cat([architecture.forward(parameters, p).log_softmax(-1) for p in parts], 1)


class _ClassifierStack:
    """Classifiers in training; converged members leave, so that the others train faster.

    Attributes:
        step: Steps taken.
        members: Place in the task of each member that is still in training.
        interval: Steps between the first evaluations.
        draws: Different inputs that each member of the task was trained on.
    """

    def __init__(self, task: TrainingTask) -> None:
        self._task, self.step, self._passes = task, 0, 0
        device, members = task.training.x.device, len(task.seeds)
        self.members, self._runner = list(range(members)), StepRunner(device)
        self._randoms = [generator(seed, task.purpose) for seed in task.seeds]
        self._rows = []  # of each member, with a label to learn from; all if none has one
        for rows in task.training.rows:
            known = (task.training.label[rows] != MISSING).view(len(rows), -1).any(1)
            self._rows.append((rows[known] if known.any() else rows).cpu().numpy())
        self._pass_steps = -(-task.training.rows.shape[1] // task.batch_size)
        self.interval = min(max(self._pass_steps, _MIN_INTERVAL), _MAX_INTERVAL)
        self.draws = [1] * members
        networks = [task.architecture.initial(random) for random in self._randoms]
        parameters = [p.to(device) for p in stack_parameters(networks)]
        self._average = [p.clone() for p in parameters]
        self.monitor = _ConvergenceMonitor(parameters)
        rates = torch.full((members,), _LEARNING_RATE, device=device)
        self._optimiser = StackedAdam(parameters, rates)
        self._batches = torch.empty(0, members, task.batch_size, dtype=torch.int64, device=device)

    def advance(self, end: int) -> None:
        """Trains up to a step, and evaluates there."""
        power, steps = _AVERAGE_POWER, torch.arange(self.step + 1, end + 1, dtype=torch.float64)
        shares = iter(((1 + power) / (steps + power)).float().to(self._device))
        while self.step < end:
            if not len(self._batches):
                self._begin_pass()
            now, self._batches = self._batches.tensor_split([end - self.step])
            for batch in now:
                self._runner.run(self._take_step, [batch, next(shares)])
                self.step += 1
        self._evaluate()

    @property
    def _device(self) -> torch.device:
        return self._task.training.x.device

    def _begin_pass(self) -> None:
        """Draws the minibatches of a pass over the records, and fresh inputs after the first."""
        task, training = self._task, self._task.training
        redrawn = [i for i in self.members if i in task.redrawn] if self._passes else []
        together = max(1, _INPUTS_REDRAWN // (training.rows.shape[1] * training.x[0].numel()))
        for first in range(0, len(redrawn), together):
            members = redrawn[first : first + together]
            assert task.redraw is not None
            inputs = task.redraw(members, f"{task.purpose} {self._passes}")
            rows = training.rows[members]
            differs = (training.x[rows] != inputs).flatten(1).any(1)
            for i, is_new in zip(members, differs.tolist(), strict=True):
                self.draws[i] += is_new
            training.x[rows] = inputs
        self._passes += 1
        batches = []
        for random, i in zip(self._randoms, self.members, strict=True):
            count = self._pass_steps * task.batch_size
            passes = -(-count // len(self._rows[i]))
            order = np.concatenate([random.permutation(self._rows[i]) for _ in range(passes)])
            batches.append(order[:count].reshape(self._pass_steps, task.batch_size))
        self._batches = torch.from_numpy(np.stack(batches, 1)).to(self._device)

    def _take_step(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Takes a step on the rows of a batch [m, B], with a share [] of it in the average.

        It depends on tensors alone, which it changes in place: a CUDA graph may repeat it.
        """
        batch, share = inputs
        training, parameters = self._task.training, self._optimiser.parameters
        with differentiable(parameters):
            logits = self._task.architecture.forward(parameters, training.x[batch])
            loss = cross_entropy(logits, training.label[batch]).sum()
            gradients = torch.autograd.grad(loss, parameters)
        self._optimiser.step(gradients)
        torch._foreach_lerp_(self._average, parameters, [share] * len(parameters))
        return {}

    def _evaluate(self) -> None:
        """Notes the validation loss; converged members leave."""
        validation, monitor = self._task.validation, self.monitor
        place = torch.tensor(self.members, device=self._device)
        rows = validation.rows[place]
        log_p = log_probabilities(self._task.architecture, self._average, validation.x, rows)
        loss = cross_entropy(log_p, validation.label[rows])
        monitor.update(self.step, loss, self._average, place)
        is_long = self.step >= _LONG_TRAINING
        converged = (monitor.has_settled() if is_long else monitor.has_converged)[place].tolist()
        if any(converged):
            kept = [i for i, has_converged in enumerate(converged) if not has_converged]
            self._randoms = [self._randoms[i] for i in kept]
            self.members = [self.members[i] for i in kept]
            index = torch.tensor(kept, dtype=torch.int64, device=self._device)
            self._batches = self._batches[:, index]
            self._average = [average[index] for average in self._average]
            self._optimiser.keep(index)
            self._runner = StepRunner(self._device)


class _ConvergenceMonitor:
    """Lowest validation loss of every member, its parameters there, and whether it converged.

    Attributes:
        loss: Nats, shape [M].
        best: Parameters of shape [M, ...].
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.best = [p.clone() for p in parameters]
        self.loss = self.best[0].new_full((len(self.best[0]),), torch.inf)
        self._mark = self.loss.clone()  # the loss at the last gain
        self._waited = torch.zeros_like(self.loss, dtype=torch.int64)
        self._history: list[Tensor] = []
        self._steps: list[int] = []  # of the history

    @property
    def has_converged(self) -> Tensor:
        return self._waited >= _PATIENCE

    def update(self, step: int, loss: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Records the losses [m] and parameters [m, ...] of members at these places [m]."""
        now = torch.full_like(self.loss, torch.inf)
        now[place] = loss
        better = now < self.loss
        self.loss = torch.where(better, now, self.loss)
        self._history.append(self.loss)
        self._steps.append(step)
        chosen = better[place].nonzero()[:, 0]
        for best, current in zip(self.best, parameters, strict=True):
            best[place[chosen]] = current[chosen]
        gained = self.loss < self._mark - _MIN_GAIN
        self._mark = torch.where(gained, self.loss, self._mark)
        self._waited = torch.where(gained, 0, self._waited + 1)

    def has_settled(self) -> Tensor:
        """Whether members have converged or gained little in the last quarter of their steps."""
        return self.has_converged | (self._loss_at(0.75) - self.loss < CONVERGED_GAIN)

    def remaining_gains(self) -> Tensor:
        """Loss that twice the steps may remove, 0 for settled members; see `FittedClassifiers`."""
        gains = torch.minimum(self._loss_at(0.5) - self.loss, self.loss)
        return torch.where(self.has_settled(), 0.0, gains)

    def _loss_at(self, share: float) -> Tensor:
        """Loss after a share of the steps; infinite before the first evaluation."""
        losses = [torch.full_like(self.loss, torch.inf), *self._history]
        return losses[bisect_right(self._steps, share * self._steps[-1])]

    def curves(self, steps: NDArray[np.float64]) -> tuple[Curve, ...]:
        """Loss of every member at the last evaluation before or at each step, else at the first."""
        if not self._history:
            return (Curve((), ()),) * len(self.loss)
        last = np.searchsorted(self._steps, steps, side="right") - 1
        losses = torch.stack(self._history)[last.clip(0)].T.tolist()
        return tuple(Curve(tuple(map(int, steps)), tuple(values)) for values in losses)
