"""The headline says in words what the front and its intervals say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_releases import image_sweep
from synthetic_sweep import OBJECTIVES, SyntheticSweep, membership_points, membership_study

from privnets.points import Replicate
from sweeps.analysis.remarks import note_trivial_model
from sweeps.analysis.text import metric_label
from sweeps.report.headline import headline


def chained_replicate(size: float, decay: float, seed: int) -> Replicate:
    """Replicate of a chain of three points: intervals separate its ends alone.

    The differences of neighbours are 0.7 and have a standard error of 0.37, so that their 95%
    intervals reach 0.94 to both sides.
    """
    place, side = divmod(seed, 2)
    noise = (1 - 2 * side) * (place == size)
    metrics = {
        "privacy/membership_advantage": 0.7 * size + noise,
        "utility/test_mse": -0.7 * size + noise,
    }
    return Replicate(seed, metrics, finished_at=1.7e9)


def test_the_most_private_and_the_most_useful_points_are_named(membership_sweep):
    chosen = membership_sweep.front().sort_values("privacy/membership_advantage")
    private, useful = chosen.iloc[0], chosen.sort_values("utility/test_mse").iloc[0]
    text = headline(membership_sweep)
    assert text.startswith(f"At {private['config/train_size']} training records and weight decay ")
    assert (
        f"the strongest attack's advantage is {private['privacy/membership_advantage']:.3f} ±"
        in text
    )
    place = f"is at {useful['config/train_size']} training records"
    assert f"The lowest test mse, {useful['utility/test_mse']:.4f}" in text
    assert place in text


@pytest.mark.parametrize("metrics", [list(OBJECTIVES), list(OBJECTIVES)[::-1]])
def test_points_that_cannot_be_told_apart_are_counted_pair_by_pair(metrics):
    """In the second order the most private point is alone in a group of the front."""
    points = membership_points((0, 1, 2), (0.0,), replicate=chained_replicate)
    objectives = {metric: OBJECTIVES[metric] for metric in metrics}
    sweep = SyntheticSweep(membership_study(), points, objectives=objectives)
    assert len(sweep.front()) == 3
    text = headline(sweep)
    first, second = [metric_label(metric) for metric in metrics]
    assert (
        f"It differs from 1 of the 2 other points of the front (1 in {first}, 1 in {second}; "
        "differences paired by seed)." in text
    )


def test_the_named_points_have_their_metric_and_their_probability(membership_sweep):
    front = membership_sweep.front().sort_values("privacy/membership_advantage")
    front["front/probability"] = [0.97, *[0.5] * (len(front) - 2), 0.88]
    text = headline(membership_sweep, front)
    assert (
        "This point has the lowest membership advantage of the front and is on the front with "
        "probability 0.97." in text
    )
    assert text.endswith("This point is on the front with probability 0.88.")


def test_without_errors_nothing_is_separate():
    text = headline(SyntheticSweep(membership_study(), membership_points(seeds=1)))
    assert "It differs" not in text
    assert "no other point can be told apart" in text


def test_a_sweep_without_a_front_says_so():
    points = membership_points(sizes=(30,))
    sweep = SyntheticSweep(membership_study(), points, objectives={"privacy/absent": "min"})
    assert headline(sweep).startswith("No front: none of 4 finished points")


def test_attackers_of_releases_have_their_own_words():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    text = headline(replace(sweep, pending=2))
    start = "At privacy weight 10, the strongest attacker's balanced accuracy is 0.6"
    assert text.startswith(start)
    assert text.endswith("2 points unfinished.")


def _compared_with_trivial(utilities):
    """Headline and remarks of a sweep whose trivial model has the error 0.5, with small errors."""

    def replicate(size, decay, seed):
        metrics = {
            "privacy/membership_advantage": size / 10 + 0.001 * seed,
            "utility/test_mse": utilities[int(size)] + 0.001 * seed,
            "floor/utility_test_mse": 0.5,
        }
        return Replicate(seed, metrics, finished_at=1.7e9)

    sizes = tuple(range(len(utilities)))
    points = membership_points(sizes, (0.0,), replicate=replicate)
    sweep = SyntheticSweep(membership_study(), points)
    return headline(sweep), note_trivial_model(sweep.front(), OBJECTIVES)


def test_a_front_that_does_not_beat_the_trivial_model_says_so_first():
    text, remarks = _compared_with_trivial([0.6, 0.55, 0.4995])
    expected = (
        "No point of the front is shown to be better than the trivial model, which always gives "
        "the most frequent class or the mean; its test mse is 0.5."
    )
    assert remarks == [expected]
    assert text.startswith(expected)


def test_points_that_beat_the_trivial_model_are_counted():
    text, remarks = _compared_with_trivial([0.6, 0.4, 0.3])
    assert remarks == [
        "2 of 3 points on the front are shown to be better than the trivial model, whose test mse "
        "is 0.5."
    ]
    assert "trivial" not in text
