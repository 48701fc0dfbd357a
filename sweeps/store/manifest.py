"""Manifest of a sweep, `spec.yaml`: the facts needed to resume it and to tell how it was made."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from privnets.contract import Direction
from privnets.credentials import strip_credentials
from privnets.registry import package_version
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger
from sweeps.study.spec import Study

PAGE_FILE: Final = "mlflow.url"
"""File beside the manifest with the address of a sweep's runs in MLflow, without credentials."""

PROJECT_NAME: Final = "privnets-sweeps"
_MAX_PAGE_BYTES: Final = 2000
_PACKAGES: Final = (PROJECT_NAME, "torch", "ray", "mlflow", "numpy", "scikit-learn")
_CREDENTIAL_VARIABLES: Final = (
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_TRACKING_AWS_SIGV4",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
)


@dataclass(frozen=True, slots=True)
class SeedRule:
    """Rule by which a point is complete, and which of its replicates count.

    A point needs every required seed; more seeds count too. Once a point has a confirming seed it
    needs all of them, and its other replicates no longer count: they were the reason for its
    choice, so their mean is better than the truth.

    Attributes:
        required: Seeds of every point.
        confirming: Seeds of confirmed points.
        is_adaptive: Whether a complete point may get more replicates.
    """

    required: frozenset[int]
    confirming: frozenset[int] = frozenset()
    is_adaptive: bool = False


class PlanSummary(BaseModel):
    """Summary of a plan.

    Attributes:
        points: Number of points; the largest that it may be, for an adaptive search.
        replicates: Number of trainings.
        seeds: Seeds of the replicates of every point.
        confirming_seeds: Seeds of the points that an adaptive search confirms.
        is_adaptive: Whether points depend on results; the directory `asks` then lists them.
        digest: Hash of all point ids and seeds; equal plans have equal digests.
        log_fields: Swept fields on a logarithmic scale.
        metrics: Metrics that some replicate reports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: int = Field(ge=1)
    replicates: int = Field(ge=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    confirming_seeds: tuple[int, ...] = ()
    is_adaptive: bool = False
    digest: str
    experiment_version: int
    objectives: dict[str, Direction]
    log_fields: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def seed_rule(self) -> SeedRule:
        """Rule by which points are complete."""
        confirming = frozenset(self.confirming_seeds)
        return SeedRule(frozenset(self.seeds), confirming, self.is_adaptive)


class Extension(BaseModel):
    """Extension of a sweep.

    Attributes:
        command: Command that extended it.
        extended_at: Time, ISO 8601.
        changes: Settings that changed, in words.
        versions: As in the manifest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    extended_at: str
    changes: tuple[str, ...]
    versions: dict[str, str]
    git_commit: str | None


class ReusedSweep(BaseModel):
    """Another sweep, whose replicates are copied where this one needs them.

    Attributes:
        storage: Storage of the other sweep, without credentials.
        packs: Ids of its packs that were copied from; copies are named `reused-<id>-<hash>`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: str
    sweep: str
    packs: tuple[str, ...] = ()


class Manifest(BaseModel):
    """Content of `spec.yaml`.

    Attributes:
        command: Command that started the sweep.
        created_at: Time of its start.
        study: Study with its objectives filled in.
        data: Data set to the fingerprint of its files.
        tracking_uri: URI of the MLflow store, without credentials.
        versions: Versions of Python and of the packages that results depend on.
        reused: Origins of replicates that were copied instead of trained.
        extensions: Extensions of the sweep, in order; `study` and `plan` are those of the last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    sweep: str
    command: str
    created_at: AwareDatetime
    study: Study
    plan: PlanSummary
    data: dict[str, str]
    tracking_uri: str
    versions: dict[str, str]
    git_commit: str | None
    reused: tuple[ReusedSweep, ...] = ()
    extensions: tuple[Extension, ...] = ()


def write_manifest(ledger: Ledger, manifest: Manifest) -> None:
    """Writes the manifest of a sweep."""
    ledger.write_spec(manifest.model_dump(mode="json"))


def read_manifest(ledger: Ledger) -> Manifest:
    """Reads the manifest of a sweep.

    Raises:
        InputError: If the sweep does not exist, or its `spec.yaml` is damaged or another sweep's.
    """
    path = f"{ledger.directory.path}/spec.yaml"
    try:
        manifest = Manifest.model_validate(ledger.read_spec())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path} is damaged or of another version ({error.error_count()} problems, the first "
            f"at {key}: {first['msg']})"
        ) from error
    if manifest.sweep != ledger.sweep:
        raise InputError(
            f"{path} is of the sweep {manifest.sweep!r}; a sweep's directory must keep its name"
        )
    return manifest


def read_runs_page(ledger: Ledger) -> str:
    """Reads the address of a sweep's runs in MLflow, as a publisher recorded it; empty if none."""
    try:
        page = ledger.directory.read(PAGE_FILE, _MAX_PAGE_BYTES).decode().strip()
    except (OSError, ValueError):
        return ""
    return page if page.startswith(("http://", "https://")) else ""


def choose_tracking_uri(manifest: Manifest, requested: str | None) -> str:
    """Chooses the MLflow store of a sweep: the requested one, or the one it was started with.

    Credentials of this environment never go to a server that only `spec.yaml` names: anyone who
    can write to the storage could direct them to a server of their own.

    Raises:
        InputError: If only `spec.yaml` names the server, and there are credentials to send.
    """
    recorded = manifest.tracking_uri
    configured = os.environ.get("MLFLOW_TRACKING_URI", "")
    if requested or not recorded.lower().startswith(("http:", "https:")):
        return requested or recorded
    if strip_credentials(configured).rstrip("/") == recorded.rstrip("/"):
        return configured
    variable = next((name for name in _CREDENTIAL_VARIABLES if os.environ.get(name)), None)
    file = Path.home() / ".mlflow" / "credentials"
    if source := variable or (str(file) if file.is_file() else None):
        raise InputError(
            f"only spec.yaml names the tracking server {recorded!r} of the sweep "
            f"{manifest.sweep!r}; to send it the credentials in {source}, name it yourself: pass "
            f"--tracking-uri {recorded}, or set MLFLOW_TRACKING_URI to it"
        )
    return recorded


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on; `absent` for none."""
    return {
        "python": platform.python_version(),
        **{name: package_version(name) for name in _PACKAGES},
    }


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from; None outside a checkout."""
    # An installed package may be inside a repository that does not track it.
    if _run_git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _run_git("rev-parse", "HEAD")


def _run_git(*arguments: str) -> str | None:
    """Output of git in this package's directory; None if it failed or is not installed."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(Path(__file__).parent), *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return process.stdout.strip() or None if process.returncode == 0 else None
