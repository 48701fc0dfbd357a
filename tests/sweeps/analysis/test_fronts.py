"""Fronts of noisy points: draws, probabilities, groups, hypervolumes and constrained answers."""

from __future__ import annotations

from pathlib import Path

import moocore
import numpy as np
import pandas as pd
import pytest
from stored_sweeps import write_sweep

import sweeps
from privnets.statistics.bootstrap import PointSamples, build_samples
from sweeps.analysis.constrained import Constraint, best_under_constraints
from sweeps.analysis.fronts import (
    debiased_interval,
    draw_volumes,
    front_probabilities,
    hypervolume_draws,
    separate_groups,
)
from sweeps.analysis.pareto import hypervolume
from sweeps.errors import InputError

LEAK, KEPT = "privacy/leak", "utility/kept"
OBJECTIVES = {LEAK: "min", KEPT: "max"}
DRAWN = 4 * np.sqrt(0.25 / 1000)  # four standard errors of a share of 1,000 draws


def make_samples(
    values: np.ndarray, errors: float = np.nan, test_set: str | None = None
) -> PointSamples:
    """Samples of values [points, replicates, 2] that share their seeds."""
    rows = [
        {
            **{"point_id": f"p{point}", "seed": seed, "status": "finished"},
            **{"test_set": test_set, "test_size": np.nan, "test_overlap": 1.0},
            **{LEAK: both[0], KEPT: both[1]},
            **{f"{metric}.standard_error": errors for metric in OBJECTIVES},
        }
        for point, own in enumerate(values)
        for seed, both in enumerate(own)
    ]
    return build_samples(pd.DataFrame(rows), list(OBJECTIVES))


def test_draws_have_the_distribution_of_the_intervals() -> None:
    random = np.random.default_rng(0)
    samples = make_samples(random.normal(size=(4, 5, 2)), errors=0.3, test_set="all")
    drawn = np.quantile(samples.draw(), [0.025, 0.975], axis=0)
    low, high = samples.summary.interval()
    width = high - low
    assert np.abs(drawn[0] - low).max() < 0.1 * width.max()
    assert np.abs(drawn[1] - high).max() < 0.1 * width.max()


def test_points_that_share_seeds_are_compared_in_pairs() -> None:
    """Noise of 1 that both points share does not hide a difference of 0.1; other noise does."""
    random = np.random.default_rng(1)
    noise = random.normal(size=(6, 1))
    shared = np.concatenate([noise, np.zeros((6, 1))], axis=1)
    worse = shared + np.array([0.1, 0.0])
    paired = make_samples(np.stack([shared, worse]))
    assert front_probabilities(paired, OBJECTIVES).tolist() == [1.0, 0.0]
    other = worse + np.outer(random.normal(size=6), [1, 0])
    unpaired = front_probabilities(make_samples(np.stack([shared, other])), OBJECTIVES)
    assert ((unpaired > 0.05) & (unpaired < 0.95)).all()


def test_two_equal_points_share_the_front() -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=(2, 8, 2)) * [1.0, 0.0]
    values -= values.mean(axis=1, keepdims=True)
    shares = front_probabilities(make_samples(values), OBJECTIVES)
    assert shares.sum() == pytest.approx(1.0)
    assert shares == pytest.approx(0.5, abs=DRAWN)


def test_hopeless_points_change_no_probability() -> None:
    random = np.random.default_rng(3)
    near = random.normal(size=(6, 4, 2))
    far = random.normal(size=(200, 4, 2)) * 0.1 + [30.0, -30.0]
    alone = front_probabilities(make_samples(near), OBJECTIVES)
    beside = front_probabilities(make_samples(np.concatenate([near, far])), OBJECTIVES)
    assert beside[:6] == pytest.approx(alone, abs=2 * DRAWN)
    draws = make_samples(near).draw() * [1, -1]
    slow = np.mean([moocore.is_nondominated(each, keep_weakly=True) for each in draws], axis=0)
    assert alone == pytest.approx(slow, abs=1e-12)


def test_without_errors_probabilities_are_unknown() -> None:
    samples = make_samples(np.ones((2, 1, 2)))
    assert np.isnan(front_probabilities(samples, OBJECTIVES)).all()
    assert separate_groups(samples, OBJECTIVES).tolist() == [1, 2]
    draws = hypervolume_draws(samples, OBJECTIVES, {LEAK: 2.0, KEPT: 0.0})
    interval = debiased_interval(1.0, draws, samples.typical_freedom)
    assert (interval.value, str(interval)) == (1.0, "1 [no interval]")


