"""Fuzz targets of storage and tracking: packs, failures, checkpoints, artifacts, runs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from campaigns.fuzz.edits import Strategy, edited_inputs
from campaigns.fuzz.targets import Target
from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.analysis.results import build_points_frame, build_replicates_frame
from sweeps.analysis.tables import points_table
from sweeps.report.figures.releases import UnusableError, read_images, read_week
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.codec import FIXED_COLUMNS, encode_points
from sweeps.store.ledger import Ledger
from sweeps.store.reader import is_metric_column, read_failures, replicate_table
from tracking.errors import TrackingError

_JSON = tuple(
    word.encode()
    for word in (
        "{",
        "}",
        "[",
        "]",
        '"',
        ":",
        ",",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "null",
        "true",
        "9" * 30,
        "9" * 5000,
        '"\\ud800"',
        '"\\u0000"',
        "[" * 3000,
        "{}",
        "-1",
        "1.5",
        '"p0"',
    )
)


def packs(folder: Path) -> Target:
    """A pack's file beside an intact one, which stays readable whatever the first holds."""
    ledger = Ledger(str(folder), "sweep")
    ledger.write_pack("whole", [_point("intact", 0), _point("intact", 1)])
    place = folder / "sweep" / "ledger" / "made.parquet"
    corpus = [
        encode_points([_point("a", 0), _point("a", 1), _point("b", 0)]),
        encode_points([_point("c", 0, failure="diverged"), _point("d", 0, stopped="dominated")]),
        _without_checksums(encode_points([_point("e", 0)])),
    ]

    def read(content: bytes) -> bool:
        place.write_bytes(content)
        fresh = Ledger(str(folder), "sweep")
        points = {point.point_id: point for point in fresh.read_points()}
        refused = "made.parquet" in fresh.unreadable
        assert {"intact"} <= points.keys()
        assert refused <= (len(points) == 1)
        done = {(p.point_id, r.seed) for p in points.values() for r in p.replicates}
        assert fresh.finished_replicates() == done
        _use(fresh)
        for point in points.values():
            _ = dict(point.metrics), dict(point.curves), dict(point.notes), point.status
        return not refused

    def inputs() -> Strategy:
        return edited_inputs(corpus, (*_JSON, b"PAR1")) | _tables()

    return Target("packs", folder, read, lambda: corpus, inputs)


def failures(folder: Path) -> Target:
    """A record of a failed pack."""
    ledger = Ledger(str(folder), "sweep")
    ledger.write_failure("whole", [("p9", 0)], "no memory")
    place = folder / "sweep" / "failures" / "made.json"
    valid = json.dumps({"members": [["p0", 0], ["p0", 1]], "reason": "r", "details": "d"}).encode()

    def read(content: bytes) -> bool:
        place.write_bytes(content)
        fresh = Ledger(str(folder), "sweep")
        found = read_failures(fresh, lambda: {("p0", 0)})
        assert found["whole"].reason == "no memory"
        return "failures/made.json" not in fresh.unreadable

    return Target("failures", folder, read, lambda: [valid], lambda: edited_inputs([valid], _JSON))


def checkpoints(folder: Path) -> Target:
    """A stack's state."""
    import torch
    from safetensors.torch import save

    ledger = Ledger(str(folder), "sweep")
    metadata = {"label": "l", "remaining": json.dumps([["p0", 0], ["p0", 1]])}
    state = {
        "w": torch.ones(2, 3),
        "n": torch.arange(3),
        "e": torch.zeros(0),
        "s": torch.tensor(1.0),
    }
    valid = save(state, metadata)
    place = folder / "sweep" / "checkpoints" / "pack"
    place.mkdir(parents=True)

    def read(content: bytes) -> bool:
        (place / "state.safetensors").write_bytes(content)
        return Checkpoint(ledger, "pack", "l").load().state is not None

    def inputs() -> Strategy:
        words = (
            *_JSON,
            b"F64",
            b"I64",
            b"BOOL",
            b"F8_E4M3",
            b"F4",
            b"U8",
            b"[2,3]",
            b"__metadata__",
        )
        return edited_inputs([valid], words) | _safetensors([valid], words)

    return Target("checkpoints", folder, read, lambda: [valid], inputs)


