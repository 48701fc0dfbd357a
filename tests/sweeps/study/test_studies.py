"""The packaged studies: what each reproduces, and that the experiment can run it."""

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
"""Study of adversarial release to the data set it needs, if any."""
SMALL = {"digits-quick", "toy-gaussian-exact"}
"""Those that two cores run whole."""
THRESHOLD = "privacy/attack/threshold_gaussian/advantage"


def test_the_packaged_studies_are_these():
    assert study_names() == sorted([*FIGURES, *RELEASES, "quickstart"])
    assert [load(name).name for name in study_names()] == study_names()


@pytest.mark.parametrize(("name", "figure"), FIGURES.items())
def test_a_figure_s_study_says_which_it_is_and_what_the_paper_claims_of_its_one_axis(name, figure):
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
def test_what_the_paper_fixes_is_fixed(name, field, value):
    assert load(name).fixed[field] == value


def test_the_paper_s_noise_levels_are_among_those_tried():
    assert {0, 10, 30, 100} <= set(load("adult-noise").space["noise_std"].members())


@requires_data("adult")
@pytest.mark.parametrize("name", FIGURES)
def test_the_experiment_can_run_a_figure_s_study(name):
    planned = make_plan(load(name))
    assert len(planned.points) >= 5
    assert len(planned.seeds) >= (4 if "network" in name else 16)
    assert not planned.notes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[requires_data(data)] if data else [])
        for name, data in RELEASES.items()
    ],
)
@pytest.mark.parametrize("reduced", [False, True])
def test_the_experiment_can_run_a_study_of_releases_at_full_size_and_reduced(name, reduced):
    """The settings for two cores are those that the study's own description gives."""
    found = re.findall(r'--set (?:"([^"]+)"|(\S+))', load(name).description)
    settings = [quoted or plain for quoted, plain in found]
    assert settings or name in SMALL
    planned = make_plan(load(name, [s.rstrip(".") for s in settings] if reduced else []))
    assert len(planned.points) >= 4
    assert not planned.notes


def test_the_orders_of_amnist_lie_below_at_and_above_one():
    orders = load("amnist-alpha").space["alpha"].members()
    assert min(orders) < 1 < max(orders)
    assert {1.0, math.inf} <= set(orders)


def test_the_quickstart_needs_no_download_and_is_large_enough(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    planned = make_plan(load("quickstart"))
    assert len(planned.points) >= 24
    assert len(planned.seeds) >= 8
    assert not planned.notes
