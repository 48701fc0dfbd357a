"""`spec.yaml`: what a sweep is, enough to continue it and to say how it was made."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privnets.contract import Direction
from sweeps.errors import InputError
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.versions import installed_versions
from sweeps.study.spec import Study
from tracking.redaction import strip_credentials

_CREDENTIALS = (
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_TRACKING_AWS_SIGV4",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
)


class PlanSummary(BaseModel):
    """A plan in short.

    Attributes:
        points: How many.
        replicates: Trainings in all.
        seeds: Of every point's replicates.
        digest: Of all point ids and seeds; equal for equal plans.
        experiment_version: Of the experiment that computes the points.
        objectives: Metric to direction.
        log_fields: Swept fields on a logarithmic scale.
        metrics: Every key that any of its replicates reports; empty where it was not noted.
        asks: Number of points that each ask of the search proposed; see `Plan.asks`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: int = Field(ge=1)
    replicates: int = Field(ge=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    digest: str
    experiment_version: int
    objectives: dict[str, Direction]
    log_fields: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    asks: tuple[int, ...] = ()


class Manifest(BaseModel):
    """What `spec.yaml` holds.

    Attributes:
        format: Of this file.
        sweep: The sweep's name.
        command: That starts the same sweep again.
        created_at: When it was started, ISO 8601.
        study: Resolved, with its objectives filled in.
        plan: What it comes to.
        data: Data set to the fingerprint of its files.
        tracking_uri: Of the MLflow store, without credentials.
        versions: Of Python and of the packages that matter.
        git_commit: Of the checkout that this code is run from, if it is one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    sweep: str
    command: str
    created_at: str
    study: Study
    plan: PlanSummary
    data: dict[str, str]
    tracking_uri: str
    versions: dict[str, str]
    git_commit: str | None


def create_manifest(plan: Plan, sweep: str, *, command: str, tracking_uri: str) -> Manifest:
    """The manifest of a sweep that is about to start.

    Args:
        plan: What it trains.
        sweep: Its name.
        command: That starts it.
        tracking_uri: Of the MLflow store; credentials are left out.
    """
    return Manifest(
        sweep=sweep,
        command=command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        study=plan.study,
        plan=_facts(plan),
        data=plan.data_fingerprints(),
        tracking_uri=strip_credentials(tracking_uri),
        versions=installed_versions(),
        git_commit=_git_commit(),
    )


def read_manifest(ledger: Ledger) -> Manifest:
    """The manifest of a sweep that was started.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged or another sweep's.
    """
    manifest = _manifest(ledger)
    if manifest.sweep != ledger.sweep:
        raise InputError(
            f"{ledger.directory.path}/spec.yaml is of the sweep {manifest.sweep!r}; "
            "a sweep's directory must keep its name"
        )
    return manifest


def choose_tracking_uri(manifest: Manifest, given: str | None) -> str:
    """The store that a sweep is published to: the one given, or else the one it was started with.

    Credentials of this environment are sent to no server that only a file names: whoever can
    write to the storage would choose who gets them.

    Args:
        manifest: Of the sweep.
        given: What the user asked for.

    Raises:
        InputError: If `spec.yaml` alone names a server, and there are credentials to send.
    """
    noted = manifest.tracking_uri
    known = os.environ.get("MLFLOW_TRACKING_URI", "")
    if given or not noted.lower().startswith(("http:", "https:")):
        return given or noted
    if strip_credentials(known).rstrip("/") == noted.rstrip("/"):
        return known
    if found := _credentials():
        raise InputError(
            f"the sweep {manifest.sweep!r} was started with the tracking server {noted!r}, as only "
            f"its spec.yaml says; to send it the credentials in {found}, name it yourself: pass "
            f"--tracking-uri {noted}, or set MLFLOW_TRACKING_URI to it"
        )
    return noted


def _credentials() -> str | None:
    """Where there are credentials that MLflow would send to any server."""
    set_here = next((name for name in _CREDENTIALS if os.environ.get(name)), None)
    file = Path.home() / ".mlflow" / "credentials"
    return set_here or (str(file) if file.is_file() else None)


def _manifest(ledger: Ledger) -> Manifest:
    try:
        return Manifest.model_validate(ledger.read_spec())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        where = f"{ledger.directory.path}/spec.yaml"
        raise InputError(
            f"{where} is damaged or of another version ({error.error_count()} problems, the first "
            f"at {key}: {first['msg']})"
        ) from error


def write_manifest(ledger: Ledger, manifest: Manifest) -> None:
    """Put a manifest down.

    Raises:
        OSError: If it cannot be written.
    """
    ledger.write_spec(manifest.model_dump(mode="json"))


def replan(manifest: Manifest) -> Plan:
    """The plan of a sweep that was started, which must still mean the same.

    Raises:
        InputError: If its points would now be others: changed data or another version.
        StudyError: If its study is no longer valid.
    """
    again = make_plan(manifest.study)
    if reasons := plan_differences(manifest, again):
        raise InputError(
            f"the sweep {manifest.sweep!r} cannot be continued, as its points would now be others: "
            f"{'; '.join(reasons)}"
        )
    return again


def plan_differences(manifest: Manifest, plan: Plan) -> list[str]:
    """How a plan differs from the one a sweep was started with, in words; none if it does not."""
    facts = _facts(plan)
    reasons = []
    if manifest.study.early_stopping != plan.study.early_stopping:
        stops = _stops(manifest.study), _stops(plan.study)
        reasons.append("its early stopping was {} and is now {}".format(*stops))
    if facts.digest == manifest.plan.digest and facts.objectives == manifest.plan.objectives:
        return reasons
    if manifest.study.name != plan.study.name:
        reasons.append(f"it is of study {manifest.study.name!r}, not {plan.study.name!r}")
    if facts.experiment_version != manifest.plan.experiment_version:
        before, now = manifest.plan.experiment_version, facts.experiment_version
        reasons.append(f"{plan.study.experiment} was of version {before} and is now of {now}")
    reasons += _changed_data(manifest.data, plan.data_fingerprints())
    return reasons or [
        f"it has {manifest.plan.points} points of {len(manifest.plan.seeds)} replicates, this has "
        f"{facts.points} of {len(plan.seeds)}, with other configurations or objectives"
    ]


def _facts(plan: Plan) -> PlanSummary:
    return PlanSummary(
        points=len(plan.points),
        replicates=len(plan.points) * len(plan.seeds),
        seeds=plan.seeds,
        digest=plan.digest,
        experiment_version=plan.experiment_version,
        objectives=dict(plan.objectives),
        log_fields=tuple(sorted(plan.log_fields)),
        metrics=plan.metric_keys(),
        asks=plan.asks,
    )


def _stops(study: Study) -> str:
    """Early stopping as a study file has it."""
    if study.early_stopping is None:
        return "false"
    fields = study.early_stopping.model_dump(mode="json").items()
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields) + "}"


def _changed_data(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    changed = [name for name in before if name in now and before[name] != now[name]]
    return [f"data set {name!r} has changed since" for name in changed]


def _git_commit() -> str | None:
    # An installed package may lie inside a repository that is not its own.
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _git("rev-parse", "HEAD")


def _git(*words: str) -> str | None:
    """What git says of this package's own directory; None where it has no answer."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(Path(__file__).parent), *words]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None if asked.returncode == 0 else None