def artifacts(folder: Path) -> Target:
    """Files that points store for pictures."""
    from safetensors.numpy import save

    image = np.zeros((2, 1, 3, 3), dtype=np.float32)
    bits = np.array([0, 1], dtype=np.int64)
    day = np.ones((2, 4), dtype=np.float32)
    corpus = [
        save({"original": image, "released": image, "secret": bits, "utility": bits}),
        save(
            {
                "original": day,
                "released": day,
                "secret": day,
                "present": day,
                "day": np.array([15_000, 15_001], dtype=np.int64),
            }
        ),
    ]
    readers: tuple[Callable[[TradeoffPoint], object], ...] = (read_images, read_week)

    def read(content: bytes) -> bool:
        names = ("release.safetensors", "week.safetensors")
        point = _point("p", 0, artifacts=dict.fromkeys(names, content))
        used = 0
        for reader in readers:
            try:
                reader(point)
                used += 1
            except UnusableError:
                continue
        return used > 0

    words = (*_JSON, b"F16", b"F8_E4M3", b"BF16", b"I8", b"C64", b"[99999999,99999999]")
    return Target(
        "artifacts",
        folder,
        read,
        lambda: corpus,
        lambda: edited_inputs(corpus, words) | _safetensors(corpus, words),
    )


def runs(folder: Path) -> Target:
    """A run of MLflow's, with whatever tags and metrics."""
    from mlflow.entities import Metric, Run, RunData, RunInfo, RunTag

    from tracking.reading import _row
    from tracking.runs import ChildRun

    tags = {
        "point_id": "p0",
        "experiment": "membership",
        "status": "finished",
        "replicates": "2",
        "finished_at": "1.5e9",
        "config": '{"a": 1, "b": null}',
        "content": "c",
        "recorded_at": "1.500000",
        "replicates_attempted": "2",
    }
    valid = json.dumps({"tags": tags, "metrics": {"m": 1.0, "curve/x": 2.0}}).encode()
    info = RunInfo("r", "0", "u", "FINISHED", 0, 1, "active")

    def read(content: bytes) -> bool:
        found = _mapping(content)
        texts = {str(k): str(v) for k, v in _part(found, "tags").items()}
        numbers = {k: v for k, v in _part(found, "metrics").items() if isinstance(v, float)}
        data = RunData(
            [Metric(k, v, 0, 0) for k, v in numbers.items()],
            [],
            [RunTag(k, v) for k, v in texts.items()],
        )
        if "point_id" in texts:
            ChildRun.from_tags("r", "FINISHED", texts, frozenset(numbers))
        try:
            row = _row(Run(info, data))
        except TrackingError:
            return False
        from privnets.frames import table_from_rows

        table_from_rows([row], "sweep")
        return True

    return Target("runs", folder, read, lambda: [valid], lambda: edited_inputs([valid], _JSON))


def _point(point_id: str, seed: int, **changes: Any) -> TradeoffPoint:
    said: dict[str, Any] = {
        "metrics": {"privacy/x": 0.5 + seed, "utility/y": float("nan")},
        "standard_errors": {"privacy/x": 0.1},
        "notes": {"utility/y": "undefined"},
        "curves": {"loss": Curve((0, 1), (1.0, 0.5))},
        "finished_at": 1.7e9 + seed,
    }
    replicate = Replicate(seed, **{**said, **changes})
    return TradeoffPoint(point_id, "membership", {"a": 1, "b": None, "c": "x"}, (replicate,))


def _use(ledger: Ledger) -> None:
    """Commands and reports on a ledger."""
    replicates = replicate_table(ledger.read_tables(columns=is_metric_column))
    frame = build_points_frame(replicates, "sweep")
    build_replicates_frame(replicates, "sweep")
    whole = replicate_table(ledger.read_tables())
    whole.notes(), whole.artifact_names(), whole.counts
    points_table(frame, list(_metrics(frame))[:3], ["a"][: "config/a" in frame])


