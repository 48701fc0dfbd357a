"""Training of stacked classifiers until their validation loss converges."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import MISSING
from privnets.adversarial.training.inference_networks import cross_entropy
from privnets.networks.layers import Architecture, stack_parameters
from privnets.networks.training import StackedAdam
from privnets.randomness import generator

CONVERGED_GAIN = 5e-3
"""Nats; training has converged if the last quarter of its steps gained less validation loss."""

_TRIAL_DIVISOR = 5  # a trial of learning rates takes a fifth of the steps
_EVALUATIONS = 40
_MIN_INTERVAL = 25  # steps between evaluations
_PATIENCE = 4  # evaluations without gain before the learning rate is cut
_RATE_FACTOR = 0.3
_RATE_CUTS = 2  # after one more, a member has converged
_MIN_GAIN = 1e-4  # nats of validation loss
_INPUTS_AT_ONCE = 2**20  # numbers evaluated together


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
        learning_rates: Learning rates to choose from.
        batch_size: Records in a minibatch.
    """

    architecture: Architecture
    training: LabelledStack
    validation: LabelledStack
    seeds: Sequence[int]
    purpose: str
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
    """

    parameters: list[Tensor]
    validation_loss: Tensor
    learning_rate: Tensor
    converged: tuple[bool, ...]


def stack_records(members: Sequence[tuple[Tensor, Tensor]]) -> LabelledStack:
    """Joins the inputs [n, ...] and labels [n] or [n, T] of members that share no record."""
    x = torch.cat([inputs for inputs, _ in members])
    rows = torch.arange(len(x), device=x.device).view(len(members), -1)
    return LabelledStack(x, torch.cat([labels for _, labels in members]), rows)


def train_until_converged(
    task: TrainingTask, steps: int
) -> Generator[float, None, FittedClassifiers]:
    """Trains a stack of classifiers by cross-entropy, pausing at each evaluation.

    Each member continues from the learning rate that did best on validation in a short trial. If
    validation loss stops falling, the member returns to its best parameters with a smaller rate.
    After the last cut the member has converged and its result is final. A member depends on its
    own records and seed alone. It takes at most `steps` steps.

    Yields:
        Share of the work done, in (0, 1].
    """
    rates = torch.tensor(task.learning_rates, device=task.training.x.device)
    stack = _ClassifierStack(_repeat_members(task), rates.repeat(len(task.seeds)), steps)
    trial, done = (max(1, steps // _TRIAL_DIVISOR) if len(rates) > 1 else 0), 0.0
    work = trial * (len(rates) - 1) + steps
    for taken in stack.train_to(trial):
        yield (done := taken * len(rates) / work)
    if trial:
        stack.choose_rates(stack.best_loss().view(-1, len(rates)).argmin(1))
    for taken in stack.train_to(steps):
        yield max(done, (work - steps + taken) / work)
    return stack.best_classifiers()


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


def _repeat_members(task: TrainingTask) -> TrainingTask:
    """The task with each member once per learning rate, side by side."""
    times = len(task.learning_rates)
    training, validation = (
        replace(part, rows=part.rows.repeat_interleave(times, 0))
        for part in (task.training, task.validation)
    )
    seeds = [seed for seed in task.seeds for _ in range(times)]
    return replace(task, training=training, validation=validation, seeds=seeds, learning_rates=())


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
    """Classifiers in training; converged members leave, so that the others train faster."""

    def __init__(self, task: TrainingTask, rates: Tensor, steps: int) -> None:
        device = task.training.x.device
        self._task, self._steps, self._step = task, steps, 0
        self._interval = max(_MIN_INTERVAL, steps // _EVALUATIONS)
        self._randoms = [generator(seed, task.purpose) for seed in task.seeds]
        networks = [task.architecture.initial(random) for random in self._randoms]
        self._training_rows = [_rows_with_label(task.training, r) for r in task.training.rows]
        self._validation_rows = task.validation.rows
        self._parameters = [p.to(device).requires_grad_() for p in stack_parameters(networks)]
        self._place = torch.arange(len(rates), device=device)
        self._monitor = _ConvergenceMonitor(self._parameters, rates)
        self._rates = rates.clone()
        self._optimiser = StackedAdam(self._parameters, self._rates)
        self._batches = torch.empty(0, len(rates), task.batch_size, dtype=torch.int64)

    def train_to(self, end: int) -> Iterator[int]:
        """Trains up to a step; yields the number of steps taken at each evaluation."""
        while self._step < end and len(self._place):
            if not len(self._batches):
                self._batches = self._next_batches(min(self._interval, self._steps - self._step))
            now, self._batches = self._batches.tensor_split([end - self._step])
            for batch in now:
                self._take_step(batch)
            self._step += len(now)
            if not len(self._batches):
                self._evaluate()
            yield self._step

    def best_loss(self) -> Tensor:
        """Smallest validation loss of each member so far, shape [M]."""
        now, best = self._validation_loss(), self._monitor.loss
        return torch.where(now < best, now, best)

    def choose_rates(self, rates: Tensor) -> None:
        """Continues with the rate at an index [tasks] for each member of the task.

        No member has left yet: a trial ends before any can converge.
        """
        each = len(self._place) // len(rates)
        index = torch.arange(len(rates), device=rates.device) * each + rates
        self._keep(index)
        self._monitor.keep(index)
        self._place = torch.arange(len(rates), device=rates.device)

    def best_classifiers(self) -> FittedClassifiers:
        return self._monitor.best_classifiers()

    def _next_batches(self, count: int) -> Tensor:
        size = self._task.batch_size
        pairs = zip(self._randoms, self._training_rows, strict=True)
        batches = [_draw_batches(random, rows, count, size) for random, rows in pairs]
        return torch.from_numpy(np.stack(batches, 1)).to(self._place.device)

    def _take_step(self, batch: Tensor) -> None:
        training = self._task.training
        logits = self._task.architecture.forward(self._parameters, training.x[batch])
        loss = cross_entropy(logits, training.label[batch]).sum()
        self._optimiser.step(torch.autograd.grad(loss, self._parameters))

    def _validation_loss(self) -> Tensor:
        validation, rows = self._task.validation, self._validation_rows
        log_p = log_probabilities(self._task.architecture, self._parameters, validation.x, rows)
        return cross_entropy(log_p, validation.label[rows])

    def _evaluate(self) -> None:
        self._monitor.update(self._validation_loss(), self._parameters, self._place)
        self._rates.copy_(self._monitor.rates[self._place])  # the optimiser holds views of these
        converged = self._monitor.has_converged[self._place]
        if bool(converged.any()):
            self._keep((~converged).nonzero()[:, 0])

    def _keep(self, index: Tensor) -> None:
        members = index.tolist()
        self._randoms = [self._randoms[i] for i in members]
        self._training_rows = [self._training_rows[i] for i in members]
        self._validation_rows, self._place = self._validation_rows[index], self._place[index]
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

    @property
    def has_converged(self) -> Tensor:
        return self._cuts > _RATE_CUTS

    @torch.no_grad()
    def update(self, loss: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Records the losses [m] of members in training, at these places [m] in the stack.

        Their parameters [m, ...] are reset where the rate is cut.
        """
        now = torch.full_like(self.loss, torch.inf)
        now[place] = loss
        better = now < self.loss
        self.loss = torch.where(better, now, self.loss)
        self._history.append(self.loss)
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

    def best_classifiers(self) -> FittedClassifiers:
        # A single evaluation has no earlier one to compare with: nothing has converged.
        losses = [torch.full_like(self.loss, torch.inf), *self._history]
        before = losses[min(len(losses) - 2, 3 * len(losses) // 4)]
        converged = self.has_converged | (before - self.loss < CONVERGED_GAIN)
        return FittedClassifiers(
            self._best, self.loss, self._initial_rates, tuple(converged.tolist())
        )

    def _cut_rates(self, stuck: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Lowers the rate of stuck members and returns them to their best parameters."""
        self.rates = torch.where(stuck, self.rates * _RATE_FACTOR, self.rates)
        self._cuts += stuck
        self._waited = torch.where(stuck, 0, self._waited)
        chosen = stuck[place].nonzero()[:, 0]
        for best, current in zip(self._best, parameters, strict=True):
            current[chosen] = best[place[chosen]]
