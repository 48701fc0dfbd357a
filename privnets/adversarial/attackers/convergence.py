"""Training of stacked classifiers until their validation loss converges."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.profiles import TrainingBudget
from privnets.adversarial.records import MISSING
from privnets.adversarial.training.inference_networks import cross_entropy
from privnets.networks.layers import Architecture, stack_parameters
from privnets.networks.training import StackedAdam
from privnets.points import Curve
from privnets.randomness import generator

Redraw = Callable[[str], Tensor]
"""Returns inputs with the noise of a named stream."""

CONVERGED_GAIN = 5e-3
"""Nats; training has converged if the last quarter of its steps gained less validation loss."""

_MIN_INTERVAL, _MAX_INTERVAL = 25, 75  # steps between evaluations; one pass if it is between
_PATIENCE = 4  # evaluations without gain before the learning rate is cut
_RATE_FACTOR = 0.3
_RATE_CUTS = 2  # after one more, a member has converged
_MIN_GAIN = 1e-4  # nats of validation loss
_INPUTS_AT_ONCE = 2**20  # numbers evaluated together
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
        training: Records that members are fitted to.
        validation: Records that choose learning rates and parameters.
        seeds: One per member.
        purpose: Names the random draws, so that they differ from those of other networks.
        redraws: Per member, returns the inputs [n, ...] of its training records with fresh noise,
            or is None if inputs never change; empty if none ever change. Before each pass over
            its records but the first, a member's inputs in `training` are replaced.
        learning_rates: Learning rates to choose from.
        batch_size: Records in a minibatch.
    """

    architecture: Architecture
    training: LabelledStack
    validation: LabelledStack
    seeds: Sequence[int]
    purpose: str
    redraws: Sequence[Redraw | None] = ()
    learning_rates: Sequence[float] = (3e-3, 1e-3)
    batch_size: int = 128


@dataclass(frozen=True, eq=False)
class FittedClassifiers:
    """Classifiers with their best parameters on validation.

    Attributes:
        parameters: Each of shape [M, ...].
        validation_loss: Cross-entropy, nats, shape [M].
        learning_rate: Initial learning rate of each, shape [M].
        converged: False where validation loss was still falling when the steps ran out.
        draws: Different inputs of its training records that each was trained on, at least 1.
        curves: Lowest validation loss of each so far, nats. Their steps follow from the budget, are
            evenly spaced on a logarithmic scale, and are the same for each.
    """

    parameters: list[Tensor]
    validation_loss: Tensor
    learning_rate: Tensor
    converged: tuple[bool, ...]
    draws: tuple[int, ...]
    curves: tuple[Curve, ...]


def stack_records(members: Sequence[tuple[Tensor, Tensor]]) -> LabelledStack:
    """Joins the inputs [n, ...] and labels [n] or [n, T] of members that share no record."""
    x = torch.cat([inputs for inputs, _ in members])
    rows = torch.arange(len(x), device=x.device).view(len(members), -1)
    return LabelledStack(x, torch.cat([labels for _, labels in members]), rows)


def train_until_converged(
    task: TrainingTask, budget: TrainingBudget
) -> Generator[float, None, FittedClassifiers]:
    """Trains a stack of classifiers by cross-entropy, pausing at each evaluation.

    Each member continues from the learning rate and the initial weights that did best on
    validation in a short trial. If validation loss stops falling, the member returns to its best
    parameters with a smaller rate. After the last cut the member has converged and its result is
    final. Members that have not converged when the steps of the budget run out restart from their
    best parameters with their first rate. A member depends on its own records and seed alone.

    Yields:
        Share of the work done, in (0, 1].
    """
    rates = torch.tensor(task.learning_rates, device=task.training.x.device)
    stack, done = _ClassifierStack(task, rates), 0.0
    trial, most = min(budget.trial, budget.steps), budget.steps * (1 + budget.restarts)
    if len(rates) > 1:
        for taken in stack.train_to(trial):
            yield (done := taken / most)
        stack.choose_rates()
    for round_ in range(1 + budget.restarts):
        if round_:
            stack.restart()
        for taken in stack.train_to((1 + round_) * budget.steps):
            yield (done := max(done, taken / most))
    return stack.best_classifiers(most)


