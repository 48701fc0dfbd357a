"""Training of stacked classifiers until validation says that they have come to rest."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import MISSING
from privnets.adversarial.training.losses import cross_entropy
from privnets.networks.architecture import Architecture, stack_parameters
from privnets.networks.training import StackedAdam
from privnets.randomness import generator

AT_REST = 5e-3
"""Nats; training that gains less validation loss in the last quarter of its steps has converged."""

_TRIAL = 5  # a trial of learning rates takes a fifth of the steps
_EVALUATIONS = 40
_SHORTEST_INTERVAL = 25  # steps between evaluations, at the least
_PATIENCE = 4  # evaluations without gain before the learning rate is cut
_CUT = 0.3
_CUTS = 2  # after these a member rests
_GAIN = 1e-4  # nats of validation loss that count as one
_AT_ONCE = 2**20  # numbers that the inputs of one evaluated part hold


@dataclass(frozen=True, eq=False)
class Labelled:
    """Records shared by a stack, and which of them each member has.

    Attributes:
        x: Inputs, shape [N, ...].
        label: Classes from 0, int64, shape [N], or [N, T] for sequences; `MISSING` counts nowhere.
        rows: Each member's records, int64, shape [M, n].
    """

    x: Tensor
    label: Tensor
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """What a stack of classifiers is to learn.

    Attributes:
        architecture: Its outputs are logits, shape [M, n, C], or [M, n, T, C] for sequences.
        training: What members are fitted to.
        validation: What chooses their learning rates and parameters.
        seeds: One per member.
        purpose: Names the random draws, so that they differ from those of other networks.
        learning_rates: To choose from.
        batch_size: Records in a minibatch.
    """

    architecture: Architecture
    training: Labelled
    validation: Labelled
    seeds: Sequence[int]
    purpose: str
    learning_rates: Sequence[float] = (3e-3, 1e-3)
    batch_size: int = 128


@dataclass(frozen=True, eq=False)
class Trained:
    """Classifiers at their best on validation.

    Attributes:
        parameters: Each of shape [M, ...].
        validation_loss: Cross-entropy in nats, shape [M].
        learning_rate: That each started from, shape [M].
        converged: False where validation loss was still falling when the steps ran out.
    """

    parameters: list[Tensor]
    validation_loss: Tensor
    learning_rate: Tensor
    converged: tuple[bool, ...]


def own_records(members: Sequence[tuple[Tensor, Tensor]]) -> Labelled:
    """Members with records of their own.

    Args:
        members: Inputs [n, ...] and labels [n] or [n, T] of each, of equal shapes.
    """
    x = torch.cat([inputs for inputs, _ in members])
    rows = torch.arange(len(x), device=x.device).view(len(members), -1)
    return Labelled(x, torch.cat([labels for _, labels in members]), rows)


def train_classifiers(task: Task, steps: int) -> Trained:
    """Train a stack of classifiers to its end; see `training`."""
    run = training(task, steps)
    while True:
        try:
            next(run)
        except StopIteration as end:
            trained: Trained = end.value
            return trained


def training(task: Task, steps: int) -> Generator[float, None, Trained]:
    """Train a stack of classifiers by cross-entropy, pausing at each evaluation.

    Each member goes on from the learning rate that did best on validation in a short trial. Where
    validation loss stops falling, the member goes back to its best parameters with a smaller rate;
    after the last cut it rests, and its result no longer changes. A member depends on its own
    records and seed alone.

    Args:
        task: What to learn.
        steps: The most that a member takes.

    Yields:
        The share of the work that is done, in (0, 1].
    """
    rates = torch.tensor(task.learning_rates, device=task.training.x.device)
    stack, done = _Stack(_every_rate(task), rates.repeat(len(task.seeds)), steps), 0.0
    trial = max(1, steps // _TRIAL) if len(rates) > 1 else 0
    work = trial * (len(rates) - 1) + steps
    for taken in stack.until(trial):
        yield (done := taken * len(rates) / work)
    if trial:
        stack.choose(stack.loss().view(-1, len(rates)).argmin(1))
    for taken in stack.until(steps):
        yield max(done, (work - steps + taken) / work)
    return stack.trained()


@torch.no_grad()
def log_probabilities(
    architecture: Architecture, parameters: Sequence[Tensor], x: Tensor, rows: Tensor
) -> Tensor:
    """What every classifier believes, evaluated a bounded part at a time.

    Args:
        architecture: Of the classifiers.
        parameters: Each of shape [M, ...].
        x: Inputs, shape [N, ...].
        rows: Each member's records, shape [M, n].

    Returns:
        Natural logarithms, shape [M, n, C] or [M, n, T, C].
    """
    step = max(1, _AT_ONCE // (len(rows) * x[0].numel()))
    parts = (x[part] for part in torch.split(rows, step, 1))
    return torch.cat([architecture.forward(parameters, p).log_softmax(-1) for p in parts], 1)


def _every_rate(task: Task) -> Task:
    """The task with each member as often as there are learning rates, side by side."""
    times = len(task.learning_rates)
    training, validation = (
        Labelled(part.x, part.label, part.rows.repeat_interleave(times, 0))
        for part in (task.training, task.validation)
    )
    seeds = [seed for seed in task.seeds for _ in range(times)]
    return Task(task.architecture, training, validation, seeds, task.purpose, (), task.batch_size)


def _known_rows(records: Labelled, rows: Tensor) -> NDArray[np.int64]:
    """Those of a member's records that have a label to learn from; all if none has."""
    known = (records.label[rows] != MISSING).view(len(rows), -1).any(1)
    chosen: NDArray[np.int64] = (rows[known] if known.any() else rows).cpu().numpy()
    return chosen


