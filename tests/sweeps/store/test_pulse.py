"""A driver tells those who look from elsewhere how it is, and nothing depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.engine.progress import ResourceUse, SweepProgress
from sweeps.store.ledger import Ledger
from sweeps.store.pulse import Heartbeat, beating, read_heartbeat

_USE = ResourceUse(packs=2, nodes=3, busy_nodes=2, cpus=8.0, busy_cpus=2.0, gpus=0.0, busy_gpus=0.0)
_PROGRESS = SweepProgress(
    points=4, done=1, failed=0, share=0.25, rate=2.5, eta=60.0, front=1, best={}, use=_USE
)


def test_the_last_state_is_there_when_the_driver_has_ended(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    with beating(ledger) as heart:
        heart.phase = "training"
        heart.show(_PROGRESS)
    pulse = read_heartbeat(ledger)
    assert pulse is not None
    assert (pulse.phase, pulse.over) == ("ended", True)
    assert (pulse.share, pulse.rate, pulse.eta, pulse.use) == (0.25, 2.5, 60.0, _USE)
    assert heart.problem is None


def test_a_driver_that_breaks_off_has_stopped(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    with pytest.raises(KeyboardInterrupt), beating(ledger):
        raise KeyboardInterrupt
    pulse = read_heartbeat(ledger)
    assert pulse is not None
    assert pulse.phase == "stopped"


def test_a_storage_that_takes_nothing_does_the_driver_no_harm(tmp_path: Path) -> None:
    (tmp_path / "sweep").write_text("a file where the sweep's directory would be")
    with beating(Ledger(str(tmp_path), "sweep")) as heart:
        heart.show(_PROGRESS)
    assert heart.problem is not None
    assert "progress.json could not be written" in heart.problem


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{}",
        b'{"phase": "training"}',
        b'{"phase": "training", "updated_at": "2026-01-01T00:00:00Z", "share": 7}',
        b'{"phase": "training", "updated_at": "2026-01-01T00:00:00Z", "use": {"packs": "many"}}',
        b"[" * 100_000,
        b" " * 1_000_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_pulse_is_passed_over(tmp_path: Path, content: bytes) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    ledger.directory.write("progress.json", content)
    assert read_heartbeat(ledger) is None


def test_a_pulse_is_the_same_on_the_other_side() -> None:
    pulse = Heartbeat.model_validate(
        {"phase": "training", "updated_at": "2026-01-01T00:00:00Z", "use": _USE, "rate": 1.5}
    )
    assert Heartbeat.model_validate_json(pulse.model_dump_json()) == pulse
