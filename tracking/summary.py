"""The parent run of a sweep: its files, tags, status and hypervolume."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
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
_CONTENT = "sha256."


def record_sweep(
    sweep: str,
    *,
    study: str | None = None,
    tracking_uri: str | None = None,
    files: Mapping[str, Path] = _NO_FILES,
    hypervolume: Sequence[tuple[int, float, float]] = (),
    params: Mapping[str, str] = _NO_TEXT,
    tags: Mapping[str, str] = _NO_TEXT,
    status: Status | None = None,
) -> None:
    """Updates the parent run of a sweep; a repeated call adds nothing.

    Args:
        sweep: Name of the sweep.
        study: Name of the experiment; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: See `resolve_uri`.
        files: Path within the run to a local file; skipped where the run holds the same content.
        hypervolume: Step, value and Unix time (seconds) of the hypervolume so far. Steps that the
            run already holds do not change.
        params: Parameters. MLflow writes a parameter once: the first value stays.
        tags: Tags; `mlflow.note.content` replaces the description.
        status: New status; None leaves it, and a new run is RUNNING.

    Raises:
        TrackingError: If the store fails or does not respond; a later call continues.
        ValueError: If a name in `files` leaves the run.
        OSError: If a file cannot be read.
    """
    contents = {str(relative_path(name)): path.read_bytes() for name, path in files.items()}
    uri = create(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        run_id = runs.get_or_create_parent(client, sweep, study, uri).run_id
        _log(client, run_id, hypervolume, params, tags)
        _upload(client, run_id, contents)
        if status is not None:
            _set_status(client, run_id, status)


def sweep_tags(
    sweep: str, tracking_uri: str | None = None, study: str | None = None
) -> dict[str, str]:
    """Returns the tags of a sweep's parent run, empty without one. They are untrusted input.

    Args:
        sweep: Name of the sweep.
        tracking_uri: See `resolve_uri`.
        study: Name of the experiment, where several hold a sweep of that name.

    Raises:
        TrackingError: If the store fails or does not respond.
    """
    uri = create(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        parent = runs.find_parent(client, sweep, study)
        return {} if parent is None else dict(client.get_run(parent.run_id).data.tags)


def _log(
    client: MlflowClient,
    run_id: str,
    hypervolume: Sequence[tuple[int, float, float]],
    params: Mapping[str, str],
    tags: Mapping[str, str],
) -> None:
    old_params = client.get_run(run_id).data.params
    history = client.get_metric_history(run_id, _HYPERVOLUME) if hypervolume else ()
    steps = {metric.step for metric in history}
    new = [entry for entry in hypervolume if entry[0] not in steps]
    client.log_batch(
        run_id,
        [Metric(_HYPERVOLUME, value, milliseconds(when), step) for step, value, when in new],
        [Param(k, truncate(v, MAX_PARAM)) for k, v in params.items() if k not in old_params],
        [RunTag(key, truncate(value)) for key, value in tags.items()],
    )


def _upload(client: MlflowClient, run_id: str, contents: Mapping[str, bytes]) -> None:
    tags = client.get_run(run_id).data.tags
    for name, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        if tags.get(_CONTENT + name) == digest:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            client.log_artifacts(run_id, folder)
        # Set last, so that an interrupted upload is repeated.
        client.set_tag(run_id, _CONTENT + name, digest)


def _set_status(client: MlflowClient, run_id: str, status: Status) -> None:
    current = client.get_run(run_id).info.status
    if current == status:
        return
    if status == "RUNNING":
        client.update_run(run_id, status)
    else:
        client.set_terminated(run_id, status)
