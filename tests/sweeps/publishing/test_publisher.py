"""The publisher mirrors the ledger, gives up nothing, and ends when its driver does."""

from __future__ import annotations

import math
import queue
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from small_sweeps import small_plan
from stores import new_store
from support import run_command

import tracking
from privnets.points import Replicate, TradeoffPoint
from sweeps.analysis.pareto import hypervolume_history, worst_values
from sweeps.analysis.results import Result
from sweeps.engine.executor import prepare_manifest
from sweeps.planning.plan import Plan, create_manifest, make_plan
from sweeps.publishing.background import start_publisher
from sweeps.publishing.publisher import (
    Publisher,
    headline_metrics,
    publish_all,
    publish_until_ordered,
)
from sweeps.report.headline import headline
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import PAGE_FILE, Manifest, read_manifest, read_runs_page, write_manifest
from sweeps.store.reader import PointReader
from sweeps.store.status import Outage, SweepStatus
from sweeps.study.loader import load
from tracking import runs
from tracking.sweep_run import find_parent

_AWAY = "http://127.0.0.1:1"
# An event may take long on a busy machine.
_EVENT_SECONDS = 240.0
# MLflow's own retries would last over two minutes.
_STOP_SECONDS = 60.0


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return small_plan(tmp_path_factory.mktemp("study"), "fixed.seed=0")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return new_store(tmp_path)


@pytest.fixture
def ledger(plan: Plan, tmp_path: Path) -> Ledger:
    ledger = Ledger(str(tmp_path), "sweep")
    write_manifest(ledger, prepare_manifest(ledger, plan, command="", tracking_uri="http://a"))
    return ledger


@pytest.fixture
def manifest(ledger: Ledger) -> Manifest:
    return read_manifest(ledger)


def replicate_of(plan: Plan, index: int, seed: int, value: float = 0.5) -> TradeoffPoint:
    metrics = {"privacy/membership_advantage": value, "utility/test_accuracy": value}
    planned = plan.points[index]
    replicate = Replicate(seed, metrics, finished_at=1e9 + 10 * index + seed)
    return TradeoffPoint(planned.point_id, "membership", planned.config.resolved(), (replicate,))


def write(ledger: Ledger, plan: Plan, *members: tuple[int, int]) -> None:
    name = "-".join(f"{index}.{seed}" for index, seed in members)
    ledger.write_pack(name, [replicate_of(plan, *member) for member in members])


def recorded_ids(uri: str) -> list[str]:
    return sorted(tracking.load_points("sweep", uri)["point_id"])


def holds_any(uri: str) -> bool:
    try:
        return bool(recorded_ids(uri))
    except tracking.TrackingError:  # the sweep has not been announced yet
        return False


def test_a_sweep_s_front_can_be_read_from_mlflow_alone(
    uri: str, ledger: Ledger, plan: Plan, manifest: Manifest, tmp_path: Path
) -> None:
    write(ledger, plan, *((index, seed) for index in range(2) for seed in plan.seeds))
    publish_all(ledger, manifest, uri)
    found = run_command("pareto", "sweep", "--tracking-uri", uri, "-o", str(tmp_path / "f.csv"))
    assert found.exit_code == 0, found.stderr
    expected = Result.read(ledger).front()
    assert list(pd.read_csv(tmp_path / "f.csv")["point_id"]) == list(expected["point_id"])
    last = f"{Result.read(ledger).points['finished_at'].max():%Y-%m-%d %H:%M:%S} UTC"
    assert f"its last training finished {last}" in found.stderr
    absent = run_command("pareto", "absent", "--tracking-uri", uri)
    assert "does not contain a sweep named 'absent'" in absent.stderr
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(manifest.study.name)
    assert experiment is not None
    (parent,) = client.search_runs([experiment.experiment_id], "tags.kind = 'sweep'")
    began = manifest.created_at.timestamp()
    assert parent.info.start_time == pytest.approx(1000 * began, abs=1)
    assert parent.data.tags[runs.NOTE].startswith(headline(Result.read(ledger)))


def test_a_sweep_whose_files_are_not_published_yet_is_refused_with_advice(
    uri: str, ledger: Ledger, plan: Plan, manifest: Manifest
) -> None:
    write(ledger, plan, *((0, seed) for seed in plan.seeds))
    assert Publisher(ledger, manifest, uri).publish()
    found = run_command("pareto", "sweep", "--tracking-uri", uri)
    assert found.exit_code == 2
    assert "has no file ledger.tar.gz" in found.stderr
    assert "`sweeps sync sweep` publishes them" in found.stderr


