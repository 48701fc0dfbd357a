"""Accountants of DP-SGD against published figures, limits with closed forms, and refusals."""

from __future__ import annotations

import math

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from privnets import measures
from privnets.differential_privacy.accounting import (
    PrivateTraining,
    advantage_bound,
    composed_epsilon,
    epsilon_spent,
    noise_multiplier_for,
    selected_epsilon,
)


def test_textbook_case_has_the_published_epsilon():
    """sigma 1.5, q 0.04, 2,250 steps, delta 1e-5; Opacus 1.6 gives 7.33 (RDP) and 6.77 (PRV)."""
    case = 1.5, 0.04, 2250, 1e-5
    assert epsilon_spent(*case, accountant="rdp") == pytest.approx(7.33, abs=0.01)
    assert 6.765 <= epsilon_spent(*case) <= 6.78


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (8.0, 30), (0.7, 4)])
def test_full_batches_are_one_gaussian_release(neighbours, noise, steps):
    """Without sampling, k steps of noise s are one release of noise s / sqrt(k)."""
    shift = 2.0 if neighbours == "replace_one" else 1.0
    found = epsilon_spent(noise, 1.0, steps, 1e-5, neighbours)
    exact = measures.gaussian_mechanism_delta(found, noise / math.sqrt(steps), shift)
    assert exact == pytest.approx(1e-5, rel=0.02)


def test_advantage_of_full_batches_is_that_of_two_gaussians():
    expected = 2 * norm.cdf(math.sqrt(4) / 3.0) - 1
    assert advantage_bound(3.0, 1.0, 4) == pytest.approx(expected, abs=1e-4)


def test_advantage_is_at_most_what_epsilon_and_delta_imply():
    noise, rate, steps = 1.0, 0.05, 200
    epsilon = epsilon_spent(noise, rate, steps, 1e-5, "replace_one")
    bound = measures.privacy_advantage_bound(epsilon, 1e-5)
    assert 0 < advantage_bound(noise, rate, steps) < bound


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(3.0, 0.04, 2250), (0.05, 0.05, 300), (50.0, 0.05, 500)]
)
def test_calibrated_noise_meets_epsilon_with_little_excess(neighbours, epsilon, rate, steps):
    noise = noise_multiplier_for(epsilon, 1e-5, rate, steps, neighbours)
    spent = epsilon_spent(noise, rate, steps, 1e-5, neighbours)
    assert 0.995 * epsilon < spent <= epsilon


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1.0}, "delta must be between 0 and 1; got 1.0"),
        ({"delta": 0.0}, "delta must be between 0 and 1; got 0.0"),
        ({"sample_rate": 1.5}, "sample_rate must be above 0 and at most 1; got 1.5"),
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"sampling": "shuffled"}, "sampling must be poisson.*got 'shuffled'"),
        ({"neighbours": "group"}, "neighbours must be replace_one or add_or_remove_one"),
    ],
)
def test_accountants_refuse_what_they_do_not_hold_for(change, message):
    good = {"sample_rate": 0.1, "steps": 10, "delta": 1e-5}
    with pytest.raises(ValueError, match=message):
        epsilon_spent(**{"noise_multiplier": 1.0, **good, **change})
    with pytest.raises(ValueError, match=message):
        noise_multiplier_for(**{"epsilon": 1.0, **good, **change})


def test_accountants_refuse_no_noise_and_unknown_names():
    with pytest.raises(ValueError, match="noise_multiplier must be above 0; got 0"):
        epsilon_spent(0, 0.1, 10, 1e-5)
    with pytest.raises(ValueError, match="epsilon must be above 0; got 0"):
        noise_multiplier_for(0, 1e-5, 0.1, 10)
    with pytest.raises(ValueError, match="accountant must be pld or rdp; got 'moments'"):
        epsilon_spent(1.0, 0.1, 10, 1e-5, accountant="moments")
    with pytest.raises(ValueError, match="neighbours must be add_or_remove_one with rdp"):
        epsilon_spent(1.0, 0.1, 10, 1e-5, "replace_one", accountant="rdp")


def test_composition_over_trainings_is_that_of_the_library() -> None:
    """Three trainings of one kind, two of another and a release without sampling."""
    kinds = {
        PrivateTraining(1.2, 0.1, 50): 3,
        PrivateTraining(2.0, 0.05, 100): 2,
        PrivateTraining(3.0): 1,
    }
    events = [
        SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(1.2)), 150),
        SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(2.0)), 200),
        GaussianDpEvent(3.0),
    ]
    for neighbours in ("add_or_remove_one", "replace_one"):
        relation = NeighboringRelation[neighbours.upper()]
        library = PLDAccountant(relation, value_discretization_interval=1e-4)
        library.compose(ComposedDpEvent(events))
        found = composed_epsilon(kinds, 1e-5, neighbours)
        assert found == pytest.approx(library.get_epsilon(1e-5), rel=2e-3)
        one = composed_epsilon({PrivateTraining(1.2, 0.1, 50): 1}, 1e-5, neighbours)
        assert one == pytest.approx(epsilon_spent(1.2, 0.1, 50, 1e-5, neighbours))
        assert one < found


@pytest.mark.parametrize("shape", [math.inf, 1.0, 0.0, 2.5])
def test_repeat_and_select_is_that_of_the_library(shape: float) -> None:
    training = SelfComposedDpEvent(PoissonSampledDpEvent(0.07, GaussianDpEvent(1.5)), 240)
    library = RdpAccountant().compose(RepeatAndSelectDpEvent(training, 24.0, shape))
    kinds = [PrivateTraining(1.5, 0.07, 240), PrivateTraining(4.0, 0.05, 100)]
    arguments = 24.0, shape, 1e-5
    found = selected_epsilon(kinds, *arguments, "add_or_remove_one")
    assert found == pytest.approx(library.get_epsilon(1e-5), rel=1e-12)
    once = epsilon_spent(1.5, 0.07, 240, 1e-5)
    assert once < found < composed_epsilon({kinds[0]: 24}, 1e-5, "add_or_remove_one")
    with pytest.raises(ValueError, match="neighbours must be add_or_remove_one with batches"):
        selected_epsilon(kinds, *arguments, "replace_one")


def test_repeat_and_select_of_replaced_records_has_twice_their_change() -> None:
    """The library's Gaussian event has no neighbours with Renyi divergences: its shift counts."""
    replaced = selected_epsilon([PrivateTraining(6.0)], 10.0, 1.0, 1e-5, "replace_one")
    added = selected_epsilon([PrivateTraining(3.0)], 10.0, 1.0, 1e-5, "add_or_remove_one")
    assert replaced == pytest.approx(added)
