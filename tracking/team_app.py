"""MLflow's server with accounts, and one endpoint more: a batch of runs in one transaction.

`python -m tracking.team_app server ...` takes the arguments of `mlflow server ...`. Accounts and
permissions are MLflow's own; its private names used here are checked against MLflow 3.17
(`tests/tracking/test_server.py`).
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

import mlflow.server
from flask import Response, request
from mlflow.cli import cli
from mlflow.server import auth
from mlflow.server.auth.permissions import RESOURCE_TYPE_EXPERIMENT, RESOURCE_TYPE_RUN
from mlflow.server.auth.requirements import Requirement
from mlflow.server.constants import ARTIFACTS_DESTINATION_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from pydantic import ValidationError

from tracking import batches
from tracking.database import new_runs

_EXPERIMENT_ID: Final = r"0|[1-9]\d{0,8}"

_engine = cache(new_runs.open_engine)  # keeps its compiled statements


def create_app() -> object:
    """Returns MLflow's app with accounts and the endpoint."""
    app = mlflow.server.app
    app.add_url_rule(batches.ENDPOINT, view_func=record_runs, methods=["POST"])
    auth.BEFORE_REQUEST_VALIDATORS[batches.ENDPOINT, "POST"] = may_record_runs
    return auth.create_app(app)


def may_record_runs() -> bool:
    """Whether the account may do with the experiment all that MLflow's calls for a run would do.

    They create a run, log to it, store its files and end it. MLflow calls this after it has checked
    the password; for administrators it does not.
    """
    experiment_id = _experiment_id()
    if experiment_id is None:
        return False
    experiment = (RESOURCE_TYPE_EXPERIMENT, experiment_id)
    update = Requirement(RESOURCE_TYPE_RUN, "*", "update", fallback_if_no_grant=(experiment,))
    return auth._authorize_create_in_experiment(experiment_id, RESOURCE_TYPE_RUN, [update])


def record_runs() -> Response:
    """Records the runs of a request's body; see `tracking.batches.ENDPOINT`."""
    experiment_id = _experiment_id()
    if experiment_id is None:
        return _refuse(400, "experiment_id must be a number")
    if request.content_length is None or request.content_length > batches.MAX_BODY:
        return _refuse(413, f"the body must have a length of at most {batches.MAX_BODY}")
    try:
        runs = new_runs.NEW_RUNS.validate_json(request.get_data())
    except ValidationError as error:
        return _refuse(400, f"{error.error_count()} of the body's values are invalid")
    engine = _engine(os.environ[BACKEND_STORE_URI_ENV_VAR])
    location = new_runs.artifact_location(engine, experiment_id)
    # Other places belong to other experiments, or are not the server's.
    if location != f"mlflow-artifacts:/{experiment_id}":
        return _refuse(404, "this experiment takes MLflow's own calls alone")
    artifacts = get_artifact_repository(os.environ[ARTIFACTS_DESTINATION_ENV_VAR])
    new_runs.insert(engine, experiment_id, location, artifacts, experiment_id, runs)
    return Response(batches.answer(len(runs)), mimetype="text/plain")


def _experiment_id() -> str | None:
    text = request.args.get("experiment_id", "")
    return text if re.fullmatch(_EXPERIMENT_ID, text, re.ASCII) else None


def _refuse(status: int, reason: str) -> Response:
    return Response(reason, status=status, mimetype="text/plain")


if __name__ == "__main__":
    # MLflow looks only for apps of installed packages.
    mlflow.server._find_app = lambda app_name: "tracking.team_app:create_app"
    cli()
