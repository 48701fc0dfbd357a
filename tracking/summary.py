"""What a sweep's parent run shows: its files, the hypervolume so far, how it stands."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tracking import runs
from tracking.run_record import MAX_PARAM, clipped, inside, milliseconds
from tracking.store import connect, create, translate_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
    """Bring the parent run of a sweep up to date; calling again with the same adds nothing.

    Args:
        sweep: The sweep's name.
        study: The experiment's name; by default the one that holds the sweep, or else `sweep`.
        tracking_uri: As `resolve_uri` takes it.
        files: Path within the run to the file it is copied from; skipped where the run already
            holds the same content.
        hypervolume: Step, value and Unix time (seconds) of the hypervolume so far. Steps that the
            run has already stay as they are.
        params: What the sweep was told. MLflow writes a parameter once: the first value stays.
        tags: What may change; `mlflow.note.content` replaces the description.
        status: How the sweep stands; None leaves it, and a new run is RUNNING.

    Raises:
        TrackingError: If the store fails or does not answer; a later call takes up from there.
        ValueError: If a name in `files` leads outside the run.
        OSError: If a file cannot be read.
    """
    contents = {str(inside(name)): path.read_bytes() for name, path in files.items()}
    uri = create(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        run_id = runs.make_home(client, sweep, study, uri).parent_id
        _log(client, run_id, hypervolume, params, tags)
        _upload(client, run_id, contents)
        if status is not None:
            _set_status(client, run_id, status)


def sweep_tags(
    sweep: str, tracking_uri: str | None = None, study: str | None = None
) -> dict[str, str]:
    """The tags of a sweep's parent run; empty where there is none. Anybody may have written them.

    Args:
        sweep: The sweep's name.
        tracking_uri: As `resolve_uri` takes it.
        study: The experiment's name, where several hold a sweep of that name.

    Raises:
        TrackingError: If the store fails or does not answer.
    """
    uri = create(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        home = runs.find_home(client, sweep, study)
        return {} if home is None else dict(client.get_run(home.parent_id).data.tags)


def _log(
    client: MlflowClient,
    run_id: str,
    hypervolume: Sequence[tuple[int, float, float]],
    params: Mapping[str, str],
    tags: Mapping[str, str],
) -> None:
    from mlflow.entities import Metric, Param, RunTag

    known = client.get_run(run_id).data.params
    held = client.get_metric_history(run_id, _HYPERVOLUME) if hypervolume else ()
    steps = {metric.step for metric in held}
    lacking = [entry for entry in hypervolume if entry[0] not in steps]
    client.log_batch(
        run_id,
        [Metric(_HYPERVOLUME, value, milliseconds(when), step) for step, value, when in lacking],
        [Param(k, clipped(v, MAX_PARAM)) for k, v in params.items() if k not in known],
        [RunTag(key, clipped(value)) for key, value in tags.items()],
    )


def _upload(client: MlflowClient, run_id: str, contents: Mapping[str, bytes]) -> None:
    known = client.get_run(run_id).data.tags
    for name, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        if known.get(_CONTENT + name) == digest:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            client.log_artifacts(run_id, folder)
        # Only now, so that an upload cut short is done again.
        client.set_tag(run_id, _CONTENT + name, digest)


def _set_status(client: MlflowClient, run_id: str, status: Status) -> None:
    current = client.get_run(run_id).info.status
    if current == status:
        return
    if status == "RUNNING":
        client.update_run(run_id, status)
    else:
        client.set_terminated(run_id, status)
