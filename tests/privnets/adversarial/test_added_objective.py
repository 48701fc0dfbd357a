"""Objectives: those that are packaged, and the example of the guide as a package adds it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.objectives import OBJECTIVES, WEIGHTS
from privnets.adversarial.records import Minibatch
from privnets.adversarial.training.losses import GameStep
from privnets.testing import check_objective
from tests.privnets.test_registry import install_package

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "adding-an-objective.md"


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The guide's objective, installed as a package."""
    text = GUIDE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].replace("\n   ", "\n").strip()
    install_package(tmp_path, "kl-to-prior = added:KLToPrior", code, group="privnets.objectives")
    monkeypatch.syspath_prepend(tmp_path)
    yield OBJECTIVES.get("kl-to-prior")
    OBJECTIVES._loaded.pop("kl-to-prior")
    sys.modules.pop("added")


@pytest.mark.parametrize("name", sorted(OBJECTIVES.builtin))
def test_packaged_objectives_train_members_of_a_stack_as_alone(name):
    check_objective(OBJECTIVES.get(name))


def test_every_weight_but_that_of_distortion_belongs_to_one_packaged_objective():
    fields = [OBJECTIVES.get(name).fields for name in ("alpha", "squared-kl")]
    assert fields[0] | fields[1] == WEIGHTS
    assert fields[0] & fields[1] == {"distortion_weight"}


def test_the_guides_objective_is_the_divergence_from_the_prior(added):
    check_objective(added)
    config = AdversarialConfig(
        problem="digits", objective="kl-to-prior", privacy_weight=3.0, distortion_weight=0.0
    )
    log_prior = torch.tensor([[0.25, 0.75]]).log()
    logits = torch.tensor([[[0.5, 0.5], [0.9, 0.1]]]).log()
    x, label = torch.zeros(1, 2, 4), torch.zeros(1, 2, dtype=torch.int64)
    step = GameStep(Minibatch(x, label, noise=x), x, logits)
    q, p = np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0.25, 0.75])
    expected = 3 * (q * np.log(q / p)).sum(1).mean()
    assert float(added.loss([config], log_prior)(step)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("added", "small_panel")
def test_the_guides_objective_is_swept_and_measured_like_the_others():
    experiment = privnets.experiment("adversarial")
    given = {"problem": "digits", "objective": "kl-to-prior", "panel": "quick"}
    config = experiment.Config.model_validate({**given, "steps": 10, "batch_size": 16})
    assert "tradeoff" in experiment.unused_fields(config)
    built_in = config.model_copy(update={"objective": "alpha"})
    assert experiment.fingerprint(config).startswith(experiment.fingerprint(built_in) + "; ")
    (point,) = experiment.run([config])
    assert point.status == "finished"
    assert tuple(sorted(point.replicates[0].metrics)) == experiment.metric_keys(config)
    assert point.metrics["privacy/kl_to_prior"] >= 0
    changed = config.model_copy(update={"utility_weight": 2.0})
    (error,) = experiment.invalid_fields(changed)
    assert error.field == "utility_weight"


def test_an_objective_whose_members_share_a_weight_is_found(added, monkeypatch):
    loss = type(added).loss

    def of_first(self, configs, log_prior, complete=()):
        return loss(self, configs[:1] * len(configs), log_prior)

    monkeypatch.setattr(type(added), "loss", of_first)
    with pytest.raises(AssertionError, match="depends on its stack"):
        check_objective(added)


def test_an_objective_that_does_not_train_the_utility_network_is_found(added, monkeypatch):
    loss = sys.modules["added"].KLToPriorLoss
    call = loss.__call__
    monkeypatch.setattr(
        loss, "__call__", lambda self, step: call(self, replace(step, utility=None))
    )
    with pytest.raises(AssertionError, match=r"utility\.parameter.* do not train"):
        check_objective(added)


def test_an_objective_that_measures_less_than_it_declares_is_found(added, monkeypatch):
    monkeypatch.setattr(type(added), "metrics", ("privacy/kl_to_prior", "privacy/other"))
    with pytest.raises(AssertionError, match="declared metrics"):
        check_objective(added)
