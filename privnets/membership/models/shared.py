"""Shared target models: each trained model serves every attacked record.

Base class of trainers for models that are too expensive to train for each record. A subclass fits
a batch of models and computes their outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from privnets.contract import Experiment, Stage, State
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.differential_privacy.per_example import ClippedGradients
from privnets.membership import leakage
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import evaluate
from privnets.membership.guarantee import guarantee_of, parameter_noise
from privnets.membership.leakage import shared_sides
from privnets.membership.models import SharedModel, predicts_classes
from privnets.membership.observations import (
    Observations,
    Trainer,
    Universe,
    add_noise,
    random_stream,
)
from privnets.membership.outputs import Outputs, Predictor, TrainingDesign, observe_outputs
from privnets.networks.training import StackedAdam

# More parameters need more draws for a covariance than can be trained.
_MAX_COVARIANCE = 256
# Numbers that the inputs and activations of one chunk may hold: on CPUs, as a cache does.
_CHUNK_NUMBERS = {"cpu": 2**18, "cuda": 2**24}


@dataclass(frozen=True)
class ModelBatch:
    """Models to train at once, S of them.

    Attributes:
        config: Configuration; its stackable fields belong to the first model only.
        members: Each configuration in order, and the indices of its models.
        x: Features of each training set, shape [S, n, p], float64.
        y: Targets, shape [S, n], float64.
        steps: Steps to take, for models that are trained by steps.
        weight_decay: Shape [S], float64.
        learning_rate: Shape [S], float64.
        leakage_weight: Shape [S], float64.
        references: Features [S, n, p] and targets [S, n] of records outside each training set,
            for the leakage of outputs; None if no model weighs it.
    """

    config: MembershipConfig
    members: tuple[tuple[MembershipConfig, range], ...]
    x: Tensor
    y: Tensor
    classes: int
    steps: int
    weight_decay: Tensor
    learning_rate: Tensor
    leakage_weight: Tensor
    references: tuple[Tensor, Tensor] | None = None


class SharedTrainer(Trainer):
    """Base class of trainers of shared models.

    A target that is a number counts as one class.
    """

    model: ClassVar[SharedModel]
    has_covariance: ClassVar[bool] = True

    @abstractmethod
    def parameter_count(self, config: MembershipConfig, features: int, classes: int) -> int:
        """Number of parameters of one model, d."""

    @abstractmethod
    def fit(self, batch: ModelBatch) -> tuple[Tensor, Tensor]:
        """Trains models; a result depends on the rest of the batch by rounding alone.

        Returns:
            Flat parameters, shape [S, d], float64, and whether each model converged, shape [S].
        """

    @abstractmethod
    def outputs(self, config: MembershipConfig, flat: Tensor, x: Tensor, classes: int) -> Tensor:
        """Computes logits or predicted numbers of models [S, d] at records [S, n, p] or [n, p].

        Returns:
            Shape [S, n, q]; q = 1 for a number, or for the logit of the second of two classes.
        """

    def identify(self, flat: Tensor, classes: int) -> Tensor:
        """Removes directions of the parameters that no output depends on; none by default."""
        return flat

    def stages(
        self,
        experiment: Experiment[MembershipConfig],
        configs: Sequence[MembershipConfig],
        device: str,
        state: State,
    ) -> Iterator[Stage]:
        """Trains the models of all configurations in one queue, several at a time.

        The state has the models that are trained, of the unfinished configurations.
        """
        universe, first = Universe.load(configs[0], device), configs[0]
        features, classes, place = universe.x.shape[1], universe.classes, universe.x.device
        at_once = self.model.models_at_once(first, features, classes, place.type)
        draws, total = first.draws, len(configs) * first.draws
        d = self.parameter_count(first, features, classes)
        trained = state.get("parameters", universe.x.new_zeros(0, d)).to(place)
        converged = state.get("converged", torch.zeros(0, dtype=torch.bool)).to(place)
        if trained.shape[1] != d or len(trained) > total:
            raise ValueError(f"state of shape {tuple(trained.shape)} is of another stack.")
        waiting = [TrainingDesign.draw(config, universe.size) for config in configs]
        while waiting:
            parts, start = [], len(trained)
            end = min(start + at_once, len(waiting) * draws)
            while start < end:  # a batch may span configurations
                number, begin = divmod(start, draws)
                stop = min(draws, begin + end - start)
                parts.append((waiting[number], range(begin, stop)))
                start += stop - begin
            fitted, did_converge = self.fit(make_batch(parts, universe))
            trained = torch.cat([trained, fitted])
            converged = torch.cat([converged, did_converge])
            points = []
            while waiting and len(trained) >= draws:
                design, unconverged = waiting.pop(0), int((~converged[:draws]).sum())
                observed = self.observe(design, trained[:draws], unconverged, universe)
                points.append(experiment.point(design.config, evaluate(design.config, observed)))
                trained, converged = trained[draws:], converged[draws:]
            done = 1 - (len(waiting) * draws - len(trained)) / total
            kept = {"parameters": trained.clone(), "converged": converged.clone()}
            yield Stage(done, tuple(points), partial(dict, kept))

    def observe(
        self, design: TrainingDesign, flat: Tensor, unconverged: int, universe: Universe
    ) -> Observations:
        """Observes the models of one configuration, from parameters [J, d] without noise."""
        config = design.config
        noise = parameter_noise(config)
        noisy = add_noise(config, flat, noise)
        predictor = _ModelPredictor(self, config, noisy, universe)
        observed = observe_outputs(design, predictor, universe)
        trials = replace(observed.trials, parameters=self.identify(noisy, universe.classes))
        member, coefficients = trials.member, self.identify(flat, universe.classes)
        count, half = coefficients.shape[1], len(flat) // 2
        counts = [leakage.fold_counts(part) for part in member.chunk(2, dim=1)]
        undefined = leakage.too_few_draws(torch.cat(counts), count)
        if not self.has_covariance or count > _MAX_COVARIANCE:
            undefined = (
                f"a covariance of {count} parameters is out of reach; privacy/rho_kl_output is a "
                "lower bound"
            )
        sides = halves = None
        if undefined is None:
            sides = shared_sides(coefficients, member, noise)
            halves = (
                shared_sides(coefficients[:half], member[:, :half], noise),
                shared_sides(coefficients[half:], member[:, half:], noise),
            )
        notes = {}
        if unconverged:
            reason = f"{unconverged} of {len(flat)} models did not converge"
            if config.private_mechanism == "output_perturbation":
                notes["privacy/epsilon"] = f"{reason}: the sensitivity holds for minimisers only"
            if config.weight_decay == 0:
                reason += "; separable data have no minimiser without weight decay"
            notes["privacy/membership_advantage"] = reason
        return replace(
            observed, trials=trials, sides=sides, halves=halves, undefined=undefined, notes=notes
        )


def make_batch(parts: Sequence[tuple[TrainingDesign, range]], universe: Universe) -> ModelBatch:
    """Collects some training sets of several configurations of equal structure."""
    device = universe.x.device
    sets = np.concatenate([design.sets[models.start : models.stop] for design, models in parts])
    index = torch.from_numpy(sets.astype(np.int64)).to(device)
    configs = [design.config for design, models in parts for _ in models]
    references = None
    if any(config.leakage_weight for config in configs):
        drawn = [design.references(j, universe.size) for design, models in parts for j in models]
        outside = torch.from_numpy(np.stack(drawn)).to(device)
        references = universe.x[outside], universe.y[outside]
    return ModelBatch(
        config=configs[0],
        members=tuple((design.config, models) for design, models in parts),
        x=universe.x[index],
        y=universe.y[index],
        classes=universe.classes,
        steps=configs[0].steps,
        weight_decay=torch.tensor([c.weight_decay for c in configs], device=device).double(),
        learning_rate=torch.tensor([c.learning_rate for c in configs], device=device).double(),
        leakage_weight=torch.tensor([c.leakage_weight for c in configs], device=device).double(),
        references=references,
    )


def fit_privately(
    batch: ModelBatch, initial: Sequence[Tensor], gradients: ClippedGradients
) -> tuple[Tensor, Tensor]:
    """Trains a batch by DP-SGD, in float32, from initial parameters [S, ...].

    Returns:
        Flat parameters, shape [S, d], float64, and whether each model converged (all count as
        converged), shape [S].
    """
    device = batch.x.device
    parameters = [tensor.to(device).float().contiguous() for tensor in initial]
    configs = [config for config, models in batch.members for _ in models]
    noise = [guarantee_of(config).noise for config in configs]
    schedule = PrivateSchedule(
        batch.steps,
        batch.config.sample_rate,
        torch.tensor([config.clip for config in configs], device=device),
        torch.tensor(noise, device=device),
        batch.weight_decay,
    )
    randoms = [
        random_stream(config, f"private training {j}")
        for config, models in batch.members
        for j in models
    ]
    optimiser = StackedAdam(parameters, batch.learning_rate.float())
    train_privately(optimiser, gradients, batch.x.float(), batch.y, schedule, randoms)
    flat = torch.cat([tensor.flatten(1) for tensor in parameters], dim=1).double()
    return flat, torch.ones(len(flat), dtype=torch.bool, device=device)


def with_reference_class(logits: Tensor) -> Tensor:
    """Adds the logit 0 of the first of two classes to logits [..., 1]."""
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], dim=-1)


class _ModelPredictor(Predictor):
    """Models with known parameters, evaluated in chunks of bounded size."""

    def __init__(
        self, trainer: SharedTrainer, config: MembershipConfig, flat: Tensor, universe: Universe
    ) -> None:
        self.classifies = predicts_classes(config)
        self._trainer, self._config = trainer, config
        self._flat, self._universe = flat, universe

    def at(self, index: Tensor) -> Outputs:
        """Outputs at records of each model, shape [J, n], or the same for all, shape [n]."""
        chunks = [self._outputs(raw, y) for raw, y in self._raw(index)]
        return Outputs(*(torch.cat(columns) for columns in zip(*chunks, strict=True)))

    def predict(self, index: Tensor, models: int) -> tuple[Tensor, Tensor | None]:
        """See `Predictor.predict`."""
        raw = torch.cat([part for part, _ in self._raw(index, models)])
        if not self.classifies:
            return raw[..., 0], None
        logits = with_reference_class(raw)
        return logits.argmax(-1), logits.log_softmax(-1)

    def _raw(self, index: Tensor, models: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits or predicted numbers of the first or all models, some at a time, and targets."""
        universe = self._universe
        width = max(self._config.hidden_units, universe.x.shape[1], universe.classes)
        step = max(1, _CHUNK_NUMBERS[universe.x.device.type] // (index.shape[-1] * width))
        count = min(len(self._flat), models or len(self._flat))
        for start in range(0, count, step):
            chunk = slice(start, min(start + step, count))
            part = index if index.ndim == 1 else index[chunk]
            flat, x = self._flat[chunk], universe.x[part]
            raw = self._trainer.outputs(self._config, flat, x, universe.classes)
            yield raw, universe.y[part]

    def _outputs(self, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self.classifies:
            merit = (y - raw[..., 0]).square()
            return merit, merit, raw[..., 0]
        # Reductions over records side by side are several times faster than over a short last axis.
        logits = with_reference_class(raw).mT
        true = y.long().expand(logits.shape[0], logits.shape[2])[:, None]
        own = logits.gather(1, true)
        rivals = logits.scatter(1, true, -torch.inf)
        top = rivals.amax(1, keepdim=True)
        right = own > top
        if bool((is_tied := own == top).any()):  # the first of equal classes is predicted
            right |= is_tied & (logits.argmax(1, keepdim=True) == true)
        others = top + rivals.sub_(top).exp_().sum(1, keepdim=True).log_()
        log_odds = (own - others)[:, 0]
        return -torch.nn.functional.logsigmoid(log_odds), right[:, 0].double(), log_odds
