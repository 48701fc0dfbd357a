"""Accountants of DP-SGD with Poisson-sampled batches, from Google's dp-accounting.

In each step, every record is in the batch independently with probability `sample_rate`. Shuffled
batches and batches of fixed size have other guarantees, which no function here computes.

Neighbouring data sets differ in one record. It is replaced by any other (`replace_one`), or it is
added or removed (`add_or_remove_one`). The latter is the convention of most papers on DP-SGD and
of Opacus. For equal noise, its epsilon is about half of the other.

Importing this module loads neither torch nor dp-accounting: commands that only read need none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from privnets.differential_privacy.sampling import probability_of_use

if TYPE_CHECKING:
    from dp_accounting import SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

Neighbours = Literal["replace_one", "add_or_remove_one"]
AccountantName = Literal["pld", "rdp"]

# Privacy losses are rounded up to multiples of this share of a rough estimate of epsilon.
_INTERVAL, _MAX_INTERVAL = 2e-4, 0.1
# Relative excess of a calibrated noise multiplier over the smallest one.
_TOLERANCE = 1e-3
_STEP = 1.2


@dataclass(frozen=True)
class PrivateTraining:
    """Noise of one private training; a single release without sampling has rate 1 and one step.

    Attributes:
        noise_multiplier: Standard deviation of the noise, in units of the change by one added or
            removed record; of the change by a replaced one it is half as many.
        sample_rate: Probability of a record to be in a batch, in (0, 1].
        steps: Number of batches.
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    steps: int = 1


def epsilon_spent(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    neighbours: Neighbours = "add_or_remove_one",
    accountant: AccountantName = "pld",
    sampling: str = "poisson",
) -> float:
    """Upper bound on the epsilon of DP-SGD at a delta.

    Args:
        noise_multiplier: Standard deviation of the noise on the sum of clipped gradients, in
            units of their norm bound; above 0.
        sample_rate: Probability of a record to be in a batch, in (0, 1].
        steps: Number of batches.
        delta: In (0, 1).
        accountant: `pld` composes privacy loss distributions numerically (Koskela et al., arXiv
            1906.03049). `rdp` composes Rényi divergences (Mironov et al., arXiv 1908.10530); it
            is looser, and knows `add_or_remove_one` only.
        sampling: How batches are drawn; `poisson` is the only sampling that is accounted for.

    Raises:
        ValueError: If an argument is out of range, or batches are not Poisson samples.
    """
    _require_in_range(sample_rate, steps, delta, sampling)
    if not noise_multiplier > 0:
        raise ValueError(f"noise_multiplier must be above 0; got {noise_multiplier}.")
    event = _event(noise_multiplier, sample_rate, steps)
    if accountant == "pld":
        return float(_compose([event], neighbours).get_epsilon(delta))
    if accountant != "rdp":
        names = " or ".join(get_args(AccountantName))
        raise ValueError(f"accountant must be {names}; got {accountant!r}.")
    if neighbours != "add_or_remove_one":
        raise ValueError(f"neighbours must be add_or_remove_one with rdp; got {neighbours!r}.")
    from dp_accounting.rdp import RdpAccountant

    return float(RdpAccountant().compose(event).get_epsilon(delta))


@lru_cache(maxsize=4096)
def noise_multiplier_for(
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    neighbours: Neighbours = "add_or_remove_one",
    sampling: str = "poisson",
) -> float:
    """Noise multiplier with which DP-SGD is (epsilon, delta)-private, by the `pld` accountant.

    It exceeds the smallest such number by about 0.1%. Arguments are those of `epsilon_spent`.

    Raises:
        ValueError: If an argument is out of range, batches are not Poisson samples, or delta is so
            large that no noise is needed.
    """
    _require_in_range(sample_rate, steps, delta, sampling)
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0; got {epsilon}.")
    if delta >= (limit := probability_of_use(sample_rate, steps)):
        raise ValueError(
            f"delta must be below {limit:.4g}, the probability of a record to be in any batch; "
            f"got {delta}. A larger delta needs no noise."
        )
    from privnets.measures.bounds import gaussian_mechanism_sigma

    width = 1 / float(gaussian_mechanism_sigma(epsilon, delta, 1.0))
    shift = width / (2 if neighbours == "replace_one" else 1)
    guess = 1 / math.sqrt(math.log1p((shift / sample_rate) ** 2 / steps))

    def is_private(noise: float) -> bool:
        event = _event(noise, sample_rate, steps)
        return bool(_compose([event], neighbours).get_delta(epsilon) <= delta)

    # Bisects the noise on a logarithmic scale; returns the upper, private end.
    low = high = guess
    while is_private(low):
        low, high = low / _STEP, low
    while not is_private(high):
        low, high = high, high * _STEP
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def advantage_bound(noise_multiplier: float, sample_rate: float, steps: int) -> float:
    """Largest advantage of any attack that decides which of two records DP-SGD used.

    It is the total variation distance between the two laws of all steps: delta at epsilon 0.
    """
    event = _event(noise_multiplier, sample_rate, steps)
    return min(1.0, float(_compose([event], "replace_one").get_delta(0.0)))


