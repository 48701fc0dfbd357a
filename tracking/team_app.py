"""MLflow's server with accounts, and one endpoint more: a batch of runs in one transaction.

`python -m tracking.team_app server ...` takes the arguments of `mlflow server ...`. Accounts and
permissions are MLflow's own.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

from flask import Response, request
from mlflow.server.constants import ARTIFACTS_DESTINATION_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from tracking import batches, mlflow_internals
from tracking.database import new_runs

_EXPERIMENT_ID: Final = r"0|[1-9]\d{0,8}"

_engine = cache(new_runs.open_engine)  # keeps its compiled statements


def create_app() -> object:
    """Returns MLflow's app with accounts and the endpoint."""
    return mlflow_internals.create_team_app(batches.ENDPOINT, record_runs, may_record_runs)


def may_record_runs() -> bool:
    """Whether the account may do with the experiment all that MLflow's calls for a run would do.

    They create a run, log to it, store its files and end it.
    """
    experiment_id = _experiment_id()
    return experiment_id is not None and mlflow_internals.may_create_and_update_runs(experiment_id)


def record_runs() -> Response:
    """Records the runs of a request's body; see `tracking.batches.ENDPOINT`."""
    experiment_id = _experiment_id()
    if experiment_id is None:
        return _refuse(400, "experiment_id must be a number")
    if not may_record_runs():
        return _refuse(403, "this account may not add runs to the experiment")
    if request.content_length is None or request.content_length > batches.MAX_BODY:
        return _refuse(413, f"the body must have a length of at most {batches.MAX_BODY}")
    try:
        number = _record(experiment_id, request.get_data())
    except ValueError:  # also pydantic's, and of drivers for text that a database cannot hold
        return _refuse(400, f"the body must be a list of at most {new_runs.MAX_RUNS} valid runs")
    if number is None:
        return _refuse(404, "runs of this experiment must be recorded by MLflow's own calls")
    return Response(batches.answer(number), mimetype="text/plain")


def _record(experiment_id: str, body: bytes) -> int | None:
    """Returns the number of runs, None where rows must not be written."""
    runs = new_runs.NEW_RUNS.validate_json(body)
    artifacts = get_artifact_repository(os.environ[ARTIFACTS_DESTINATION_ENV_VAR])
    with _engine(os.environ[BACKEND_STORE_URI_ENV_VAR]).begin() as connection:
        location = new_runs.artifact_location(connection, experiment_id)
        # Other places belong to other experiments, or are not the server's.
        if location != f"mlflow-artifacts:/{experiment_id}":
            return None
        held = new_runs.held(connection, [run.run_id for run in runs])
        new = [run for run in runs if run.run_id not in held]
        new_runs.insert(connection, experiment_id, location, artifacts, experiment_id, new)
    return len(runs)


def _experiment_id() -> str | None:
    text = request.args.get("experiment_id", "")
    return text if re.fullmatch(_EXPERIMENT_ID, text, re.ASCII) else None


def _refuse(status: int, reason: str) -> Response:
    return Response(reason, status=status, mimetype="text/plain")


if __name__ == "__main__":
    mlflow_internals.run_mlflow("tracking.team_app:create_app")
