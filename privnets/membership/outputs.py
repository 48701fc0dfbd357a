"""Outputs of trained models that all records share, and what attackers observe of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.membership.config import TEST_RECORDS, MembershipConfig
from privnets.membership.estimates import mean_over
from privnets.membership.leakage import shared_sides
from privnets.membership.observations import Observations, Universe, attacked_records, random_stream
from privnets.membership.training_sets import Indices, find_members, shared_subsets
from privnets.membership.trials import Population, Trials
from privnets.membership.utilities import (
    UTILITY_MODELS,
    TestOutputs,
    Utilities,
    mean_utility,
    measure,
)
from privnets.randomness import generator


@dataclass(frozen=True)
class TrainingDesign:
    """Training sets of one configuration.

    Attributes:
        records: Attacked records, shape [R].
        sets: Training sets, shape [J, n].
        member: Whether a record is in a set, shape [R, J].
    """

    config: MembershipConfig
    records: np.ndarray
    sets: Indices
    member: np.ndarray

    @classmethod
    def draw(cls, config: MembershipConfig, population: int) -> TrainingDesign:
        """Draws the training sets."""
        records = attacked_records(config, population)
        random = random_stream(config, "training sets")
        sets, member = shared_subsets(random, population, records, config.train_size, config.draws)
        return cls(config, records, sets, member)

    def references(self, model: int, population: int) -> NDArray[np.int64]:
        """Draws as many records outside a training set as in it; none is attacked, shape [n]."""
        free = np.ones(population, dtype=bool)
        free[self.records] = free[self.sets[model]] = False
        random = random_stream(self.config, f"reference records {model}")
        chosen: NDArray[np.int64] = random.choice(
            np.flatnonzero(free), self.config.train_size, replace=False
        )
        return chosen


@dataclass(frozen=True)
class Outputs:
    """Outputs of J models at n records each.

    Attributes:
        loss: Cross-entropy or squared error, shape [J, n].
        merit: Whether the class is right (0 or 1), or the squared error, shape [J, n].
        value: Log-odds of the true class, or the predicted number, shape [J, n].
    """

    loss: Tensor
    merit: Tensor
    value: Tensor


class Predictor(ABC):
    """Trained models of one configuration, J of them.

    Attributes:
        classifies: Whether they predict a class, rather than a number.
    """

    classifies: bool

    @abstractmethod
    def at(self, index: Tensor) -> Outputs:
        """Outputs at records of each model, shape [J, n], or the same for all, shape [n]."""

    @abstractmethod
    def predict(self, index: Tensor, models: int) -> tuple[Tensor, Tensor | None]:
        """Predictions of the first models at test records [K], as `TestOutputs` has them."""

    def changed_copies(self) -> Tensor | None:
        """`Outputs.value` at changed copies of the attacked records, shape [Q, J, R]."""
        return None

    def trajectory(self) -> Tensor | None:
        """Losses at the attacked records in the course of training, shape [E, J, R]."""
        return None

    def signal(self, value: Tensor, y: Tensor) -> Tensor:
        """Log-odds of the true class, or the residual, from `Outputs.value` and the targets."""
        return value if self.classifies else y - value


def observe_outputs(
    design: TrainingDesign, predictor: Predictor, universe: Universe
) -> Observations:
    """Observes the outputs of the models of one configuration, and not their parameters."""
    device = universe.x.device
    member = torch.from_numpy(design.member).to(device)
    records = torch.from_numpy(design.records).to(device)
    inside = predictor.at(torch.from_numpy(design.sets.astype(np.int64)).to(device))
    test, outside = test_records(design, universe.size)
    test, outside = test.to(device), outside.to(device)
    at_test = predictor.at(test)
    predicted = predictor.predict(test, UTILITY_MODELS)
    judged = TestOutputs(universe.y[test], outside[:UTILITY_MODELS], *predicted)
    unseen = 1 - len(test) / universe.size
    utilities = measure(judged, universe.y, unseen)
    key = "utility/test_accuracy" if predictor.classifies else "utility/test_mse"
    # Of all models, in place of that of the first ones.
    utilities |= Utilities({key: mean_utility(at_test.merit, outside, unseen)}, {}, {})
    if design.config.metrics:
        from privnets.membership.own_utilities import own_utilities  # slow to load, rarely used

        utilities |= own_utilities(design.config, judged, unseen)
    outputs, y = predictor.at(records), universe.y
    value = outputs.value.T
    signal = predictor.signal(value, y[records, None])
    fold = torch.arange(member.shape[1], device=device) >= member.shape[1] // 2
    copies, losses = predictor.changed_copies(), predictor.trajectory()
    # Signals of attacked records would be known for non-members alone, which reveals membership.
    other = ~torch.isin(test, records)
    population = Population(
        outside[:, other].T,
        predictor.signal(at_test.value[:, other].T, y[test[other], None]),
        at_test.loss[:, other].T,
        universe.regressors[test[other]],
        universe.regressors[records],
    )
    trials = Trials(
        member=member,
        fold=fold.long(),
        signal=signal,
        error=torch.sigmoid(-value) if predictor.classifies else signal,
        loss=outputs.loss.T,
        train_loss=inside.loss.mean(1).expand_as(signal),
        two_sided=not predictor.classifies,
        population=population,
        queries=None if copies is None else predictor.signal(copies, y[records]).mT,
        trajectory=None if losses is None else losses.mT,
    )
    return Observations(
        records=records,
        trials=trials,
        sides=None,
        halves=None,
        output=shared_sides(trials.signal[..., None], member),
        undefined="the parameters are not observed; privacy/rho_kl_output is a lower bound",
        prior=design.config.train_size / universe.size,
        test=utilities,
        train=mean_over(inside.merit.mean(1)),
        shared_models=True,
    )


def test_records(design: TrainingDesign, population: int) -> tuple[Tensor, Tensor]:
    """Random records [K], and whether each is outside each model's training set, [J, K]."""
    size = design.config.train_size
    count = min(population, -(-TEST_RECORDS * population // (population - size)))
    random = generator(design.config.seed, "test records")
    test = random.permutation(population)[:count]
    inside = torch.from_numpy(find_members(design.sets, test, population))
    return torch.from_numpy(test), ~inside.T
