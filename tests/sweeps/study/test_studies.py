"""Packaged studies: contents, and plans without errors."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import requires_data

import privnets
from sweeps.analysis.claims import judge_claim
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load, study_names
from sweeps.study.spec import Study
from sweeps.study.validation import validate_study
from sweeps.study.yaml_reader import parse_yaml

ROOT = Path(__file__).parents[3]

FIGURES = {
    "adult-train-size": 1,
    "adult-train-size-network": 2,
    "adult-regularization": 3,
    "adult-features": 4,
    "adult-noise": 5,
}
LEAKAGE = {
    "adult-epsilon": "adult",
    "adult-leakage-regularizer": "adult",
    "cifar10-shadows": "cifar10_jpeg",
    "mnist-dp-sgd": "mnist",
}
"""Further studies of membership to the data set that their reduced size needs."""
RELEASES = {
    "digits-gradients": None,
    "digits-quick": None,
    "toy-gaussian": None,
    "toy-gaussian-exact": None,
    "toy-gaussian-fixed-utility": None,
    "amnist-alpha": "mnist",
    "amnist-attackers": "mnist",
    "eco-alpha": "eco",
    "eco-side-information": "eco",
    "eco-without-side-information": "eco",
    "faces-gender-emotion": "lfw",
    "faces-subject-gender": "lfw",
    "faces-subject-within-subject": "lfw",
}
"""Adversarial study to the data set that it needs, if any."""
SMALL = {"digits-gradients", "digits-quick", "toy-gaussian-exact"}
"""Studies that need no reduced settings."""
THRESHOLD = "privacy/attack/threshold_gaussian/advantage"


def reduced_settings(name: str) -> list[str]:
    """Settings that the study's description gives for two cores."""
    found = re.findall(r'--set (?:"([^"]+)"|(\S+))', load(name).description)
    return [(quoted or plain).rstrip(".") for quoted, plain in found]


def test_names_of_the_packaged_studies():
    assert study_names() == sorted([*FIGURES, *LEAKAGE, *RELEASES, "quickstart"])
    assert [load(name).name for name in study_names()] == study_names()


@pytest.mark.parametrize(("name", "figure"), FIGURES.items())
def test_each_figure_study_names_its_figure_and_the_claims_of_the_paper(name, figure):
    study = load(name)
    assert study.reproduces is not None
    assert (study.reproduces.paper, study.reproduces.figure) == ("arXiv:2001.10648", figure)
    (axis,) = study.space
    trend = "increasing" if figure == 4 else "decreasing"
    metrics = [THRESHOLD] if figure == 2 else [THRESHOLD, "privacy/rho_kl"]
    found = [(c.metric, c.axis, c.trend) for c in study.claims if c.source.endswith(f"e {figure}")]
    assert found == [(metric, axis, trend) for metric in metrics]
    assert all(claim.caveat for claim in study.claims)


def made_up_replicates(study: Study) -> pd.DataFrame:
    """Two seeds of every point, with uniform random metrics in place of measured ones."""
    experiment, random = privnets.experiment(study.experiment), np.random.default_rng(0)
    rows = []
    for place, config in enumerate(validate_study(study, data=False).configs):
        keys = experiment.metric_keys(config)
        resolved = {f"config/{k}": v for k, v in config.resolved().items() if k != "seed"}
        for seed in (0, 1):
            own = {"point_id": str(place), "seed": seed, "status": "finished", **resolved}
            own |= {"test_set": None, "test_size": math.nan, "test_overlap": math.nan}
            rows.append(own | dict(zip(keys, random.random(len(keys)), strict=True)))
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("reduced", [False, True])
def test_every_claim_names_its_source_and_can_be_judged(name, reduced):
    """Every point that a claim asks for exists, at full and at reduced size."""
    study = load(name, reduced_settings(name) if reduced else [])
    replicates = made_up_replicates(study)
    for claim in study.claims:
        assert claim.source, claim.statement
        found = judge_claim(claim, replicates)
        needs_full_size = "panel" in claim.where and reduced
        assert (found.measured is None) == needs_full_size, found


def test_only_the_quick_study_of_digits_makes_no_claim():
    assert [name for name in study_names() if not load(name).claims] == ["digits-quick"]


def test_published_numbers_are_those_of_the_papers():
    """Accuracies on original images and recordings, and the ends of ECO's curves."""
    found = {
        (claim.metric, claim.at_least, claim.at_most, claim.by)
        for name in ("amnist-alpha", "eco-alpha")
        for claim in load(name).claims
        if claim.axis is None and (claim.above is None or claim.by)
    }
    raw, published = "baseline/attacker_balanced_accuracy", "_published_labels"
    large = "privacy/attacker/large_network/balanced_accuracy"
    assert found == {
        ("baseline/utility_accuracy", 0.9725, None, 0.0),
        (raw + published, 0.915, None, 0.0),
        (raw, 0.9, None, 0.0),
        (large + published, None, 0.6, 0.0),
        (raw + published, None, None, 0.3),
        ("floor/utility_label", None, None, -0.02),
        (raw, None, None, 0.26),
        ("floor/side_information", 0.558, 0.598, 0.0),
        ("privacy/attacker_balanced_accuracy", 0.552, 0.578, 0.0),
    }


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("adult-train-size", "weight_decay", 0.0),
        ("adult-regularization", "train_size", 10),
        ("adult-features", "train_size", 10),
        ("adult-features", "weight_decay", 1e-6),
        ("adult-noise", "train_size", 30),
        ("adult-noise", "weight_decay", 0.0),
    ],
)
def test_values_fixed_in_the_paper_are_fixed(name, field, value):
    assert load(name).fixed[field] == value


def test_the_noise_levels_of_the_paper_are_swept():
    assert {0, 10, 30, 100} <= set(load("adult-noise").space["noise_std"].values())


@requires_data("adult")
@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_study_can_be_planned(name):
    plan = make_plan(load(name))
    assert len(plan.points) >= 5
    assert len(plan.seeds) >= (4 if "network" in name else 16)
    assert not plan.notes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[requires_data(data)] if data else [])
        for name, data in RELEASES.items()
    ],
)
@pytest.mark.parametrize("reduced", [False, True])
def test_each_release_study_can_be_planned_at_full_and_reduced_size(name, reduced):
    settings = reduced_settings(name)
    assert settings or name in SMALL
    plan = make_plan(load(name, settings if reduced else []))
    assert len(plan.points) >= 4
    assert not plan.notes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=requires_data(data)) for name, data in LEAKAGE.items()]
)
def test_each_study_of_leakage_can_be_planned_at_reduced_size(name):
    plan = make_plan(load(name, reduced_settings(name)))
    assert len(plan.points) >= 4
    assert not plan.notes


def test_the_orders_of_amnist_lie_below_at_and_above_one():
    orders = load("amnist-alpha").space["alpha"].values()
    assert min(orders) < 1 < max(orders)
    assert {1.0, math.inf} <= set(orders)


def test_the_quickstart_needs_no_download(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    plan = make_plan(load("quickstart"))
    assert len(plan.points) >= 7
    assert len(plan.seeds) >= 8
    assert not plan.notes


def test_recorded_sweeps_are_valid_studies():
    listed = parse_yaml((ROOT / "docs" / "recorded.yaml").read_text(encoding="utf-8")).value
    assert {sweep["study"] for sweep in listed} >= {*FIGURES, "amnist-alpha", "eco-alpha"}
    for sweep in listed:
        study = load(sweep["study"], sweep.get("settings", ()))
        assert not validate_study(study, data=False).errors
