"""A pack comes to the same whatever interrupts it, and is never trained twice."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_sweeps import assert_same_numbers, contents, numbers, small_plan

import privnets
from privnets.config import ExperimentConfig
from privnets.contract import Stage, State
from privnets.membership.experiment import Membership
from sweeps.engine.pack_trainer import PackTrainer, may_succeed_elsewhere
from sweeps.engine.worker import Worker
from sweeps.planning.packing import Pack
from sweeps.store.checkpoints import Checkpoint, checkpoint_label
from sweeps.store.ledger import Ledger

# 2 x 2 replicates of 96 models take several stages.
DRAWS = ("fixed.draws=96", "fixed.records=8", "space={weight_decay: {grid: [0.01, 0.1]}}")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    planned = small_plan(tmp_path_factory.mktemp("study"), *DRAWS)
    return Pack("pack", "membership", tuple(planned.replicates()))


@pytest.fixture(scope="module")
def uninterrupted(pack: Pack, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    ledger = Ledger(str(tmp_path_factory.mktemp("reference")), "sweep")
    to_the_end(begin(pack, ledger))
    return ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


def begin(pack: Pack, ledger: Ledger, every: float = 0.0) -> PackTrainer:
    experiment = privnets.experiment("membership")
    return PackTrainer(pack, experiment, ledger, checkpoint_seconds=every)


def to_the_end(run: PackTrainer) -> None:
    while not run.advance().committed:
        pass


class Unwatchable(Membership):
    """Reports a value to watch that is not a number."""

    def stages(self, *arguments: Any, **named: Any) -> Iterator[Stage]:
        for stage in super().stages(*arguments, **named):
            yield replace(stage, live=lambda: {"loss": "high"})  # type: ignore[arg-type, return-value]


def test_a_value_to_watch_that_is_not_a_number_fails_the_pack_at_once(
    pack: Pack, ledger: Ledger
) -> None:
    worker = Worker.__new__(Worker)
    worker.accept("")
    worker._trainer, worker._node = PackTrainer(pack, Unwatchable(), ledger), "node"
    report = worker.step()
    assert report["has_ended"]
    assert "could not convert string to float: 'high'" in report["failure"]


class Undeclared(Membership):
    """Reports a metric that it does not declare, and lacks one that it does."""

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        return ("utility/other", *super().metric_keys(config)[1:])


def test_metrics_that_are_not_declared_fail_the_pack_at_its_first_point(
    pack: Pack, ledger: Ledger
) -> None:
    with pytest.raises(ValueError, match="missing: utility/other; not declared: bound/advantage"):
        to_the_end(PackTrainer(pack, Undeclared(), ledger))
    assert not ledger.pack_ids()


@pytest.mark.parametrize("stages", [1, 3])
def test_an_interrupted_pack_has_the_same_results(
    pack: Pack, ledger: Ledger, uninterrupted: Ledger, stages: int
) -> None:
    broken = begin(pack, ledger)
    for _ in range(stages):
        broken.advance()
    kept = Checkpoint(ledger, "pack", checkpoint_label(Membership())).load()
    to_the_end(begin(pack, ledger))
    assert_same_numbers(numbers(ledger), numbers(uninterrupted))
    finished = {(p.point_id, r.seed): r.finished_at for p in kept.points for r in p.replicates}
    final = {(p.point_id, r.seed): r for p in ledger.read_points() for r in p.replicates}
    assert {member: final[member].finished_at for member in finished} == finished


def test_a_pack_continues_from_its_checkpoint(pack: Pack, ledger: Ledger) -> None:
    broken = begin(pack, ledger)
    before = [broken.advance().share for _ in range(3)]
    kept = Checkpoint(ledger, "pack", checkpoint_label(Membership())).load()
    trained = Recording()
    to_the_end(PackTrainer(pack, trained, ledger))
    assert before == sorted(before)
    assert [(c.seed, c.resolved()) for c in trained.is_requested] == [
        (r.config.seed, r.config.resolved())
        for r in pack.replicates
        if (r.point_id, r.seed) in set(kept.remaining)
    ]
    assert 0 < len(trained.is_requested) < len(pack.replicates)
    assert trained.state is not None


def test_points_that_are_ahead_of_their_state_do_no_harm(ledger: Ledger, tmp_path: Path) -> None:
    # A replicate of this many models takes several stages.
    space = "space.weight_decay={grid: [0.1]}"
    planned = small_plan(tmp_path, "fixed.draws=144", "fixed.records=8", space)
    pack = Pack("pack", "membership", tuple(planned.replicates()))
    reference = Ledger(str(tmp_path), "reference")
    to_the_end(begin(pack, reference))
    run = begin(pack, ledger)
    run.advance()
    state = Path(ledger.directory.path, "checkpoints", "pack", "state.safetensors")
    older = state.read_bytes()
    while Checkpoint(ledger, "pack", checkpoint_label(Membership())).load().points == ():
        run.advance()
    state.write_bytes(older)  # as if killed between the two writes
    begin(pack, ledger).advance()
    to_the_end(begin(pack, ledger))
    assert_same_numbers(numbers(ledger), numbers(reference))


def test_a_committed_pack_is_not_trained_again(pack: Pack, uninterrupted: Ledger) -> None:
    before = contents(Path(uninterrupted.directory.path, "ledger"))
    trained = Recording()
    to_the_end(PackTrainer(pack, trained, uninterrupted))
    assert trained.is_requested == []
    assert contents(Path(uninterrupted.directory.path, "ledger")) == before


def test_checkpoints_are_no_more_frequent_than_asked_for(pack: Pack, ledger: Ledger) -> None:
    run = begin(pack, ledger, every=3600)
    run.advance()
    assert not Path(ledger.directory.path, "checkpoints").exists()
    run.save()
    assert Path(ledger.directory.path, "checkpoints", "pack").is_dir()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("points.parquet", lambda content: content[: len(content) // 2]),
        ("state.safetensors", lambda content: b"\x80\x04" + content),
    ],
)
def test_a_damaged_checkpoint_costs_time_not_results(
    pack: Pack, ledger: Ledger, uninterrupted: Ledger, name: str, damage: object
) -> None:
    run = begin(pack, ledger)
    for _ in range(2):
        run.advance()
    path = Path(ledger.directory.path, "checkpoints", "pack", name)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    to_the_end(begin(pack, ledger))
    assert_same_numbers(numbers(ledger), numbers(uninterrupted))


def test_a_state_of_another_version_is_not_continued(pack: Pack, ledger: Ledger) -> None:
    broken = begin(pack, ledger)
    for _ in range(2):
        broken.advance()
    assert Checkpoint(ledger, "pack", checkpoint_label(Membership())).load().state is not None
    newer = Checkpoint(ledger, "pack", checkpoint_label(Newer())).load()
    assert newer.state is None
    assert newer.points != ()


def test_a_state_that_the_experiment_refuses_is_trained_from_the_start(
    pack: Pack, ledger: Ledger, uninterrupted: Ledger
) -> None:
    broken = begin(pack, ledger)
    for _ in range(2):
        broken.advance()
    path = Path(ledger.directory.path, "checkpoints", "pack", "state.safetensors")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    cut = {name: tensor[..., :1].contiguous() for name, tensor in load_file(path).items()}
    save_file(cut, path, metadata)
    again = begin(pack, ledger)
    assert "of another stack" in str(again.advance().problem)
    to_the_end(again)
    assert_same_numbers(numbers(ledger), numbers(uninterrupted))


def test_a_checkpoint_that_cannot_be_written_is_only_reported(
    pack: Pack, ledger: Ledger, uninterrupted: Ledger
) -> None:
    run = begin(pack, ledger)
    Path(ledger.directory.path).mkdir()
    Path(ledger.directory.path, "checkpoints").write_text("a file where a directory should be")
    told = [run.advance()]
    while not told[-1].committed:
        told.append(run.advance())
    assert [bool(advance.problem) for advance in told] == [True] * (len(told) - 1) + [False]
    assert "a checkpoint could not be written: " in str(told[0].problem)
    assert_same_numbers(numbers(ledger), numbers(uninterrupted))


def test_an_experiment_that_loses_a_point_fails_its_pack(pack: Pack, ledger: Ledger) -> None:
    with pytest.raises(RuntimeError, match="1 replicates missing"):
        to_the_end(PackTrainer(pack, Forgetful(), ledger))
    assert ledger.pack_ids() == []


class Recording(Membership):
    """Notes what it was asked to train, and from where."""

    def __init__(self) -> None:
        self.is_requested: list[ExperimentConfig] = []
        self.state: State | None = None

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        self.is_requested, self.state = list(configs), state
        return super().stages(configs, device, state)


class Newer(Membership):
    version = Membership.version + 1


class Forgetful(Membership):
    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        return super().stages(configs[1:], device, state)


def test_only_errors_of_a_device_or_storage_may_succeed_elsewhere() -> None:
    """A singular matrix would be singular on every worker."""
    assert may_succeed_elsewhere(torch.OutOfMemoryError("of a GPU"))
    assert may_succeed_elsewhere(OSError(errno.EIO, "the disk failed"))
    assert not may_succeed_elsewhere(torch.linalg.LinAlgError("singular"))
    assert not may_succeed_elsewhere(OSError(errno.ENOSPC, "the disk is full"))