def _metrics(frame: pd.DataFrame) -> Iterator[str]:
    names = map(str, frame.columns)
    return (name for name in names if "/" in name and not name.startswith("config/"))


def _without_checksums(content: bytes) -> bytes:
    """The same table, so that damage to its pages reaches the checks of values."""
    return _parquet(pq.read_table(io.BytesIO(content)))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


_TEXTS = st.sampled_from(
    [
        "p0",
        "p1",
        "intact2",
        "",
        "../x",
        "a\0b",
        "{}",
        '{"a": 1}',
        '{"a": NaN}',
        '{"a": [1]}',
        '{"a": 1e400}',
        '{"a": ' + "9" * 40 + "}",
        '{"a": "\\ud800"}',
        "[" * 2000,
        "\x1b[31m",
        "λ",
        '{"a": 1, "a": 2}',
        "null",
        "3",
    ]
)
_KINDS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "double": pa.float64(),
    "int64": pa.int64(),
    "binary": pa.binary(),
    "list<string>": pa.list_(pa.string()),
    "list<int64>": pa.list_(pa.int64()),
    "list<double>": pa.list_(pa.float64()),
    "bool": pa.bool_(),
}


def _tables() -> Strategy:
    """Tables with the right columns, or nearly, of the right types, or others."""
    rows = 2
    numbers = st.sampled_from([0.0, 1.0, 1.7e9, -1.0, 1e18, 1e300, float("nan"), float("inf")])
    wholes = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
    columns = {
        "string": st.lists(_TEXTS | st.none(), min_size=rows, max_size=rows),
        "double": st.lists(numbers | st.none(), min_size=rows, max_size=rows),
        "int64": st.lists(wholes | st.none(), min_size=rows, max_size=rows),
        "binary": st.lists(st.binary(max_size=6), min_size=rows, max_size=rows),
        "list<string>": st.lists(
            st.lists(_TEXTS | st.none(), max_size=2) | st.none(), min_size=rows, max_size=rows
        ),
        "list<int64>": st.lists(
            st.lists(wholes | st.none(), max_size=2) | st.none(), min_size=rows, max_size=rows
        ),
        "list<double>": st.lists(
            st.lists(numbers, max_size=2) | st.none(), min_size=rows, max_size=rows
        ),
        "bool": st.lists(st.booleans() | st.none(), min_size=rows, max_size=rows),
    }
    right = {
        name: next(k for k, kind in _KINDS.items() if kind == FIXED_COLUMNS[name])
        for name in FIXED_COLUMNS
    }
    right |= {
        "metric/privacy/x": "double",
        "metric/": "double",
        "metric/\x1b": "double",
        "standard_error/privacy/x": "double",
        "curve_steps/loss": "list<int64>",
        "curve_values/loss": "list<double>",
        "other": "int64",
    }

    @st.composite
    def table(draw: st.DrawFn) -> bytes:
        arrays: dict[str, pa.Array] = {}
        for name, kind in right.items():
            optional = name not in FIXED_COLUMNS
            if draw(st.integers(0, 9)) < (5 if optional else 1):
                continue
            chosen = kind if draw(st.integers(0, 9)) else draw(st.sampled_from(sorted(_KINDS)))
            arrays[name] = pa.array(draw(columns[chosen]), _KINDS[chosen])
        return _parquet(pa.table(arrays))

    return table()


def _safetensors(corpus: list[bytes], words: tuple[bytes, ...]) -> Strategy:
    """Safetensors files whose header is edited, with the length that fits."""

    def frame_bytes(drawn: tuple[bytes, bytes]) -> bytes:
        header, body = drawn
        return len(header).to_bytes(8, "little") + header + body

    bodies, headers = [], []
    for content in corpus:
        length = int.from_bytes(content[:8], "little")
        headers.append(content[8 : 8 + length])
        bodies.append(content[8 + length :])
    return st.tuples(edited_inputs(headers, words), st.sampled_from(bodies)).map(frame_bytes)


def _mapping(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(found: dict[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}
