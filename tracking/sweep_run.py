"""Parent run of a sweep: its tag `kind` is `sweep`, and one experiment holds all of a study."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from tracking import runs
from tracking.client import artifacts, connect, translate_errors
from tracking.errors import TrackingError
from tracking.run_record import MAX_PARAM, milliseconds, truncate
from tracking.uris import artifact_root

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_MLFLOW_DEFAULT_EXPERIMENT = "Default"
_MAX_DIGEST = 36  # of a data set


@dataclass(frozen=True)
class ParentRun:
    """Parent run of a sweep.

    Attributes:
        experiment_id: Id of the experiment that contains it.
        run_id: Id of the run.
        tags: Its tags, which are untrusted input.
    """

    experiment_id: str
    run_id: str
    tags: Mapping[str, str]

    @property
    def page(self) -> str:
        """Path of the page with the sweep's runs, below the server's address."""
        return _runs_page(self.experiment_id)


@dataclass(frozen=True)
class SweepUpdate:
    """Changes of a sweep's parent run.

    Attributes:
        values: Metric, value, Unix time in seconds, and step.
        params: Parameters. MLflow writes a parameter once: the first value stays.
        tags: Tags.
        headline: Result in words, with which the description then begins.
        picture: Name of a picture among the run's files, which follows the headline.
        data: Data set to its fingerprint: inputs of the run.
        files: Folder whose files the run gets; None without any.
        status: New status; None leaves it, and a new run is RUNNING.
        ended: Unix time in seconds of a status that ends the run; None for now.
    """

    values: Iterable[tuple[str, float, float, int]] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    headline: str = ""
    picture: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    files: Path | None = None
    status: Status | None = None
    ended: float | None = None


def find_parent(client: MlflowClient, sweep: str, study: str | None) -> ParentRun | None:
    """Returns the parent run of a sweep, None where MLflow has none.

    Without a study it searches all experiments.

    Raises:
        TrackingError: If several experiments hold a sweep of that name.
    """
    parents = _search_parents(client, sweep, study)
    return _parent(parents[0]) if parents else None


def get_or_create_parent(
    client: MlflowClient, sweep: str, study: str | None, uri: str, started: float | None = None
) -> ParentRun:
    """Returns the parent run of a sweep, created where absent; of several one remains.

    Without a study it uses the experiment that holds the sweep, or else one of the sweep's name.
    A run that is created began at `started`, in Unix seconds; by default now.

    Raises:
        TrackingError: If the experiment was deleted, or several hold a sweep of that name.
    """
    parents = _search_parents(client, sweep, study)
    if not parents:
        experiment_id = _get_or_create_experiment(client, study or sweep, uri)
        tags = {
            runs.KIND: "sweep",
            runs.SWEEP: sweep,
            runs.RECORDED_AT: runs.creation_timestamp(),
            runs.NOTE: _note(sweep, study or sweep),
        }
        moment = None if started is None else milliseconds(started)
        client.create_run(experiment_id, moment, tags=tags, run_name=sweep)
        parents = _search_parents(client, sweep, study or sweep)
    if not parents:
        raise TrackingError(f"the sweep {sweep!r} was deleted while it was being recorded.")
    parent = _parent(parents[0])
    for duplicate in parents[1:]:
        condition = f"tags.`{runs.PARENT}` = '{duplicate.info.run_id}'"
        for child in runs.search_runs(client, [parent.experiment_id], condition):
            client.set_tag(child.info.run_id, runs.PARENT, parent.run_id)
        runs.delete_run(client, duplicate.info.run_id)
    return parent


def update_parent(client: MlflowClient, run_id: str, sweep: str, update: SweepUpdate) -> ParentRun:
    """Updates the parent run of a sweep; a repeated call adds nothing. Returns it."""
    run = client.get_run(run_id)
    tags = dict(update.tags)
    if update.headline:
        study = client.get_experiment(run.info.experiment_id).name
        picture = ""
        if name := update.picture:
            # MLflow's pages drop pictures within a text. This address is that of their downloads.
            picture = f"\n\n![{name}](get-artifact?path={quote(name)}&run_uuid={run_id})"
        tags[runs.NOTE] = _note(sweep, study, update.headline + picture)
    new = {key: value for key, value in update.params.items() if key not in run.data.params}
    client.log_batch(
        run_id,
        [Metric(key, value, milliseconds(when), step) for key, value, when, step in update.values],
        [Param(key, truncate(value, MAX_PARAM)) for key, value in new.items()],
        [RunTag(key, truncate(value)) for key, value in tags.items()],
    )
    if update.data:
        inputs = []
        for name, mark in update.data.items():  # MLflow limits the length of a digest
            short = hashlib.sha256(mark.encode()).hexdigest()[:_MAX_DIGEST]
            digest = mark if len(mark) <= _MAX_DIGEST else short
            source = json.dumps({"fingerprint": mark})
            inputs.append(DatasetInput(Dataset(name, digest, "local", source)))
        client.log_inputs(run_id, inputs)
    if update.files is not None:
        artifacts(client, run_id).log_artifacts(str(update.files))
    if update.status == "RUNNING" and run.info.status != "RUNNING":
        client.update_run(run_id, update.status)
    elif update.status is not None and run.info.status != update.status:
        ended = None if update.ended is None else milliseconds(update.ended)
        client.set_terminated(run_id, update.status, ended)
    return ParentRun(run.info.experiment_id, run_id, run.data.tags | tags)


def study_pages(uri: str, limit: int) -> dict[str, str]:
    """Returns the MLflow pages of at most `limit` studies, those that changed last first.

    Returns:
        Study to the path of its page below the server's address.

    Raises:
        TrackingError: If the store fails or does not exist.
    """
    client = connect(uri)
    with translate_errors(uri):
        # One more, because MLflow's own empty experiment is left out.
        experiments = client.search_experiments(
            max_results=limit + 1, order_by=["last_update_time DESC"]
        )
    ids = {e.name: e.experiment_id for e in experiments if e.name != _MLFLOW_DEFAULT_EXPERIMENT}
    return {name: _runs_page(number) for name, number in list(ids.items())[:limit]}


def _runs_page(experiment_id: str) -> str:
    """Path of an experiment's page, in the mode that shows runs."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def _note(sweep: str, study: str, headline: str = "") -> str:
    return f"{headline}\n\n".lstrip() + (
        f"Sweep **{sweep}** of the study **{study}**. Each child run is a trade-off point: one "
        "configuration. Every metric is a mean over replicates. To compare points, select them in "
        "the table. For a knob on a logarithmic scale choose its `log10_` parameter. The artifacts "
        "of this run are the specification, all points, the Pareto front and the report.\n\n"
        f"`sweeps points {sweep}` and `sweeps pareto {sweep}` print the same tables."
    )


