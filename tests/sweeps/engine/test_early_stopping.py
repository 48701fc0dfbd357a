"""Packs that dominated points leave: the others come to the same, and nothing is done twice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_sweeps import assert_same_numbers, numbers, study_file
from typer.testing import CliRunner

import privnets
import tracking
from privnets import TradeoffPoint, merge_replicates
from privnets.adversarial.training import game
from privnets.config import nest
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.errors import StudyError
from sweeps.planning.continuation import differences
from sweeps.planning.packing import Pack
from sweeps.planning.pending import pending_replicates
from sweeps.planning.plan import Plan, create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load

if TYPE_CHECKING:
    from cluster import Connection

# Independent bits make a release that hides everything cost nothing, and slow learners lag behind.
STUDY = """
name: early
experiment: adversarial
fixed: {problem: gaussian-mixture, evaluation: exact, steps: 300, batch_size: 32, train_size: 256}
space:
  tradeoff: {grid: [0.2, 0.6]}
  problem.gaussian-mixture.dependence: {grid: [0.0, 1.0]}
  learning_rate: {grid: [0.0005, 0.1]}
replicates: 4
resources: {pack: 32}
early_stopping: true
"""
ADVERSARIAL = privnets.experiment("adversarial")


def make_early_plan(folder: Path, *overrides: str) -> Plan:
    return make_plan(load(study_file(folder, STUDY), overrides))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return make_early_plan(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def whole(study: Plan, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Every point trained to its end."""
    return train_all(study, tmp_path_factory.mktemp("whole"), None)


