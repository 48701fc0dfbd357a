"""Estimated costs of judging follow what attackers do."""

from __future__ import annotations

import pytest

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.cost_model import estimate_cost, evaluation_seconds
from privnets.adversarial.problems.opening import problem_of


def _seconds(**fields: object) -> float:
    config = AdversarialConfig.model_validate({"problem": "digits", **fields})
    return evaluation_seconds(problem_of(config), config)


# Seconds of processor time measured on a loaded two-core machine, with the baseline in the cache.
@pytest.mark.parametrize(
    ("panel", "noise", "measured"),
    [("quick", 0.0, 1.8), ("quick", 0.5, 3.6), ("full", 0.0, 3.3), ("full", 0.5, 5.4)],
)
def test_the_estimate_is_within_a_factor_of_two_of_a_measurement(panel, noise, measured) -> None:
    estimate = _seconds(panel=panel, noise_std=noise)
    assert measured / 2 < estimate < 2 * measured


def test_noise_makes_judging_longer_because_attackers_learn_from_several_draws() -> None:
    assert _seconds(noise_std=0.5) > 1.3 * _seconds(noise_std=0.0)


def test_judging_images_costs_as_much_whatever_network_releases_them() -> None:
    costs = {_seconds(problem="gender-emotion", releaser=name) for name in ("unet", "mlp")}
    assert len(costs) == 1


def test_memory_holds_all_records() -> None:
    config = AdversarialConfig(problem="gender-emotion", batch_size=16)
    sizes = problem_of(config).split_sizes(config)
    released = sizes.attack + sizes.validation + sizes.test
    records = sizes.train + released + released  # raw ones, and the release
    assert estimate_cost(problem_of(config), config).memory > 4 * records * 3 * 64**2