@torch.no_grad()
def log_probabilities(
    architecture: Architecture, parameters: Sequence[Tensor], x: Tensor, rows: Tensor
) -> Tensor:
    """Log probabilities [M, n, C] or [M, n, T, C] of classifiers, in parts of bounded size.

    Args:
        architecture: The classifiers' network.
        parameters: Each of shape [M, ...].
        x: Inputs, shape [N, ...].
        rows: Each member's records, shape [M, n].
    """
    step = max(1, _INPUTS_AT_ONCE // (len(rows) * x[0].numel()))
    parts = (x[part] for part in torch.split(rows, step, 1))
    return torch.cat([architecture.forward(parameters, p).log_softmax(-1) for p in parts], 1)


def _rows_with_label(records: LabelledStack, rows: Tensor) -> NDArray[np.int64]:
    """A member's records with a label to learn from; all if none has one."""
    is_known = (records.label[rows] != MISSING).view(len(rows), -1).any(1)
    chosen: NDArray[np.int64] = (rows[is_known] if is_known.any() else rows).cpu().numpy()
    return chosen


def _draw_batches(
    random: np.random.Generator, rows: NDArray[np.int64], steps: int, batch_size: int
) -> NDArray[np.int64]:
    """Minibatches [steps, batch_size] in shuffled passes over a member's records."""
    passes = -(-steps * batch_size // len(rows))
    order = np.concatenate([random.permutation(rows) for _ in range(passes)])
    return order[: steps * batch_size].reshape(steps, batch_size)


class _ClassifierStack:
    """Classifiers in training; converged members leave, so that the others train faster.

    At first the stack has each member of the task once per learning rate, side by side.
    """

    def __init__(self, task: TrainingTask, rates: Tensor) -> None:
        self._task, self._step, self._passes = task, 0, 0
        device, times = task.training.x.device, len(rates)
        # Index in the task of each member, and its place in the monitor.
        self._member = torch.arange(len(task.seeds), device=device).repeat_interleave(times)
        self._place = torch.arange(len(self._member), device=device)
        self._rates = rates.repeat(len(task.seeds))
        names = [task.purpose, *(f"{task.purpose} {i}" for i in range(1, times))]
        self._randoms = [generator(seed, name) for seed in task.seeds for name in names]
        networks = [task.architecture.initial(random) for random in self._randoms]
        self._rows = [_rows_with_label(task.training, rows) for rows in task.training.rows]
        self._pass_steps = -(-task.training.rows.shape[1] // task.batch_size)
        self._interval = min(max(self._pass_steps, _MIN_INTERVAL), _MAX_INTERVAL)
        self._next_evaluation = self._interval
        self._draws, self._is_trial = [1] * len(task.seeds), times > 1
        self._parameters = [p.to(device).requires_grad_() for p in stack_parameters(networks)]
        self._monitor = _ConvergenceMonitor(self._parameters, self._rates)
        self._optimiser = StackedAdam(self._parameters, self._rates)
        self._batches = torch.empty(0, len(self._place), task.batch_size, dtype=torch.int64)

    def train_to(self, end: int) -> Iterator[int]:
        """Trains up to a step; yields the number of steps taken at each evaluation."""
        while self._step < end and len(self._place):
            if not len(self._batches):
                self._begin_pass()
            now, self._batches = self._batches.tensor_split(
                [min(end, self._next_evaluation) - self._step]
            )
            for batch in now:
                self._take_step(batch)
            self._step += len(now)
            if self._step in (end, self._next_evaluation):
                self._next_evaluation = self._step + self._interval
                self._evaluate()
                yield self._step

    def choose_rates(self) -> None:
        """Continues with the best learning rate of each member of the task; others leave."""
        members = len(self._task.seeds)
        best = self._monitor.loss.view(members, -1).argmin(1)
        index = torch.arange(members, device=best.device) * (len(self._place) // members) + best
        self._keep(index)
        self._monitor.keep(index)
        self._place, self._is_trial = torch.arange(members, device=best.device), False

    def restart(self) -> None:
        """Returns members that have not converged to their best parameters and first rate."""
        self._keep((~self._monitor.has_settled()[self._place]).nonzero()[:, 0])
        self._monitor.restart(self._parameters, self._place)
        self._rates.copy_(self._monitor.rates[self._place])
        self._optimiser = StackedAdam(self._parameters, self._rates)

    def best_classifiers(self, most_steps: int) -> FittedClassifiers:
        steps = np.geomspace(min(self._interval, most_steps), most_steps, _CURVE_STEPS)
        return self._monitor.best_classifiers(self._draws, np.unique(steps.round()))

    def _begin_pass(self) -> None:
        """Draws the minibatches of a pass over the records, and fresh inputs after the first."""
        members = self._member.tolist()
        if self._passes:
            self._redraw_inputs(set(members))
        self._passes += 1
        pairs = zip(self._randoms, members, strict=True)
        batches = [
            _draw_batches(random, self._rows[i], self._pass_steps, self._task.batch_size)
            for random, i in pairs
        ]
        self._batches = torch.from_numpy(np.stack(batches, 1)).to(self._place.device)

    def _redraw_inputs(self, members: set[int]) -> None:
        training, redraws = self._task.training, self._task.redraws
        for i in members if redraws else ():
            if (redraw := redraws[i]) is not None:
                rows, drawn = training.rows[i], redraw(f"{self._task.purpose} {self._passes}")
                self._draws[i] += not torch.equal(training.x[rows], drawn)
                training.x[rows] = drawn

    def _take_step(self, batch: Tensor) -> None:
        training = self._task.training
        logits = self._task.architecture.forward(self._parameters, training.x[batch])
        loss = cross_entropy(logits, training.label[batch]).sum()
        self._optimiser.step(torch.autograd.grad(loss, self._parameters))

    def _validation_loss(self) -> Tensor:
        validation = self._task.validation
        rows = validation.rows[self._member]
        log_p = log_probabilities(self._task.architecture, self._parameters, validation.x, rows)
        return cross_entropy(log_p, validation.label[rows])

    def _evaluate(self) -> None:
        self._monitor.update(self._step, self._validation_loss(), self._parameters, self._place)
        self._rates.copy_(self._monitor.rates[self._place])  # the optimiser holds views of these
        converged = self._monitor.has_converged[self._place]
        if bool(converged.any()) and not self._is_trial:
            self._keep((~converged).nonzero()[:, 0])

    def _keep(self, index: Tensor) -> None:
        self._randoms = [self._randoms[i] for i in index.tolist()]
        self._member, self._place = self._member[index], self._place[index]
        self._batches, self._rates = self._batches[:, index], self._rates[index]
        state = {n: v[index] if v.ndim else v for n, v in self._optimiser.state().items()}
        self._parameters = [p.detach()[index].requires_grad_() for p in self._parameters]
        self._optimiser = StackedAdam(self._parameters, self._rates)
        self._optimiser.restore(state)


class _ConvergenceMonitor:
    """Best parameters and learning rate of every member, and whether it has converged."""

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor) -> None:
        self.rates, self._initial_rates = rates.clone(), rates
        self.loss = torch.full_like(rates, torch.inf)
        self._best = [p.detach().clone() for p in parameters]
        self._mark = self.loss.clone()  # the loss at the last gain
        self._waited, self._cuts = (torch.zeros_like(rates, dtype=torch.int64) for _ in range(2))
        self._history: list[Tensor] = []
        self._steps: list[int] = []  # of the history

    @property
    def has_converged(self) -> Tensor:
        return self._cuts > _RATE_CUTS

    @torch.no_grad()
    def update(self, step: int, loss: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Records the losses [m] of members in training, at these places [m] in the stack.

        Their parameters [m, ...] are reset where the rate is cut.
        """
        now = torch.full_like(self.loss, torch.inf)
        now[place] = loss
        better = now < self.loss
        self.loss = torch.where(better, now, self.loss)
        self._history.append(self.loss)
        self._steps.append(step)
        chosen = better[place].nonzero()[:, 0]
        for best, current in zip(self._best, parameters, strict=True):
            best[place[chosen]] = current[chosen]
        gained = self.loss < self._mark - _MIN_GAIN
        self._mark = torch.where(gained, self.loss, self._mark)
        self._waited = torch.where(gained, 0, self._waited + 1)
        self._cut_rates(self._waited >= _PATIENCE, parameters, place)

    def keep(self, index: Tensor) -> None:
        """Continues with the members at these places, int64, shape [kept]."""
        self.rates, self._initial_rates, self.loss, self._mark = (
            values[index] for values in (self.rates, self._initial_rates, self.loss, self._mark)
        )
        self._waited, self._cuts = self._waited[index], self._cuts[index]
        self._best = [best[index] for best in self._best]
        self._history = [values[index] for values in self._history]

    @torch.no_grad()
    def restart(self, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Returns members at these places to their best parameters [m, ...] and first rate."""
        self.rates[place] = self._initial_rates[place]
        self._cuts[place] = self._waited[place] = 0
        for best, current in zip(self._best, parameters, strict=True):
            current.copy_(best[place])

    def has_settled(self) -> Tensor:
        """Whether members have converged or gained little in the last quarter of their steps."""
        # A single evaluation has no earlier one to compare with: nothing has converged.
        losses = [torch.full_like(self.loss, torch.inf), *self._history]
        before = losses[min(len(losses) - 2, 3 * len(losses) // 4)]
        return self.has_converged | (before - self.loss < CONVERGED_GAIN)

    def best_classifiers(
        self, draws: Sequence[int], curve_steps: NDArray[np.float64]
    ) -> FittedClassifiers:
        return FittedClassifiers(
            self._best,
            self.loss,
            self._initial_rates,
            tuple(self.has_settled().tolist()),
            tuple(draws),
            self._curves(curve_steps),
        )

    def _curves(self, steps: NDArray[np.float64]) -> tuple[Curve, ...]:
        """Loss of every member at the last evaluation before or at each step, else at the first."""
        if not self._history:
            return (Curve((), ()),) * len(self.loss)
        last = np.searchsorted(self._steps, steps, side="right") - 1
        losses = torch.stack(self._history)[last.clip(0)].T.tolist()
        return tuple(Curve(tuple(map(int, steps)), tuple(values)) for values in losses)

    def _cut_rates(self, stuck: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Lowers the rate of stuck members and returns them to their best parameters."""
        self.rates = torch.where(stuck, self.rates * _RATE_FACTOR, self.rates)
        self._cuts += stuck
        self._waited = torch.where(stuck, 0, self._waited)
        chosen = stuck[place].nonzero()[:, 0]
        for best, current in zip(self._best, parameters, strict=True):
            current[chosen] = best[place[chosen]]
