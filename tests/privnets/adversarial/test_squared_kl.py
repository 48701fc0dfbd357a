"""The squared-KL objective, against the exact informations of small tables."""

from __future__ import annotations

import pytest
import torch

from privnets import measures
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.records import MISSING, Minibatch
from privnets.adversarial.training.losses import (
    RUNNING_STEPS,
    GameStep,
    RunningMean,
    SquaredKLLoss,
    censored_information,
    leaked_information,
    square_means,
)

PRIOR = torch.tensor([0.4, 0.6], dtype=torch.float64)
KNOWN = torch.ones(2, 1, dtype=torch.bool)


def joint_of(theta: torch.Tensor) -> torch.Tensor:
    """P(s, q) of a release of one bit whose law moves with theta."""
    one = torch.sigmoid(theta + torch.tensor([-1.0, 0.5], dtype=torch.float64))
    return torch.stack([PRIOR * (1 - one), PRIOR * one], 1)


def leaked_gradient(estimator: str) -> float:
    """Gradient of the mean estimate over all (s, q), with an exact adversary held fixed."""
    theta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    joint = joint_of(theta)
    held = joint.detach()
    log_p = (held / held.sum(0)).log().T
    value = torch.zeros((), dtype=torch.float64)
    for s in range(2):
        for q in range(2):
            one = leaked_information(
                log_p[q][None, None], PRIOR.log()[None], torch.tensor([[s]]), estimator
            )
            value = value + joint[s, q] * one[0]
    return float(torch.autograd.grad(value, theta)[0])


def exact_gradient() -> float:
    step = 1e-5
    high, low = (joint_of(torch.tensor(0.3 + d, dtype=torch.float64)) for d in (step, -step))
    change = measures.mutual_information(high) - measures.mutual_information(low)
    return float(change) / (2 * step)


@pytest.mark.parametrize("estimator", ["sound", "label"])
def test_the_label_form_of_leakage_has_the_gradient_of_the_information(estimator):
    assert leaked_gradient(estimator) == pytest.approx(exact_gradient(), rel=1e-6)


def test_the_full_form_of_leakage_has_another_gradient():
    assert abs(leaked_gradient("full") - exact_gradient()) > 0.1 * abs(exact_gradient())


@pytest.mark.parametrize("estimator", ["sound", "label", "full"])
def test_records_without_a_label_do_not_count(estimator):
    random = torch.Generator().manual_seed(0)
    reference, inferred = torch.randn(2, 3, 8, 4, generator=random).log_softmax(-1)
    label = torch.randint(4, (3, 8), generator=random)
    label[:, 5:] = MISSING
    prior = torch.full((3, 4), 0.25).log()
    known = (reference[:, :5], inferred[:, :5])
    assert torch.allclose(
        censored_information(reference, inferred, label, estimator),
        censored_information(*known, label[:, :5], estimator),
    )
    assert torch.allclose(
        leaked_information(inferred, prior, label, estimator),
        leaked_information(known[1], prior, label[:, :5], estimator),
    )
    assert not leaked_information(inferred, prior, label.fill_(MISSING), estimator).any()