def _search_parents(client: MlflowClient, sweep: str, study: str | None) -> list[Run]:
    condition = f"tags.{runs.KIND} = 'sweep' and tags.{runs.SWEEP} = {runs.quoted(sweep)}"
    if study is None:
        experiments = runs.all_pages(client.search_experiments, lambda found: found.experiment_id)
        ids = [experiment.experiment_id for experiment in experiments]
    else:
        experiment = client.get_experiment_by_name(study)
        is_active = experiment is not None and experiment.lifecycle_stage == "active"
        ids = [experiment.experiment_id] if experiment is not None and is_active else []
    found = runs.search_runs(client, ids, condition) if ids else ()
    parents = sorted(found, key=lambda run: (runs.recorded_at(run.data.tags), run.info.run_id))
    if len({run.info.experiment_id for run in parents}) > 1:
        raise TrackingError(f"several studies hold a sweep named {sweep!r}: name the study.")
    return parents


def _parent(run: Run) -> ParentRun:
    return ParentRun(str(run.info.experiment_id), str(run.info.run_id), run.data.tags)


def _get_or_create_experiment(client: MlflowClient, name: str, uri: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        root = artifact_root(uri)
        folder = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        try:
            return client.create_experiment(name, root and f"{root}/{folder}")
        except MlflowException:
            # Another process may have created it meanwhile.
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"the experiment {name!r} was deleted in MLflow; restore it with "
            f"`mlflow experiments restore -x {experiment.experiment_id}`, or choose another name."
        )
    return str(experiment.experiment_id)
