"""`sweeps compare`: numbers worked out by hand, and sweeps that cannot be compared."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from stored_sweeps import write_sweep
from typer.testing import CliRunner

from sweeps.analysis.comparison import Comparison, compare_sweeps
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.results import open_result
from sweeps.cli.main import app
from sweeps.errors import InputError

ADVANTAGE, ACCURACY = "privacy/membership_advantage", "utility/test_accuracy"
LOSS = "privacy/rho_mi"
ATTACKER, ACCURACY_KEPT = "privacy/attacker_balanced_accuracy", "utility/accuracy"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps on the same objectives, one on others, and one that has only failed."""
    place = tmp_path_factory.mktemp("storage")
    both = {ADVANTAGE: "min", ACCURACY: "max"}
    write_sweep(place, "good", both, [(0.1, 0.5), (0.5, 0.9)])
    write_sweep(place, "poor", both, [(0.2, 0.4), (0.05, 0.1)])
    write_sweep(place, "other", {LOSS: "min", ACCURACY: "max"}, [(0.1, 0.5), (0.5, 0.9)])
    write_sweep(place, "failed", both, [None, None])
    write_sweep(place, "flagged", both, [(0.1, 0.5), (0.5, 0.9)], flags=[1.0, 1.0])
    write_sweep(place, "thrice", both, [(0.1, 0.5), (0.5, 0.9)], replicates=3, dataset="adult")
    return place


def run(storage: Path, *arguments: str) -> str:
    said = CliRunner().invoke(app, ["compare", *arguments, "--storage", str(storage)])
    assert said.exit_code == 0, said.output
    return said.output


def compare(
    storage: Path, first: str, second: str, objectives: Objectives | None = None
) -> Comparison:
    return compare_sweeps([open_result(n, str(storage)) for n in (first, second)], objectives)


def test_sweeps_side_by_side(storage: Path) -> None:
    """Up to an advantage of 0.5 and an accuracy of 0.1, 0.4 x 0.4 against 0.3 x 0.3."""
    found = compare(storage, "good", "poor")
    assert found.reference == {ADVANTAGE: 0.5, ACCURACY: 0.1}
    good, poor = found.sweeps
    assert (good.hypervolume, poor.hypervolume) == pytest.approx((0.16, 0.09))
    assert (good.attained, poor.attained) == pytest.approx((0.16, 0.09))
    assert (good.dominated, poor.dominated) == ({"poor": 0.0}, {"good": 0.5})
    assert (good.on_front, poor.on_front) == (2, 2)
    assert (good.on_joint_front, poor.on_joint_front) == (2, 1)
    joint = {*zip(found.front["sweep"], found.front[ADVANTAGE], strict=True)}
    assert joint == {("good", 0.1), ("good", 0.5), ("poor", 0.05)}


def test_the_table_has_the_same_numbers(storage: Path) -> None:
    said = run(storage, "good", "poor")
    lines = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    rows = {name: rest for name, *rest in lines}
    assert rows["hypervolume"] == ["0.16", "0.09"]
    assert rows["front dominated by good"] == ["50%"]
    reference = (
        "the worst values over all these sweeps: membership advantage 0.5, test accuracy 0.1."
    )
    assert reference in said
    assert "Joint front of all sweeps:" in said


def seed_noise(seed: int) -> list[float]:
    """Large noise that both sweeps share."""
    noise: list[float] = np.random.default_rng(seed).normal(0.0, 0.05, 2).tolist()
    return noise


def other_noise(seed: int) -> list[float]:
    """Equally large fronts that differ."""
    return seed_noise(seed + 1000)


def test_differences_are_paired_by_common_seeds(tmp_path: Path) -> None:
    """Both sweeps have the noise of their seeds, which is ten times their difference."""
    objectives = {ADVANTAGE: "min", ACCURACY: "max"}
    places = [(0.1, 0.5), (0.5, 0.9)]
    shifted = [(advantage, accuracy + 0.005) for advantage, accuracy in places]
    for name, metrics in (("plain", places), ("shifted", shifted)):
        write_sweep(tmp_path, name, objectives, metrics, replicates=4, noise=seed_noise)
    found = compare(tmp_path, "plain", "shifted")
    by_metric = {each.metric: each for each in found.contrasts}
    better, equal = by_metric[ACCURACY], by_metric[ADVANTAGE]
    assert better.verdict == "higher"
    assert better.difference.value == pytest.approx(0.005)
    assert better.difference.high - better.difference.low < 0.002
    assert (better.points, better.seeds) == (2, 4)
    assert equal.verdict == "cannot tell"
    assert "cannot tell" in run(tmp_path, "plain", "shifted")


