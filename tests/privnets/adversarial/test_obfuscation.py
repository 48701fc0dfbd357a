"""Tests of trivial obfuscation, the baseline of learned releases."""

from __future__ import annotations

import pytest
import torch

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import Minibatch
from privnets.adversarial.trained_releaser import load_releaser
from privnets.adversarial.training.releaser import OBFUSCATIONS

IMAGES, SERIES = (3, 9, 9), (12, 2)
SHAPES = {name: SERIES if name in ("rounding", "average") else IMAGES for name in OBFUSCATIONS}


def _release(name: str, strength: float) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(2, 5, *SHAPES[name], generator=random)
    releaser = OBFUSCATIONS[name](name in ("noise", "blur", "box"))
    noise = torch.full((2, 5, *releaser.noise_shape(SHAPES[name])), strength)
    secret = torch.zeros(2, 5, dtype=torch.int64)
    return x, releaser.release([], Minibatch(x, secret, noise=noise))


@pytest.mark.parametrize("name", OBFUSCATIONS)
def test_strength_0_releases_raw_records(name: str) -> None:
    x, z = _release(name, 0.0)
    assert torch.allclose(x, z, atol=1e-6)


@pytest.mark.parametrize("name", ["box", "rounding", "average"])
def test_a_large_strength_releases_nothing_of_a_record(name: str) -> None:
    _, z = _release(name, 50.0)
    means = z.mean(-2, keepdim=True) if name == "average" else z[:, :1].flatten()[0]
    assert torch.allclose(z, means.expand_as(z), atol=1e-4)


def test_a_large_blur_releases_little_but_the_mean() -> None:
    x, z = _release("blur", 50.0)
    assert torch.allclose(z, x.mean((-2, -1), keepdim=True).expand_as(z), atol=1e-3)


def test_a_box_covers_the_middle_and_not_the_edge() -> None:
    x, z = _release("box", 0.4)
    assert torch.equal(z[..., 4, 4], torch.full_like(z[..., 4, 4], 0.5))
    assert torch.equal(z[..., 0, :], x[..., 0, :])


def test_each_problem_takes_its_own_obfuscations_alone() -> None:
    experiment = privnets.experiment("adversarial")
    for problem in ("digits", "gaussian-mixture"):
        fitting = PROBLEMS.get(problem).spec.obfuscations
        for name in OBFUSCATIONS:
            config = AdversarialConfig(problem=problem, obfuscation=name)
            errors = [e.field for e in experiment.invalid_fields(config)]
            assert ("obfuscation" in errors) == (name not in fitting)


def test_a_stack_of_strengths_is_evaluated_as_any_release() -> None:
    experiment = privnets.experiment("adversarial")
    common = {"problem": "digits", "obfuscation": "noise", "steps": 40, "panel": "quick"}
    configs = [AdversarialConfig.model_validate({**common, "strength": s}) for s in (0.0, 6.4)]
    raw, hidden = (p.replicates[0] for p in experiment.run(configs))
    attacked = [r.metrics["privacy/attacker_balanced_accuracy"] for r in (raw, hidden)]
    assert attacked[0] > 0.85 > 0.65 > attacked[1]
    assert raw.metrics["utility/normalized_error"] == 0
    releaser = load_releaser(hidden.artifacts["releaser.safetensors"])
    x = torch.rand(4, 1, 8, 8).numpy()
    assert releaser.description.noise_std == 6.4
    assert (releaser.release(x, seed=1) == releaser.release(x, seed=1)).all()


def test_obfuscation_takes_the_place_of_the_releaser_under_both_objectives() -> None:
    experiment = privnets.experiment("adversarial")
    config = AdversarialConfig(
        problem="digits", obfuscation="blur", objective="squared-kl", steps=20, panel="quick"
    )
    (point,) = experiment.run([config])
    assert point.status == "finished"
