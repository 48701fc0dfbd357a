"""Command lines: any arguments give either a result, or one message and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st

from campaigns.fuzz.edits import Strategy
from campaigns.fuzz.targets import Target

_CODES = (0, 1, 2)
# No server listens at any of these, so that nothing starts.
_NOWHERE = (
    "127.0.0.1:1",
    "localhost:1",
    "[::1]:1",
    "ray://127.0.0.1:1",
    "127.0.0.1",
    ":",
    ":1",
    "",
    "127.0.0.1:99999",
    "127.0.0.1:\u00b2",
    "127.0.0.1:-1",
    "a" * 70 + ".b:1",
    "\u2603:1",
    "\x1b[31m:1",
    "http://127.0.0.1:1",
    "[",
    "]:1",
    "127.0.0.1:1:1",
    "-",
    "a..b:1",
)
_URIS = (
    "sqlite:///",
    "sqlite://",
    "sqlite:///:memory:",
    "sqlite:///a%00b",
    "sqlite:///a?b=%",
    "sqlite:////proc/x/y.db",
    "sqlite+x:///a.db",
    "http://127.0.0.1:1",
    "http://[",
    "http://",
    "http://127.0.0.1:99999",
    "https://a b",
    "http://user:pass@127.0.0.1:1",
    "file:///x",
    "postgresql://[",
    "postgresql://127.0.0.1:x/y",
    "postgresql+psycopg2://127.0.0.1:1/y",
    "postgresql+nothing://a/b",
    "mysql://x",
    "mssql://x",
    "databricks",
    "://",
    ":",
    "x:y",
    "\x1b[31m",
    "sqlite:///" + "a" * 300,
    "sqlite:///\udcff.db",
    "HTTP://127.0.0.1:1",
)
_PLACES = (
    "~nobody-of-that-name/x",
    "/proc/self/mem",
    "/dev/null",
    "/dev/null/x",
    "a" * 300,
    ".",
    "..",
    "",
    "nosuch://x",
    "file://",
    "file:///nowhere",
    "mock://x",
    "://",
    "hdfs://127.0.0.1:1/x",
    "\udcff",
    "\x1b[31m",
    "a\nb",
    "-",
    "./x y",
    "file://%zz",
    "local://x",
)
_NAMES = (
    "kept",
    "",
    ".",
    "..",
    "../kept",
    "/etc",
    "a/b",
    "\x1b[31m",
    "\udcff",
    "x" * 300,
    "-x",
    "KEPT",
    "kept\n",
    "none",
    "%00",
    "kept/../kept",
)
_METRICS = (
    "privacy/membership_advantage",
    "utility/test_accuracy",
    "x",
    "",
    "point_id",
    "status",
    "finished_at",
    "config/model",
    "\x1b[31m",
    "privacy/membership_advantage.std",
    "m" * 3000,
    "\udcff",
    "replicates",
    "sweep",
)
_FILES = (
    "out.csv",
    "out.json",
    "out.parquet",
    "out.html",
    "out.png",
    "",
    ".",
    "/",
    "x/y.csv",
    ".csv",
    "a" * 300 + ".csv",
    "/dev/full.csv",
    "out.\udcff",
    "\udcff.csv",
    "out.CSV",
    "~/x.csv",
    "folder.csv",
    "\x1b.html",
)
_STUDIES = (
    "quickstart",
    "nothing",
    "",
    ".",
    "/dev/null",
    "/proc/self/mem",
    "x.yaml",
    "\udcff.yaml",
    "../quickstart",
    "quickstart.yaml",
    "\x1b[31m",
    "a" * 5000,
    "folder.csv",
)
_CHANGES = (
    "fixed.train_size=20",
    "x",
    "=",
    "a.b.c=1",
    ".=1",
    "name=\x1b[31m",
    "replicates=1",
    "space.weight_decay.grid=[0]",
    "objectives.x=min",
    "fixed.x=*a",
    "name=&a [*a]",
    "fixed=[",
    "space=null",
    "search.num_points=1e9",
    "name=\udcff",
    ".".join("a" * 3000) + "=1",
    "fixed.draws=" + "9" * 400,
)


def commands(folder: Path) -> Target:
    """`sweeps` with arguments, one per line."""
    storage = folder / "storage"
    _fill(storage)
    (folder / "folder.csv").mkdir()
    corpus = [
        f"points\nkept\n--storage\n{storage}".encode(),
        b"show\nquickstart",
    ]

    def read(content: bytes) -> bool:
        words = os.fsdecode(content).replace("\0", "").split("\n")
        code, said = _run_command(["sweeps", *words], folder)
        assert code in _CODES, said
        assert "Traceback" not in said
        return code == 0

    return Target("commands", folder, read, lambda: corpus, lambda: _lines(str(storage)))


def _lines(storage: str) -> Strategy:
    def one(values: tuple[str, ...]) -> st.SearchStrategy[str]:
        text = st.text(
            st.characters(exclude_characters="\0\n", exclude_categories=("Cs",)), max_size=12
        )
        return st.sampled_from(values) | text

    def option(name: str, values: tuple[str, ...], share: int = 2) -> st.SearchStrategy[list[str]]:
        given = one(values).map(lambda value: [name, value])
        return st.one_of(*[st.just(list[str]())] * share, given)

    place = option("--storage", (storage, *_PLACES), 0)
    uri = option("--tracking-uri", _URIS)
    stores = st.sampled_from(
        [["--tracking-uri", u] for u in ("http://127.0.0.1:1", "sqlite:///t.db")]
    )
    sweep = st.sampled_from(("kept",)) | one(_NAMES)
    study = st.sampled_from(("quickstart",)) | one(_STUDIES)
    change = option("--set", _CHANGES)
    addressed = one(_NOWHERE).map(lambda value: ["--address", value or "-"])
    metrics = st.lists(
        st.tuples(st.sampled_from(["--minimize", "--maximize"]), one(_METRICS)), max_size=3
    ).map(lambda pairs: [word for pair in pairs for word in pair])
    out, plot = option("-o", _FILES), option("--plot", _FILES)
    lines = st.one_of(
        st.tuples(
            st.just(["show"]),
            study.map(lambda s: [s]),
            change,
            change,
            option("--num-points", ("1", "0", "x", "9" * 30)),
        ),
        st.tuples(st.just(["points"]), sweep.map(lambda s: [s]), place, uri, out),
        st.tuples(st.just(["pareto"]), sweep.map(lambda s: [s]), place, metrics, out, plot),
        st.tuples(
            st.just(["verify"]),
            sweep.map(lambda s: [s]),
            place,
            one(_URIS).map(lambda u: ["--tracking-uri", u]),
        ),
        st.tuples(
            st.just(["run"]),
            study.map(lambda s: [s]),
            change,
            place,
            addressed,
            option("--name", _NAMES),
            stores,
        ),
        st.tuples(st.just(["resume"]), sweep.map(lambda s: [s]), place, addressed, stores),
        st.tuples(
            st.just(["data"]),
            st.just(["fetch"]),
            one(("digits", "", "x", "\x1b[31m")).map(lambda s: [s]),
        ),
        st.tuples(st.lists(one(("--help", "list", "-x", "--", "data", "status")), max_size=3)),
    )
    return lines.map(lambda parts: os.fsencode("\n".join(w for part in parts for w in part)))


def _run_command(words: list[str], folder: Path) -> tuple[object, str]:
    """Returns the exit code and output of a command; its exceptions pass through."""
    from sweeps.cli.main import main

    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = Path.cwd()
    os.chdir(folder)
    code: object = 0
    try:
        with (
            mock.patch.object(sys, "argv", words),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(
                io.TextIOWrapper(said.buffer, "utf-8", "backslashreplace", write_through=True)
            ) as errors,
        ):
            main()
    except SystemExit as end:
        code = end.code if end.code is not None else 0
    finally:
        os.chdir(before)
    errors.flush()
    said.flush()
    text = said.buffer.getvalue().decode(errors="replace")
    return code, text


def _fill(storage: Path) -> None:
    """A finished sweep, made without training it."""
    from privnets.points import Replicate, TradeoffPoint
    from sweeps.planning.plan import create_manifest, make_plan
    from sweeps.store.ledger import Ledger
    from sweeps.store.manifest import write_manifest
    from sweeps.study.loader import load

    planned = make_plan(load("quickstart"))
    ledger = Ledger(str(storage), "kept")
    write_manifest(
        ledger,
        create_manifest(planned, "kept", command="sweeps run", tracking_uri="sqlite:////nowhere/x"),
    )
    points = []
    for number, each in enumerate(planned.replicates()):
        metrics = dict.fromkeys(planned.objectives, 0.1 + number % 7)
        config = {k: v for k, v in each.config.resolved().items() if k != "seed"}
        replicate = Replicate(each.seed, metrics, finished_at=1.7e9)
        points.append(TradeoffPoint(each.point_id, "membership", config, (replicate,)))
    ledger.write_pack("pack", points)
