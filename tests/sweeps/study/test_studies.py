"""Packaged studies: contents, and plans without errors."""

import math
import re

import pytest
from support import requires_data

from sweeps.planning.plan import make_plan
from sweeps.study.loader import load, study_names

FIGURES = {
    "adult-train-size": 1,
    "adult-train-size-network": 2,
    "adult-regularization": 3,
    "adult-features": 4,
    "adult-noise": 5,
}
RELEASES = {
    "digits-quick": None,
    "toy-gaussian": None,
    "toy-gaussian-exact": None,
    "toy-gaussian-fixed-utility": None,
    "amnist-alpha": "mnist",
    "amnist-attackers": "mnist",
    "eco-alpha": "eco",
    "eco-side-information": "eco",
}
"""Adversarial study to the data set that it needs, if any."""
SMALL = {"digits-quick", "toy-gaussian-exact"}
"""Studies that need no reduced settings."""
THRESHOLD = "privacy/attack/threshold_gaussian/advantage"


def test_names_of_the_packaged_studies():
    assert study_names() == sorted([*FIGURES, *RELEASES, "quickstart"])
    assert [load(name).name for name in study_names()] == study_names()


@pytest.mark.parametrize(("name", "figure"), FIGURES.items())
def test_each_figure_study_names_its_figure_and_the_claims_of_the_paper(name, figure):
    study = load(name)
    assert study.reproduces is not None
    assert (study.reproduces.paper, study.reproduces.figure) == ("arXiv:2001.10648", figure)
    (axis,) = study.space
    trend = "increasing" if figure == 4 else "decreasing"
    metrics = [THRESHOLD] if figure == 2 else [THRESHOLD, "privacy/rho_kl"]
    assert [(c.metric, c.axis, c.trend) for c in study.claims] == [
        (metric, axis, trend) for metric in metrics
    ]
    assert all(claim.caveat for claim in study.claims)


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
    """The reduced settings are those in the study's description."""
    found = re.findall(r'--set (?:"([^"]+)"|(\S+))', load(name).description)
    settings = [quoted or plain for quoted, plain in found]
    assert settings or name in SMALL
    plan = make_plan(load(name, [s.rstrip(".") for s in settings] if reduced else []))
    assert len(plan.points) >= 4
    assert not plan.notes


def test_the_orders_of_amnist_lie_below_at_and_above_one():
    orders = load("amnist-alpha").space["alpha"].values()
    assert min(orders) < 1 < max(orders)
    assert {1.0, math.inf} <= set(orders)


def test_the_quickstart_needs_no_download(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    plan = make_plan(load("quickstart"))
    assert len(plan.points) >= 24
    assert len(plan.seeds) >= 8
    assert not plan.notes
