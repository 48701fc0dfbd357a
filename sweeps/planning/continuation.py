"""Comparison of a recorded sweep with a plan: whether it continues, extends or differs from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import privnets
from privnets.config import choice_of, flatten
from privnets.registry import ExtensionError, is_own_experiment
from sweeps.errors import InputError
from sweeps.planning.plan import (
    Plan,
    create_manifest,
    make_plan,
    set_budget,
    summarize_plan,
)
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import (
    Extension,
    Manifest,
    git_commit,
    installed_versions,
    read_manifest,
)
from sweeps.study.loader import load
from sweeps.study.spec import Study

_GROWING: Final = ("replicates", "search.num_points")
_FREE: Final = tuple(
    f"search.{key}" for key in ("confirm", "ask_size", "asks_in_flight", "front_tolerance")
)
_MAX_VALUE_LENGTH: Final = 200


def plan_extension(
    manifest: Manifest,
    num_points: int | None = None,
    replicates: int | None = None,
    overrides: Sequence[str] = (),
    study: Study | None = None,
    budget: int | str | None = None,
) -> Plan:
    """Plans an extension of a recorded sweep.

    Args:
        manifest: Manifest of the sweep.
        num_points: Number of points; unchanged if None.
        replicates: Seeds per point; unchanged if None.
        overrides: Other changes, as `space.weight_decay.grid=[0, 1]`.
        study: Study that takes the place of the recorded one.
        budget: Budget of this run; none if None, whatever the study's own is.

    Raises:
        InputError: See `replan`; also if the budget is invalid.
        StudyError: With every mistake of the changed study.
    """
    if study is None and names_user_files(manifest.study):
        raise InputError(
            f"the sweep {manifest.sweep!r} uses files or code of its author; name its study file: "
            f"sweeps extend {manifest.sweep} --study STUDY.yaml"
        )
    changes = [*overrides]
    changes += [] if num_points is None else [f"search.num_points={num_points}"]
    changes += [] if replicates is None else [f"replicates={replicates}"]
    return replan(manifest, set_budget(load(study or manifest.study, changes), budget))


def replan(manifest: Manifest, study: Study | None = None) -> Plan:
    """Plans a recorded sweep again, or the study that it is extended to.

    Raises:
        InputError: If the plan differs from the recorded one, for example by changed data, is not
            an extension of it, or needs files or code of the user: storage must not name what is
            read or executed.
        StudyError: If its study is invalid in this version.
    """
    if study is None:
        require_packaged_names(manifest)
    # A study of another version may not even be valid now, which would hide the reason.
    reasons = _version_differences(manifest)
    plan = None if reasons else make_plan(study or manifest.study)
    if plan is not None:
        extends = study is not None
        reasons = extension_obstacles(manifest, plan) if extends else differences(manifest, plan)
    if plan is None or reasons:
        raise InputError(
            f"the sweep {manifest.sweep!r} cannot be {'extended' if study else 'continued'}: "
            f"{'; '.join(reasons)}"
        )
    return plan


def prepare_manifest(
    ledger: Ledger, plan: Plan, *, command: str, tracking_uri: str, extends: bool = False
) -> Manifest:
    """Manifest of a sweep: the stored one, extended if asked, or a new one for a new sweep.

    Raises:
        InputError: If the sweep was started with another plan.
    """
    if not ledger.has_spec():
        return create_manifest(plan, ledger.sweep, command=command, tracking_uri=tracking_uri)
    manifest = read_manifest(ledger)
    if extends:
        # Again, under the lease: another driver may have extended the sweep further.
        if reasons := extension_obstacles(manifest, plan):
            raise InputError(f"the sweep {ledger.sweep!r} cannot be extended: {'; '.join(reasons)}")
        # An extension that changes nothing leaves no trace.
        changes = tuple(setting_differences(manifest.study, plan.study).values())
        extension = Extension(
            command=command,
            extended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            changes=changes,
            versions=installed_versions(),
            git_commit=git_commit(),
        )
        updates: dict[str, Any] = {
            "study": plan.study,
            "plan": summarize_plan(plan),
            "data": dict(plan.data),
        }
        if changes:
            updates["extensions"] = (*manifest.extensions, extension)
        return manifest.model_copy(update=updates)
    if reasons := differences(manifest, plan):
        raise InputError(
            f"the name {ledger.sweep!r} is taken by another sweep in {ledger.directory.path}: "
            f"{'; '.join(reasons)}. {_advice(manifest, plan)}"
        )
    study = manifest.study.model_copy(update={"resources": plan.study.resources})
    return manifest.model_copy(update={"study": study})


def require_packaged_names(manifest: Manifest) -> None:
    """Raises `InputError` if only the storage names files or code of the sweep's author."""
    if names_user_files(manifest.study):
        raise InputError(
            f"the sweep {manifest.sweep!r} uses files or code of its author; continue it with its "
            f"study file: sweeps run STUDY.yaml --name {manifest.sweep}"
        )


def names_user_files(study: Study) -> bool:
    """Whether a study names the user's code or files: its experiment, or a value in a mapping."""
    names = (*flatten(study.constants), *study.space)
    return is_own_experiment(study.experiment) or any(
        is_of_user(study.experiment, name) for name in names
    )


