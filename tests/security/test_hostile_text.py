"""Names and reasons from files and servers steer no terminal and run in no page."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hostile_files import point
from stores import new_store

import tracking
from privnets.points import Replicate, TradeoffPoint
from sweeps.errors import make_printable
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load
from tracking.run_record import build_run_record

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\x08[bold red]x[/] :bomb: \ud83d"
MARKUP = (
    "<img src=x onerror=alert(1)><script>alert(1)</script>"
    "![p](http://127.0.0.1:1/p) [l](javascript:x)"
)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\x08 [bold red]x[/] :bomb: " + MARKUP
# What rich itself writes: colours, and nothing else.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_what_is_printable_stays_and_what_steers_goes() -> None:
    assert make_printable("a λ ± … [x]\n\tb") == "a λ ± … [x]\n\tb"
    assert not set(make_printable(STEERING)) & set("\x1b\x07\x9b\u202e\r\x08\ud83d")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep every text of which is hostile."""
    folder = tmp_path_factory.mktemp("storage")
    planned = make_plan(load("quickstart"))
    ledger = Ledger(str(folder), "hostile")
    manifest = create_manifest(planned, "hostile", command=HOSTILE, tracking_uri="sqlite:////x")
    study = manifest.study.model_copy(update={"description": HOSTILE})
    plan_ = manifest.plan.model_copy(update={"metrics": (HOSTILE,)})
    write_manifest(ledger, manifest.model_copy(update={"study": study, "plan": plan_}))
    points = []
    for number, each in enumerate(planned.replicates()):
        metrics = {**dict.fromkeys(planned.objectives, 0.5), HOSTILE: 1.0}
        config = {**each.config.resolved(), "model": HOSTILE, HOSTILE: str(number)}
        failure = HOSTILE if number % 3 == 1 else None
        replicate = Replicate(
            each.seed, metrics, notes={HOSTILE: HOSTILE}, failure=failure, finished_at=1.7e9
        )
        points.append(TradeoffPoint(each.point_id, HOSTILE, config, (replicate,)))
    ledger.write_pack("pack", points)
    ledger.write_failure("lost", [("p", 0)], HOSTILE)
    (folder / "hostile" / "ledger" / "bad\x1b[31m.parquet").write_bytes(b"x")
    return folder


_RUN_EACH = """
import json, sys
from contextlib import suppress
from sweeps.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["sweeps", *words]
    with suppress(SystemExit):
        main()
    print("-- end --", flush=True)
"""


def on_a_terminal(*commands: Sequence[str], folder: Path) -> list[str]:
    """Returns the output of each command on a terminal; one process runs all of them."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN_EACH, json.dumps(commands)],
        cwd=folder,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
    )
    os.close(follower)
    parts = []
    try:
        while part := os.read(leader, 2**16):
            parts.append(part)
    except OSError:  # the other end was closed
        pass
    finally:
        process.wait(120)
        os.close(leader)
    *outputs, rest = b"".join(parts).decode(errors="replace").split("-- end --\r\n")
    assert (rest, process.returncode) == ("", 0)
    return outputs


def test_commands_steer_no_terminal(storage: Path, tmp_path: Path) -> None:
    where = ("--storage", str(storage))
    outputs = on_a_terminal(
        ("points", "hostile", *where),
        ("pareto", "hostile", *where),
        ("points", "\x1b[31mx", *where),
        ("show", "\x1b[31m"),
        ("pareto", "hostile", "--minimize", "\x1b]0;owned\x07", *where),
        folder=tmp_path,
    )
    assert len(outputs) == 5
    for said in outputs:
        left = COLOUR.sub("", said).replace("\r\n", "\n")
        assert left.strip()
        assert "Traceback" not in left
        assert make_printable(left) == left


def test_a_verification_steers_no_terminal(storage: Path, tmp_path: Path) -> None:
    """Content of MLflow is untrusted."""
    uri = new_store(tmp_path)
    tracking.record(
        [point("extra"), point("other")], sweep="hostile", study="quickstart", tracking_uri=uri
    )
    import sqlite3

    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute(
            "UPDATE tags SET value = ? WHERE key = 'point_id' AND value = 'other'", (HOSTILE,)
        )
    words = ("verify", "hostile", "--storage", str(storage), "--tracking-uri", uri)
    (said,) = on_a_terminal(words, folder=tmp_path)
    left = COLOUR.sub("", said).replace("\r\n", "\n")
    assert "only in MLflow" in left
    assert make_printable(left) == left


def test_a_report_of_hostile_names_runs_nothing(storage: Path) -> None:
    """Renders a report of a real ledger, as the tests in a browser do."""
    from sweeps.analysis.results import open_result
    from sweeps.report.contents import ReportContents
    from sweeps.report.page import render_page

    page = render_page([ReportContents(open_result("hostile", str(storage)))])
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "onerror=alert" not in re.sub(r"&lt;img src=x onerror=alert\(1\)&gt;", "", page).replace(
        "\\u003cimg src=x onerror=alert(1)", ""
    )
    assert page.count("<script") == page.count("</script>")


def test_a_reason_is_no_markup_on_mlflow_s_pages() -> None:
    """MLflow draws a run's description as Markdown, pictures from elsewhere included."""
    failed = point(failure=f"{MARKUP}\n# heading\n{MARKUP}")
    tags = build_run_record(failed, frozenset(), (), {}, None).tags("s", "p")
    note = tags["mlflow.note.content"]
    assert all(line.startswith("    ") for line in note.splitlines())
    assert tags["failure"].startswith(MARKUP)


def test_unprintable_names_from_mlflow_are_refused(tmp_path: Path) -> None:
    uri = new_store(tmp_path)
    tracking.record([point("a")], sweep="s", tracking_uri=uri)
    import sqlite3

    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE tags SET value = ? WHERE key = 'experiment'", (HOSTILE,))
    with pytest.raises(tracking.TrackingError) as caught:
        tracking.load_points("s", uri)
    message = str(caught.value)
    assert "was not written by `record`: experiment: must have printable characters only" in message
    assert make_printable(message) == message