def test_mlflow_shows_the_main_metric_of_every_attack_of_the_quickstart() -> None:
    planned = make_plan(load("quickstart"))
    manifest = create_manifest(planned, "sweep", command="", tracking_uri="")
    main = {key for key in manifest.plan.metrics if key.endswith("/advantage")}
    assert "privacy/attack/white_box/advantage" in main
    assert main <= {*headline_metrics(manifest)}


def test_progress_and_losses_are_published_while_training_runs_once_per_heartbeat(
    uri: str, ledger: Ledger, manifest: Manifest
) -> None:
    publisher = Publisher(ledger, manifest, uri)
    beat = SweepStatus(
        phase="training", updated_at=datetime.now(UTC), share=0.25, trainings=(2, 8),
        live={"loss/releaser": 1.5},
    )  # fmt: skip
    ledger.directory.write("progress.json", beat.model_dump_json().encode())
    for _ in range(2):
        publisher.publish_live()
        publisher._live_at -= 10.0
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(manifest.study.name)
    assert experiment is not None
    (parent,) = client.search_runs([experiment.experiment_id])
    expected = {"live/share": 0.25, "live/trainings": 2.0, "live/loss/releaser": 1.5}
    assert parent.data.metrics == expected
    assert len(client.get_metric_history(parent.info.run_id, "live/share")) == 1


def ids(plan: Plan, *indices: int) -> list[str]:
    return sorted(plan.points[index].point_id for index in indices)