def _drawn(
    random: np.random.Generator, rows: NDArray[np.int64], steps: int, batch_size: int
) -> NDArray[np.int64]:
    """Minibatches [steps, batch_size] that go through a member's records in shuffled passes."""
    passes = -(-steps * batch_size // len(rows))
    order = np.concatenate([random.permutation(rows) for _ in range(passes)])
    return order[: steps * batch_size].reshape(steps, batch_size)


class _Stack:
    """Classifiers in training; who rests leaves, so that the others go on faster."""

    def __init__(self, task: Task, rates: Tensor, steps: int) -> None:
        device = task.training.x.device
        self._task, self._steps, self._step = task, steps, 0
        self._interval = max(_SHORTEST_INTERVAL, steps // _EVALUATIONS)
        self._randoms = [generator(seed, task.purpose) for seed in task.seeds]
        networks = [task.architecture.initial(random) for random in self._randoms]
        self._own = [_known_rows(task.training, rows) for rows in task.training.rows]
        self._checked = task.validation.rows
        self._parameters = [p.to(device).requires_grad_() for p in stack_parameters(networks)]
        self._place = torch.arange(len(rates), device=device)
        self._watch = _Watch(self._parameters, rates)
        self._rates = rates.clone()
        self._optimiser = StackedAdam(self._parameters, self._rates)
        self._drawn = torch.empty(0, len(rates), task.batch_size, dtype=torch.int64)

    def until(self, end: int) -> Iterator[int]:
        """Train to a step, pausing at each evaluation with the number of steps taken."""
        while self._step < end and len(self._place):
            if not len(self._drawn):
                self._drawn = self._draw(min(self._interval, self._steps - self._step))
            now, self._drawn = self._drawn.tensor_split([end - self._step])
            for batch in now:
                self._take(batch)
            self._step += len(now)
            if not len(self._drawn):
                self._evaluate()
            yield self._step

    def loss(self) -> Tensor:
        """The least loss on validation that each member has had, shape [M]."""
        now, best = _validation_loss(self._task, self._parameters, self._checked), self._watch.loss
        return torch.where(now < best, now, best)

    def choose(self, rates: Tensor) -> None:
        """Go on with one of each task's members, shape [tasks]: its place among their rates.

        Nobody has left by then: a trial ends before anyone may rest.
        """
        each = len(self._place) // len(rates)
        index = torch.arange(len(rates), device=rates.device) * each + rates
        self._keep(index)
        self._watch.keep(index)
        self._place = torch.arange(len(rates), device=rates.device)

    def trained(self) -> Trained:
        return self._watch.trained()

    def _draw(self, count: int) -> Tensor:
        pairs, size = zip(self._randoms, self._own, strict=True), self._task.batch_size
        drawn = [_drawn(random, own, count, size) for random, own in pairs]
        return torch.from_numpy(np.stack(drawn, 1)).to(self._place.device)

    def _take(self, batch: Tensor) -> None:
        training = self._task.training
        logits = self._task.architecture.forward(self._parameters, training.x[batch])
        loss = cross_entropy(logits, training.label[batch]).sum()
        self._optimiser.step(torch.autograd.grad(loss, self._parameters))

    def _evaluate(self) -> None:
        found = _validation_loss(self._task, self._parameters, self._checked)
        self._watch.see(found, self._parameters, self._place)
        self._rates.copy_(self._watch.rates[self._place])  # the optimiser holds views of these
        if bool((rest := self._watch.rests[self._place]).any()):
            self._keep((~rest).nonzero()[:, 0])

    def _keep(self, index: Tensor) -> None:
        members = index.tolist()
        self._randoms = [self._randoms[i] for i in members]
        self._own = [self._own[i] for i in members]
        self._checked, self._place = self._checked[index], self._place[index]
        self._drawn, self._rates = self._drawn[:, index], self._rates[index]
        state = {n: v[index] if v.ndim else v for n, v in self._optimiser.state().items()}
        self._parameters = [p.detach()[index].requires_grad_() for p in self._parameters]
        self._optimiser = StackedAdam(self._parameters, self._rates)
        self._optimiser.restore(state)


def _validation_loss(task: Task, parameters: Sequence[Tensor], rows: Tensor) -> Tensor:
    x, label = task.validation.x, task.validation.label
    return cross_entropy(log_probabilities(task.architecture, parameters, x, rows), label[rows])


class _Watch:
    """Keeps every member's best parameters, cuts its learning rate, and says when it rests."""

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor) -> None:
        self.rates, self._given = rates.clone(), rates
        self.loss = torch.full_like(rates, torch.inf)
        self._best = [p.detach().clone() for p in parameters]
        self._mark = self.loss.clone()
        self._since, self._cuts = (torch.zeros_like(rates, dtype=torch.int64) for _ in range(2))
        self._history: list[Tensor] = []

    @property
    def rests(self) -> Tensor:
        return self._cuts > _CUTS

    @torch.no_grad()
    def see(self, loss: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        """Losses [m] and parameters [m, ...] of the members at some places; the others rest."""
        now = torch.full_like(self.loss, torch.inf)
        now[place] = loss
        better = now < self.loss
        self.loss = torch.where(better, now, self.loss)
        self._history.append(self.loss)
        chosen = better[place].nonzero()[:, 0]
        for best, mine in zip(self._best, parameters, strict=True):
            best[place[chosen]] = mine[chosen]
        gained = self.loss < self._mark - _GAIN
        self._mark = torch.where(gained, self.loss, self._mark)
        self._since = torch.where(gained, 0, self._since + 1)
        self._cut(self._since >= _PATIENCE, parameters, place)

    def keep(self, index: Tensor) -> None:
        """Go on with the members at these places."""
        self.rates, self._given, self.loss, self._mark = (
            values[index] for values in (self.rates, self._given, self.loss, self._mark)
        )
        self._since, self._cuts = self._since[index], self._cuts[index]
        self._best = [best[index] for best in self._best]
        self._history = [values[index] for values in self._history]

    def trained(self) -> Trained:
        # With one evaluation there is nothing to compare with, and nothing has converged.
        seen = [torch.full_like(self.loss, torch.inf), *self._history]
        before = seen[min(len(seen) - 2, 3 * len(seen) // 4)]
        converged = self.rests | (before - self.loss < AT_REST)
        return Trained(self._best, self.loss, self._given, tuple(converged.tolist()))

    def _cut(self, stuck: Tensor, parameters: Sequence[Tensor], place: Tensor) -> None:
        self.rates = torch.where(stuck, self.rates * _CUT, self.rates)
        self._cuts += stuck
        self._since = torch.where(stuck, 0, self._since)
        chosen = stuck[place].nonzero()[:, 0]
        for best, mine in zip(self._best, parameters, strict=True):
            mine[chosen] = best[place[chosen]]
