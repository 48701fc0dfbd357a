"""Batches of new runs: written straight into a database, or sent to the endpoint of a server.

`sweeps serve` has the endpoint, other servers do not. All that cannot be written in batches is
left to MLflow's client: other servers, unknown schemas and unusual runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from pydantic import ValidationError

from tracking import runs
from tracking.database import new_runs
from tracking.database.new_runs import NewRun
from tracking.errors import TrackingError
from tracking.mlflow_internals import post_to_server
from tracking.run_record import RunRecord
from tracking.uris import is_server

ENDPOINT: Final = "/api/2.0/sweeps/runs"
"""Path that takes a JSON list of new runs for the experiment of its option `experiment_id`.

It answers with `answer(NUMBER)` once its store holds them all. Runs that it holds already are
skipped.
"""

MAX_BODY: Final = 2**22
"""Largest accepted list, in bytes."""

_LOCAL: Final = ("file:///", "/")
_REFUSED: Final = frozenset({400, 403, 404, 405, 413})

Writer = Callable[[Sequence[NewRun]], Collection[str]]
"""Writes runs, and returns the ids of those that the store now holds.

Runs that it leaves out are for MLflow's client.
"""


def answer(number: int) -> str:
    """Returns the endpoint's answer to a number of runs."""
    return f"recorded {number}"


def batch_writer(uri: str, parent: runs.ParentRun) -> Writer | None:
    """Returns the writer of a sweep's runs, None where MLflow's client must write them.

    Raises:
        SQLAlchemyError: If the database fails or does not exist.
        OSError: If the server fails.
        MlflowException: If the server does not respond.
    """
    if is_server(uri):
        # An empty list asks whether the server has the endpoint.
        response = post_to_server(uri, ENDPOINT, parent.experiment_id, b"[]", max_retries=0)
        if response.status_code not in _REFUSED:
            response.raise_for_status()
        return partial(_send_all, uri, parent.experiment_id) if response.text == answer(0) else None
    engine = new_runs.open_engine(uri)
    with engine.connect() as connection:
        location = new_runs.artifact_location(connection, parent.experiment_id)
    if location is None or not location.startswith(_LOCAL):
        return None
    artifacts = get_artifact_repository(location)

    def write(batch: Sequence[NewRun]) -> Collection[str]:
        with engine.begin() as connection:
            # Another version of MLflow may have changed the schema, or a user deleted the
            # experiment.
            if new_runs.artifact_location(connection, parent.experiment_id) != location:
                return ()
            new_runs.insert(connection, parent.experiment_id, location, artifacts, "", batch)
        return {run.run_id for run in batch}

    return write


def new_run(
    record: RunRecord, sweep: str, parent: runs.ParentRun, columns: Sequence[str]
) -> NewRun | None:
    """Returns the run of a point, None where its names or values need MLflow's own checks."""
    try:
        return NewRun(
            run_id=uuid.uuid4().hex,
            name=record.run_name,
            status=record.status,  # type: ignore[arg-type]  # validated
            started=record.started,
            ended=record.ended,
            tags=record.tags(sweep, parent.run_id),
            params={param.key: param.value for param in record.params},
            metrics=[(m.key, m.value, m.timestamp, m.step) for m in record.metrics(columns)],
            files={str(path): content for path, content in record.files.items()},
        )
    except ValidationError:
        return None


def _send_all(uri: str, experiment_id: str, batch: Sequence[NewRun]) -> Collection[str]:
    """Sends runs to the endpoint of a server; returns the ids of those that it now holds.

    Raises:
        OSError: If the server fails, so that it may or may not hold the others.
        TrackingError: If its answer is not that of the endpoint.
    """
    recorded: set[str] = set()
    for ids, body in _bodies(batch):
        response = post_to_server(uri, ENDPOINT, experiment_id, body)
        if response.status_code in _REFUSED:
            continue  # MLflow's own calls say why, or accept it
        response.raise_for_status()
        if response.text != answer(len(ids)):
            raise TrackingError(f"{uri} does not answer as `sweeps serve` any longer.")
        recorded.update(ids)
    return recorded


def _bodies(batch: Sequence[NewRun]) -> Iterator[tuple[list[str], bytes]]:
    """Yields the ids and the JSON of runs, as many at a time as the limits allow.

    Runs that are too long are left out.
    """
    parts = {run.run_id: run.model_dump_json().encode() for run in batch}
    parts = {run_id: part for run_id, part in parts.items() if len(part) + 2 <= MAX_BODY}
    while parts:
        sizes = accumulate(len(part) + 1 for part in parts.values())
        number = sum(size < MAX_BODY for size in sizes)
        ids = list(parts)[: min(number, new_runs.MAX_RUNS)]
        yield ids, b"[" + b",".join(parts.pop(run_id) for run_id in ids) + b"]"
