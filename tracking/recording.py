"""Record points in MLflow so that doing it again, or twice at once, adds nothing."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from privnets.points import Scalar, TradeoffPoint, merge_replicates
from tracking import runs
from tracking.errors import TrackingError, redacted
from tracking.frame import SUFFIXES
from tracking.store import connect, create, translated

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

LOG10_OF_ZERO = -12.0
"""What `log10_<field>` says for a knob of 0: that of 1e-12, below any value these knobs take.

Parallel coordinates drop a run whose value is not finite, and 0 is the end of most axes.
"""

LOG10_OF_INFINITY = -LOG10_OF_ZERO
"""What `log10_<field>` says for a knob of infinity, as an order of leakage may be: that of 1e12."""

_RUN_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

MAX_TAG = 8000
MAX_PARAM = 6000
_ROUNDS = 5


@dataclass(frozen=True)
class _Sheet:
    """A point with what its run will say, checked before anything is written."""

    point: TradeoffPoint
    run_name: str
    params: Mapping[str, str]
    config: str
    content: str
    files: Mapping[PurePosixPath, bytes]


def record(
    points: Iterable[TradeoffPoint],
    *,
    sweep: str,
    study: str | None = None,
    tracking_uri: str | None = None,
    log_scaled: frozenset[str] = frozenset(),
    name_fields: Sequence[str] = (),
    keys: Collection[str] = (),
) -> int:
    """Record points under their sweep's parent run, one child run each.

    Idempotent: a run is found again by its point's id, what it holds carries the record's own
    timestamps, and it counts as recorded only once it is FINISHED, KILLED (stopped early) or
    FAILED, which is set last.
    So a call that was killed is completed by the next, a repeated call adds nothing, and when two
    processes record the same point at once the earliest run stays. A point that has gained
    replicates since replaces its run, and so does one that was computed again and has other
    values or times. Of processes that record different values at once, the point that finished
    last stays.

    Args:
        points: Points with all their replicates.
        sweep: The sweep's name.
        study: The experiment's name; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: As `resolve_uri` takes it.
        log_scaled: Configuration fields that get a `log10_<field>` parameter (`LOG10_OF_ZERO` for
            zero, `LOG10_OF_INFINITY` for infinity).
        name_fields: Configuration fields that name the run, as in `train_size=100`; by default
            the point's id does.
        keys: Metrics that every run is to have, NaN where its point lacks them; their `.std`,
            `.ci_low` and `.ci_high` need not be named. Those of the given points always count.

    Returns:
        How many points were new, or completed.

    Raises:
        TrackingError: If the store fails or does not answer; a later call takes up from there.
        ValueError: If a `log_scaled` field is negative, or a configuration is too long for a tag.
    """
    sheets = [_sheet(p, log_scaled, name_fields) for p in merge_replicates(points)]
    if not sheets:
        return 0
    uri = create(tracking_uri)
    client = connect(uri)
    contents = {sheet.point.point_id: sheet.content for sheet in sheets}
    ids = list(contents)
    columns = _columns(sheets, keys)
    written: set[str] = set()
    with translated(uri):
        for _ in range(_ROUNDS):
            home = runs.make_home(client, sweep, study, uri)
            # What this call has written is no longer preferred, or two that differ never settle.
            wanted = {i: c for i, c in contents.items() if i not in written}
            held = runs.settle(client, home, runs.children_of(client, home, sweep, ids), wanted)
            todo = [s for s in sheets if not _holds(held.get(s.point.point_id), s.point, wanted)]
            if not todo:
                return len(written)
            for sheet in todo:
                old = held.get(sheet.point.point_id)
                _write(client, home, sweep, sheet, columns, old)
                written.add(sheet.point.point_id)
    raise TrackingError(
        f"{redacted(uri)}: runs of the sweep {sweep!r} disappear while they are recorded."
    )


def _columns(sheets: Iterable[_Sheet], keys: Iterable[str]) -> list[str]:
    """The metrics of every run; a failed point has none of its own, and NaN keeps columns equal."""
    padded = {f"{key}{suffix}" for key in keys for suffix in ("", *SUFFIXES)}
    return sorted(padded.union(*(sheet.point.metrics for sheet in sheets)))


def config_tag(config: Mapping[str, Scalar]) -> str:
    """A configuration as the JSON that its run's `config` tag holds, with `Infinity` for infinity.

    Raises:
        ValueError: If it does not fit, or a value is NaN.
    """
    if undefined := [name for name, value in config.items() if value != value]:
        raise ValueError(f"a configuration's values must not be NaN; {undefined[0]} is.")
    text = json.dumps(dict(config), sort_keys=True)
    if len(text) > MAX_TAG:
        raise ValueError(f"a configuration must fit {MAX_TAG} characters of JSON; got {len(text)}.")
    return text


def milliseconds(seconds: float) -> int:
    """Unix seconds as MLflow's whole milliseconds; at least 1, as MLflow takes 0 for absent."""
    return max(1, round(seconds * 1000))