def test_a_point_is_published_once_it_has_all_its_replicates(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    publisher = Publisher(ledger, manifest, uri)
    write(ledger, plan, (0, 0), (1, 0))
    assert publisher.publish()
    assert publisher.outcome().points == 0
    write(ledger, plan, (0, 1))
    assert publisher.publish()
    assert recorded_ids(uri) == ids(plan, 0)
    write(ledger, plan, (1, 1), (2, 0), (2, 1))
    assert publisher.publish()
    assert recorded_ids(uri) == ids(plan, 0, 1, 2)


def test_a_run_has_at_most_forty_metrics_and_none_that_no_point_defines(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    write(ledger, plan, (1, 0), (1, 1))
    assert publish_all(ledger, manifest, uri).whole
    (experiment,) = MlflowClient(uri).search_experiments(filter_string="name = 'small'")
    children = MlflowClient(uri).search_runs([experiment.experiment_id], "tags.kind = 'point'")
    (keys,) = {frozenset(run.data.metrics) for run in children}
    assert {f"Objective/{metric}" for metric in manifest.plan.objectives} <= keys
    assert "weight_decay" in children[0].data.params
    assert "epsilon" not in children[0].data.params, "it is null"
    assert "sample_rate" not in children[0].data.params, "training is not private"
    assert len(keys) <= 40
    assert not {key for key in keys if key.startswith("privacy/epsilon")}
    assert tracking.compare(ledger.read_points(), "sweep", uri) == []


def test_points_are_published_where_the_address_of_their_page_cannot_be_stored_until_it_can(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    """A directory in the place of the file stands for a full disk."""
    in_the_way = Path(ledger.directory.path, PAGE_FILE)
    in_the_way.mkdir()
    write(ledger, plan, (0, 0), (0, 1))
    publisher = Publisher(ledger, manifest, uri)
    assert publisher.announce()
    assert publisher.publish()
    assert recorded_ids(uri) == ids(plan, 0)
    in_the_way.rmdir()
    assert publisher.announce()
    assert read_runs_page(ledger).startswith("http://127.0.0.1:5000/#/experiments/")


def test_the_address_of_the_page_is_known_when_sync_writes_the_report(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    pages: list[str] = []
    outcome = publish_all(ledger, manifest, uri, lambda: pages.append(read_runs_page(ledger)))
    assert outcome.whole
    assert pages == [read_runs_page(ledger)] != [""]


def test_a_storage_that_cannot_be_read_is_named(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    Path(ledger.directory.path, "ledger").write_bytes(b"")  # where packs are listed
    publisher = Publisher(ledger, manifest, uri)
    assert not publisher.publish()
    assert f"storage {ledger.storage} cannot be read: " in str(publisher.error)


def test_while_the_server_is_away_points_wait(
    ledger: Ledger, manifest: Manifest, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    write(ledger, plan, (0, 0), (0, 1))
    publisher = Publisher(ledger, manifest, _AWAY)
    assert not publisher.publish()
    write(ledger, plan, (1, 0), (1, 1))
    assert not publisher.publish()
    outcome = publisher.outcome()
    assert (outcome.points, outcome.left, outcome.whole) == (0, 2, False)
    assert outcome.error is not None


def test_reader_stops_after_enough_points(ledger: Ledger, plan: Plan) -> None:
    """And hands out every point once, also past packs that cannot be read."""
    for index in range(4):
        write(ledger, plan, (index, 0))
        write(ledger, plan, (index, 1))
    for number in range(20):
        Path(ledger.directory.path, "ledger", f"0-{number}.parquet").write_bytes(b"damaged")
    reader = PointReader(ledger, plan.seed_rule)
    found = [reader.read_new(min_points=1) for _ in range(6)]
    assert found[0]
    assert not found[-1]
    handed = [point.point_id for points in found for point in points]
    assert sorted(handed) == ids(plan, 0, 1, 2, 3)


def test_points_deleted_while_publishing_are_published_again(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1), (1, 0), (1, 1))
    publisher = Publisher(ledger, manifest, uri)
    assert publisher.publish()
    client = MlflowClient(uri)
    parent = find_parent(client, "sweep", None)
    assert parent is not None
    (point_id,) = ids(plan, 1)
    for run in runs.point_runs(client, parent.experiment_id, "sweep"):
        if run.data.tags["point_id"] == point_id:
            client.delete_run(run.info.run_id)
    assert publisher.publish_and_confirm()
    assert recorded_ids(uri) == ids(plan, 0, 1)
    assert publisher.outcome().points == 2


def test_it_publishes_beside_training_and_the_rest_on_the_order_to_finish(
    ledger: Ledger, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    with start_publisher(ledger, uri) as publication:
        assert becomes(lambda: holds_any(uri))
        assert recorded_ids(uri) == ids(plan, 0)
        write(ledger, plan, (1, 0), (1, 1), (2, 0))
        outcome = publication.finish()
    assert (outcome.points, outcome.left, outcome.error) == (2, 0, None)
    assert recorded_ids(uri) == ids(plan, 0, 1)


def becomes(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _EVENT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_stopping_takes_no_time_while_the_server_is_away(
    ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.publishing.background._STOP_SECONDS", _EVENT_SECONDS)
    write(ledger, plan, (0, 0), (0, 1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_EVENT_SECONDS)
        with start_publisher(ledger, f"http://127.0.0.1:{server.getsockname()[1]}") as publication:
            server.accept()[0].close()  # The first attempt has begun.
            server.close()
            began = time.monotonic()
            outcome = publication.stop()
            assert time.monotonic() - began < _STOP_SECONDS
    assert (outcome.points, outcome.left) == (0, 1)


def test_a_stop_before_the_first_attempt_asks_no_server(
    ledger: Ledger, manifest: Manifest, plan: Plan
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    publisher = Publisher(ledger, manifest, _AWAY)
    began = time.monotonic()
    publish_until_ordered(publisher, orders("stop"))
    assert time.monotonic() - began < _STOP_SECONDS
    outcome = publisher.outcome()
    assert (outcome.points, outcome.left, outcome.error) == (0, 1, None)


def parent_of(uri: str) -> Run:
    client = MlflowClient(uri)
    parent = find_parent(client, "sweep", None)
    assert parent is not None
    return client.get_run(parent.run_id)


def orders(*given: str) -> queue.Queue[str]:
    found: queue.Queue[str] = queue.Queue()
    for order in given:
        found.put(order)
    return found


def test_mlflow_shows_whether_a_sweep_is_running_stopped_or_finished(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    publisher = Publisher(ledger, manifest, uri)
    assert publisher.announce()
    assert publisher.publish()
    assert parent_of(uri).info.status == "RUNNING"
    publish_until_ordered(publisher, orders("stop"))
    assert parent_of(uri).info.status == "KILLED"
    assert publish_all(ledger, manifest, uri).whole  # `sweeps sync` does not run the sweep
    assert parent_of(uri).info.status == "KILLED"
    again = Publisher(ledger, manifest, uri)
    assert again.announce()
    assert parent_of(uri).info.status == "RUNNING"
    publish_until_ordered(again, orders("finish"))
    assert parent_of(uri).info.status == "FAILED"
    write(ledger, plan, *((index, seed) for index in (1, 2, 3) for seed in plan.seeds))
    publish_until_ordered(Publisher(ledger, manifest, uri), orders("finish"))
    assert parent_of(uri).info.status == "FINISHED"


def test_an_outage_is_over_once_the_first_points_are_sent(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_POLL_SECONDS": 0.01, "_BATCH_POINTS": 1}.items():
        monkeypatch.setattr(f"sweeps.publishing.publisher.{name}", value)
    write(ledger, plan, *((index, seed) for index in (0, 1) for seed in plan.seeds))
    publisher, given = Publisher(ledger, manifest, uri), orders()
    reports: list[tuple[Outage | None, int]] = []
    announce = publisher.announce

    def announce_later() -> bool:
        if not reports:
            publisher.error = "away"
        return bool(reports) and announce()

    def report(outage: Outage | int | None) -> None:
        if isinstance(outage, int):
            return
        reports.append((outage, publisher.outcome().points))
        if outage is None:
            given.put("stop")

    monkeypatch.setattr(publisher, "announce", announce_later)
    publish_until_ordered(publisher, given, report)
    (outage, before), end = reports
    assert outage is not None
    assert (outage.reason, outage.waiting, before) == ("away", 2, 0)
    assert end == (None, 1)


def test_a_sweep_stopped_before_its_first_record_leaves_no_trace(
    ledger: Ledger, manifest: Manifest, uri: str
) -> None:
    publish_until_ordered(Publisher(ledger, manifest, uri), orders("stop"))
    assert find_parent(MlflowClient(uri), "sweep", None) is None


def test_an_outage_is_reported(ledger: Ledger, plan: Plan) -> None:
    write(ledger, plan, (0, 0), (0, 1), (1, 0), (1, 1), (2, 0))
    began = time.time()
    with start_publisher(ledger, _AWAY) as publication:
        while (outage := publication.outage()) is None:
            assert time.time() - began < _EVENT_SECONDS
            time.sleep(0.1)
        assert outage.waiting == 2
        assert began <= outage.since <= time.time()
        assert _AWAY in outage.reason
        outcome = publication.stop()
    assert (outcome.points, outcome.left, outcome.whole) == (0, 2, False)


def test_a_server_that_does_not_answer_is_left_behind(
    ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.publishing.background._STOP_SECONDS", 0.1)
    write(ledger, plan, (0, 0), (0, 1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_EVENT_SECONDS)
        with start_publisher(ledger, f"http://127.0.0.1:{server.getsockname()[1]}") as publication:
            held = server.accept()[0]
            outcome = publication.stop()
            monkeypatch.setattr("sweeps.publishing.background._STOP_SECONDS", _EVENT_SECONDS)
            began = time.monotonic()
        assert time.monotonic() - began < _STOP_SECONDS, "it is not waited for twice"
        held.close()
    assert "MLflow did not answer" in str(outcome.error)


def test_a_second_signal_does_not_wait_for_a_server_that_does_not_answer(
    ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.publishing.background._STOP_SECONDS", _EVENT_SECONDS)
    write(ledger, plan, (0, 0), (0, 1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_EVENT_SECONDS)
        calls = []

        def publish() -> None:
            with start_publisher(ledger, f"http://127.0.0.1:{server.getsockname()[1]}"):
                calls.append((server.accept()[0], time.monotonic()))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            publish()
        ((held, began),) = calls
        assert time.monotonic() - began < _STOP_SECONDS
        held.close()


def test_a_publisher_that_fails_is_reported(tmp_path: Path) -> None:
    with start_publisher(Ledger(str(tmp_path), "no-such-sweep"), _AWAY) as publication:
        outcome = publication.finish()
    assert not outcome.whole
    assert "sweep 'no-such-sweep' does not exist" in str(outcome.error)


def _history(ledger: Ledger) -> list[tuple[int, float, float]]:
    result = Result.read(ledger)
    reference = worst_values(result.points, result.objectives)
    return hypervolume_history(result.points, result.objectives, reference)


def test_hypervolume_never_falls_as_points_come_in(
    ledger: Ledger, plan: Plan, tmp_path: Path
) -> None:
    values = (0.5, 0.2, 0.8, 0.1)
    for index, value in enumerate(values):
        points = [replicate_of(plan, index, seed, value) for seed in plan.seeds]
        ledger.write_pack(str(index), points)
    steps = _history(ledger)
    assert [step for step, _, _ in steps] == [1, 2, 3, 4]
    volumes = [volume for _, volume, _ in steps]
    assert volumes == sorted(volumes)
    # Advantage and accuracy are equal here, so the staircase over the reference (0.8, 0.1) is
    # 0.3 x 0.4, then (0.2, 0.2) adds 0.3 x 0.1; the two extremes lie on the reference's lines.
    assert volumes == pytest.approx([0.12, 0.15, 0.15, 0.15])
    assert [when for _, _, when in steps] == [1e9 + 1, 1e9 + 11, 1e9 + 21, 1e9 + 31]


def write_value(ledger: Ledger, plan: Plan, index: int, value: float) -> None:
    ledger.write_pack(str(index), [replicate_of(plan, index, seed, value) for seed in plan.seeds])


def test_a_time_beyond_the_calendar_is_damage_and_delays_no_other_point(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (1, 0), (1, 1))
    made = [replicate_of(plan, 0, seed) for seed in plan.seeds]
    late = [replace(p, replicates=(replace(p.replicates[0], finished_at=1e300),)) for p in made]
    ledger.write_pack("late", late)
    publisher = Publisher(ledger, manifest, uri)
    assert publisher.publish()
    outcome = publisher.outcome()
    assert recorded_ids(uri) == ids(plan, 1)
    assert (outcome.points, outcome.left) == (1, 0)
    assert "late" in " ".join(Result.read(ledger).unreadable)


def test_points_with_an_infinite_objective_have_no_part_in_the_hypervolume(
    ledger: Ledger, plan: Plan, tmp_path: Path
) -> None:
    write_value(ledger, plan, 0, math.inf)
    assert _history(ledger) == []
    for index, value in enumerate((0.5, 0.2, 0.8), 1):
        write_value(ledger, plan, index, value)
    steps = _history(ledger)
    # Of the three the reference (0.8, 0.2) is the worst; only (0.5, 0.5) is better in both.
    assert [(step, pytest.approx(value)) for step, value, _ in steps] == [
        (1, 0.09), (2, 0.09), (3, 0.09),
    ]  # fmt: skip


def test_all_steps_of_the_hypervolume_have_one_reference(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    """Later points that are worse than any before do not change what was published."""
    for index, value in enumerate((0.5, 0.2, 0.8)):
        write_value(ledger, plan, index, value)
    assert publish_all(ledger, manifest, uri).whole
    write_value(ledger, plan, 3, 0.9)
    for _ in range(2):
        assert publish_all(ledger, manifest, uri).whole
    history = MlflowClient(uri).get_metric_history(parent_of(uri).info.run_id, "hypervolume")
    assert [(m.step, pytest.approx(m.value)) for m in sorted(history, key=lambda m: m.step)] == [
        (1, 0.09), (2, 0.09), (3, 0.09), (4, 0.09),
    ]  # fmt: skip


def test_a_spec_damaged_meanwhile_is_reported(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    write(ledger, plan, (0, 0), (0, 1))
    Path(ledger.directory.path, "spec.yaml").write_text("[")
    outcome = publish_all(ledger, manifest, uri)
    assert (outcome.points, outcome.left) == (1, 0)
    assert "spec.yaml cannot be read" in str(outcome.error)


def test_a_point_that_cannot_be_recorded_delays_no_other(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    """An artifact that the ledger names is gone from the storage."""
    seeds = range(len(plan.seeds))
    write(ledger, plan, *((1, seed) for seed in seeds))
    whole = replicate_of(plan, 0, 0)
    (first,) = whole.replicates
    lost = Replicate(0, first.metrics, finished_at=1e9, artifacts={"lost.txt": b"x"})
    members = [TradeoffPoint(whole.point_id, "membership", whole.config, (lost,))]
    members += [replicate_of(plan, 0, seed) for seed in seeds[1:]]
    ledger.write_pack("lost", members)
    shutil.rmtree(Path(ledger.directory.path) / "artifacts")
    published = publish_all(ledger, manifest, uri)
    assert recorded_ids(uri) == [plan.points[1].point_id]
    assert not published.whole
    assert published.left == 1
    assert plan.points[0].point_id in (published.error or "")


def test_a_point_that_mlflow_refuses_delays_no_other(
    ledger: Ledger, manifest: Manifest, plan: Plan, uri: str
) -> None:
    """An experiment of another package may report such a point."""
    whole = replicate_of(plan, 0, 0)
    metrics, config = whole.replicates[0].metrics, {**whole.config, "line\nfeed": 1}
    replicates = tuple(Replicate(seed, metrics, finished_at=1e9) for seed in plan.seeds)
    ledger.write_pack("0", [TradeoffPoint(whole.point_id, "membership", config, replicates)])
    write(ledger, plan, (1, 0), (1, 1), (2, 0), (2, 1))
    published = publish_all(ledger, manifest, uri)
    assert recorded_ids(uri) == ids(plan, 1, 2)
    assert (published.points, published.left, published.whole) == (2, 1, False)
    assert whole.point_id in (published.error or "")
