"""Learned releases are drawn and judged beside trivial obfuscation."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_releases import IMAGES, STRONGEST, build_sweep
from synthetic_sweep import SyntheticSweep

from privnets.points import Replicate, TradeoffPoint
from sweeps.analysis.obfuscation import compare_with_obfuscation
from sweeps.analysis.tables import points_table
from sweeps.report.figures.curves import group_curves, label_point
from sweeps.report.figures.tradeoff import tradeoff_figure, tradeoff_pairs
from sweeps.report.headline import headline

WEIGHTS, STRENGTHS = (0.1, 1.0, 10.0, 100.0), (0.1, 0.4, 1.6, 6.4)


def point(
    config: dict[str, object], accuracy: float, attacked: float, noise: np.ndarray
) -> TradeoffPoint:
    """A point of these means, with a replicate per row of `noise`, shape [seeds, 2]."""
    replicates = []
    for seed, (a, b) in enumerate(np.array([accuracy, attacked]) + noise):
        metrics = {"utility/accuracy": float(a), STRONGEST: float(b)}
        replicates.append(Replicate(seed, metrics, finished_at=1.7e9))
    return TradeoffPoint(str(sorted(config.items())), "adversarial", config, tuple(replicates))


def sweep(lead: float, spread: float = 0.005, far: float = 0.0) -> SyntheticSweep:
    """Two straight curves: at equal accuracy the learned one is lower by `lead`."""
    random = np.random.default_rng(0)

    def noise() -> np.ndarray:
        return random.normal(0, spread, (4, 2))

    points = []
    for place, weight in enumerate(WEIGHTS):
        accuracy = 0.9 - 0.1 * place
        config = {"obfuscation": "none", "strength": 0.1, "privacy_weight": weight}
        points.append(point(config, accuracy + far, accuracy - lead, noise()))
    for place, strength in enumerate(STRENGTHS):
        accuracy = 0.9 - 0.1 * place
        config = {"obfuscation": "noise", "strength": strength, "privacy_weight": 1.0}
        points.append(point(config, accuracy, accuracy, noise()))
    space = {"privacy_weight": {"grid": list(WEIGHTS)}}
    study = {"name": "own", "space": space, "obfuscation": ["noise"]}
    return build_sweep(study, IMAGES, points)


@pytest.mark.parametrize(
    ("lead", "words"),
    [(0.1, "The learned release beats noise"), (-0.1, "The learned release is worse than noise")],
)
def test_a_gap_at_equal_accuracy_is_found_with_its_size(lead: float, words: str) -> None:
    (finding,) = compare_with_obfuscation(sweep(lead))
    assert finding.difference is not None
    assert finding.difference.low <= -lead <= finding.difference.high
    assert finding.difference.half < 0.03
    assert headline(sweep(lead)).startswith(words)


def test_no_gap_cannot_be_told() -> None:
    text = headline(sweep(0.0, spread=0.02))
    assert text.startswith("Whether the learned release beats noise cannot be told: at equal")


def test_curves_without_a_common_accuracy_are_compared_at_equal_privacy() -> None:
    """Both curves lose as much accuracy; the learned one begins at a higher accuracy."""
    (finding,) = compare_with_obfuscation(sweep(0.0, far=0.5))
    assert finding.equal == STRONGEST
    assert finding.difference is not None
    assert finding.difference.low <= 0.5 <= finding.difference.high
    words = "The learned release beats noise: at equal attacker's balanced accuracy"
    assert finding.sentence.startswith(words)


def test_curves_that_share_little_accuracy_are_compared_at_equal_privacy() -> None:
    """All learned releases keep the accuracy, while noise loses it with the secret."""
    random, points = np.random.default_rng(0), []
    for place in range(4):
        privacy = 0.9 - 0.1 * place
        learned = {"obfuscation": "none", "strength": 0.1, "privacy_weight": WEIGHTS[place]}
        noise = {"obfuscation": "noise", "strength": STRENGTHS[place], "privacy_weight": 1.0}
        points.append(point(learned, 0.9 - place / 1000, privacy, random.normal(0, 0.005, (4, 2))))
        points.append(point(noise, privacy, privacy, random.normal(0, 0.005, (4, 2))))
    space = {"privacy_weight": {"grid": list(WEIGHTS)}}
    study = {"name": "own", "space": space, "obfuscation": ["noise"]}
    (finding,) = compare_with_obfuscation(build_sweep(study, IMAGES, points))
    assert finding.equal == STRONGEST
    assert finding.difference is not None
    # The area between 0.9 and the diagonal over privacies from 0.6 to 0.9.
    assert finding.difference.low <= 0.15 <= finding.difference.high
    assert finding.difference.half < 0.02


def test_curves_without_anything_in_common_cannot_be_compared() -> None:
    (finding,) = compare_with_obfuscation(sweep(1.0, far=2.0))
    assert finding.difference is None
    assert "no accuracy is common to both" in finding.sentence


def crowded(dominated: int) -> SyntheticSweep:
    """Learned points better than noise by 0.02, and others that those clearly dominate."""
    random, points = np.random.default_rng(0), []

    def add(kind: str, number: int, accuracy: float, attacked: float) -> None:
        config = {"obfuscation": kind, "strength": 0.1 + number, "privacy_weight": 1.0 + number}
        points.append(point(config, accuracy, attacked, random.normal(0, 0.005, (8, 2))))

    for place in range(7):
        accuracy = 0.9 - 0.06 * place
        add("none", place, accuracy, accuracy - 0.02)
        add("noise", place, accuracy, accuracy)
    for place, accuracy in enumerate(np.linspace(0.86, 0.5, dominated)):
        add("none", 10 + place, accuracy, accuracy + 0.06)
    study = {"name": "own", "space": {"privacy_weight": {"grid": [1.0]}}, "obfuscation": ["noise"]}
    return build_sweep({**study, "replicates": 8}, IMAGES, points)


@pytest.mark.parametrize("dominated", [0, 80])
def test_points_that_others_dominate_change_no_curve(dominated: int) -> None:
    (finding,) = compare_with_obfuscation(crowded(dominated))
    assert finding.difference is not None
    assert finding.difference.high < 0
    assert finding.difference.low <= -0.02 <= finding.difference.high


def test_curves_with_one_value_in_common_are_compared_there() -> None:
    still, points = np.zeros((4, 2)), []
    for kind, attacked in (("none", 0.6), ("noise", 0.7)):
        config = {"obfuscation": kind, "strength": 0.1, "privacy_weight": 1.0}
        points.append(point(config, 0.75, attacked, still))
    space = {"privacy_weight": {"grid": [1.0]}}
    study = {"name": "own", "space": space, "obfuscation": ["noise"]}
    (finding,) = compare_with_obfuscation(build_sweep(study, IMAGES, points))
    assert finding.difference is not None
    assert finding.difference.value == pytest.approx(-0.1)
    assert "at equal accuracy, 0.75, its" in finding.sentence


def test_releases_are_compared_with_obfuscation_of_the_same_records() -> None:
    """The learned release is better with one problem and worse with the other."""
    random, points = np.random.default_rng(0), []
    for problem, lead in (("amnist", 0.1), ("digits", -0.1)):
        for kind in ("none", "noise"):
            for place in range(4):
                config = {
                    "obfuscation": kind,
                    "problem": problem,
                    "strength": STRENGTHS[place],
                    "privacy_weight": WEIGHTS[place],
                }
                accuracy = 0.9 - 0.1 * place
                attacked = accuracy - (lead if kind == "none" else 0)
                noise = random.normal(0, 0.005, (4, 2))
                points.append(point(config, accuracy, attacked, noise))
    space = {"problem": {"choice": ["amnist", "digits"]}, "privacy_weight": {"grid": [*WEIGHTS]}}
    own = build_sweep({"name": "own", "space": space, "obfuscation": ["noise"]}, IMAGES, points)
    better, worse = (finding.sentence for finding in compare_with_obfuscation(own))
    assert better.startswith("The learned release beats noise with problem amnist: at equal")
    assert worse.startswith("The learned release is worse than noise with problem digits: at")
    obfuscated = group_curves(own).obfuscated
    assert [curve.settings["problem"] for curve in obfuscated] == ["amnist", "digits"]


def test_each_obfuscation_is_a_curve_over_its_strength() -> None:
    own = sweep(0.1)
    curves = group_curves(own)
    (learned,), (noise,) = curves.curves, curves.obfuscated
    assert list(learned.points["config/privacy_weight"]) == [*WEIGHTS]
    assert list(noise.points["config/strength"]) == [*STRENGTHS]
    figure = tradeoff_figure(curves, tradeoff_pairs(curves, IMAGES), IMAGES)
    assert figure is not None
    texts = {trace["name"]: trace["text"] for trace in figure["data"] if "text" in trace}
    assert texts["noise alone, over its strength"] == ["0.1", "0.4", "1.6", "6.4"]
    assert texts["learned release, over privacy weight"] == ["0.1", "1", "10", "100"]


def test_a_point_names_the_settings_that_have_an_effect_alone() -> None:
    points = sweep(0.1).points.sort_values("utility/accuracy", ascending=False)
    points = points.sort_values("config/obfuscation", ascending=False, kind="stable")
    fields = ["obfuscation", "strength", "privacy_weight"]
    assert label_point(points.iloc[0].to_dict(), fields) == "learned, privacy weight = 0.1"
    assert label_point(points.iloc[-1].to_dict(), fields) == "noise, strength = 6.4"
    table = points_table(points, [STRONGEST], fields)
    assert table.rows[0][1:4] == ("none (learned)", "", "0.1")
    assert table.rows[-1][1:4] == ("noise", "6.4", "")
