"""Checks that every extension of a kind must pass, for the tests of other packages as well.

Each function raises AssertionError with the property that does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackerGuesses, KnownRows
from privnets.adversarial.objective import Objective
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import load_pool
from privnets.adversarial.training.game import Game
from privnets.attacks.base import Attack
from privnets.audit.model_signals import ModelSignals
from privnets.audit.selection import cross_fit
from privnets.config import ExperimentConfig
from privnets.contract import Experiment, Stage
from privnets.membership.trials import Population, Trials, guess, score_guesses, why_unavailable
from privnets.statistics.roc import ScoredTrials

_SPLITS = ("train", "attack", "validation", "test")


def check_attack(attack: Attack) -> None:
    """Checks a membership attack in sweeps and in audits; it must be available in one of them.

    Scores must have the shape of the trials, show no leakage where there is none, and find a large
    leak: of signals three standard deviations apart in a sweep, four in an audit.
    """
    places = (_check_in_sweeps(attack), _check_in_audits(attack))
    assert None in places, f"attack {attack.name!r} is not available: {'; '.join(map(str, places))}"
    assert attack.paper, "the source of the attack is needed"


def _check_in_sweeps(attack: Attack) -> str | None:
    """Checks an attack on `make_trials`; returns the reason if it is not available.

    There must be no advantage without leakage beyond four standard errors, and an AUC above 0.9
    with strong leakage.
    """
    for shift in (0.0, 3.0):
        trials = make_trials(shift)
        if reason := why_unavailable(attack, trials):
            return reason
        guesses = guess(attack, trials)
        assert guesses.score.shape == trials.signal.shape, "one score for each trial is needed"
        assert guesses.score.isfinite().all(), "scores in sweeps must be finite"
        score = score_guesses(guesses, trials.member, shared_models=False)
        if shift == 0:
            limit = 4 * score.advantage.error + 1e-12
            value = score.advantage.value
            assert abs(value) <= limit, f"advantage {value:.3f} in a sweep without leakage"
        else:
            auc, advantage = score.auc.value, score.advantage.value
            assert auc > 0.9, f"AUC {auc:.3f} in a sweep with strong leakage"
            assert advantage > 0.3, f"advantage {advantage:.3f} in a sweep with strong leakage"
    return None


def _check_in_audits(attack: Attack) -> str | None:
    """Checks an attack on `make_model_signals`; returns the reason if it is not available.

    The AUC must be one that an interval of twice the width cannot separate from 1/2 without
    leakage, and above 0.85 with a large leak. No leakage includes models with equal outputs, and
    records that are each in exactly half of the models.
    """
    cases = (
        make_model_signals(0.0),
        make_model_signals(0.0, balanced=True),
        make_model_signals(0.0, balanced=True, noise=0.0),
        make_model_signals(4.0),
    )
    for leaks, models in zip((False, False, False, True), cases, strict=True):
        if reason := attack.why_unavailable(models.view):
            return reason
        if attack.family == "learned":
            first = np.arange(models.member.shape[1]) % 2 == 0
            scores = cross_fit(attack, models.view, (first, ~first))
        else:
            scores = attack.score(models.view)
        assert scores.shape == models.target_member.shape, "one score for each trial is needed"
        area = ScoredTrials(scores, models.target_member).area()
        if not leaks:
            assert abs(area.value - 0.5) <= 2 * (area.high - area.value), (
                f"AUC {area.value:.3f} in an audit without leakage; "
                "is the judged model among its own references (`References.left_out`)?"
            )
        else:
            assert area.value > 0.85, f"AUC {area.value:.3f} in an audit with strong leakage"
    return None


def make_trials(shift: float, records: int = 60, draws: int = 40, seed: int = 0) -> Trials:
    """Draws trials of a classifier whose members have signals larger by `shift`.

    Every model has half of the records as members, and every record half of the models. So do the
    records of the population.
    """
    random = np.random.default_rng(seed)
    noise = random.standard_normal((records, 2 * draws))
    others = torch.from_numpy(random.standard_normal((4 * records, 2 * draws)))
    outside = torch.from_numpy(random.random(others.shape) < 0.5)
    others = others + shift * ~outside
    column = torch.arange(2 * draws)
    member = (column // draws + torch.arange(records)[:, None]) % 2 == 1
    signal = torch.from_numpy(noise) + shift * member
    return Trials(
        member=member,
        fold=(column % draws >= draws // 2).long(),
        signal=signal,
        error=torch.special.ndtr(-signal),
        loss=torch.nn.functional.softplus(-signal),
        train_loss=torch.ones_like(signal),
        trajectory=torch.nn.functional.softplus(-signal)[None],
        two_sided=False,
        parameters=signal[..., None],
        population=Population(
            outside=outside,
            signal=others,
            loss=torch.nn.functional.softplus(-others),
            features=torch.ones_like(others[:, :1]),
            features_of_records=others.new_ones(records, 1),
        ),
    )


def make_model_signals(
    shift: float,
    models: int = 16,
    records: int = 400,
    *,
    balanced: bool = False,
    noise: float = 0.7,
) -> ModelSignals:
    """Draws log-odds of models whose members have signals larger by `shift`, with every signal.

    Each record has a level of its own with a standard deviation of 1, and some noise.

    Args:
        balanced: Whether each record is in exactly half of the models, or in each with
            probability 1/2.
        noise: Standard deviation of the noise.
    """
    random = np.random.default_rng(0)
    draws = random.random((models, records))
    member = draws < (np.median(draws, axis=0) if balanced else 0.5)
    level = random.standard_normal(records)
    signal = 1 + level + noise * random.standard_normal(member.shape) + shift * member
    confidence = 1 / (1 + np.exp(-signal))
    names = ("loss", "confidence", "entropy", "modified_entropy", "logit", "score", "correctness")
    return ModelSignals(
        dict.fromkeys(names, signal),
        signal,
        confidence,
        member,
        np.arange(models),
        np.arange(records).astype(object),
        np.inf,
        labels=random.integers(0, 3, records),
    )


def check_table(name: str) -> None:
    """Checks that a registered table has the shapes, types and targets that it describes."""
    info, table = data.info(name), data.load(name)
    assert table.x.shape == (info.records, info.attributes), f"x has shape {table.x.shape}"
    assert table.x.dtype == np.float64, f"x has type {table.x.dtype}"
    assert table.y.shape == (info.records,), f"y has shape {table.y.shape}"
    assert len(table.feature_names) == info.attributes, "one name for each column is needed"
    assert np.isfinite(table.x).all(), "x must be finite"
    assert np.isfinite(table.y).all(), "y must be finite"
    if info.task == "regression":
        assert info.classes == 0, "regression has no classes"
    else:
        classes = set(np.unique(table.y).tolist())
        expected = set(range(info.classes))
        assert classes == expected, f"classes must be 0 to {info.classes - 1}; got {classes}"
    assert table.fingerprint == data.fingerprint(name), "the fingerprint must be reproducible"


def check_experiment(experiment: Experiment[Any], configs: Sequence[ExperimentConfig]) -> None:
    """Checks an experiment on a stack; those of a new target model or problem check that as well.

    Each point must report the declared metrics, have the same numbers alone as in the stack, and
    the same numbers when training continues from the state of a stage.

    Args:
        configs: At least two configurations of equal structure, small enough to train in seconds.
    """
    stages: list[Stage] = []
    states: list[dict[str, torch.Tensor]] = []

    def keep(stage: Stage) -> None:
        stages.append(stage)
        states.append(dict(stage.state()))

    stacked = experiment.run(configs, report=keep)
    for config, point in zip(configs, stacked, strict=True):
        (replicate,) = point.replicates
        assert replicate.failure is None, f"a point failed: {replicate.failure}"
        declared, reported = set(experiment.metric_keys(config)), set(replicate.metrics)
        assert declared == reported, f"metrics that differ: {sorted(declared ^ reported)}"
        assert point.point_id == experiment.point_id(config), "the point has another identity"
        (alone,) = experiment.run([config])
        _check_equal(alone.replicates[0].metrics, replicate.metrics, "alone and in a stack")
    finished = {(p.point_id, p.replicates[0].seed) for p in stages[0].points}
    keys = [(experiment.point_id(config), config.seed) for config in configs]
    rest = [c for c, key in zip(configs, keys, strict=True) if key not in finished]
    for stage in experiment.stages(rest, state=states[0]) if rest else ():
        for point in stage.points:
            (replicate,) = point.replicates
            original = stacked[keys.index((point.point_id, replicate.seed))]
            _check_equal(replicate.metrics, original.replicates[0].metrics, "after a restart")


def _check_equal(ours: Mapping[str, float], theirs: Mapping[str, float], when: str) -> None:
    for key, value in ours.items():
        other = theirs[key]
        is_equal = math.isclose(value, other, rel_tol=1e-5, abs_tol=1e-7)
        are_undefined = math.isnan(value) and math.isnan(other)
        assert is_equal or are_undefined, f"{key} is {value} and {other}: it differs {when}"


def check_objective(objective: Objective, problem: str = "digits") -> None:
    """Checks that an objective trains each member of a stack as it trains the member alone.

    Two games of a few steps, with other values in every field that the objective reads, run
    together, then by themselves. One of them also continues from a saved state after the other has
    left the stack. The releasers must be equal up to rounding. Every network must train. `measure`
    must return the declared metrics of made-up guesses.
    """
    given = {"problem": problem, "objective": objective.name, "steps": 6, "batch_size": 16}
    numbers = sorted(objective.fields & AdversarialConfig.stackable)
    configs = [
        AdversarialConfig.model_validate(
            {**given, "seed": seed, "alpha": 1.0 + seed, **dict.fromkeys(numbers, 0.3 + seed / 2)}
        )
        for seed in (0, 1)
    ]

    def start(members: Sequence[int]) -> Game:
        chosen = [configs[i] for i in members]
        return Game(PROBLEMS.get(problem), chosen, *load_pool(PROBLEMS.get(problem), chosen, "cpu"))

    together = start([0, 1])
    initial = together.state()
    assert not together.advance(3), "a game diverged within three steps"
    trained = {key: tensor for key, tensor in together.state().items() if ".parameter." in key}
    untrained = [key for key, tensor in trained.items() if torch.equal(tensor, initial[key])]
    assert not untrained, (
        f"{', '.join(untrained)} do not train; "
        "does the loss have the cross-entropy of `step.utility`, which trains the utility network?"
    )
    for member in (0, 1):
        alone = start([member])
        alone.advance(3)
        for one, other in zip(alone.parameters(0), together.parameters(member), strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), "a member depends on its stack"
    together.keep([1])
    continued = start([1])
    continued.restore(together.state())
    for game in (together, continued):
        game.advance(3)
    for one, other in zip(continued.parameters(0), together.parameters(0), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), "a saved state does not continue"
    place = np.arange(40)
    rows = KnownRows(place % 2, place, np.zeros_like(place), place)
    guesses = AttackerGuesses(rows.secret, np.full((40, 2), np.log(0.5)))
    measures = objective.measure(configs[0], guesses, rows, np.array([0.5, 0.5]))
    assert set(measures) == set(objective.metrics), "`measure` must return the declared metrics"


def check_problem(problem: Problem) -> None:
    """Checks that a problem's splits are disjoint, repeatable and of the stated sizes.

    Records must be finite float32 numbers of the stated shape, and labels classes of the problem.
    """
    config = AdversarialConfig.model_validate({"problem": problem.spec.name})
    sizes = problem.whole_sizes(config)
    arrays, (splits,) = problem.load_records([config])
    _, (again,) = problem.load_records([config])
    parts = [getattr(splits, name) for name in _SPLITS]
    for name, part in zip(_SPLITS, parts, strict=True):
        assert len(part) == getattr(sizes, name), f"the split {name} has {len(part)} records"
        assert np.array_equal(part, getattr(again, name)), f"the split {name} is not repeatable"
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together), "a record is in several splits"
    records = np.asarray(arrays.x)[together]
    assert records.dtype == np.float32, f"records have type {records.dtype}"
    assert np.isfinite(records).all(), "records must be finite"
    for name in ("secret", "utility"):
        labels, classes = getattr(arrays, name), getattr(problem.spec, f"{name}_classes")
        if labels is not None and classes:
            used = set(np.unique(np.asarray(labels)[together]).tolist())
            assert used <= set(range(-1, classes)), f"{name} has classes {sorted(used)}"
    assert problem.fingerprint(config) == problem.fingerprint(config), "the fingerprint changes"