def composed_epsilon(
    trainings: Mapping[PrivateTraining, int], delta: float, neighbours: Neighbours
) -> float:
    """Upper bound on the epsilon of several trainings on the same records, all published.

    It composes privacy loss distributions. Settings are fixed in advance. It also covers the
    release of one training that was chosen by the results of all.

    Args:
        trainings: Each kind of training, with the number of its trainings; at least one.
        delta: In (0, 1).
    """
    events = [
        _event(t.noise_multiplier, t.sample_rate, t.steps * count) for t, count in trainings.items()
    ]
    return float(_compose(events, neighbours).get_epsilon(delta))


def selected_epsilon(
    trainings: Collection[PrivateTraining],
    mean: float,
    shape: float,
    delta: float,
    neighbours: Neighbours,
) -> float:
    """Upper bound on the epsilon of the best of a random number of trainings, released alone.

    Papernot and Steinke 2022 (arXiv 2110.03620), by the library's `RepeatAndSelectDpEvent` with
    Rényi divergences. The number is drawn in advance, whatever the data are, and each training
    draws its setting independently of the others. Every training counts as one with the least
    noise, the largest rate and the most steps of all, which is less private than each.

    Args:
        trainings: Kinds of training that a setting may be; at least one.
        mean: Mean number of trainings, at least 1.
        shape: Distribution of the number: infinity for Poisson, 1 for geometric, 0 for logarithmic,
            others for truncated negative binomial.
        delta: In (0, 1).

    Raises:
        ValueError: If records are replaced, and batches are samples: their Rényi divergences are
            not known to the library.
    """
    from dp_accounting.dp_event import RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    noise = min(each.noise_multiplier for each in trainings)
    rate = max(each.sample_rate for each in trainings)
    if neighbours == "replace_one":
        if min(each.sample_rate for each in trainings) < 1:
            raise ValueError("neighbours must be add_or_remove_one with batches; got replace_one.")
        noise /= 2
    event = _event(noise, rate, max(each.steps for each in trainings))
    accountant = RdpAccountant().compose(RepeatAndSelectDpEvent(event, mean, shape))
    return float(accountant.get_epsilon(delta))


def _require_in_range(sample_rate: float, steps: int, delta: float, sampling: str) -> None:
    if sampling != "poisson":
        raise ValueError(
            f"sampling must be poisson, since the accountants do not hold for others; "
            f"got {sampling!r}."
        )
    if not 0 < sample_rate <= 1:
        raise ValueError(f"sample_rate must be above 0 and at most 1; got {sample_rate}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1; got {delta}.")
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps}.")


def _event(noise_multiplier: float, sample_rate: float, steps: int) -> SelfComposedDpEvent:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    step = PoissonSampledDpEvent(sample_rate, GaussianDpEvent(noise_multiplier))
    return SelfComposedDpEvent(step, steps)


def _compose(events: Sequence[SelfComposedDpEvent], neighbours: Neighbours) -> PLDAccountant:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    if neighbours not in (relations := get_args(Neighbours)):
        names = " or ".join(relations)
        raise ValueError(f"neighbours must be {names}; got {neighbours!r}.")
    interval = min(_MAX_INTERVAL, _INTERVAL * _rough_epsilon(events))
    relation = NeighboringRelation[neighbours.upper()]
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return accountant


def _rough_epsilon(events: Sequence[SelfComposedDpEvent]) -> float:
    """Order of magnitude of epsilon by the central limit theorem.

    Many steps are like one Gaussian release with a shift of mu standard deviations (Bu et al.,
    arXiv 1911.11607), whose losses have mean mu^2 / 2 and standard deviation mu.
    """
    squares = 0.0
    for event in events:
        step = event.event
        inverse = float(step.event.noise_multiplier) ** -2
        sampled = float(step.sampling_probability) ** 2 * math.expm1(min(50.0, inverse))
        squares += event.count * min(sampled, inverse)
    return squares / 2 + 5 * math.sqrt(squares)
