"""`sweeps claims` on made-up sweeps of a packaged study and of a study of a user."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from small_sweeps import write_sweep
from support import run_command

from privnets.membership.config import MembershipConfig
from privnets.points import Replicate
from sweeps.analysis.text import metric_label
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load, read_study
from sweeps.study.spec import Study

THRESHOLD = "privacy/attack/threshold_gaussian/advantage"
GIVEN = "utility/test_accuracy"
OWN = {
    "name": "own",
    "experiment": "membership",
    "fixed": {"dataset": "digits", "model": "logistic"},
    "space": {"train_size": {"grid": [50, 80, 100, 150, 200]}},
    "replicates": 4,
    "claims": [
        {"statement": "It is | at most a half.", "metric": THRESHOLD, "at_most": 0.5},
        {
            "statement": "It rises.",
            "metric": THRESHOLD,
            "axis": "train_size",
            "trend": "increasing",
        },
    ],
}
CHANGES = [
    "space.noise_std.grid=[0.0, 0.5, 1.0, 2.0, 4.0]",
    "fixed.weight_decay=0.1",
    "replicates=4",
    "claims=[]",
]


def _falling(config: MembershipConfig) -> float:
    return 10 / config.train_size - config.noise_std / 1e2


def store(storage: Path, sweep: str, study: Study, finished: int | None = None) -> None:
    """A sweep whose metrics fall along its axis; its first points are finished."""

    def replicate_of(config: MembershipConfig, seed: int) -> Replicate:
        return Replicate(seed, {THRESHOLD: _falling(config) + seed / 1e4, GIVEN: 0.5})

    write_sweep(storage, sweep, make_plan(study), replicate_of, finished)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("storage")
    store(place, "mine", read_study(OWN))
    store(place, "theirs", load("quickstart", CHANGES))
    (place / "no-sweep").mkdir()
    return place


@pytest.fixture
def run():
    return partial(run_command, "claims")


def test_claims_of_every_sweep_are_judged_with_interval_and_reason(run, storage):
    code, shown, _ = run("--storage", str(storage))
    assert code == 0
    mine, theirs = shown.split("theirs: quickstart")
    assert "mine: own (not a packaged study)" in mine
    assert "AGREES: It is | at most a half." in mine
    assert f"measured: {metric_label(THRESHOLD)}: 0.10848 [0.10828, 0.10869]" in mine
    assert "DISAGREES: It rises." in mine
    assert "The interval of the trend lies below 0" in mine
    assert "source: arXiv 2001.10648, figure 5" in theirs
    assert shown.endswith("4 claims: agrees 2, disagrees 1, cannot tell 1, not posed 0.\n")


def test_packaged_study_is_judged_by_its_claims_of_today_and_names_changed_settings(run, storage):
    """The recorded study has no claims."""
    _, shown, _ = run("theirs", "--storage", str(storage))
    assert "mine" not in shown
    assert (
        "AGREES: The threshold attack's advantage falls as noise on the parameters grows." in shown
    )
    settings = shown.partition("(")[2].partition(")\n")[0].split(", ")
    assert "replicates=4" in settings
    assert "fixed.weight_decay=0.1" in settings
    assert "space.noise_std.grid=[0, 0.5, 1, 2, 4]" in shown
    assert "dataset" not in shown


def test_markdown_has_a_row_per_claim_with_bars_escaped(run, storage):
    _, shown, _ = run("mine", "--format", "markdown", "--storage", str(storage))
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(OWN["claims"])
    assert "It is \\| at most a half." in rows[2]
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}


def test_unfinished_points_may_be_the_one_that_a_claim_asks_for(run, tmp_path):
    claim = {"statement": "c", "metric": THRESHOLD, "at_most": 0.06, "given": {GIVEN: {}}}
    study = read_study({**OWN, "claims": [claim]})
    for name, finished, verdict in (("part", 2, "CANNOT TELL"), ("whole", None, "AGREES")):
        store(tmp_path, name, study, finished)
        _, shown, _ = run(name, "--storage", str(tmp_path))
        assert f"{verdict}: c" in shown
    assert "3 of 5 points unfinished" in run("part", "--storage", str(tmp_path))[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "choose one of mine, no-sweep, theirs"),
        (["mine", "--format", "html"], "Invalid value for '--format'"),
    ],
)
def test_bad_input_is_refused(run, storage, arguments, message):
    code, _, errors = run(*arguments, "--storage", str(storage))
    assert code == 2
    assert message in " ".join(errors.split())


def test_storage_without_a_sweep_is_refused(run, tmp_path):
    code, _, errors = run("--storage", str(tmp_path))
    assert code == 2
    assert "has no sweep" in errors


def test_mean_over_the_points_finished_so_far_is_not_judged(run, tmp_path):
    store(tmp_path, "part", read_study(OWN), 2)
    _, shown, _ = run("part", "--storage", str(tmp_path))
    assert "CANNOT TELL: It is | at most a half." in shown
    assert "why: Points are unfinished: 3." in shown
