"""Run records: the name, parameters, tags, values and files of a point's MLflow run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from textwrap import indent

from mlflow.entities import Metric, Param

from privnets.frames import SUFFIXES
from privnets.points import Curve, Scalar, TradeoffPoint
from tracking import OBJECTIVE, runs

LOG10_OF_ZERO = -12.0
"""Value of `log10_<field>` for a knob of 0, which is that of 1e-12.

MLflow's parallel coordinates drop runs with values that are not finite.
"""

LOG10_OF_INFINITY = -LOG10_OF_ZERO
"""Value of `log10_<field>` for a knob of infinity, such as an order alpha; that of 1e12."""

MAX_TAG = 8000
MAX_PARAM = 6000

TABLE_FILE = "metrics.csv"
"""Artifact with every metric of a point."""

ROC_FILE = "roc.csv"
"""Artifact with the ROC curves of a point."""

TEXT_TAGS = ("failure", "stopped")
"""Tags that only some runs have."""

_NAME_WIDTH, _VALUE_WIDTH = 20, 5  # Characters of a name in MLflow's table, and of "=0.1 ".
_UNDEFINED = "Undefined"
_RUN_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class RunRecord:
    """A point in the form that its MLflow run takes.

    Attributes:
        point: The point.
        run_name: Name of the run.
        config: Configuration as JSON.
        keys: Metrics that the point defines and its run shows, by their names in MLflow.
        content: Digest of the point and of `keys`; see `digest`.
        files: Artifacts by their path within the run.
        params: Configuration as parameters of the run.
        labels: Further tags of the run.
    """

    point: TradeoffPoint
    run_name: str
    config: str
    keys: frozenset[str]
    content: str
    files: Mapping[PurePosixPath, bytes]
    params: Sequence[Param]
    labels: Mapping[str, str]

    @property
    def started(self) -> int:
        """Unix time in milliseconds at which the first replicate finished."""
        return milliseconds(min((r.finished_at for r in self.point.replicates), default=0.0))

    @property
    def ended(self) -> int:
        """Unix time in milliseconds at which the last replicate finished."""
        return milliseconds(self.point.finished_at)

    @property
    def status(self) -> str:
        """Final status of the run."""
        return _RUN_STATUS[self.point.status]

    def metrics(self, keys: Iterable[str]) -> list[Metric]:
        """Returns the metrics of these keys, NaN where the point lacks one, and training curves."""
        when, values = self.ended, self.point.metrics
        curves = [
            Metric(runs.CURVES + name, float(value), when, step)
            for name, curve in training_curves(self.point).items()
            for step, value in zip(curve.steps, curve.values, strict=True)
        ]
        means = ((key, values.get(key.removeprefix(OBJECTIVE), math.nan)) for key in keys)
        return [Metric(key, float(value), when, 0) for key, value in means] + curves

    def tags(self, sweep: str, parent_id: str) -> dict[str, str]:
        """Returns the tags of the run, with the current time as its creation time."""
        point = self.point
        tags = {
            runs.PARENT: parent_id,
            runs.KIND: "point",
            runs.SWEEP: sweep,
            runs.POINT_ID: point.point_id,
            runs.ATTEMPTED: str(len(point.replicates)),
            runs.RECORDED_AT: runs.creation_timestamp(),
            "experiment": point.experiment,
            "status": point.status,
            "replicates": str(len(point.succeeded)),
            runs.FINISHED_AT: repr(float(point.finished_at)),
            runs.CONTENT: self.content,
            "config": self.config,
            **self.labels,
        }
        texts = dict(zip(TEXT_TAGS, (point.failure, point.stopped), strict=True))
        parts = [text for text in (*texts.values(), *_describe_notes(point)) if text]
        # MLflow's pages would interpret a text as Markdown unless it is indented.
        texts[runs.NOTE] = indent("\n\n".join(parts), " " * 4)
        return tags | {key: truncate(text) for key, text in texts.items() if text}


def build_run_record(
    point: TradeoffPoint,
    log_scaled: frozenset[str],
    fields: Sequence[str],
    labels: Mapping[str, str],
    headline: Collection[str] | None,
    objectives: Collection[str] = (),
    unused: Collection[str] = (),
) -> RunRecord:
    """Builds the run record of a point.

    Args:
        point: The point.
        log_scaled: Configuration fields that get a `log10_<field>` parameter.
        fields: Configuration fields that form the name of the run, its id if there are none.
        labels: Further tags of the run.
        headline: Metrics that the run shows; then `TABLE_FILE` has all. None shows all.
        objectives: Metrics whose names begin with `OBJECTIVE`.
        unused: Configuration fields without effect at the point. Like those that are None, they
            are not parameters.

    Raises:
        ValueError: If a `log_scaled` field is negative, a configuration is too long for a tag or
            holds NaN, or a file's name leads outside the run.
    """
    files = dict(point.artifacts)
    if headline is not None:
        values = point.metrics
        spread = {f"{key}{suffix}" for key in values for suffix in SUFFIXES}
        heading = ("metric", "mean", *(suffix[1:] for suffix in SUFFIXES))
        files[TABLE_FILE] = _table(
            heading,
            (
                (key, *(values.get(f"{key}{suffix}", "") for suffix in ("", *SUFFIXES)))
                for key in sorted(values.keys() - spread)
            ),
        )
    if roc := {n: c for n, c in point.curves.items() if n.startswith(runs.ROC)}:
        files[ROC_FILE] = _table(
            ("attack", "false_positive_rate", "true_positive_rate"),
            (
                # Steps are rates in thousandths.
                (name.removeprefix(runs.ROC), step / 1000, value)
                for name, curve in sorted(roc.items())
                for step, value in zip(curve.steps, curve.values, strict=True)
            ),
        )
    for name in files:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"an artifact's name must be a path inside the run; got {name!r}.")
    if undefined := [name for name, value in point.config.items() if value != value]:
        raise ValueError(f"a configuration's values must not be NaN; {undefined[0]} is.")
    config = json.dumps(dict(point.config), sort_keys=True)  # `Infinity` for infinity
    if len(config) > MAX_TAG:
        raise ValueError(
            f"a configuration must fit {MAX_TAG} characters of JSON; got {len(config)}."
        )
    keys = frozenset(
        OBJECTIVE + key if key in objectives else key
        for key, value in point.metrics.items()
        if not math.isnan(value) and (headline is None or key in headline)
    )
    return RunRecord(
        point=point,
        run_name=_run_name(point, fields),
        config=config,
        keys=keys,
        content=digest(point, keys),
        files={PurePosixPath(name): content for name, content in files.items()},
        params=_parameters(point.config, log_scaled, unused),
        labels=labels,
    )


def digest(point: TradeoffPoint, keys: Iterable[str]) -> str:
    """Returns a digest of a point and of the metrics that its run shows.

    Equal digests mean equal numbers, also of metrics that the run does not show.
    """
    content = {
        "experiment": point.experiment,
        "config": dict(point.config),
        "status": point.status,
        "failure": point.failure,
        "stopped": point.stopped,
        "replicates": [len(point.replicates), len(point.succeeded)],
        "finished_at": repr(float(point.finished_at)),
        "metrics": {key: repr(float(value)) for key, value in point.metrics.items()},
        "curves": {n: repr(float(c.values[-1])) for n, c in point.curves.items() if c.values},
        "keys": sorted(keys),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _describe_notes(point: TradeoffPoint) -> list[str]:
    """Returns the reason of each note with its metrics: of raised flags, then of undefined metrics.

    An undefined flag does not apply.
    """
    keys: dict[str, list[str]] = {}
    for key, reason in point.notes.items():
        is_defined = not math.isnan(point.metrics.get(key, math.nan))
        if is_defined or not key.startswith("flag/"):
            keys.setdefault(reason if is_defined else f"{_UNDEFINED}, {reason}:", []).append(key)
    ordered = sorted(keys.items(), key=lambda item: item[0].startswith(_UNDEFINED))
    return ["\n  ".join((reason, *names)) for reason, names in ordered]


def training_curves(point: TradeoffPoint) -> dict[str, Curve]:
    """Returns the curves of a point over the steps of a training, which its run has as metrics."""
    return {name: c for name, c in point.curves.items() if not name.startswith(runs.ROC)}


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heading, *rows])
    return text.getvalue().encode()


def milliseconds(seconds: float) -> int:
    """Converts Unix seconds to whole milliseconds, at least 1: MLflow reads 0 as absent."""
    return max(1, round(seconds * 1000))


def truncate(text: str, length: int = MAX_TAG) -> str:
    """Shortens a text to the length that MLflow accepts, with an ellipsis at its end."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _parameters(
    config: Mapping[str, Scalar], log_scaled: frozenset[str], unused: Collection[str]
) -> list[Param]:
    """Returns a configuration without its empty values as MLflow parameters, with `log10_` ones."""
    parameters = []
    for field, value in sorted(config.items()):
        if field.partition(".")[0] in unused or value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        parameters.append(Param(field, truncate(text, MAX_PARAM)))
        if field in log_scaled:
            if not isinstance(value, (int, float)) or not value >= 0:
                raise ValueError(
                    f"a log-scaled field must be a number of at least 0; {field} is {value!r}."
                )
            exponent = math.log10(value) if value > 0 else LOG10_OF_ZERO
            exponent = LOG10_OF_INFINITY if value == math.inf else exponent
            parameters.append(Param(f"log10_{field}", repr(exponent)))
    return parameters


def _run_name(point: TradeoffPoint, fields: Sequence[str]) -> str:
    """Swept fields with their values: by initials if the names would not fit MLflow's column.

    The values do not decide, so that all runs of a sweep have names of one form.
    """
    names = [field.rpartition(".")[2] for field in fields]
    if sum(len(name) + _VALUE_WIDTH for name in names) > _NAME_WIDTH or len({*names}) < len(names):
        names = ["".join(part[0] for part in re.findall("[^_.]+", field)) for field in fields]
        if len({*names}) < len(names):
            names = list(fields)
    parts = []
    for name, field in zip(names, fields, strict=True):
        value = point.config.get(field)
        text = f"{value:g}" if isinstance(value, float) else json.dumps(value)
        parts.append(f"{name}={value if isinstance(value, str) else text}")
    return truncate(" ".join(parts), 250) or point.point_id
