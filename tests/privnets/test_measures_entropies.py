"""Entropies and mutual informations: theorems, closed forms and a slow exact definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privnets import measures

Table = NDArray[np.float64]
SEVENTY_DIGITS = Context(prec=70, Emax=MAX_EMAX, Emin=MIN_EMIN)
EDGES = [0.0, 1e-12, 0.74, 0.76, 1 - 1e-9, 1 - 1.2e-16, 1.0, 1 + 2.3e-16, 1 + 1e-9, 1.24, 1.26]
ORDERS = [*EDGES, 2.0, 50.0, 1e5, math.inf]

briefly = settings(deadline=None, max_examples=30)

orders = st.one_of(st.sampled_from(ORDERS), st.floats(1e-3, 20))
# Zeros, ones and everything down to 1e-18, so that tables are sparse and badly scaled.
masses = st.one_of(
    st.just(0.0),
    st.builds(lambda n, scale: n * 10.0**-scale, st.integers(1, 9), st.integers(0, 18)),
    st.floats(0.1, 1.0),
)


@st.composite
def tables(draw: st.DrawFn, positive_rows: bool = False) -> Table:
    """Joint distributions of up to four secrets and four outputs."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = rows * columns
    table = np.array(draw(st.lists(masses, min_size=size, max_size=size))).reshape(rows, columns)
    assume((table.sum(1).min() if positive_rows else table.sum()) > 0)
    return table / table.sum()


def exact_renyi(masses: Sequence[Decimal], alpha: Decimal) -> Decimal:
    present = [p for p in masses if p > 0]
    if alpha == 0:
        return Decimal(len(present)).ln()
    if alpha == 1:
        return -sum((p * p.ln() for p in present), Decimal(0))
    if alpha.is_infinite():
        return -max(present).ln()
    return sum((p**alpha for p in present), Decimal(0)).ln() / (1 - alpha)


def exact_conditional(joint: list[list[Decimal]], alpha: Decimal) -> Decimal:
    """By definition: the posterior's norms, averaged over outputs."""
    columns = [column for column in zip(*joint, strict=True) if sum(column) > 0]
    seen = [sum(column, Decimal(0)) for column in columns]
    posteriors = [[p / z for p in column] for column, z in zip(columns, seen, strict=True)]
    if alpha == 0:
        return max(exact_renyi(posterior, alpha) for posterior in posteriors)
    if alpha == 1:
        parts = (z * exact_renyi(p, alpha) for z, p in zip(seen, posteriors, strict=True))
        return sum(parts, Decimal(0))
    if alpha.is_infinite():
        return -sum((z * max(p) for z, p in zip(seen, posteriors, strict=True)), Decimal(0)).ln()
    norms = (sum((p**alpha for p in ps if p > 0), Decimal(0)) ** (1 / alpha) for ps in posteriors)
    mean = sum((z * norm for z, norm in zip(seen, norms, strict=True)), Decimal(0))
    return alpha / (1 - alpha) * mean.ln()


def exact_sibson(joint: list[list[Decimal]], alpha: Decimal) -> Decimal:
    """By definition, from the prior and the channel."""
    rows = [row for row in joint if sum(row) > 0]
    prior = [sum(row, Decimal(0)) for row in rows]
    channel = [[p / s for p in row] for row, s in zip(rows, prior, strict=True)]
    seen = [column for column in zip(*channel, strict=True) if sum(column) > 0]
    if alpha == 0:
        allowed = [
            sum((s for s, c in zip(prior, column, strict=True) if c > 0), Decimal(0))
            for column in seen
        ]
        return -max(allowed).ln()
    if alpha.is_infinite():
        return sum((max(column) for column in seen), Decimal(0)).ln()
    if alpha == 1:
        marginal = [
            sum((s * c for s, c in zip(prior, column, strict=True)), Decimal(0)) for column in seen
        ]
        return sum(
            (
                s * c * (c / z).ln()
                for z, column in zip(marginal, seen, strict=True)
                for s, c in zip(prior, column, strict=True)
                if c > 0
            ),
            Decimal(0),
        )
    norms = (
        sum((s * c**alpha for s, c in zip(prior, column, strict=True) if c > 0), Decimal(0))
        ** (1 / alpha)
        for column in seen
    )
    return alpha / (alpha - 1) * sum(norms, Decimal(0)).ln()


def exactly(table: Table) -> list[list[Decimal]]:
    """The very floats, normalised without rounding to float."""
    rows = [[Decimal(float(value)) for value in row] for row in table]
    total = sum(map(sum, rows))
    return [[value / total for value in row] for row in rows]


@briefly
@given(tables(), orders)
def test_renyi_entropy_is_its_definition(joint: Table, alpha: float) -> None:
    with localcontext(SEVENTY_DIGITS):
        p = [value for row in exactly(joint) for value in row]
        expected = float(exact_renyi(p, Decimal(alpha)))
    assert measures.renyi_entropy(joint.ravel(), alpha) == pytest.approx(expected, abs=3e-14)


@briefly
@given(tables(), orders)
def test_arimoto_conditional_entropy_is_its_definition(joint: Table, alpha: float) -> None:
    with localcontext(SEVENTY_DIGITS):
        expected = float(exact_conditional(exactly(joint), Decimal(alpha)))
    found = measures.arimoto_conditional_entropy(joint, alpha)
    assert found == pytest.approx(expected, abs=3e-14)


@briefly
@given(tables(), orders)
def test_sibson_information_is_its_definition(joint: Table, alpha: float) -> None:
    with localcontext(SEVENTY_DIGITS):
        expected = float(exact_sibson(exactly(joint), Decimal(alpha)))
    found = measures.sibson_mutual_information(joint, alpha)
    assert found == pytest.approx(expected, abs=3e-13)