@pytest.mark.parametrize(("test_set", "errors"), [(None, np.nan), ("all", 0.3)])
def test_draws_are_judged_as_without_shortlists(test_set: str | None, errors: float) -> None:
    """Many points of unequal scales, two of them equal, in several blocks of draws."""
    random = np.random.default_rng(9)
    values = random.normal(size=(400, 6, 2)) * [1.0, 1e-3] + [0.0, 5.0]
    best = values[:1] - [2.0, -2e-3]
    samples = make_samples(np.concatenate([values, best, best]), errors, test_set)
    draws, reference = samples.draw() * [1, -1], {LEAK: 3.0, KEPT: 4.99}
    assert len(list(samples.draw_blocks())) > 3
    slow = np.mean([moocore.is_nondominated(each, keep_weakly=True) for each in draws], axis=0)
    assert front_probabilities(samples, OBJECTIVES) == pytest.approx(slow, abs=1e-12)
    volumes = [moocore.hypervolume(each, ref=[3.0, -4.99]) for each in draws]
    fast = draw_volumes(samples.draw(), OBJECTIVES, reference)
    assert fast == pytest.approx(np.array(volumes), rel=1e-12)


def test_probabilities_of_many_points_have_small_errors() -> None:
    """A share of 625 draws has a standard error of at most 0.02."""
    random = np.random.default_rng(10)
    samples = make_samples(random.normal(size=(4000, 2, 2)))
    assert sum(map(len, samples.draw_blocks())) == 625


def test_groups_hold_what_intervals_cannot_separate() -> None:
    random = np.random.default_rng(4)
    centres = np.array([[0.0, 0.0], [0.01, 0.01], [5.0, 5.0], [5.01, 5.01], [9.0, 9.0]])
    values = centres[:, None] + random.normal(size=(5, 6, 2))
    assert separate_groups(make_samples(values), OBJECTIVES).tolist() == [1, 1, 2, 2, 3]


def simulated_sweep(
    random: np.random.Generator, noise: float, replicates: int
) -> tuple[np.ndarray, np.ndarray]:
    """True values of 20 points near a curve, and noisy replicates of them."""
    leak = random.uniform(size=20)
    truth = np.stack([leak, np.sqrt(leak) - 0.1 * random.uniform(size=20)], axis=1)
    common = random.normal(size=(1, replicates, 2))
    own = random.normal(size=(20, replicates, 2))
    return truth, truth[:, None] + noise * (common + own)


@pytest.mark.parametrize(
    ("noise", "replicates"), [pytest.param(0.03, 3, marks=pytest.mark.slow), (0.06, 5)]
)
def test_hypervolumes_of_the_true_means_are_covered(noise: float, replicates: int) -> None:
    random, reference = np.random.default_rng(5), {LEAK: 1.2, KEPT: -0.2}
    covered, plain, corrected = [], [], []
    for _ in range(100):
        truth, values = simulated_sweep(random, noise, replicates)
        frame = pd.DataFrame(truth, columns=list(OBJECTIVES))
        exact = hypervolume(frame, OBJECTIVES, reference)
        samples = make_samples(values)
        means = pd.DataFrame(samples.summary.mean, columns=list(OBJECTIVES))
        estimate = hypervolume(means, OBJECTIVES, reference)
        draws = hypervolume_draws(samples, OBJECTIVES, reference)
        interval = debiased_interval(estimate, draws, samples.typical_freedom)
        covered.append(interval.low <= exact <= interval.high)
        plain.append(estimate - exact)
        corrected.append(interval.value - exact)
    assert np.mean(covered) >= 0.93
    assert abs(np.mean(corrected)) < abs(np.mean(plain)), "noise makes a front look better"


def test_certain_answers_are_right() -> None:
    random, trials = np.random.default_rng(6), 150
    constraint = Constraint(KEPT, ">=", 0.6)
    right = []
    for _ in range(trials):
        truth, values = simulated_sweep(random, 0.007, 5)
        answer = best_under_constraints(make_samples(values), "min", [constraint])
        if answer.is_certain:
            meets = truth[:, 1] >= 0.6
            best = np.where(meets, truth[:, 0], np.inf).argmin()
            right.append(answer.point_id == f"p{best}")
    assert np.mean(right) >= 0.93
    assert 0.2 * trials < len(right) < 0.9 * trials


def test_an_answer_names_its_point_and_probability() -> None:
    values = np.array([[0.2, 0.9], [0.4, 0.97], [0.6, 0.99]])[:, None].repeat(4, axis=1)
    values = values + np.random.default_rng(7).normal(0, 1e-3, values.shape)
    samples = make_samples(values)
    answer = best_under_constraints(samples, "min", [Constraint(KEPT, ">=", 0.95)])
    assert answer.is_certain
    assert answer.point_id == "p1"
    assert "lowest privacy/leak with utility/kept >= 0.95 is privacy/leak = 0.40" in str(answer)
    nothing = best_under_constraints(samples, "min", [Constraint(KEPT, ">=", 0.999)])
    assert nothing.point_id is None
    assert str(nothing).endswith("(probability 1.000).")
    assert str(nothing).startswith("No point reaches utility/kept >= 0.999; the highest")
    assert "is 0.9896" in str(nothing)
    assert "at point p2" in str(nothing)


