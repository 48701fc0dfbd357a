"""The headline says in words what the front and its intervals say."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from synthetic_releases import image_sweep
from synthetic_sweep import OBJECTIVES, SyntheticSweep, membership_points, membership_study

from privnets.points import Replicate
from sweeps.analysis.remarks import note_trivial_model
from sweeps.report.headline import headline, headline_sentences

ADVANTAGE, ERROR = OBJECTIVES


def made_sweep(values, sizes=(1, 2, 3, 4, 5), objectives=OBJECTIVES, **config):
    """A sweep of sizes whose metrics are `values(size)`, with a spread of 0.01 over replicates."""

    def replicate(size, decay, seed):
        noise = 0.01 * np.random.default_rng([int(size), seed]).normal(size=2)
        metrics = dict(zip(OBJECTIVES, np.array(values(size)) + noise, strict=True))
        return Replicate(seed, metrics, finished_at=1.7e9)

    points = membership_points(sizes, (0.0,), replicate=replicate, **config)
    return SyntheticSweep(membership_study(), points, objectives=objectives)


def test_the_first_sentence_has_the_effect_of_the_knob():
    sweep = SyntheticSweep(membership_study(), membership_points())
    means = sweep.points.groupby("config/train_size")[[*OBJECTIVES]].mean()
    falls = means.loc[10] - means.loc[1000]
    match = re.fullmatch(
        r"Training records from 10 to 1000, other settings averaged: "
        r"membership advantage falls by (\S+) ± \S+, test mse by (\S+) ± \S+\.",
        headline_sentences(sweep)[0],
    )
    assert [float(size) for size in match.groups()] == pytest.approx([*falls], abs=5e-4)


def test_the_second_sentence_has_the_best_point_in_each_objective(membership_sweep):
    front = membership_sweep.front(all=True)
    private, useful = (front.loc[front[metric].idxmin()] for metric in OBJECTIVES)
    places = [
        f"at {row['config/train_size']} training records, weight decay "
        f"{row['config/weight_decay']:g}"
        for row in (private, useful)
    ]
    assert re.fullmatch(
        rf"Lowest membership advantage \S+ ± \S+ {places[0]}; "
        rf"lowest test mse \S+ ± \S+ {places[1]}\.",
        headline_sentences(membership_sweep)[1],
    )


def test_where_nothing_is_beyond_chance_no_point_is_praised():
    sweep = made_sweep(lambda size: (0.05, 0.3))
    highest = sweep.points[[f"{metric}.ci_high" for metric in OBJECTIVES]].max()
    first, second = headline_sentences(sweep)
    assert first == "Training records: no effect beyond chance."
    match = re.fullmatch(r"Membership advantage at most (\S+); test mse at most (\S+)\.", second)
    for shown, value in zip(map(float, match.groups()), highest, strict=True):
        assert value <= shown < 1.1 * value
        assert shown == float(f"{shown:.2g}")


def test_limits_of_larger_is_better_are_rounded_down():
    sweep = made_sweep(lambda size: (0.05, 0.357), objectives={ADVANTAGE: "min", ERROR: "max"})
    lowest = sweep.points[f"{ERROR}.ci_low"].min()
    shown = float(re.search(r"mse at least (\S+)\.$", headline(sweep))[1])
    assert 0.9 * lowest < shown <= lowest


def test_an_objective_that_does_not_change_keeps_to_a_limit():
    first, second = headline_sentences(made_sweep(lambda size: (0.1 * size, 0.3)))
    assert "membership advantage rises by 0.4" in first
    assert first.endswith(", test mse shows no change beyond chance.")
    assert re.match(r"Lowest membership advantage \S+ ± \S+ at 1 training record; ", second)
    assert "; test mse at most 0.3" in second


def test_a_change_that_is_not_from_end_to_end_is_no_chance():
    first, _ = headline_sentences(made_sweep(lambda size: (abs(size - 3), 0.1 * size)))
    assert "membership advantage varies, with no change from end to end" in first


def test_a_curve_that_turns_is_not_said_to_fall():
    """The last value is below the first, but three of the four between lie above both."""
    heights = {1: 0.5, 2: 0.6, 3: 0.7, 4: 0.6, 5: 0.3}
    first, _ = headline_sentences(made_sweep(lambda size: (heights[size], 0.1 * size)))
    assert "membership advantage neither rises nor falls throughout" in first
    assert "test mse rises by" in first


def test_points_without_an_order_are_not_praised_if_they_cannot_be_told_apart():
    points = [*made_sweep(lambda size: (0.05, 0.3), (1,), model="linear").tradeoff_points]
    points += [
        replace(point, point_id="f" * 20, config={**point.config, "model": "mlp"})
        for point in points
    ]
    study = membership_study(space={"model": {"choice": ["linear", "mlp"]}}, fixed={}, claims=[])
    sweep = SyntheticSweep(study, points)
    front = sweep.front(all=True).assign(**{"front/group": 1})
    assert headline(sweep, front).startswith("Membership advantage at most 0.0")


def random_search(points, seeds=6):
    """Points at random in two fields, of which both objectives depend on the second alone."""
    random, found = np.random.default_rng(3), []
    for size, decay in zip(random.random(points), random.random(points), strict=True):

        def replicate(size, decay, seed):
            noise = 0.01 * np.random.default_rng([int(1e6 * size), seed]).normal(size=2)
            metrics = dict(zip(OBJECTIVES, np.add(noise, (decay, 1 - decay)), strict=True))
            return Replicate(seed, metrics, finished_at=1.7e9)

        (point,) = membership_points((size,), (decay,), seeds, replicate=replicate)
        found.append(replace(point, point_id=f"{len(found):020x}"))
    return SyntheticSweep(membership_study(claims=[]), found)


def test_points_that_differ_in_several_fields_show_the_effect_of_none():
    """The points at the ends of a knob differ in the other one, which may be the cause."""
    text = headline(random_search(12))
    assert text.startswith("Lowest membership advantage ")
    assert " from " not in text


def test_paired_fields_are_one_knob():
    sizes = {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2, 5: 0.1}

    def replicate(size, decay, seed):
        values = np.array([0.1 * size + 0.2 * (decay > 1), 0.5])
        noise = 0.01 * np.random.default_rng([int(size), seed]).normal(size=2)
        return Replicate(seed, dict(zip(OBJECTIVES, values + noise, strict=True)), finished_at=1e9)

    def sweep(clips):
        points = [
            replace(point, config={**point.config, "noise_std": sizes[point.config["train_size"]]})
            for point in membership_points([*sizes], clips, replicate=replicate)
        ]
        space = {
            "train_size": {"grid": [*sizes]},
            "noise_std": {"grid": [*sizes.values()], "along": "train_size"},
            "weight_decay": {"grid": [*clips]},
        }
        return SyntheticSweep(membership_study(claims=[], space=space), points)

    start = "Training records from 1 to 5{}: membership advantage rises by 0.40"
    assert headline(sweep((1.0,))).startswith(start.format(""))
    averaged = start.format(", other settings averaged")
    assert headline(sweep((1.0, 2.0))).startswith(averaged)


def test_one_replicate_shows_no_effect():
    text = headline(SyntheticSweep(membership_study(), membership_points(seeds=1)))
    assert text.startswith("Lowest advantage ") or text.startswith("Lowest membership advantage ")
    assert "rises" not in text
    assert "chance" not in text


def test_a_sweep_without_a_front_says_so():
    points = membership_points(sizes=(30,))
    sweep = SyntheticSweep(membership_study(), points, objectives={"privacy/absent": "min"})
    assert headline(sweep).startswith("No front: none of 4 finished points")


def test_attackers_of_releases_have_their_own_words():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    text = headline(replace(sweep, pending=2))
    assert "owest attacker's balanced accuracy 0.6" in text
    assert " at privacy weight 10;" in text
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
    return headline(sweep), note_trivial_model(sweep.front(all=True), OBJECTIVES)


def test_a_trivial_model_that_no_point_beats_is_named():
    text, remarks = _compared_with_trivial([0.6, 0.55, 0.4995])
    assert remarks == [
        "No point of the front is shown to be better than the trivial model, which always gives "
        "the most frequent class or the mean; its test mse is 0.5."
    ]
    assert "(trivial model: 0.5, not beaten)" in text


def test_points_that_beat_the_trivial_model_are_counted():
    text, remarks = _compared_with_trivial([0.6, 0.4, 0.3])
    assert remarks == [
        "2 of 3 points on the front are shown to be better than the trivial model, whose test mse "
        "is 0.5."
    ]
    assert "(trivial model: 0.5)" in text


def test_points_of_several_problems_without_intervals_are_counted():
    points = membership_points(sizes=(10, 100), decays=(0.0,), seeds=1)
    points[0] = replace(points[0], config={**points[0].config, "dataset": "digits"})
    assert headline(SyntheticSweep(membership_study(), points)) == "2 of 2 points on the front."
