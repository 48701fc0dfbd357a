"""A recorded study of a user's experiment: its code is not run because the storage names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.planning.continuation import names_user_files, prepare_manifest, replan
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.spec import Study

STUDY = {
    "name": "s",
    "experiment": "membership",
    "fixed": {"dataset": "digits", "model": "logistic", "train_size": 50},
    "space": {"weight_decay": {"grid": [0.1]}},
}


def test_code_that_only_a_recorded_study_names_is_not_imported(tmp_path: Path) -> None:
    plan = make_plan(Study.model_validate(STUDY))
    manifest = create_manifest(plan, "taken", command="", tracking_uri="")
    other = manifest.study.model_copy(update={"experiment": "absent_code:run"})
    summary = manifest.plan.model_copy(update={"digest": "another"})
    manifest = manifest.model_copy(update={"study": other, "plan": summary})
    ledger = Ledger(str(tmp_path), "taken")
    write_manifest(ledger, manifest)
    with pytest.raises(InputError, match=r"taken by another sweep.*experiment was"):
        prepare_manifest(ledger, plan, command="", tracking_uri="")
    with pytest.raises(InputError, match="experiment was"):
        replan(manifest, plan.study)
    with pytest.raises(InputError, match="uses files or code of its author"):
        replan(manifest)


def test_a_package_that_is_not_installed_counts_as_the_users() -> None:
    fixed = {"data": {"own": "a.csv"}}
    study = Study.model_validate({**STUDY, "experiment": "not-installed", "fixed": fixed})
    assert names_user_files(study)
