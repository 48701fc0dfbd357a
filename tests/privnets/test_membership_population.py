"""rho_KL of a few attacked records against a simulation over the whole population."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet
import pytest
import torch
from scipy.stats import t as student

import privnets
from privnets import data
from privnets.membership.estimates import ControlVariate, influence_covariates, mean_over
from privnets.membership.observations import attacked_records
from tests.support import requires_data

MEMBERSHIP = privnets.experiment("membership")
RHO_KL = "privacy/rho_kl"
BATCHES = 10


@dataclass(frozen=True)
class Simulated:
    """Mean divergence over all records, with its standard error."""

    mean: float
    error: float


class Simulation:
    """Divergence of least-squares parameters with and without a record, in plain numpy.

    It shares nothing with the package. Many records join the same training sets, each by the
    Sherman-Morrison formula in place of the last member; sets that contain the record already are
    left out. A jackknife over batches removes the bias and gives the error of the draws.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int, seed: int = 0) -> None:
        self.x, self.y, self.size = x, y, size
        self.random = np.random.default_rng([seed, size])
        self.centre = np.linalg.lstsq(x, y, rcond=None)[0]
        self.upper = np.triu_indices(x.shape[1])

    def mean(self, sets: int, at_once: int = 1000) -> Simulated:
        """Mean over all records; those that are computed at once join the same sets."""
        parts = np.array_split(self.random.permutation(len(self.x)), -(-len(self.x) // at_once))
        sums, errors = zip(*(self._divergences(part, sets) for part in parts), strict=True)
        return Simulated(sum(sums) / len(self.x), math.hypot(*errors) / len(self.x))

    def _divergences(self, records: np.ndarray, sets: int) -> tuple[float, float]:
        """Sum of the records' divergences, and its error by the draws."""
        batches = [self._sums(records, sets // BATCHES) for _ in range(BATCHES)]
        total = sum(batches)
        without = np.array([self._jeffreys(total - batch).sum() for batch in batches])
        value = BATCHES * self._jeffreys(total).sum() - (BATCHES - 1) * without.mean()
        return value, math.sqrt((BATCHES - 1) * without.var())

    def _sets(self, count: int) -> Iterator[np.ndarray]:
        """Uniform sets, shape [sets, n] at a time; sets of one permutation are disjoint."""
        population, at_once = len(self.x), 2**24 // len(self.x)
        each = population // self.size
        orders = np.tile(np.arange(population), (max(1, at_once // each), 1))
        while count > 0:
            shuffled = self.random.permuted(orders, axis=1)[:, : each * self.size]
            sets = shuffled.reshape(-1, self.size)[:count]
            count -= len(sets)
            for start in range(0, len(sets), at_once):
                yield sets[start : start + at_once]

    def _sums(self, records: np.ndarray, count: int) -> np.ndarray:
        """Sums of moments, without and with a record: shape [2, records, 1 + moments]."""
        total: np.ndarray | float = 0.0
        for sets in self._sets(count):
            is_outside = np.ones((len(sets), len(self.x)), dtype=bool)
            np.put_along_axis(is_outside, sets, False, axis=1)
            absent = is_outside[:, records].astype(float)
            _, parameters = self._fit(sets)
            without = absent.T @ self._moments(parameters)
            fitted = self._fit(sets[:, :-1])
            at_once = 2**17 // len(sets) + 1
            with_record = [
                np.einsum(
                    "smr,sr->rm",
                    self._moments(self._join(*fitted, records[start : start + at_once])),
                    absent[:, start : start + at_once],
                )
                for start in range(0, len(records), at_once)
            ]
            total = total + np.stack([without, np.concatenate(with_record)])
        return np.asarray(total)

    def _fit(self, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.x[sets], self.y[sets]
        inverse = np.linalg.inv(x.transpose(0, 2, 1) @ x)
        moment = (x.transpose(0, 2, 1) @ y[..., None])[..., 0]
        return inverse, np.einsum("spq,sq->sp", inverse, moment)

    def _join(self, inverse: np.ndarray, base: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Parameters of each set with each record: shape [sets, p, records]."""
        joining = self.x[records].T
        gain = inverse @ joining
        step = (self.y[records] - base @ joining) / (1 + (joining * gain).sum(1))
        return base[:, :, None] + gain * step[:, None]

    def _moments(self, parameters: np.ndarray) -> np.ndarray:
        """One, and first and second moments about the centre, in place of axis 1."""
        moved = parameters - self.centre.reshape(-1, *[1] * (parameters.ndim - 2))
        i, j = self.upper
        return np.concatenate([np.ones_like(moved[:, :1]), moved, moved[:, i] * moved[:, j]], 1)

    def _jeffreys(self, sums: np.ndarray) -> np.ndarray:
        p = len(self.centre)
        moments = sums[..., 1:] / sums[..., :1]
        mean, second = moments[..., :p], np.empty((*moments.shape[:2], p, p))
        i, j = self.upper
        second[..., i, j] = second[..., j, i] = moments[..., p:]
        covariance = second - mean[..., :, None] * mean[..., None, :]
        inverse = np.linalg.inv(covariance)
        apart = mean[1] - mean[0]
        traces = (inverse * covariance[::-1]).sum((0, 2, 3))
        distance = np.einsum("ri,rij,rj->r", apart, inverse.sum(0), apart)
        return (traces - 2 * p + distance) / 2


def measure(seeds: int, **fields) -> tuple[float, float, int]:
    """Mean of rho_KL over seeds, its standard error, and the degrees of freedom."""
    configs = [MEMBERSHIP.Config(model="linear", seed=s, **fields) for s in range(seeds)]
    values = [p.metrics[RHO_KL] for p in MEMBERSHIP.run(configs)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(seeds)), seeds - 1


def test_the_simulation_of_a_mean_gives_its_closed_form():
    """With one constant feature theta is a mean: J = (1 + (2n - 1) z^2) / (2n(n - 1)) at z.

    Exact for any law and finite N up to terms of order 1/N, here 0.1%.
    """
    y = np.random.default_rng(0).standard_normal(1000)
    y = (y - y.mean()) / y.std()
    n = 8
    found = Simulation(np.ones((1000, 1)), y, n).mean(8000, at_once=100)
    assert found.error < 0.012 / (n - 1)
    assert abs(found.mean - 1 / (n - 1)) < 3.5 * found.error


def test_rho_kl_of_asked_records_is_that_of_all_records():
    """All 442 records of diabetes, against eight seeds of 100 records each."""
    prepared = data.prepare("diabetes", 4)
    truth = Simulation(prepared.x, prepared.y, 25).mean(20_000)
    found, error, freedom = measure(
        8, dataset="diabetes", features=4, train_size=25, records=100, draws=400
    )
    assert truth.error < 0.004 * truth.mean
    limit = student.ppf(0.9995, freedom) * math.hypot(error, truth.error)
    assert abs(found - truth.mean) < limit
    assert limit < 0.05 * truth.mean


@pytest.mark.slow
@requires_data("adult")
@pytest.mark.parametrize(
    ("size", "tolerance"), [(10, 0.03), (30, 0.015), (100, 0.015), (1000, 0.015)]
)
def test_rho_kl_of_16_times_400_records_of_adult_is_that_of_all_records(size, tolerance):
    prepared = data.prepare("adult", 5)
    truth = Simulation(prepared.x, prepared.y, size).mean(1000)
    found, error, freedom = measure(
        16, dataset="adult", features=5, train_size=size, records=400, draws=400
    )
    print(f"{size}: {found:.5g} ± {error:.2g}, simulated {truth.mean:.5g} ± {truth.error:.2g}")
    assert found == pytest.approx(truth.mean, rel=tolerance)
    assert abs(found - truth.mean) < student.ppf(0.995, freedom) * math.hypot(error, truth.error)


def test_covariates_are_leverages_and_distances_of_influences():
    """Influences by finite differences of the weight of a record in a ridge regression."""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((40, 3)), random.standard_normal(40)
    size, decay, noise = 12, 0.2, 0.3

    def fit(record: int, share: float) -> np.ndarray:
        weight = np.full(40, (1 - share) / 40)
        weight[record] += share
        gram = (x * weight[:, None]).T @ x + decay * np.eye(3)
        return np.linalg.solve(gram, (x * weight[:, None]).T @ y)

    step = 1e-5
    influence = np.array([(fit(i, step) - fit(i, -step)) / (2 * step) for i in range(40)])
    spread = np.cov(influence.T, bias=True) + size * noise**2 * np.eye(3)
    g = np.einsum("ni,ij,nj->n", influence, np.linalg.inv(spread), influence)
    inverse = np.linalg.inv(x.T @ x / 40 + decay * np.eye(3))
    leverage = np.einsum("ni,ij,nj->n", x, inverse, x)
    expected = [np.ones(40), g, leverage, leverage**2, g * leverage, np.minimum(g, 20) ** 2,
                np.log1p(leverage), np.log1p(g), np.sqrt(g), np.sqrt(leverage)]  # fmt: skip
    found = influence_covariates(
        torch.from_numpy(x),
        torch.from_numpy(y),
        size,
        decay * torch.eye(x.shape[1]).double(),
        noise,
    )
    np.testing.assert_allclose(found.numpy(), np.stack(expected, axis=1), rtol=1e-6)


def test_a_value_that_the_covariates_explain_has_its_exact_mean():
    covariates = torch.from_numpy(np.random.default_rng(2).exponential(size=(1000, 4)))
    covariates[:, 0] = 1
    values = covariates @ torch.tensor([1.0, -2.0, 3.0, 0.5]).double()
    asked = torch.arange(50)
    found = ControlVariate.of(covariates, asked).mean(values[asked])
    assert found.value == pytest.approx(float(values.mean()))
    assert found.error < 1e-9
    assert mean_over(values[asked]).error > 0.1


def test_an_unexplained_value_has_the_plain_mean_and_an_error_that_covers_it():
    random = np.random.default_rng(3)
    found = []
    for _ in range(300):
        covariates = torch.from_numpy(random.standard_normal((2000, 3)))
        covariates[:, 0] = 1
        values = torch.from_numpy(random.standard_normal(100))
        found.append(ControlVariate.of(covariates, torch.arange(100)).mean(values))
    spread = np.std([mean.value for mean in found])
    assert np.mean([mean.error for mean in found]) == pytest.approx(spread, rel=0.12)


def test_few_records_have_the_plain_mean():
    covariates = torch.ones(50, 10).double()
    values = torch.arange(20).double()
    mean = ControlVariate.of(covariates, torch.arange(20)).mean(values)
    assert mean == mean_over(values)


def test_the_choice_of_records_adds_little_to_the_error_of_rho_kl():
    """Diabetes: the residuals of the regression are at most a third of the spread of records."""
    config = MEMBERSHIP.Config(
        dataset="diabetes", model="linear", features=4, train_size=100, records=200, draws=400
    )
    replicate = MEMBERSHIP.run([config])[0].replicates[0]
    file = io.BytesIO(replicate.artifacts["records.parquet"])
    by_record = pyarrow.parquet.read_table(file)["rho_kl"].to_numpy()
    assert replicate.standard_errors[RHO_KL] < by_record.std() / math.sqrt(200) / 3


def test_points_ask_other_records_unless_they_are_paired():
    def asked_records(**fields) -> set[int]:
        config = MEMBERSHIP.Config(
            dataset="diabetes", model="linear", features=4, records=50, **fields
        )
        return set(attacked_records(config, 442).tolist())

    first, second = asked_records(train_size=20), asked_records(train_size=30)
    assert first != second
    assert len(first & second) < 20
    assert asked_records(train_size=20, seed=1) != first
    paired = [asked_records(train_size=size, paired=True) for size in (20, 30)]
    assert paired[0] == paired[1] != asked_records(train_size=20, paired=True, seed=1)