@briefly
@given(tables(), orders)
def test_arimoto_information_lies_between_0_and_the_entropy(joint: Table, alpha: float) -> None:
    information = measures.arimoto_mutual_information(joint, alpha)
    entropy = measures.renyi_entropy(joint.sum(1), alpha)
    assert 0 <= information <= entropy + 1e-14
    assert entropy <= math.log(len(joint)) + 1e-14


@briefly
@given(tables(), st.floats(0.05, 6))
def test_arimoto_information_is_sibsons_at_the_tilted_prior(joint: Table, alpha: float) -> None:
    prior = joint.sum(1, keepdims=True)
    channel = np.divide(joint, prior, out=np.full_like(joint, 1 / joint.shape[1]), where=prior > 0)
    tilted = prior**alpha
    other = tilted / tilted.sum() * channel
    arimoto = measures.arimoto_mutual_information(joint, alpha)
    assert arimoto == pytest.approx(measures.sibson_mutual_information(other, alpha), abs=1e-12)


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("flip", [0.0, 1e-9, 0.11, 0.5, 1.0])
def test_information_of_a_flipped_fair_bit(flip: float, alpha: float) -> None:
    joint = np.array([[1 - flip, flip], [flip, 1 - flip]]) / 2
    if alpha == 0:
        hidden = math.log(2) if 0 < flip < 1 else 0.0
    elif alpha == math.inf:
        hidden = -math.log(max(flip, 1 - flip))
    elif abs(alpha - 1) < 1e-8:
        hidden = -sum(p * math.log(p) for p in (flip, 1 - flip) if p)
    else:
        logs = [alpha * math.log(p) for p in (flip, 1 - flip) if p]
        hidden = np.logaddexp.reduce(logs) / (1 - alpha)
    expected = pytest.approx(math.log(2) - hidden, abs=2e-8 if abs(alpha - 1) < 1e-8 else 1e-12)
    assert measures.arimoto_mutual_information(joint, alpha) == expected
    assert measures.sibson_mutual_information(joint, alpha) == expected


@briefly
@given(tables(), orders)
def test_information_of_the_secret_itself_and_of_noise(joint: Table, alpha: float) -> None:
    p = joint.sum(1)
    entropy = measures.renyi_entropy(p, alpha)
    seen = measures.arimoto_mutual_information(np.diag(p), alpha)
    assert seen == pytest.approx(entropy, abs=1e-14)
    noise = np.outer(p, joint.sum(0))
    assert measures.arimoto_mutual_information(noise, alpha) == pytest.approx(0, abs=1e-13)
    assert measures.sibson_mutual_information(noise, alpha) == pytest.approx(0, abs=1e-13)
    assert measures.mutual_information(noise) < 1e-25


@briefly
@given(tables())
def test_mutual_information_is_order_1(joint: Table) -> None:
    shannon = measures.mutual_information(joint)
    assert shannon == pytest.approx(measures.arimoto_mutual_information(joint, 1), abs=1e-14)


@briefly
@given(st.data(), st.integers(1, 6))
def test_kl_divergence_is_its_definition(data: st.DataObject, size: int) -> None:
    pair = st.lists(masses, min_size=size, max_size=size).filter(any)
    p, q = (np.array(data.draw(pair)) for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    if (q[p > 0] == 0).any():
        assert measures.kl_divergence(p, q) == math.inf
        return
    with localcontext(SEVENTY_DIGITS):
        exact_p, exact_q = exactly(p[None])[0], exactly(q[None])[0]
        terms = (a * (a / b).ln() for a, b in zip(exact_p, exact_q, strict=True) if a > 0)
        expected = float(sum(terms, Decimal(0)))
    assert measures.kl_divergence(p, q) == pytest.approx(expected, rel=1e-13, abs=1e-30)


def test_kl_divergence_of_near_distributions_is_accurate() -> None:
    """D(p || q) is about half the chi-squared distance, here 2e-18."""
    p, q = np.array([0.5, 0.5]), np.array([0.5 + 1e-9, 0.5 - 1e-9])
    distance = 0.5 * (((p - q) ** 2) / q).sum()
    assert measures.kl_divergence(p, q) == pytest.approx(distance, rel=1e-6)


@pytest.mark.parametrize("alpha", ORDERS)
def test_a_batch_equals_its_tables(alpha: float) -> None:
    joints = np.random.default_rng(3).dirichlet(np.full(12, 0.3), size=(2, 5)).reshape(2, 5, 3, 4)
    for measure in (
        measures.arimoto_conditional_entropy,
        measures.arimoto_mutual_information,
        measures.sibson_mutual_information,
    ):
        batch = measure(joints, alpha)
        alone = [[measure(table, alpha) for table in row] for row in joints]
        np.testing.assert_allclose(batch, alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.3, 0.9, 1.0, 1.1, 3.0, math.inf])
def test_gradients_are_those_of_finite_differences(alpha: float) -> None:
    logits = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    logits.requires_grad_()

    def informations(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joint = values.flatten(1).softmax(1).view_as(values)
        return (
            measures.arimoto_mutual_information(joint, alpha),
            measures.sibson_mutual_information(joint, alpha),
            measures.mutual_information(joint),
        )

    assert torch.autograd.gradcheck(informations, logits)


@pytest.mark.parametrize("alpha", ORDERS)
def test_gradients_stay_finite_at_zero_probabilities(alpha: float) -> None:
    joint = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]], dtype=torch.float64)
    joint.requires_grad_()
    total = measures.arimoto_mutual_information(joint, alpha)
    total = total + measures.sibson_mutual_information(joint, alpha)
    (total + measures.mutual_information(joint)).backward()
    assert joint.grad is not None
    assert joint.grad.isfinite().all()