def test_an_uncertain_answer_names_its_rivals() -> None:
    """The lowest leak belongs to a point that may or may not meet the constraint."""
    random = np.random.default_rng(8)
    noise = random.normal(0, 0.01, (3, 6, 2))
    values = np.array([[0.2, 0.952], [0.4, 0.99], [0.6, 0.99]])[:, None] + noise
    constraints, names = [Constraint(KEPT, ">=", 0.95)], {"p0": "width 8", "p1": "width 16"}
    answer = best_under_constraints(make_samples(values), "min", constraints, names)
    assert not answer.is_certain
    assert answer.point_id == "p1"
    assert 0.05 < answer.shares["p0"] < 0.95
    assert str(answer).startswith("Cannot tell")
    assert "at point p1 (width 16)" in str(answer)
    assert "may also be point p0 (width 8) with probability" in str(answer)
    assert "though part of its interval misses the limit" in str(answer)


def test_without_errors_nothing_is_certain() -> None:
    """One replicate without standard errors gives no draw."""
    samples = make_samples(np.array([[[0.2, 0.9]], [[0.4, 0.97]]]))
    for limit in (0.5, 0.999):
        answer = best_under_constraints(samples, "min", [Constraint(KEPT, ">=", limit)])
        assert (answer.point_id, answer.is_certain, answer.unknown) == (None, False, 2)
        assert str(answer).startswith("Cannot tell")
        assert "Points left out, as their errors are unknown: 2." in str(answer)


@pytest.mark.parametrize("text", ["utility/kept > 1", "utility/kept", ">= 1", "a >= nan", "a >="])
def test_invalid_constraints_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="METRIC >= NUMBER"):
        Constraint.parse(text)


def test_a_percentage_is_refused_with_the_number_to_write() -> None:
    with pytest.raises(InputError, match=r"write 60% as 0\.6$"):
        Constraint.parse("utility/kept >= 60%")


def test_constraints_are_parsed() -> None:
    assert Constraint.parse("utility/kept>=0.95") == Constraint(KEPT, ">=", 0.95)
    assert str(Constraint.parse("privacy/leak  <= 1e-3")) == "privacy/leak <= 0.001"


def test_a_result_answers_and_leaves_out_flagged_points(tmp_path: Path) -> None:
    objectives = {"privacy/membership_advantage": "min", "utility/test_accuracy": "max"}
    metrics = [(0.1, 0.96), (0.5, 0.99)]
    write_sweep(tmp_path, "first", objectives, metrics, replicates=3, flags=[1.0, 0.0])
    result = sweeps.open_result("first", str(tmp_path))
    constraint = "utility/test_accuracy >= 0.95"
    leak = "privacy/membership_advantage"
    assert result.lowest(leak, constraint).value.value == pytest.approx(0.5)
    assert result.swept_fields[0] in str(result.lowest(leak, constraint))
    assert result.lowest(leak, constraint, include_flagged=True).value.value == pytest.approx(0.1)
    assert result.highest("utility/test_accuracy", f"{leak} <= 0.6").value.value == 0.99
    with pytest.raises(InputError, match=r"expected limits in \[0, 1\]; divide percentages by 100"):
        result.lowest(leak, "utility/test_accuracy >= 95")
    write_sweep(tmp_path, "flagged", objectives, metrics, replicates=3, flags=[1.0, 1.0])
    assert sweeps.open_result("flagged", str(tmp_path)).front().empty
    front, whole = result.front(), result.front(include_flagged=True, all=True)
    assert (len(front), len(whole)) == (1, 2)
    assert front["front/probability"].tolist() == [1.0]
    assert whole["front/group"].tolist() == [1, 2]
    corner = {leak: 1.0, "utility/test_accuracy": 0.0}
    assert hypervolume(whole, objectives, corner) == pytest.approx(0.5 * 0.99)
    assert hypervolume(whole, objectives, corner, include_flagged=True) == pytest.approx(
        0.5 * 0.99 + 0.4 * 0.96
    )
    assert result.hypervolume(reference=corner).value == pytest.approx(0.5 * 0.99)
    assert result.hypervolume(reference=corner, include_flagged=True).value == pytest.approx(
        0.5 * 0.99 + 0.4 * 0.96
    )
    kinds = {trace.name.partition(",")[0] for trace in result.plot_front().data}
    assert {"flagged (1)", "Pareto front (1)"} <= kinds
