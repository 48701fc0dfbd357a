"""Evaluation by exact information, without attackers."""

from __future__ import annotations

import math

import pytest

import privnets
from privnets.adversarial.config import AdversarialConfig

EXPERIMENT = privnets.experiment("adversarial")

pytestmark = pytest.mark.usefixtures("small_panel")


def config(**fields: object) -> AdversarialConfig:
    made = EXPERIMENT.Config(
        **{"problem": "gaussian-mixture", "evaluation": "exact", "steps": 40, **fields}
    )
    assert isinstance(made, AdversarialConfig)
    return made


@pytest.fixture(scope="module")
def both() -> tuple[privnets.TradeoffPoint, privnets.TradeoffPoint]:
    panel = {"evaluation": "attackers", "panel": "quick"}
    (exact,) = EXPERIMENT.run([config(seed=3)])
    (judged,) = EXPERIMENT.run([config(seed=3, **panel)])
    return exact, judged


def test_exact_and_attacked_evaluation_agree_on_exact_metrics(
    both: tuple[privnets.TradeoffPoint, privnets.TradeoffPoint],
) -> None:
    exact, judged = both
    for key in ("exact/leakage", "exact/censored", "exact/loss", "bound/loss", "bound/release"):
        assert exact.metrics[key] == pytest.approx(judged.metrics[key], rel=1e-9)


def test_exact_evaluation_reports_no_metric_of_attackers(
    both: tuple[privnets.TradeoffPoint, privnets.TradeoffPoint],
) -> None:
    exact, _ = both
    keys = EXPERIMENT.metric_keys(config())
    assert sorted(exact.replicates[0].metrics) == sorted(keys)
    assert not any(key.startswith(("privacy/", "floor/", "baseline/")) for key in keys)
    assert all(math.isfinite(exact.metrics[key]) for key in keys)


def test_the_exact_gap_is_the_information_beyond_the_bound(
    both: tuple[privnets.TradeoffPoint, privnets.TradeoffPoint],
) -> None:
    metrics = both[0].metrics
    total = metrics["exact/leakage"] + metrics["exact/censored"]
    assert metrics["bound/gap"] == pytest.approx(total - metrics["bound/release"], abs=1e-12)


def test_default_objectives_are_the_exact_informations() -> None:
    assert EXPERIMENT.default_objectives(config()) == {
        "exact/leakage": "min",
        "exact/censored": "min",
    }


@pytest.mark.parametrize(
    "fields", [{"releaser": "mlp"}, {"problem": "digits", "releaser": "mlp", "steps": 10}]
)
def test_exact_evaluation_is_refused_without_exact_information(fields: dict[str, object]) -> None:
    assert "evaluation" in [
        problem.field for problem in EXPERIMENT.invalid_fields(config(**fields))
    ]


def test_settings_of_attackers_are_refused_with_exact_evaluation() -> None:
    found = EXPERIMENT.invalid_fields(config(panel="quick"))
    assert [problem.field for problem in found] == ["panel"]
