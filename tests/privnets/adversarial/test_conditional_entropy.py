"""Conditional entropy of order alpha from posteriors, against tables of exact probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privnets import measures
from privnets.adversarial.records import MISSING
from privnets.adversarial.training.conditional_entropy import ConditionalEntropy

ORDERS = [0.0, 0.1, 0.5, 0.8, 1 - 1e-6, 1.0, 1 + 1e-6, 1.2, 2.0, 8.0, math.inf]


def table(seed: int, secrets: int = 3, releases: int = 4) -> np.ndarray:
    return (
        np.random.default_rng(seed)
        .dirichlet(np.full(secrets * releases, 0.5))
        .reshape(secrets, releases)
    )


def census(joint: np.ndarray, parts: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Records in the proportions of a joint table, with the exact posterior's logits."""
    counts = np.round(joint * parts).astype(int)
    exact = counts / counts.sum()
    secret, release = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.ravel(), axis=1)
    with np.errstate(divide="ignore"):
        log_p = np.log(exact / exact.sum(0)).T[release]
    return torch.from_numpy(np.maximum(log_p, -700.0)), torch.from_numpy(secret)


def exact_table(joint: np.ndarray, parts: int = 20_000) -> np.ndarray:
    counts = np.round(joint * parts)
    return counts / counts.sum()


# At infinity the label form limits its tilt; that it bounds the entropy is tested below.
FORMS_OF_ORDERS = [(form, a) for form in ("posterior", "label") for a in ORDERS]
FORMS_OF_ORDERS.remove(("label", math.inf))


@pytest.mark.parametrize(("form", "order"), FORMS_OF_ORDERS)
def test_with_the_exact_posterior_both_forms_give_arimotos_conditional_entropy(form, order):
    joint = table(3)
    logits, secret = census(joint)
    found = ConditionalEntropy([order], form)(logits[None], secret[None])
    expected = measures.arimoto_conditional_entropy(exact_table(joint), order)
    assert float(found[0]) == pytest.approx(float(expected), rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(ORDERS[1:]), st.floats(0.2, 3.0))
def test_the_label_form_of_any_posterior_is_no_less_than_the_exact_entropy(seed, order, tilt):
    joint = table(seed)
    logits, secret = census(joint, 2_000)
    wrong = tilt * logits.clamp_min(-20) + torch.randn(
        logits.shape[1], generator=torch.Generator().manual_seed(seed)
    )
    found = ConditionalEntropy([order], "label")(wrong[None], secret[None])
    assert (
        float(found[0])
        >= float(measures.arimoto_conditional_entropy(exact_table(joint, 2_000), order)) - 1e-9
    )


@pytest.mark.parametrize("order", [0.5, 1.0, 1.1, 2.0, 8.0])
def test_only_the_label_forms_gradient_is_that_of_the_entropy(order):
    """A release of one bit whose law moves with theta, and an exact adversary held fixed.

    Records (s, noise) release z = 1 with probability sigmoid(theta + s); the gradient through a
    relaxed release that interpolates the adversary's log posterior is compared with the change of
    the exact entropy.
    """
    prior = torch.tensor([0.3, 0.7], dtype=torch.float64)

    def exact(theta: float) -> float:
        one = torch.sigmoid(theta + torch.tensor([-1.0, 1.5], dtype=torch.float64))
        joint = torch.stack([prior * (1 - one), prior * one], 1)
        return float(measures.arimoto_conditional_entropy(joint, order))

    step = 1e-5
    slope = (exact(0.2 + step) - exact(0.2 - step)) / (2 * step)
    assert _likelihood_gradient(prior, 0.2, order, "label") == pytest.approx(slope, rel=1e-5)
    posterior = _likelihood_gradient(prior, 0.2, order, "posterior")
    assert abs(posterior - slope) > 0.05 * abs(slope)


def _likelihood_gradient(prior: torch.Tensor, theta: float, order: float, form: str) -> float:
    """Gradient of the estimate in theta, by weights p(s, z; theta) on an exact adversary."""
    at = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    one = torch.sigmoid(at + torch.tensor([-1.0, 1.5], dtype=torch.float64))
    joint = torch.stack([prior * (1 - one), prior * one], 1)
    held = joint.detach()
    log_p = (held / held.sum(0)).log().T
    records = torch.stack([log_p[0], log_p[1], log_p[0], log_p[1]])
    secret = torch.tensor([0, 0, 1, 1])
    # Weighted records: the estimate is a function of the mean of exponentiated scores.
    weights = joint.reshape(-1)
    factor = order / (1 - order) if order != 1 else 1.0
    single = [
        ConditionalEntropy([order], form)(records[i][None, None], secret[i][None, None])[0]
        for i in range(4)
    ]
    scores = torch.stack(single)
    if order == 1:
        value = (weights * scores).sum()
    else:
        value = factor * (weights * (scores / factor).exp()).sum().log()
    (gradient,) = torch.autograd.grad(value, at)
    return float(gradient)


