"""Losses of a stack of releasers."""

from __future__ import annotations

import pytest
import torch

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.records import Minibatch
from privnets.adversarial.training.inference_networks import cross_entropy
from privnets.adversarial.training.losses import GameStep


def seen(**given: torch.Tensor) -> GameStep:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 3, 1, generator=random)
    secret = torch.randint(0, 2, (2, 6, 3), generator=random)
    batch = Minibatch(x, secret, noise=torch.zeros(0), **given)
    z = x + torch.randn(x.shape, generator=random)
    return GameStep(batch, z, torch.randn(2, 6, 3, 2, generator=random))


def test_distortion_counts_only_steps_that_were_observed():
    present = torch.rand(2, 6, 3, generator=torch.Generator().manual_seed(1)) < 0.6
    some = seen(present=present)
    expected = [
        (some.z[i, ..., 0] - some.batch.x[i, ..., 0])[present[i]].square().mean() for i in range(2)
    ]
    torch.testing.assert_close(some.distortion, torch.stack(expected))


def test_the_alpha_objective_weighs_its_terms_by_the_equations():
    """D - (lambda / T) H at order 1, where H is the cross-entropy of all T steps."""
    some = seen()
    configs = [
        AdversarialConfig(problem="eco", privacy_weight=w, distortion_weight=d, alpha=1.0)
        for w, d in ((0.0, 1.0), (4.0, 0.5))
    ]
    loss = OBJECTIVES.get("alpha").loss(configs, torch.zeros(2, 2))(some)
    entropy = 3 * cross_entropy(some.adversary, some.batch.secret)
    weights, shares = torch.tensor([0.0, 4.0]), torch.tensor([1.0, 0.5])
    torch.testing.assert_close(loss, shares * some.distortion - weights / 3 * entropy)


@pytest.mark.parametrize("tradeoff", [0.0, 0.3, 1.0])
def test_squared_kl_weighs_two_squares(tradeoff):
    random = torch.Generator().manual_seed(3)
    logits = [torch.randn(1, 40, 2, generator=random) for _ in range(3)]
    label = torch.randint(0, 2, (1, 40), generator=random)
    batch = Minibatch(torch.zeros(1, 40, 2), label, label, noise=torch.zeros(0))
    config = AdversarialConfig(
        problem="gaussian-mixture", tradeoff=tradeoff, estimator="label", squaring="batch"
    )
    found = OBJECTIVES.get("squared-kl").loss([config], torch.full((1, 2), 0.5).log())(
        GameStep(batch, batch.x, *logits)
    )
    log_s, log_u, log_x = (one.log_softmax(-1).gather(-1, label[..., None]) for one in logits)
    lost, leaked = (log_x - log_u).mean(), (log_s + torch.tensor(2.0).log()).mean()
    expected = (1 - tradeoff) * lost**2 + tradeoff * leaked**2
    torch.testing.assert_close(found[0], expected)
