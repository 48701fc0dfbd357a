"""Leakage by group: the success of attacks on the records of each class or subgroup."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

import privnets
from privnets.membership.config import GROUP_METRICS
from privnets.membership.evaluation import group_metrics
from privnets.membership.trials import Guesses, combine_strongest
from privnets.references.user_files import set_folder

EXPERIMENT = privnets.experiment("membership")
RECORDS, MODELS = 120, 64


@pytest.fixture(autouse=True)
def folder(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 3)), columns=list("abc"))
    frame["ward"] = np.where(np.arange(300) < 150, "north/1", "south")
    frame.loc[:3, "ward"] = "rare"
    frame["id"] = range(300)
    frame["y"] = np.where(random.random(300) < 0.4, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    set_folder(tmp_path)


def config(groups, **fields):
    values = {
        "dataset": {"table": "t.csv", "target": "y", "ignore": ["ward", "id"]},
        "model": {"sklearn": "sklearn.tree:DecisionTreeClassifier", "params": {}},
        "train_size": 100, "draws": 32, "records": RECORDS, "groups": groups, **fields,
    }  # fmt: skip
    return EXPERIMENT.Config.model_validate(values, strict=True)


def measure(exposed):
    """Metrics where an attack finds all members among exposed records, and guesses elsewhere."""
    random = np.random.default_rng(1)
    member = torch.from_numpy(random.random((RECORDS, MODELS)) < 0.5)
    score = torch.from_numpy(random.normal(size=(RECORDS, MODELS)))
    ward = torch.arange(100, 100 + RECORDS) < 150
    exposed_rows = ward if exposed == "north" else torch.zeros_like(ward)
    score[exposed_rows] += 20 * (member[exposed_rows].double() - 0.5)
    guesses = [Guesses(score, score > 0)]
    records = torch.arange(100, 100 + RECORDS)
    own = config("ward")
    return group_metrics(own, records, guesses, score > 0, member, shared_models=True)


def test_the_exposed_group_is_found_and_the_disparity_is_that_of_both():
    found = measure("north")
    assert found["privacy/group/north_1/membership_advantage"].value == 1
    assert found["privacy/group/north_1/auc"].value == 1
    assert found["privacy/group/north_1/tpr_at_fpr_0.1"].value == 1
    assert found["privacy/group/south/membership_advantage"].value == pytest.approx(0, abs=0.05)
    assert found["privacy/largest_group_advantage"].value == 1
    south = found["privacy/group/south/membership_advantage"].value
    assert found["privacy/group_disparity"].value == pytest.approx(1 - south, abs=0.05)


def test_an_audit_and_a_sweep_have_the_same_numbers_of_the_same_outputs():
    """Scores of four levels, of which the upper two are far more likely for members."""
    random = np.random.default_rng(2)
    member, south = random.random((MODELS, RECORDS)) < 0.5, np.arange(RECORDS) >= 50
    is_high = random.random(member.shape) < np.where(member, 0.8, np.where(south, 0.4, 0.1))
    score = 2.0 * is_high + (random.random(member.shape) < 0.5)
    wards = np.where(south, "south", "north_1")
    table = privnets.audit_signals(
        {"score": score}, member, groups=wards, family="threshold"
    ).groups.rename(columns={"advantage": "membership_advantage"})

    columns = [torch.from_numpy(each.T) for each in (score, score >= 2, member)]
    records, guesses = torch.arange(100, 100 + RECORDS), Guesses(*columns[:2])
    found = group_metrics(config("ward"), records, [guesses], *columns[1:], shared_models=True)
    compared = 0
    for ward in table.index:
        for metric in GROUP_METRICS:
            value = found[f"privacy/group/{ward}/{metric}"].value
            assert value == pytest.approx(table.loc[ward, metric], abs=1e-12)
            compared += 1
    assert compared == 8


def test_other_groups_choose_the_attack_of_a_group():
    """Each attack finds all members of one group; a group that chose for itself would get both."""
    member = torch.arange(8).view(4, 2) % 2 == 0
    wards = torch.tensor([0, 1, 0, 1])
    attacks = []
    for ward in (0, 1):
        decision = (wards == ward)[:, None] & member
        attacks.append(Guesses(decision.double() + 2 * ward, decision))
    found = combine_strongest(attacks, member, wards)
    assert not found.decision.any()
    assert (found.score == torch.tensor([2.0, 0.0, 2.0, 0.0])[:, None]).all()
    alone = [Guesses(each.score[::2], each.decision[::2]) for each in reversed(attacks)]
    assert combine_strongest(alone, member[::2], wards[::2]).decision.equal(member[::2])


def test_without_differences_the_disparity_is_about_zero():
    found = measure("nobody")["privacy/group_disparity"]
    assert abs(found.value) < 3 * found.error


def test_small_groups_are_undefined_with_the_reason():
    reason = measure("north")["privacy/group/rare/membership_advantage"]
    assert reason == "0 attacked records belong to rare, and at least 10 are needed; raise records"


def test_points_report_every_group_and_classes_are_groups_too():
    for column, names in (("ward", ("north_1", "rare", "south")), ("class", ("no", "yes"))):
        own = config(column)
        replicate = EXPERIMENT.run([own])[0].replicates[0]
        assert set(replicate.metrics) == set(EXPERIMENT.metric_keys(own))
        for name in names:
            key = f"privacy/group/{name}/membership_advantage"
            assert math.isfinite(replicate.metrics[key]) or "are needed" in replicate.notes[key]
        assert math.isfinite(replicate.metrics["privacy/group_disparity"])


def test_columns_that_are_no_groups_are_refused():
    refused = {
        each.field: each.expected
        for name in ("id", "absent")
        for each in EXPERIMENT.invalid_fields(config(name))
    }
    assert set(refused) == {"groups"}
    numbers = EXPERIMENT.invalid_fields(config("id"))[0]
    assert "300 values" in numbers.value
    packaged = config("sex", dataset="digits")
    assert [each.field for each in EXPERIMENT.invalid_fields(packaged)] == ["groups"]