@pytest.fixture(scope="module")
def early(study: Plan, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return train_all(study, tmp_path_factory.mktemp("early"), StoppingRule.from_plan(study))


def begin_pack(study: Plan, ledger: Ledger, stopping: StoppingRule | None) -> PackTrainer:
    pack = Pack("pack", "adversarial", tuple(study.replicates()))
    return PackTrainer(pack, ADVERSARIAL, ledger, checkpoint_seconds=0.0, stopping=stopping)


def train_all(study: Plan, folder: Path, stopping: StoppingRule | None) -> Ledger:
    ledger = Ledger(str(folder), "sweep")
    to_the_end(begin_pack(study, ledger, stopping))
    return ledger


def to_the_end(run: PackTrainer) -> None:
    while not run.advance().committed:
        pass


def points(ledger: Ledger) -> dict[str, TradeoffPoint]:
    return {point.point_id: point for point in merge_replicates(ledger.read_points())}


def reasons(ledger: Ledger) -> dict[tuple[str, int], str | None]:
    return {(p.point_id, r.seed): r.stopped for p in ledger.read_points() for r in p.replicates}


def test_points_that_stay_have_the_metrics_of_a_run_without_stopping(
    early: Ledger, whole: Ledger
) -> None:
    everything = numbers(whole)
    stayed = {m: found for m, found in numbers(early).items() if reasons(early)[m] is None}
    assert 0 < len(stayed) < len(everything)
    assert_same_numbers(stayed, {member: everything[member] for member in stayed})


def test_stopped_points_are_dominated_at_the_end_too(early: Ledger, whole: Ledger) -> None:
    ends = {name: point.metrics for name, point in points(whole).items()}
    stopped = [name for name, point in points(early).items() if point.status == "stopped"]
    metrics = ("exact/leakage", "exact/censored")
    dominated = [
        any(all(other[m] < ends[name][m] for m in metrics) for other in ends.values())
        for name in stopped
    ]
    assert len(stopped) >= 3
    assert all(dominated)


def test_a_stopped_point_has_all_replicates_and_a_reason(early: Ledger) -> None:
    found = points(early)
    for point in found.values():
        assert len(point.replicates) == 4
        said = {replicate.stopped for replicate in point.replicates}
        assert len(said) == 1
        if point.status == "stopped":
            assert all(map(math.isnan, point.replicates[0].metrics.values()))
            assert set(point.replicates[0].metrics) == set(
                ADVERSARIAL.metric_keys(ADVERSARIAL.Config.model_validate(nest(point.config)))
            )
            (reason,) = said
            by = str(reason).split("by point ")[1].split()[0]
            assert by in found
            assert str(reason).startswith("dominated at ")
            assert str(reason).endswith("of training by point " + by + " with 95% confidence")


def test_an_interrupted_pack_stops_the_same_points(
    study: Plan, early: Ledger, tmp_path: Path
) -> None:
    ledger, stopping = Ledger(str(tmp_path), "sweep"), StoppingRule.from_plan(study)
    broken = begin_pack(study, ledger, stopping)
    for _ in range(3):
        broken.advance()
    to_the_end(begin_pack(study, ledger, stopping))
    assert reasons(ledger) == reasons(early)
    assert_same_numbers(numbers(ledger), numbers(early))


def test_stopped_points_are_not_trained_again_from_an_older_state(
    study: Plan, early: Ledger, tmp_path: Path
) -> None:
    ledger, stopping = Ledger(str(tmp_path), "sweep"), StoppingRule.from_plan(study)
    kept = Path(ledger.directory.path, "checkpoints", "pack")
    run, older = begin_pack(study, ledger, stopping), b""
    while not (kept / "points.parquet").exists():
        older = (kept / "state.safetensors").read_bytes() if kept.exists() else b""
        run.advance()
    assert older
    (kept / "state.safetensors").write_bytes(older)  # as if killed between the two writes
    stopped_at = {
        (p.point_id, r.seed): r.finished_at
        for p in begun_points(ledger)
        for r in p.replicates
        if r.stopped is not None
    }
    to_the_end(begin_pack(study, ledger, stopping))
    assert stopped_at
    assert reasons(ledger) == reasons(early)
    for point in ledger.read_points():
        for replicate in point.replicates:
            member = point.point_id, replicate.seed
            assert replicate.finished_at == stopped_at.get(member, replicate.finished_at)


def begun_points(ledger: Ledger) -> tuple[TradeoffPoint, ...]:
    from sweeps.store.checkpoints import Checkpoint, checkpoint_label

    return Checkpoint(ledger, "pack", checkpoint_label(ADVERSARIAL)).load().points


def test_a_failed_point_stops_no_other(
    study: Plan, early: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The point that dominated most loses one replicate: others are not compared with it."""
    said = [reason for reason in reasons(early).values() if reason is not None]
    judges = [reason.split("by point ")[1].split()[0] for reason in said]
    judge = max(set(judges), key=judges.count)
    (config,) = (point.config for point in study.points if point.point_id == judge)
    advance = game.Game.advance

    def overflow(self: game.Game, steps: int) -> dict[int, str]:
        for i, each in enumerate(self.configs):
            if each.resolved() == config.resolved() and each.seed == 0:
                for parameter in self._releaser.parameters:
                    parameter[i] = math.inf
        return advance(self, steps)

    monkeypatch.setattr(game.Game, "advance", overflow)
    ledger = Ledger(str(tmp_path), "sweep")
    run, problems = begin_pack(study, ledger, StoppingRule.from_plan(study)), set()
    while not (progress := run.advance()).committed:
        problems.add(str(progress.problem))
    assert any(problem.startswith("a point failed: ") for problem in problems)
    assert points(ledger)[judge].status == "failed"
    assert all(judge not in str(reason) for reason in reasons(ledger).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("early_stopping=7", "early_stopping: got 7; expected true, false or a mapping"),
        ("early_stopping={rung: [0.5]}", "early_stopping.rung: got an unknown key"),
        ("early_stopping={rungs: [0.5, 0.5]}", "expected increasing fractions of training"),
        ("early_stopping={rungs: []}", "expected increasing fractions of training, at least one"),
        ("early_stopping={rungs: [0.5, 2]}", "early_stopping.rungs.1: got 2; expected at most 1"),
        ("early_stopping={reduction: 1}", "early_stopping.reduction: got 1; expected above 1"),
        ("early_stopping={confidence: 1}", "early_stopping.confidence: got 1; expected below 1"),
        (
            "objectives={exact/loss: min}",
            "early_stopping: got early stopping by exact/loss, which training does not "
            "estimate; expected false, or as objectives only exact/censored, ",
        ),
    ],
)
def test_an_invalid_section_is_refused(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        make_early_plan(tmp_path, change)
    assert len(caught.value.errors) == 1
    assert message in str(caught.value)


@pytest.mark.parametrize("mistake", ["fixed.modle=logistic", "fixed.steps=0", "replicates=0"])
def test_an_experiment_that_estimates_nothing_refuses_it_beside_other_mistakes(
    mistake: str,
) -> None:
    with pytest.raises(StudyError) as caught:
        make_plan(load("quickstart", ["early_stopping=true", mistake]))
    first, second = sorted(str(problem) for problem in caught.value.errors)
    assert first == (
        "--set early_stopping: got early stopping by objectives, which training does not "
        "estimate; expected false, the only choice with membership and dataset digits"
    )
    assert mistake.split("=")[0] in second


def test_problems_on_faces_refuse_it_by_name() -> None:
    """Their judge ranks releases of unlike kinds in another order than the panel."""
    with pytest.raises(StudyError) as caught:
        make_plan(load("faces-gender-emotion", ["early_stopping=true"]))
    (problem,) = caught.value.errors
    assert "early_stopping: got" in str(problem)
    expected = "expected false, the only choice with adversarial and problem gender-emotion"
    assert expected in str(problem)


def test_early_stopping_is_off_by_default_and_part_of_the_plan(tmp_path: Path) -> None:
    on, off = make_early_plan(tmp_path), make_early_plan(tmp_path, "early_stopping=false")
    assert load("toy-gaussian").early_stopping is None
    assert StoppingRule.from_plan(off) is None
    assert StoppingRule.from_plan(on) == StoppingRule(on.objectives, (0.125, 0.25, 0.5), 2.0, 0.95)
    manifest = create_manifest(on, "early", command="", tracking_uri="sqlite:///x.db")
    again = type(manifest).model_validate(manifest.model_dump(mode="json"))
    assert differences(again, on) == []
    (reason,) = differences(again, off)
    assert reason == (
        'early_stopping was {"reduction": 2.0, "rungs": [0.125, 0.25, 0.5], "confidence": 0.95}'
        " and is now not given"
    )


def test_a_sweep_with_stopped_points_is_a_success(
    local_ray: Connection, tracking_uri: str, tmp_path: Path, study: Plan, early: Ledger
) -> None:
    from sweeps.analysis.results import open_result
    from sweeps.cli.main import app

    def run(*command: str) -> str:
        where = ["--storage", str(tmp_path / "storage"), "--tracking-uri", tracking_uri]
        said = CliRunner().invoke(app, [*command, *where])
        assert said.exit_code == 0, said.output
        return said.output

    first = run("run", str(study_file(tmp_path, STUDY)), "--name", "early")
    result = open_result("early", str(tmp_path / "storage"))
    assert reasons(Ledger(result.storage, "early")) == reasons(early)
    stopped = {p.point_id for p in result.tradeoff_points if p.status == "stopped"}
    assert stopped
    assert f"{8 - len(stopped)} of 8 points finished, {len(stopped)} stopped early" in first
    assert not stopped & set(result.front()["point_id"])
    shown = CliRunner().invoke(app, ["points", "early", "--storage", result.storage]).output
    assert shown.count("stopped") == len(stopped)
    report = Path(result.storage, "early", "report.html").read_text()
    assert f"{len(stopped)} stopped early" in report
    assert "dominated at " in report
    assert pending_replicates(study, Ledger(result.storage, "early")) == {}
    recorded = tracking.load_points("early", tracking_uri).set_index("point_id")["status"]
    assert set(recorded.index[recorded == "stopped"]) == stopped
    run("verify", "early")
