"""Training of models whose outputs alone are observed, one configuration after the other.

The state in training is the outputs of finished models at the records that evaluation needs; the
models themselves are dropped, whatever their size.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.audit.model_signals import choose_limit
from privnets.contract import Experiment, Stage, State
from privnets.membership.config import MembershipConfig, metric_keys
from privnets.membership.evaluation import evaluate
from privnets.membership.models import predicts_classes
from privnets.membership.observations import Trainer, Universe
from privnets.membership.outputs import (
    Outputs,
    Predictor,
    TrainingDesign,
    observe_outputs,
    test_records,
)
from privnets.membership.user_models.estimators import Answers
from privnets.points import Replicate

STAGE_SECONDS: Final = 5.0
"""Approximate time between two progress reports."""


class UserCodeError(Exception):
    """Raised when code of the user fails to train a model; the message has file and line."""


@dataclass(frozen=True)
class OutputRequest:
    """Models of one configuration, and the records at which their outputs are needed.

    Attributes:
        shared: Records that all models answer, shape [k]: attacked and test records.
        test: Test records, shape [K].
    """

    design: TrainingDesign
    universe: Universe
    shared: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def draw(cls, config: MembershipConfig, universe: Universe) -> OutputRequest:
        """Draws the training sets."""
        design = TrainingDesign.draw(config, universe.size)
        test, _ = test_records(design, universe.size)
        both = np.concatenate([design.records, test.numpy()])
        return cls(design, universe, np.unique(both), test.numpy())

    @property
    def classes(self) -> int:
        """Classes that the models predict; 0 for numbers."""
        return self.universe.classes if predicts_classes(self.design.config) else 0

    @property
    def test_columns(self) -> NDArray[np.int64]:
        """Positions of the test records among those that are asked, shape [K]."""
        return np.searchsorted(self.shared, self.test)

    def asked_records(self, model: int) -> NDArray[np.int64]:
        """Records at which a model is asked, shape [k + n]; the last n are its training set."""
        return np.concatenate([self.shared, self.design.sets[model].astype(np.int64)])

    @property
    def repeated_records(self) -> NDArray[np.int64]:
        """Attacked records once for each changed copy, then for each checkpoint, shape [r]."""
        config = self.design.config
        return np.tile(self.design.records, config.queries - 1 + config.checkpoints)


class OutputTrainer(Trainer):
    """Base class of trainers that keep only outputs of their models."""

    @abstractmethod
    def fit(self, request: OutputRequest, models: range, device: str) -> list[Answers]:
        """Trains models and asks them; the result does not depend on which ones train together.

        Raises:
            UserCodeError: If the user's code fails.
        """

    @abstractmethod
    def models_at_once(self, request: OutputRequest, seconds: float, device: str) -> int:
        """Number of models to train next.

        Args:
            seconds: Measured seconds of one model; infinite before the first.
        """

    def notes(self, request: OutputRequest) -> str:
        """Remark on how the models were trained; empty by default."""
        return ""

    def stages(
        self,
        experiment: Experiment[MembershipConfig],
        configs: Sequence[MembershipConfig],
        device: str,
        state: State,
    ) -> Iterator[Stage]:
        """Trains the models of one configuration after the other."""
        universe = Universe.load(configs[0], device)
        outputs, predictions = state.get("outputs"), state.get("predictions")
        for index, config in enumerate(configs):
            request = OutputRequest.draw(config, universe)
            columns = len(request.asked_records(0)) + len(request.repeated_records)
            if outputs is None or predictions is None:
                outputs = torch.zeros(0, 2, columns, dtype=torch.float64)
                shape = len(request.test), 1 + request.classes  # see `Answers`
                predictions = torch.zeros(0, *shape, dtype=torch.float64)
            if outputs.shape[1:] != (2, columns) or len(outputs) > config.draws:
                raise ValueError(f"state of shape {tuple(outputs.shape)} is of another stack.")
            failure, seconds = None, math.inf
            while len(outputs) < config.draws and failure is None:
                count = self.models_at_once(request, seconds, device)
                models = range(len(outputs), min(config.draws, len(outputs) + count))
                start = time.monotonic()
                try:
                    answers = self.fit(request, models, device)
                except UserCodeError as error:
                    failure = str(error)
                    break
                trained = torch.from_numpy(np.stack([truth for truth, _ in answers]))
                if failure := self.describe_lack(request, models, trained):
                    break
                outputs = torch.cat([outputs, trained])
                predicted = torch.from_numpy(np.stack([chosen for _, chosen in answers]))
                predictions = torch.cat([predictions, predicted])
                seconds = (time.monotonic() - start) / len(models)
                if len(outputs) < config.draws:
                    done = (index + len(outputs) / config.draws) / len(configs)
                    yield Stage(done, (), partial(dict, outputs=outputs, predictions=predictions))
            if failure is None:
                replicate = self._evaluate(request, outputs, predictions)
            else:
                metrics = dict.fromkeys(metric_keys(config), math.nan)
                replicate = Replicate(
                    config.seed, metrics, failure=failure, finished_at=time.time()
                )
            outputs = predictions = None
            yield Stage((index + 1) / len(configs), (experiment.point(config, replicate),), dict)

    def describe_lack(self, request: OutputRequest, models: range, trained: Tensor) -> str | None:
        """Reason why outputs are no answer: some are NaN, or predicted numbers are infinite."""
        lacks = trained.isnan() if request.classes else ~trained.isfinite()
        rows = lacks.any(1)
        if not bool(rows.any()):
            return None
        model = int(rows.any(1).int().argmax())
        count, asked = int(rows[model].sum()), rows.shape[1]
        return f"model {models[model]} answers {count} of {asked} questions by nan or infinity"

    def _evaluate(self, request: OutputRequest, outputs: Tensor, predictions: Tensor) -> Replicate:
        config, device = request.design.config, request.universe.x.device
        predictor = _StoredOutputs(request, outputs.to(device), predictions.to(device))
        observed = observe_outputs(request.design, predictor, request.universe)
        texts = filter(None, (predictor.remark, self.notes(request)))
        if text := "; ".join(texts):
            observed = replace(observed, notes={"privacy/membership_advantage": text})
        return evaluate(config, observed)


class _StoredOutputs(Predictor):
    """Outputs of the models at the records of a request.

    If some probabilities are 0 or 1, as those of forests are, all log-odds are clipped.
    """

    def __init__(self, request: OutputRequest, outputs: Tensor, predictions: Tensor) -> None:
        self.classifies = request.classes > 0
        self._predictions = predictions
        self._request, self._values, self._merit = request, outputs[:, 0], outputs[:, 1]
        self._limit = math.inf
        if self.classifies and bool(self._values.isinf().any()):
            shared = self._values[:, : len(request.shared)]
            self._limit = choose_limit(shared.cpu().numpy())

    @property
    def remark(self) -> str:
        """Clipping, in words."""
        if math.isinf(self._limit):
            return ""
        return f"log-odds of the true class are clipped to {self._limit:.1f}"

    def at(self, index: Tensor) -> Outputs:
        """Outputs at the training sets, shape [J, n], or at shared records, shape [n]."""
        if index.ndim == 1:
            columns = torch.from_numpy(np.searchsorted(self._request.shared, index.cpu().numpy()))
            columns = columns.to(index.device)
        else:
            start = len(self._request.shared)
            columns = torch.arange(start, start + self._request.design.sets.shape[1])
        return self._outputs(columns)

    def predict(self, index: Tensor, models: int) -> tuple[Tensor, Tensor | None]:
        """See `Predictor.predict`; `index` holds the test records of the request."""
        predictions = self._predictions[:models]
        return predictions[..., 0], predictions[..., 1:] if self.classifies else None

    def changed_copies(self) -> Tensor | None:
        """See `Predictor.changed_copies`."""
        copies = self._request.design.config.queries - 1
        return self._repeated_outputs(0, copies).value if copies else None

    def trajectory(self) -> Tensor | None:
        """See `Predictor.trajectory`."""
        config = self._request.design.config
        copies = config.queries - 1
        return (
            self._repeated_outputs(copies, config.checkpoints).loss if config.checkpoints else None
        )

    def _repeated_outputs(self, first: int, count: int) -> Outputs:
        """Outputs [count, J, R] at some repetitions of the attacked records."""
        records = len(self._request.design.records)
        start = self._values.shape[1] - len(self._request.repeated_records) + first * records
        columns = torch.arange(start, start + count * records)
        outputs = self._outputs(columns)
        parts = (outputs.loss, outputs.merit, outputs.value)
        shape = len(self._values), count, records
        return Outputs(*(each.view(shape).transpose(0, 1) for each in parts))

    def _outputs(self, columns: Tensor) -> Outputs:
        value, merit = self._values[:, columns], self._merit[:, columns]
        if not self.classifies:
            return Outputs(merit, merit, value)
        log_odds = value.clamp(-self._limit, self._limit)
        return Outputs(-torch.nn.functional.logsigmoid(log_odds), merit, log_odds)
