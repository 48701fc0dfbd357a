"""Parent run of a sweep in MLflow: its status, tags, files, and the view of its points.

MLflow keeps a view that a person shares as a tag of the experiment, as JSON. The form is private to
its pages; this module knows that of MLflow 3.17, and `tests/tracking/test_ui.py` fails when an
upgrade changes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from tracking import runs
from tracking.client import connect, translate_errors
from tracking.run_record import MAX_PARAM, milliseconds, relative_path, truncate
from tracking.store import create

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_HYPERVOLUME = "hypervolume"
_NO_FILES: Mapping[str, Path] = MappingProxyType({})
_NO_TEXT: Mapping[str, str] = MappingProxyType({})
_CONTENT = "mlflow.sha256."  # MLflow's pages hide tags of this prefix.
_ALL_RUNS = 100_000


def record_sweep(
    sweep: str,
    *,
    study: str | None = None,
    tracking_uri: str | None = None,
    files: Mapping[str, Path] = _NO_FILES,
    hypervolume: Sequence[tuple[int, float, float]] = (),
    params: Mapping[str, str] = _NO_TEXT,
    tags: Mapping[str, str] = _NO_TEXT,
    headline: str = "",
    status: Status | None = None,
    started: float | None = None,
    ended: float | None = None,
    axes: tuple[Sequence[str], Sequence[str]] | None = None,
    metrics: Sequence[str] = (),
) -> None:
    """Updates the parent run of a sweep; a repeated call adds nothing.

    Args:
        sweep: Name of the sweep.
        study: Name of the experiment; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: See `resolve_uri`.
        files: Path within the run to a local file; skipped where the run holds the same content.
        hypervolume: Step, value and Unix time (seconds) of the hypervolume so far. A step that the
            run holds with another value, as before an extension, gets a second one.
        params: Parameters. MLflow writes a parameter once: the first value stays.
        tags: Tags.
        headline: Result in words, with which the description then begins.
        status: New status; None leaves it, and a new run is RUNNING.
        started: Unix time in seconds at which a new run began; None for now.
        ended: Unix time in seconds of a status that ends the run; None for now.
        axes: Swept parameters and objectives that MLflow's view of the sweep shows; see
            `sweep_pages`.
        metrics: Metrics of points; that view begins with their charts folded, to open fast.

    Raises:
        TrackingError: If the store fails or does not respond; a later call continues.
        ValueError: If a name in `files` leaves the run.
        OSError: If a file cannot be read.
    """
    sources = {relative_path(name): path for name, path in files.items()}
    digests = {name: _digest(path) for name, path in sources.items()}
    uri = create(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        run_id = runs.get_or_create_parent(client, sweep, study, uri, started).run_id
        run = client.get_run(run_id)
        if axes is not None:
            view = _sweep_view(sweep, *axes, metrics)
            client.set_experiment_tag(run.info.experiment_id, f"{runs.VIEW}{sweep}", view)
        new_params = {key: params[key] for key in params.keys() - run.data.params.keys()}
        note = {runs.NOTE: runs.sweep_note(sweep, study or sweep, headline)} if headline else {}
        _log(client, run_id, hypervolume, new_params, {**tags, **note})
        for name, digest in digests.items():
            if run.data.tags.get(f"{_CONTENT}{name}") != digest:
                _upload(client, run_id, name, sources[name])
                # Set last, so that an interrupted upload is repeated.
                client.set_tag(run_id, f"{_CONTENT}{name}", digest)
        if status is not None and status != run.info.status:
            _set_status(client, run_id, status, ended)


def _set_status(client: MlflowClient, run_id: str, status: Status, ended: float | None) -> None:
    if status == "RUNNING":
        client.update_run(run_id, status)
    else:
        client.set_terminated(run_id, status, None if ended is None else milliseconds(ended))


def _sweep_view(
    sweep: str, swept: Sequence[str], objectives: Sequence[str], others: Sequence[str]
) -> str:
    """Returns the view of a sweep's points: a chart of two metrics, and parallel coordinates.

    Args:
        swept: Swept parameters: columns, and axes of the parallel coordinates.
        objectives: Metrics, likewise; the first is the vertical axis of the chart of two.
        others: Metrics whose own charts are folded; MLflow puts them into sections by their names.
    """
    params = [f"{runs.FIRST}swept/{name}" for name in swept]
    metrics = [f"{runs.FIRST}objective/{metric}" for metric in objectives]
    section = "objectives"
    common = {"metricSectionId": section, "deleted": False, "isGenerated": False}
    parallel = {
        "type": "PARALLEL",
        "uuid": "parallel",
        "runsCountToCompare": _ALL_RUNS,
        "selectedParams": params,
        "selectedMetrics": metrics,
        "showAllRuns": True,
        **common,
    }
    vertical, horizontal = metrics[0], metrics[-1]
    folded = dict.fromkeys(name.rpartition("/")[0] for name in (*metrics, *others))
    scatter = {
        "type": "SCATTER",
        "uuid": "scatter",
        "runsCountToCompare": _ALL_RUNS,
        "xaxis": {"key": horizontal, "type": "METRIC"},
        "yaxis": {"key": vertical, "type": "METRIC"},
        **common,
    }
    return json.dumps(
        {
            "searchFilter": f"tags.{runs.KIND} = 'point' and tags.{runs.SWEEP} = '{sweep}'",
            "orderByKey": f"metrics.`{vertical}`",
            "orderByAsc": True,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [
                *(f"params.`{name}`" for name in params),
                *(f"metrics.`{name}`" for name in metrics),
            ],
            "runsHiddenMode": "SHOWALL",
            "compareRunCharts": [scatter, parallel],
            "compareRunSections": [
                _section(section, "Objectives and swept fields", is_open=True),
                *(_section(name, name, is_open=False) for name in folded),
            ],
            "isAccordionReordered": True,
            "hideEmptyCharts": True,
        }
    )


def _section(uuid: str, name: str, *, is_open: bool) -> dict[str, object]:
    """A section of charts; MLflow adds the charts of metrics to those that it calls generated."""
    return {
        "uuid": uuid,
        "name": name,
        "display": is_open,
        "columns": 2 if is_open else 3,
        "cardHeight": 480 if is_open else 360,
        "isReordered": is_open,
        "deleted": False,
        "isGenerated": not is_open,
    }


def _log(
    client: MlflowClient,
    run_id: str,
    hypervolume: Sequence[tuple[int, float, float]],
    params: Mapping[str, str],
    tags: Mapping[str, str],
) -> None:
    history = client.get_metric_history(run_id, _HYPERVOLUME) if hypervolume else ()
    known = {(metric.step, metric.value) for metric in history}
    new = [entry for entry in hypervolume if entry[:2] not in known]
    client.log_batch(
        run_id,
        [Metric(_HYPERVOLUME, value, milliseconds(when), step) for step, value, when in new],
        [Param(k, truncate(v, MAX_PARAM)) for k, v in params.items()],
        [RunTag(key, truncate(value)) for key, value in tags.items()],
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _upload(client: MlflowClient, run_id: str, name: PurePosixPath, source: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        client.log_artifacts(run_id, folder)
