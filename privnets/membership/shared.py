"""Target models too dear to train per record: each trained model serves every asked record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.membership import leakage, logistic
from privnets.membership.attacks import Trials
from privnets.membership.config import MembershipConfig
from privnets.membership.design import shared_subsets
from privnets.membership.evaluation import Mean, Observations
from privnets.membership.leakage import Sides, shared_sides
from privnets.membership.outputs import Answers, TrainedModels, shape
from privnets.membership.universe import Universe, asked_records
from privnets.networks.mlp import Shape, forward
from privnets.networks.training import StackedAdam
from privnets.randomness import generator

# Records outside the training set on which utility is measured, about.
_TEST_RECORDS = 1000
# Covariances of more parameters than this are out of reach of any number of draws one can train.
_MOST_PARAMETERS = 256


@dataclass(frozen=True)
class Models:
    """Trained models of one configuration.

    Attributes:
        parameters: Flat, without noise, shape [J, d].
        unfinished: How many stopped before converging.
    """

    parameters: Tensor
    unfinished: int


@dataclass(frozen=True)
class Task:
    """What one configuration trains on.

    Attributes:
        config: The configuration.
        records: Asked records, shape [R].
        sets: Training sets, shape [J, n].
        member: Shape [R, J].
    """

    config: MembershipConfig
    records: np.ndarray
    sets: np.ndarray
    member: np.ndarray

    @classmethod
    def of(cls, config: MembershipConfig, population: int) -> Task:
        """Draw the training sets, which depend on the seed and on sizes alone."""
        records = asked_records(config, population)
        random = generator(config.seed, "training sets")
        sets, member = shared_subsets(random, population, records, config.train_size, config.draws)
        return cls(config, records, sets, member)


def width(config: MembershipConfig, universe: Universe, classes: int) -> int:
    """Numbers that one model has."""
    if config.model == "mlp":
        return shape(config, universe.x.shape[1], classes).parameters
    return universe.x.shape[1] * (1 if classes == 2 else classes)


def train(
    tasks: Sequence[tuple[Task, slice]], universe: Universe, classes: int
) -> tuple[Tensor, Tensor]:
    """Train some models of several configurations as one stack.

    Args:
        tasks: Configurations, and which of each one's training sets to use.
        universe: The data, on the device to compute on.
        classes: Of the target.

    Returns:
        Flat parameters, shape [S, d], and whether each model converged, shape [S].
    """
    device = universe.x.device
    sets = np.concatenate([task.sets[part] for task, part in tasks])
    index = torch.from_numpy(sets.astype(np.int64)).to(device)
    counts = [part.stop - part.start for _, part in tasks]
    repeats = torch.tensor(counts, device=device)
    decay = torch.tensor([t.config.weight_decay for t, _ in tasks], device=device).double()
    config = tasks[0][0].config
    x, y = universe.x[index], universe.y[index]
    if config.model == "logistic":
        weights, converged = logistic.fit(x, y.long(), classes, decay.repeat_interleave(repeats))
        return weights.flatten(1), converged
    rates = torch.tensor([t.config.learning_rate for t, _ in tasks], device=device).double()
    layers = shape(config, x.shape[-1], classes)
    flat = torch.cat([_initial(layers, task, part) for task, part in tasks]).to(device).float()
    decays, rates = (v.float().repeat_interleave(repeats) for v in (decay, rates))
    _descend(layers, flat, x.float(), y.float(), config.steps, decays, rates)
    return flat.double(), torch.ones(len(flat), dtype=torch.bool, device=device)


def observe(task: Task, models: Models, universe: Universe, classes: int) -> Observations:
    """What the models of one configuration show to attackers and users."""
    config, device = task.config, universe.x.device
    clean, member = models.parameters, torch.from_numpy(task.member).to(device)
    noisy = clean if config.noise_std == 0 else clean + config.noise_std * _noise(config, clean)
    records = torch.from_numpy(task.records).to(device)
    trained = TrainedModels(config, noisy, universe, classes)
    inside = trained.at(torch.from_numpy(task.sets.astype(np.int64)).to(device))
    trials = _trials(trained, universe, records, member, inside.loss.mean(1))
    coefficients = _identified(config, clean, classes)
    undefined = _why_undefined(config, coefficients, member)
    known = undefined is None
    return Observations(
        records=records,
        trials=trials,
        parameters=_identified(config, noisy, classes).expand(len(records), -1, -1)
        if known
        else None,
        sides=shared_sides(coefficients, member, config.noise_std) if known else None,
        halves=_halves(coefficients, member, config) if known else None,
        output=shared_sides(trials.signal[..., None], member),
        undefined=undefined,
        interpolates=None,
        caution=None,
        prior=config.train_size / universe.size,
        test=_test(task, trained, universe),
        train=Mean.of(inside.merit.mean(1)),
        shared_models=True,
        notes=_notes(models),
    )


def _trials(
    trained: TrainedModels, universe: Universe, records: Tensor, member: Tensor, train_loss: Tensor
) -> Trials:
    answers: Answers = trained.at(records)
    output = answers.output.T
    if trained.classifies:
        # log p - log(1 - p), with 1 - p taken from log p without cancellation.
        signal = output - torch.log(-torch.expm1(output.clamp_max(-1e-15)))
        error = -torch.expm1(output)
    else:
        signal = error = universe.y[records, None] - output
    fold = torch.arange(member.shape[1], device=member.device) >= member.shape[1] // 2
    return Trials(
        member=member,
        fold=fold.long(),
        signal=signal,
        error=error,
        loss=answers.loss.T,
        train_loss=train_loss.expand_as(signal),
        two_sided=not trained.classifies,
    )


def _test(task: Task, trained: TrainedModels, universe: Universe) -> Mean:
    """Utility at records outside each model's training set."""
    population, size = universe.size, task.config.train_size
    wanted = min(population, -(-_TEST_RECORDS * population // (population - size)))
    random = generator(task.config.seed, "test records")
    chosen = random.permutation(population)[:wanted]
    device = universe.x.device
    outside = torch.from_numpy(_outside(task.sets, chosen, population)).to(device)
    merit = trained.at(torch.from_numpy(chosen).to(device)).merit
    return Mean.two_way(merit, outside, 1 - wanted / population)


def _outside(sets: np.ndarray, chosen: np.ndarray, population: int) -> np.ndarray:
    place = np.full(population, -1)
    place[chosen] = np.arange(len(chosen))
    outside = np.ones((len(sets), len(chosen) + 1), dtype=bool)
    np.put_along_axis(outside, place[sets], False, axis=1)
    return outside[:, :-1]


def _why_undefined(config: MembershipConfig, coefficients: Tensor, member: Tensor) -> str | None:
    numbers = coefficients.shape[1]
    if config.model == "mlp" or numbers > _MOST_PARAMETERS:
        return (
            f"the covariance of {numbers} parameters is out of reach; see privacy/rho_kl_output, "
            "a lower bound"
        )
    return leakage.too_few_draws(leakage.fold_counts(member), numbers)


def _halves(coefficients: Tensor, member: Tensor, config: MembershipConfig) -> tuple[Sides, Sides]:
    half = member.shape[1] // 2
    return (
        shared_sides(coefficients[:half], member[:, :half], config.noise_std),
        shared_sides(coefficients[half:], member[:, half:], config.noise_std),
    )


def _identified(config: MembershipConfig, flat: Tensor, classes: int) -> Tensor:
    """Coefficients less what the softmax ignores: an equal shift of all classes."""
    if config.model == "mlp" or classes == 2:
        return flat
    weights = flat.view(len(flat), -1, classes)
    basis = torch.linalg.qr(
        torch.eye(classes, dtype=flat.dtype, device=flat.device)[:, :-1] - 1 / classes
    ).Q
    identified: Tensor = weights @ basis
    return identified.flatten(1)


def _initial(layers: Shape, task: Task, part: slice) -> Tensor:
    seed = task.config.seed
    return torch.stack(
        [layers.initial(generator(seed, f"network {j}")) for j in range(part.start, part.stop)]
    )


def _descend(
    layers: Shape, flat: Tensor, x: Tensor, y: Tensor, steps: int, decay: Tensor, rate: Tensor
) -> None:
    """Full-batch Adam on mean loss plus weight decay times the squared norm, in place."""
    parameters = layers.unpack(flat)
    for parameter in parameters:
        parameter.requires_grad_()
    optimiser = StackedAdam(parameters, rate)
    for _ in range(steps):
        loss = _loss(forward(parameters, x), y)
        gradients = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            pulled = [
                g + 2 * decay.view(-1, 1, 1) * p for g, p in zip(gradients, parameters, strict=True)
            ]
            optimiser.step(pulled)


def _loss(output: Tensor, y: Tensor) -> Tensor:
    if output.shape[-1] == 1:
        return (output[..., 0] - y).square().mean(1)
    flat = torch.nn.functional.cross_entropy(
        output.flatten(0, 1), y.long().flatten(), reduction="none"
    )
    return flat.view(y.shape).mean(1)


def _noise(config: MembershipConfig, like: Tensor) -> Tensor:
    drawn = generator(config.seed, "noise").standard_normal(like.shape)
    return torch.from_numpy(drawn).to(like)


def _notes(models: Models) -> dict[str, str]:
    if not models.unfinished:
        return {}
    return {
        "privacy/membership_advantage": f"{models.unfinished} of {len(models.parameters)} models "
        "ended short of convergence; separable data have no minimiser without weight decay"
    }