@pytest.mark.parametrize("form", ["posterior", "label"])
def test_orders_near_one_join_smoothly(form):
    logits, secret = census(table(5))
    orders = [1 - 0.2500001, 1 - 0.2499999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.2499999, 1.2500001]
    stack = torch.stack([logits.float()] * len(orders))
    found = ConditionalEntropy(orders, form)(stack, torch.stack([secret] * len(orders)))
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-5)
    assert float(found[2]) == pytest.approx(float(found[3]), rel=1e-5)
    assert float(found[4]) == pytest.approx(float(found[3]), rel=1e-5)
    assert float(found[5]) == pytest.approx(float(found[6]), rel=1e-5)


@pytest.mark.parametrize("form", ["posterior", "label"])
@pytest.mark.parametrize("combination", ["joint", "sum"])
def test_a_stack_of_orders_equals_each_order_alone(form, combination):
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(len(ORDERS), 7, 5, 2, generator=random)
    secret = torch.randint(0, 2, (len(ORDERS), 7, 5), generator=random)
    secret[:, 2, 3] = MISSING
    together = ConditionalEntropy(ORDERS[::-1], form, combination)(logits, secret)
    for i, order in enumerate(ORDERS[::-1]):
        alone = ConditionalEntropy([order], form, combination)(logits[i : i + 1], secret[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


@pytest.mark.parametrize("order", [0.4, 1.0, 1.1, 3.0, math.inf])
def test_joint_entropy_of_independent_steps_is_that_of_the_product(order):
    """Two steps with posteriors p and r are one secret of four classes with posterior p x r."""
    random = torch.Generator().manual_seed(2)
    logits = torch.randn(1, 50, 2, 2, generator=random, dtype=torch.float64)
    secret = torch.randint(0, 2, (1, 50, 2), generator=random)
    pairs = (logits[:, :, 0, :, None] + logits[:, :, 1, None, :]).flatten(2)
    for form in ("posterior", "label"):
        joint = ConditionalEntropy([order], form, "joint")(logits, secret)
        product = ConditionalEntropy([order], form)(pairs, 2 * secret[..., 0] + secret[..., 1])
        torch.testing.assert_close(joint, product)


def test_joint_and_sum_are_equal_only_at_order_one():
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 50, 4, 2, generator=random, dtype=torch.float64)
    secret = torch.randint(0, 2, (2, 50, 4), generator=random)
    joint = ConditionalEntropy([1.0, 2.0], "posterior", "joint")(logits, secret)
    added = ConditionalEntropy([1.0, 2.0], "posterior", "sum")(logits, secret)
    assert float(joint[0]) == pytest.approx(float(added[0]))
    assert abs(float(joint[1]) - float(added[1])) > 1e-3


@pytest.mark.parametrize("combination", ["joint", "sum"])
@pytest.mark.parametrize("form", ["posterior", "label"])
def test_logits_of_unknown_steps_change_nothing(form, combination):
    random = torch.Generator().manual_seed(4)
    logits = torch.randn(4, 6, 5, 2, generator=random)
    secret = torch.randint(0, 2, (4, 6, 5), generator=random)
    secret[:, 1, 2:] = MISSING
    entropy = ConditionalEntropy([0.5, 1.0, 1.1, math.inf], form, combination)
    before = entropy(logits, secret)
    logits[:, 1, 2:] += 3 * torch.randn(4, 3, 2, generator=random)
    torch.testing.assert_close(entropy(logits, secret), before)


EXTREMES = [(500.0, 0.0), (-500.0, 500.0), (0.0, 0.0), (30.0, 0.0), (1e4, -1e4)]


@pytest.mark.parametrize("order", [0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 2.0, 8.0, math.inf])
@pytest.mark.parametrize("form", ["posterior", "label"])
@pytest.mark.parametrize("steps", [None, 1, 24, 96])
@pytest.mark.parametrize("combination", ["joint", "sum"])
def test_confident_adversaries_keep_values_and_gradients_finite(order, form, steps, combination):
    """Correct or wrong, alone in the batch or among records of any other confidence."""
    logits = torch.tensor(EXTREMES * 2)
    secret = torch.tensor([0] * len(EXTREMES) + [1] * len(EXTREMES))
    if steps is not None:
        logits = logits[:, None].expand(-1, steps, -1)
        secret = secret[:, None].expand(-1, steps)
    for records in (slice(None), slice(0, 1), slice(5, 6), slice(4, 6)):
        some = logits[records][None].clone().requires_grad_(True)
        found = ConditionalEntropy([order], form, combination)(some, secret[records][None])
        (gradient,) = torch.autograd.grad(found.sum(), some)
        assert found.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("order", [0.5, 0.8, 0.999, 1.001, 1.2, 4.0])
@pytest.mark.parametrize("form", ["posterior", "label"])
def test_single_precision_keeps_the_digits_of_confident_sequences(order, form):
    random = torch.Generator().manual_seed(6)
    logits = 40 * torch.randn(1, 30, 24, 2, generator=random)
    secret = torch.randint(0, 2, (1, 30, 24), generator=random)
    entropy = ConditionalEntropy([order], form)
    torch.testing.assert_close(
        entropy(logits, secret), entropy(logits.double(), secret).float(), rtol=1e-4, atol=1e-4
    )


def test_gradients_of_large_orders_approach_that_of_infinite_order():
    """An uncertain adversary gives the releaser a gradient at any order."""
    logits = torch.tensor([[0.05, -0.05], [-0.05, 0.05]])
    secret = torch.zeros(2, dtype=torch.int64)

    def size(order: float) -> float:
        at = logits[None].clone().requires_grad_(True)
        found = ConditionalEntropy([order], "label")(at, secret[None])
        return float(torch.autograd.grad(found.sum(), at)[0].norm())

    sizes = [size(order) for order in (30.0, 100.0, 1000.0, math.inf)]
    assert max(sizes) < 2 * min(sizes)
    assert sizes[2] == pytest.approx(sizes[3], rel=0.01)


@st.composite
def gaps(draw: st.DrawFn) -> torch.Tensor:
    """Which steps are known, shape [n, T]; at least one of every record."""
    steps = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(1, steps), min_size=2, max_size=6))
    return torch.arange(steps) < torch.tensor(counts)[:, None]


