"""The headline says in words what the front and its intervals say."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from synthetic_releases import image_sweep
from synthetic_sweep import SyntheticSweep, membership_points, membership_study

from sweeps.report.headline import headline


def front(sweep: SyntheticSweep, groups: list[int], probability: float = 0.5) -> pd.DataFrame:
    chosen = sweep.front().sort_values("privacy/membership_advantage").iloc[: len(groups)]
    return chosen.assign(**{"front/group": groups, "front/probability": probability})


def test_the_most_private_and_the_most_useful_points_are_named(membership_sweep):
    chosen = front(membership_sweep, [1, 1, 2])
    private, useful = chosen.iloc[0], chosen.sort_values("utility/test_mse").iloc[0]
    text = headline(membership_sweep, chosen)
    assert text.startswith(f"At {private['config/train_size']} training records and weight decay ")
    assert f"the strongest attack gains {private['privacy/membership_advantage']:.3f} ±" in text
    assert "Of the 2 other points of the front, 1 cannot be told apart from it." in text
    place = f"is at {useful['config/train_size']} training records"
    assert f"The lowest test mse, {useful['utility/test_mse']:.4f}" in text
    assert place in text


def test_without_errors_nothing_is_separate(membership_sweep):
    text = headline(membership_sweep, front(membership_sweep, [1, 2, 3], float("nan")))
    assert "Intervals separate" not in text
    assert "no other point can be told apart" in text


def test_a_sweep_without_a_front_says_so():
    points = membership_points(sizes=(30,))
    sweep = SyntheticSweep(membership_study(), points, objectives={"privacy/absent": "min"})
    assert headline(sweep).startswith("No front: none of 4 finished points")


def test_attackers_of_releases_have_their_own_words():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    text = headline(replace(sweep, pending=2))
    assert text.startswith("At privacy weight 10 the strongest attacker's balanced accuracy is 0.6")
    assert text.endswith("2 points unfinished.")
