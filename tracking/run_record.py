"""A point as its run will say it: name, parameters, tags, values and files, checked beforehand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from privnets.points import Scalar, TradeoffPoint
from tracking import runs

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param

LOG10_OF_ZERO = -12.0
"""What `log10_<field>` says for a knob of 0: that of 1e-12, below any value these knobs take.

Parallel coordinates drop a run whose value is not finite, and 0 is the end of most axes.
"""

LOG10_OF_INFINITY = -LOG10_OF_ZERO
"""What `log10_<field>` says for a knob of infinity, as an order of leakage may be: that of 1e12."""

MAX_TAG = 8000
MAX_PARAM = 6000
_RUN_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class RunRecord:
    """A point with what its run will say.

    Attributes:
        point: The point.
        run_name: Its run's name.
        config: Its configuration as JSON.
        content: A digest of what `tracking.compare` compares.
        files: Artifacts by their path within the run.
    """

    point: TradeoffPoint
    run_name: str
    config: str
    content: str
    files: Mapping[PurePosixPath, bytes]
    _params: Mapping[str, str]

    @property
    def started(self) -> int:
        """When the first replicate finished, in milliseconds."""
        return milliseconds(min((r.finished_at for r in self.point.replicates), default=0.0))

    @property
    def ended(self) -> int:
        """When the last replicate finished, in milliseconds."""
        return milliseconds(self.point.finished_at)

    @property
    def status(self) -> str:
        """How the run ends."""
        return _RUN_STATUS[self.point.status]

    def params(self) -> list[Param]:
        """The configuration as the run's parameters."""
        from mlflow.entities import Param

        return [Param(key, value) for key, value in self._params.items()]

    def metrics(self, keys: Sequence[str]) -> list[Metric]:
        """The run's values and curves.

        Args:
            keys: The metrics that it has, NaN where its point lacks them.
        """
        return list(_metrics(self.point, keys))

    def tags(self, sweep: str, parent_id: str) -> dict[str, str]:
        """The run's tags, as of now."""
        point = self.point
        tags = {
            runs.PARENT: parent_id,
            runs.KIND: "point",
            runs.SWEEP: sweep,
            runs.POINT_ID: point.point_id,
            runs.ATTEMPTED: str(len(point.replicates)),
            runs.RECORDED_AT: runs.now(),
            "experiment": point.experiment,
            "status": point.status,
            "replicates": str(len(point.succeeded)),
            runs.FINISHED_AT: repr(float(point.finished_at)),
            runs.CONTENT: self.content,
            "config": self.config,
        }
        notes = "\n".join(f"{key}: {reason}" for key, reason in point.notes.items())
        said = {"failure": point.failure, "stopped": point.stopped, "notes": notes}
        said[runs.NOTE] = _verbatim("\n\n".join(text for text in said.values() if text))
        return tags | {key: clipped(text) for key, text in said.items() if text}


def build_run_record(
    point: TradeoffPoint, log_scaled: frozenset[str], fields: Sequence[str]
) -> RunRecord:
    """What a point's run will say.

    Args:
        point: The point.
        log_scaled: Configuration fields that get a `log10_<field>` parameter.
        fields: Configuration fields that name the run; without any its id does.

    Raises:
        ValueError: If a `log_scaled` field is negative, a configuration is too long for a tag or
            holds NaN, or a file's name leads outside the run.
        OSError: If a file cannot be read.
    """
    return RunRecord(
        point=point,
        run_name=_run_name(point, fields),
        config=_config_tag(point.config),
        content=_content(point),
        files={inside(name): content for name, content in point.artifacts.items()},
        _params=_parameters(point.config, log_scaled),
    )


def milliseconds(seconds: float) -> int:
    """Unix seconds as MLflow's whole milliseconds; at least 1, as MLflow takes 0 for absent."""
    return max(1, round(seconds * 1000))


def clipped(text: str, length: int = MAX_TAG) -> str:
    """The text, or its beginning with an ellipsis where MLflow would refuse its length."""
    return text if len(text) <= length else text[: length - 1] + "…"


def inside(name: str) -> PurePosixPath:
    """An artifact's name as a path that stays inside its run.

    Raises:
        ValueError: If it does not.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"an artifact's name must be a path inside the run; got {name!r}.")
    return path


def _verbatim(text: str) -> str:
    """A text as MLflow's pages show it unchanged: in Markdown, what is indented is no markup."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _config_tag(config: Mapping[str, Scalar]) -> str:
    """A configuration as its run's tag of JSON, with `Infinity` for infinity."""
    if undefined := [name for name, value in config.items() if value != value]:
        raise ValueError(f"a configuration's values must not be NaN; {undefined[0]} is.")
    text = json.dumps(dict(config), sort_keys=True)
    if len(text) > MAX_TAG:
        raise ValueError(f"a configuration must fit {MAX_TAG} characters of JSON; got {len(text)}.")
    return text


def _parameters(config: Mapping[str, Scalar], log_scaled: frozenset[str]) -> dict[str, str]:
    """A configuration as MLflow parameters: numbers as text, with `log10_` companions."""
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


def _run_name(point: TradeoffPoint, fields: Sequence[str]) -> str:
    parts = [f"{field}={_short(point.config.get(field))}" for field in fields]
    return clipped(" ".join(parts), 250) or point.point_id


def _short(value: Scalar) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


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