@settings(max_examples=30, deadline=None)
@given(gaps(), st.sampled_from(ORDERS), st.sampled_from(["posterior", "label"]))
def test_missing_steps_do_not_change_the_weight_of_a_record(known, order, form):
    """Records that the adversary knows equally little of count equally, whatever the order."""
    records, steps = known.shape
    secret = torch.where(known, 0, MISSING)[None]
    uniform = torch.zeros(1, records, steps, 2, dtype=torch.float64)
    entropy = ConditionalEntropy([order], form, "joint")
    assert float(entropy(uniform, secret)[0]) == pytest.approx(steps * math.log(2))
    if order > 0:
        hint = uniform + torch.tensor([0.1, 0.0])
        hint.requires_grad_(True)
        (gradient,) = torch.autograd.grad(entropy(hint, secret).sum(), hint)
        weights = gradient[0, ..., 0].sum(1)
        torch.testing.assert_close(weights, weights[:1].expand(records))
        assert float(weights[0].abs()) > 0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("combination", ["joint", "sum"])
@pytest.mark.parametrize("form", ["posterior", "label"])
def test_records_without_a_known_secret_are_not_counted(order, combination, form):
    random = torch.Generator().manual_seed(7)
    logits = torch.randn(1, 6, 5, 2, generator=random)
    secret = torch.randint(0, 2, (1, 6, 5), generator=random)
    entropy = ConditionalEntropy([order], form, combination)
    secret[:, 4:] = MISSING
    torch.testing.assert_close(entropy(logits, secret), entropy(logits[:, :4], secret[:, :4]))
    secret[:] = MISSING
    assert float(entropy(logits, secret)[0]) == 0


def test_a_member_with_nan_changes_no_other_member():
    logits = torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(5))
    secret = torch.zeros(3, 8, dtype=torch.int64)
    entropy = ConditionalEntropy([2.0, 2.0, 0.5], "label")
    before = entropy(logits, secret)
    logits[1] = math.nan
    after = entropy(logits, secret)
    assert math.isnan(float(after[1]))
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]])