@pytest.mark.parametrize("estimator", ["sound", "full"])
def test_the_full_form_of_censored_information_is_a_divergence(estimator):
    random = torch.Generator().manual_seed(0)
    reference, inferred = (torch.randn(3, 50, 4, generator=random).log_softmax(-1) for _ in "ab")
    label = torch.randint(0, 4, (3, 50), generator=random)
    found = censored_information(reference, inferred, label, estimator)
    expected = measures.kl_divergence(reference.exp(), inferred.exp()).mean(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    assert float(censored_information(reference, reference, label, estimator).abs().max()) == 0


def test_both_forms_of_censored_information_have_the_same_mean():
    random = torch.Generator().manual_seed(1)
    reference = torch.randn(1, 200_000, 3, generator=random).log_softmax(-1)
    inferred = torch.randn(1, 200_000, 3, generator=random).log_softmax(-1)
    label = torch.multinomial(reference[0].exp(), 1, generator=random).T
    by_label = censored_information(reference, inferred, label, "label")
    by_class = censored_information(reference, inferred, label, "sound")
    # The label form's standard error is about 1.5 / sqrt(200,000).
    assert float(by_label) == pytest.approx(float(by_class), abs=4 * 1.5 / 200_000**0.5)


def test_a_running_mean_reduces_the_bias_of_the_square():
    random = torch.Generator().manual_seed(2)
    batches = 0.1 + 0.5 * torch.randn(4_000, 2, 1, generator=random)
    running = RunningMean(torch.zeros(2, 1))
    batch = torch.stack([square_means(b, KNOWN, running, "batch") for b in batches]).mean()
    running = RunningMean(torch.zeros(2, 1))
    kept = torch.stack([square_means(b, KNOWN, running, "running") for b in batches])[200:].mean()
    assert float(batch) == pytest.approx(0.1**2 + 0.5**2, rel=0.1)
    assert float(kept) < 0.1**2 + 2 * 0.5**2 / RUNNING_STEPS


def test_a_batch_without_a_label_changes_no_running_mean():
    """Each member meets such batches at other steps, of the utility label and of the secret."""
    configs = [AdversarialConfig(problem="digits", objective="squared-kl")] * 3
    random = torch.Generator().manual_seed(3)
    log_prior, x = torch.full((3, 10), 0.1).log(), torch.zeros(3, 8, 1)
    loss = SquaredKLLoss(configs, log_prior)
    expected = [[(0.0, 0.0)] * 3 for _ in range(2)]
    for is_known in torch.rand(6, 2, 3, generator=random) < 0.6:
        reference, utility, adversary = torch.randn(3, 3, 8, 10, generator=random).log_softmax(-1)
        label = torch.randint(10, (2, 3, 8), generator=random)
        label = torch.where(is_known[..., None], label, MISSING)
        batch = Minibatch(x, label[1], utility=label[0], noise=x)
        loss(GameStep(batch, x, adversary, utility, reference))
        lost = censored_information(reference, utility, label[0], "sound")
        leaked = leaked_information(adversary, log_prior, label[1], "sound")
        for kind, member in is_known.nonzero().tolist():
            mean, weight = expected[kind][member]
            new = float((lost, leaked)[kind][member])
            expected[kind][member] = (0.95 * mean + 0.05 * new, 0.95 * weight + 0.05)
    found = torch.stack([loss.state()["mean"], loss.state()["weight"]], -1)
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_game_that_begins_without_a_label_has_no_loss():
    running = RunningMean(torch.zeros(2, 1))
    assert not square_means(torch.zeros(2, 1), ~KNOWN, running, "running").any()


@pytest.mark.parametrize("squaring", ["running", "clamped"])
def test_a_negative_mean_has_no_gradient(squaring):
    batch = torch.full((2, 3), -0.2, requires_grad=True)
    value = square_means(batch, KNOWN, RunningMean(torch.zeros(2, 3)), squaring)
    (gradient,) = torch.autograd.grad(value.sum(), batch)
    assert float(value.detach().abs().max()) == 0
    assert float(gradient.abs().max()) == 0


def test_the_published_square_has_a_gradient_at_a_negative_mean():
    batch = torch.full((2, 1), -0.2, requires_grad=True)
    value = square_means(batch, KNOWN, RunningMean(torch.zeros(2, 1)), "batch")
    (gradient,) = torch.autograd.grad(value.sum(), batch)
    torch.testing.assert_close(gradient, torch.full((2, 1), -0.4))


def test_the_running_square_has_the_value_and_gradient_of_the_squared_mean():
    batch = torch.tensor([[0.3], [0.1]], requires_grad=True)
    value = square_means(batch, KNOWN, RunningMean(torch.zeros(2, 1)), "running")
    (gradient,) = torch.autograd.grad(value.sum(), batch)
    torch.testing.assert_close(value.detach(), batch.detach().square())
    torch.testing.assert_close(gradient, 2 * batch.detach())


def test_a_distortion_weight_adds_the_distortion_and_0_is_the_default():
    weights = [{}, {"distortion_weight": 2.0}]
    configs = [
        AdversarialConfig.model_validate({"problem": "digits", "objective": "squared-kl", **w})
        for w in weights
    ]
    assert [c.distortion_weight for c in configs] == [0.0, 2.0]
    random = torch.Generator().manual_seed(0)
    x = torch.rand(2, 8, 1, 8, 8, generator=random)
    digit = torch.zeros(2, 8, dtype=torch.int64)
    logits = torch.zeros(2, 8, 10)
    step = GameStep(
        Minibatch(x, digit, utility=digit, noise=x), x + 0.5, torch.zeros(2, 8, 2), logits, logits
    )
    published, added = SquaredKLLoss(configs, torch.full((2, 2), 0.5).log())(step).tolist()
    assert added - published == pytest.approx(2 * 0.25)
