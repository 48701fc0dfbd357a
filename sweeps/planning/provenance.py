"""Record of a plan in its sweep's manifest, and the comparison with it when the sweep resumes."""

from __future__ import annotations

from datetime import UTC, datetime

from sweeps.errors import InputError
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.manifest import Manifest, PlanSummary, git_commit, installed_versions
from sweeps.study.spec import Study
from tracking.redaction import strip_credentials


def create_manifest(plan: Plan, sweep: str, *, command: str, tracking_uri: str) -> Manifest:
    """Creates the manifest of a new sweep.

    Args:
        plan: Plan of the sweep.
        sweep: Name of the sweep.
        command: Command that the user typed.
        tracking_uri: URI of the MLflow store; its credentials are left out.
    """
    return Manifest(
        sweep=sweep,
        command=command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        study=plan.study,
        plan=_summarize(plan),
        data=plan.data_fingerprints(),
        tracking_uri=strip_credentials(tracking_uri),
        versions=installed_versions(),
        git_commit=git_commit(),
    )


def replan(manifest: Manifest) -> Plan:
    """Plans a recorded sweep again.

    Raises:
        InputError: If the plan differs from the recorded one, for example by changed data.
        StudyError: If its study is invalid in this version.
    """
    plan = make_plan(manifest.study)
    if reasons := plan_differences(manifest, plan):
        raise InputError(
            f"the sweep {manifest.sweep!r} cannot be continued, as its points would differ: "
            f"{'; '.join(reasons)}"
        )
    return plan


def plan_differences(manifest: Manifest, plan: Plan) -> list[str]:
    """Differences between a recorded plan and another one, in words; empty if they are equal."""
    recorded, current = manifest.plan, _summarize(plan)
    reasons = []
    if manifest.study.early_stopping != plan.study.early_stopping:
        before, now = _format_stopping(manifest.study), _format_stopping(plan.study)
        reasons.append(f"its early stopping was {before} and is now {now}")
    if (recorded.digest, recorded.objectives) == (current.digest, current.objectives):
        return reasons
    if manifest.study.name != plan.study.name:
        reasons.append(f"it is of study {manifest.study.name!r}, not {plan.study.name!r}")
    if recorded.experiment_version != current.experiment_version:
        reasons.append(
            f"{plan.study.experiment} had version {recorded.experiment_version} and now has "
            f"{current.experiment_version}"
        )
    for name, fingerprint in plan.data_fingerprints().items():
        if manifest.data.get(name, fingerprint) != fingerprint:
            reasons.append(f"data set {name!r} has changed since")
    return reasons or [
        f"it has {recorded.points} points of {len(recorded.seeds)} replicates, this has "
        f"{current.points} of {len(current.seeds)}, with other configurations or objectives"
    ]


def _summarize(plan: Plan) -> PlanSummary:
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


def _format_stopping(study: Study) -> str:
    """Early stopping as in a study file."""
    if study.early_stopping is None:
        return "false"
    fields = study.early_stopping.model_dump(mode="json").items()
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields) + "}"