def test_differences_of_unrelated_noise_have_both_errors(tmp_path: Path) -> None:
    objectives = {ADVANTAGE: "min", ACCURACY: "max"}
    places = [(0.1, 0.5), (0.5, 0.9)]
    write_sweep(tmp_path, "plain", objectives, places, replicates=4, noise=seed_noise)
    shifted = [(advantage, accuracy + 0.005) for advantage, accuracy in places]
    write_sweep(tmp_path, "shifted", objectives, shifted, replicates=4, noise=other_noise)
    found = compare(tmp_path, "plain", "shifted").contrasts
    assert {each.verdict for each in found} == {"cannot tell"}


def test_intervals_have_the_freedom_of_their_own_sweep(tmp_path: Path) -> None:
    """Student's quantile is 12.7 for two replicates and 2.1 for sixteen."""
    objectives, places = {ADVANTAGE: "min", ACCURACY: "max"}, [(0.1, 0.5), (0.5, 0.9)]
    for name, replicates in (("few", 2), ("many", 16)):
        write_sweep(tmp_path, name, objectives, places, replicates=replicates, noise=seed_noise)
    few, many = (open_result(name, str(tmp_path)) for name in ("few", "many"))
    comparison = compare_sweeps([few, many])
    corner = dict(comparison.reference)
    for result, compared in zip((few, many), comparison.sweeps, strict=True):
        alone = result.hypervolume(reference=corner)
        own = compared.hypervolume_interval
        assert own.high - own.low == pytest.approx(alone.high - alone.low, rel=0.25)
    contrast = comparison.contrasts[0].difference
    widths = [side.hypervolume_interval for side in comparison.sweeps]
    assert contrast.high - contrast.low > 0.5 * max(each.high - each.low for each in widths)


def test_differences_between_tasks_are_named(storage: Path) -> None:
    """Half of two replicates attain another set than half of three."""
    found = compare(storage, "good", "thrice")
    assert [side.attained for side in found.sweeps] == [None, None]
    assert found.differences == {"config/dataset": ("digits", "adult")}
    assert "Differences in config/dataset: digits; adult." in run(storage, "good", "thrice")
    assert compare(storage, "good", "poor").differences == {}


def test_other_objectives_can_be_named(storage: Path) -> None:
    with pytest.raises(InputError, match=r"different objectives .* --minimize and --maximize"):
        compare(storage, "good", "other")
    assert "front" in run(storage, "good", "other", "--maximize", ACCURACY)
    found = compare(storage, "good", "other", {ACCURACY: "max"})
    assert [side.attained for side in found.sweeps] == [None, None]


@pytest.mark.parametrize(
    ("sweeps", "objectives", "message"),
    [
        (["good"], None, "two or more different sweeps; got good"),
        (["good", "poor", "good"], None, "two or more different sweeps"),
        (["good", "failed"], None, "failed has no finished point|failed: no metric"),
        (["good", "flagged"], None, "every point of flagged that could be compared has a raised"),
        (["good", "poor"], {LOSS: "min"}, f"good: no metric '{LOSS}'"),
    ],
)
def test_invalid_comparisons_are_refused(
    storage: Path, sweeps: list[str], objectives: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare_sweeps([open_result(name, str(storage)) for name in sweeps], objectives)


def test_sweeps_of_different_panels_are_not_compared(tmp_path: Path) -> None:
    both = {ATTACKER: "min", ACCURACY_KEPT: "max"}
    for panel in ("quick", "full"):
        fixed = {"problem": "gaussian-mixture", "panel": panel}
        write_sweep(
            tmp_path, panel, both, [(0.6, 0.9), (0.7, 0.95)],
            experiment="adversarial", fixed=fixed, space={"tradeoff": {"grid": [0.3, 0.6]}},
        )  # fmt: skip
    with pytest.raises(InputError, match=r"panel differs between the sweeps \(full, quick\)"):
        compare_sweeps([open_result(name, str(tmp_path)) for name in ("quick", "full")])