def clipped(text: str, length: int = MAX_TAG) -> str:
    """The text, or its beginning with an ellipsis where MLflow would refuse its length."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _sheet(point: TradeoffPoint, log_scaled: frozenset[str], fields: Sequence[str]) -> _Sheet:
    return _Sheet(
        point=point,
        run_name=_run_name(point, fields),
        params=parameters(point.config, log_scaled),
        config=config_tag(point.config),
        content=_content(point),
        files={inside(name): content for name, content in point.artifacts.items()},
    )


def _content(point: TradeoffPoint) -> str:
    """A digest of what `compare` compares: points of equal digest make equal runs."""
    said = {
        "experiment": point.experiment,
        "config": dict(point.config),
        "status": point.status,
        "failure": point.failure,
        "stopped": point.stopped,
        "replicates": [len(point.replicates), len(point.succeeded)],
        "finished_at": repr(float(point.finished_at)),
        "metrics": {key: repr(float(value)) for key, value in point.metrics.items()},
        "curves": {n: repr(float(c.values[-1])) for n, c in point.curves.items() if c.values},
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _holds(run: Run | None, point: TradeoffPoint, wanted: Mapping[str, str]) -> bool:
    if run is None:
        return False
    ours, theirs = len(point.replicates), runs.attempted(run)
    if ours != theirs:
        # A run with more replicates is its writer's to complete.
        return theirs > ours
    content = run.data.tags.get(runs.CONTENT)
    return run.info.status in runs.COMPLETE and content == wanted.get(point.point_id, content)


def _write(
    client: MlflowClient,
    home: runs.Home,
    sweep: str,
    sheet: _Sheet,
    columns: Sequence[str],
    old: Run | None,
) -> None:
    """Bring a point's run up to date, or put another in its place."""
    run_id = _open(client, home, sweep, sheet, old)
    _fill(client, run_id, sheet, columns)
    if old is not None and old.info.run_id != run_id:
        runs.delete(client, old.info.run_id)


def _open(
    client: MlflowClient, home: runs.Home, sweep: str, sheet: _Sheet, held: Run | None
) -> str:
    point = sheet.point
    if held is not None and held.data.tags.get(runs.CONTENT) == sheet.content:
        return str(held.info.run_id)
    created = client.create_run(
        home.experiment_id,
        start_time=milliseconds(min((r.finished_at for r in point.replicates), default=0.0)),
        tags=_tags(sheet, sweep, home),
        run_name=sheet.run_name,
    )
    return str(created.info.run_id)


def _fill(client: MlflowClient, run_id: str, sheet: _Sheet, keys: Sequence[str]) -> None:
    from mlflow.entities import Param
    from mlflow.exceptions import MlflowException

    point = sheet.point
    status = _RUN_STATUS[point.status]
    params = [Param(key, value) for key, value in sheet.params.items()]
    try:
        client.log_batch(run_id, list(_metrics(point, keys)), params)
        _log_files(client, run_id, sheet.files)
        client.set_terminated(run_id, status, milliseconds(point.finished_at))
    except MlflowException:
        # Another process recorded the same point and kept its own run: the next round looks.
        if not runs.deleted(client, run_id):
            raise


def _tags(sheet: _Sheet, sweep: str, home: runs.Home) -> dict[str, str]:
    point = sheet.point
    tags = {
        runs.PARENT: home.parent_id,
        runs.KIND: "point",
        runs.SWEEP: sweep,
        runs.POINT_ID: point.point_id,
        runs.ATTEMPTED: str(len(point.replicates)),
        runs.RECORDED_AT: runs.now(),
        "experiment": point.experiment,
        "status": point.status,
        "replicates": str(len(point.succeeded)),
        runs.FINISHED_AT: repr(float(point.finished_at)),
        runs.CONTENT: sheet.content,
        "config": sheet.config,
    }
    notes = "\n".join(f"{key}: {reason}" for key, reason in point.notes.items())
    said = {"failure": point.failure, "stopped": point.stopped, "notes": notes}
    said[runs.NOTE] = "\n\n".join(text for text in said.values() if text)
    return tags | {key: clipped(text) for key, text in said.items() if text}


def parameters(config: Mapping[str, Scalar], log_scaled: frozenset[str]) -> dict[str, str]:
    """A configuration as MLflow parameters: numbers as text, with `log10_` companions.

    Raises:
        ValueError: If a field in `log_scaled` is negative or no number.
    """
    found = {}
    for field, value in sorted(config.items()):
        text = value if isinstance(value, str) else json.dumps(value)
        found[field] = clipped(text, MAX_PARAM)
        if field in log_scaled and value is not None:
            found[f"log10_{field}"] = repr(_log10(field, value))
    return found


def _log10(field: str, value: Scalar) -> float:
    if not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(
            f"a log-scaled field must be a number of at least 0; {field} is {value!r}."
        )
    if value == math.inf:
        return LOG10_OF_INFINITY
    return math.log10(value) if value > 0 else LOG10_OF_ZERO


def _metrics(point: TradeoffPoint, keys: Sequence[str]) -> Iterator[Metric]:
    from mlflow.entities import Metric

    when = milliseconds(point.finished_at)
    for key in keys:
        yield Metric(key, float(point.metrics.get(key, math.nan)), when, 0)
    for name, curve in point.curves.items():
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield Metric(runs.CURVES + name, float(value), when, step)


def _log_files(client: MlflowClient, run_id: str, files: Mapping[PurePosixPath, bytes]) -> None:
    if not files:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        client.log_artifacts(run_id, folder)


def inside(name: str) -> PurePosixPath:
    """An artifact's name as a path that stays inside its run.

    Raises:
        ValueError: If it does not.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"an artifact's name must be a path inside the run; got {name!r}.")
    return path


def _run_name(point: TradeoffPoint, fields: Sequence[str]) -> str:
    parts = [f"{field}={_short(point.config.get(field))}" for field in fields]
    return clipped(" ".join(parts), 250) or point.point_id


def _short(value: Scalar) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