def names_only_others(recorded: Study, study: Study) -> bool:
    """Whether a recorded study has a value of a user's mapping that another study does not name."""
    if not names_user_files(recorded):
        return False
    if is_own_experiment(recorded.experiment) and recorded.experiment != study.experiment:
        return True
    known = _listed_values(study)
    return any(
        not values <= known.get(name, set())
        for name, values in _listed_values(recorded).items()
        if is_of_user(recorded.experiment, name)
    )


def _listed_values(study: Study) -> dict[str, set[str]]:
    """Values that a study lists for each field, as JSON; numbers of intervals are left out."""
    listed: dict[str, Sequence[object]] = {
        name: (value,) for name, value in flatten(study.fixed).items()
    }
    listed |= {name: axis.values() or () for name, axis in study.space.items()}
    return {name: {*map(json.dumps, values)} for name, values in listed.items()}


def is_of_user(experiment: str, name: str) -> bool:
    """Whether a field's name leads into a mapping other than the settings of a packaged name."""
    field, *entries = name.split(".")
    if is_own_experiment(experiment):  # a recorded study must not import code
        return bool(entries)
    try:
        config = privnets.experiment(experiment).Config
    except (ValueError, ExtensionError):  # of a package that is not installed here
        return bool(entries)
    choice = choice_of(config, field)
    names = choice.names() if choice is not None and choice.settings else ()
    return bool(entries) and entries[0] not in names


def differences(manifest: Manifest, plan: Plan) -> list[str]:
    """Differences between a recorded plan and another one, in words; empty if they are equal.

    Resources make no difference.
    """
    changed = setting_differences(manifest.study, plan.study)
    deciding = [key for key in changed if key.startswith(("early_stopping", "constraints."))]
    recorded, current = manifest.plan, summarize_plan(plan)
    if not deciding and (recorded.digest, recorded.objectives) == (
        current.digest,
        current.objectives,
    ):
        return []
    reasons = [*_version_differences(manifest), *_data_differences(manifest, plan)]
    if manifest.study.name != plan.study.name:
        reasons.append(f"it is of study {manifest.study.name!r}, not {plan.study.name!r}")
    return [*reasons, *changed.values()] or ["its configurations have other ids now"]


def setting_differences(before: Study, now: Study) -> dict[str, str]:
    """Settings that differ, each with both values in words."""
    old, new = before.settings(), now.settings()
    return {
        key: f"{key} was {_format(old.get(key))} and is now {_format(new.get(key))}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    }


def extension_obstacles(manifest: Manifest, plan: Plan) -> list[str]:
    """Reasons why a plan is not an extension of the recorded sweep; empty if it is one."""
    reasons = [*_version_differences(manifest), *_data_differences(manifest, plan)]
    if reasons:
        return reasons
    changed = setting_differences(manifest.study, plan.study)
    others = {key: text for key, text in changed.items() if key not in (*_GROWING, *_FREE)}
    if names_only_others(manifest.study, plan.study):
        return [*others.values()]  # planning the recorded study would read files that it names
    old, new = manifest.study.settings(), plan.study.settings()
    smaller = [changed[k] for k in _GROWING if k in changed and (new[k] or 0) < (old[k] or 0)]
    if plan.is_adaptive or manifest.plan.is_adaptive:
        return [*smaller, *others.values()]
    rules = ("experiment", "early_stopping", "objectives.", "constraints.")
    reasons = [text for key, text in others.items() if key.startswith(rules)]
    # The files of the study are those that the user named now.
    recorded = make_plan(manifest.study.with_source(plan.study.source))
    lost = {r.key for r in recorded.replicates()} - {r.key for r in plan.replicates()}
    if lost and not reasons:
        points = len({point_id for point_id, _ in lost})
        reasons = [*smaller, *others.values(), f"{points:,} of its points would not be in it"]
    return reasons


def _advice(manifest: Manifest, plan: Plan) -> str:
    """Command that fits a study that differs from the recorded one of its name."""
    sweep, study = shlex.quote(manifest.sweep), plan.study
    if not extension_obstacles(manifest, plan):
        command = f"sweeps extend {sweep} --study {shlex.quote(study.source.file)}"
        return f"It can be extended, with the same --set, --num-points and --storage: {command}"
    if manifest.study.experiment != study.experiment:
        return "Choose another name, or leave --name out"
    return (
        f"Choose another name; --reuse {sweep} copies the trainings that both have instead of "
        "repeating them"
    )


def _version_differences(manifest: Manifest) -> list[str]:
    """Difference between the recorded and the present version of an experiment, in words."""
    name, before = manifest.study.experiment, manifest.plan.experiment_version
    if is_own_experiment(name):  # its source is part of ids; only a study of the user may name it
        return []
    now = privnets.experiment(name).version
    return [] if now == before else [f"{name} had version {before} and now has {now}"]


def _data_differences(manifest: Manifest, plan: Plan) -> list[str]:
    common = manifest.data.keys() & plan.data.keys()
    return [
        f"data set {name!r}, or code of its author, has changed since"
        for name in sorted(common)
        if manifest.data[name] != plan.data[name]
    ]


def _format(value: object) -> str:
    if value is None:
        return "not given"
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."
