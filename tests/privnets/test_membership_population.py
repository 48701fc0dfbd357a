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
from privnets.membership.estimates import ControlVariate, Mean, influence_covariates
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

    It shares nothing with the package. All records join the same training sets, each by the
    Sherman-Morrison formula in place of the last member; sets that contain the record already are
    left out. What joining changes in the moments is added to the moments of many more sets, since
    these are (1 - n/N) p0 + (n/N) p1. A jackknife over batches removes the bias and gives the
    error of the draws.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int, seed: int = 0) -> None:
        self.x, self.y, self.size = x, y, size
        self.random = np.random.default_rng([seed, size])
        self.centre = np.linalg.lstsq(x, y, rcond=None)[0]
        self.upper = np.triu_indices(x.shape[1])

    def mean(self, records: np.ndarray, *, joined: int, reference: int) -> Simulated:
        """Mean over records that join `joined` sets, with moments from `reference` sets."""
        whole = np.array([self._reference(reference // BATCHES) for _ in range(BATCHES)])
        change = np.array([self._changes(records, joined // BATCHES) for _ in range(BATCHES)])
        every = self._divergences(whole.mean(0), change.mean(0))
        without = [
            self._divergences(np.delete(whole, b, 0).mean(0), np.delete(change, b, 0).mean(0))
            for b in range(BATCHES)
        ]
        values = BATCHES * every - (BATCHES - 1) * np.mean(without, axis=0)
        by_draws = (BATCHES - 1) * np.var([w.mean() for w in without])
        unseen = 1 - len(records) / len(self.x)
        by_records = unseen * values.var(ddof=1) / len(records)
        return Simulated(values.mean(), math.sqrt(by_draws + by_records))

    def _sets(self, count: int) -> Iterator[np.ndarray]:
        """Uniform sets, shape [sets, n] at a time; sets of one permutation are disjoint."""
        most = len(self.x) // self.size
        while count > 0:
            chosen = self.random.permutation(len(self.x))[: min(count, most) * self.size]
            yield chosen.reshape(-1, self.size)
            count -= most

    def _moments(self, parameters: np.ndarray) -> np.ndarray:
        """First and second moments about the centre, along the first axis of [sets, p, ...]."""
        moved = parameters - self.centre.reshape(-1, *[1] * (parameters.ndim - 2))
        i, j = self.upper
        return np.concatenate([moved, moved[:, i] * moved[:, j]], axis=1)

    def _reference(self, count: int) -> np.ndarray:
        total = sum(self._moments(_fit(self.x[s], self.y[s])).sum(0) for s in self._sets(count))
        return np.asarray(total) / count

    def _changes(self, records: np.ndarray, count: int) -> np.ndarray:
        """Moments with a record less those without it, shape [records, moments]."""
        sums, counts = 0.0, np.zeros(len(records))
        for sets in self._sets(count):
            absent = np.ones((len(sets), len(self.x)), dtype=bool)
            np.put_along_axis(absent, sets, False, axis=1)
            absent = absent[:, records]
            sums += np.concatenate(
                [self._change(sets, part, absent[:, start : start + len(part)])
                 for start, part in _parts(records, 2**18 // len(sets) + 1)]
            )  # fmt: skip
            counts += absent.sum(0)
        return np.asarray(sums) / counts[:, None]

    def _change(self, sets: np.ndarray, records: np.ndarray, absent: np.ndarray) -> np.ndarray:
        others = sets[:, :-1]
        x, y = self.x[others], self.y[others]
        inverse = np.linalg.inv(np.einsum("snp,snq->spq", x, x))
        base = np.einsum("spq,snq,sn->sp", inverse, x, y, optimize=True)
        joining = self.x[records].T
        gain = inverse @ joining
        error = self.y[records] - base @ joining
        step = error / (1 + (joining * gain).sum(1))
        moments = self._moments(base[:, :, None] + gain * step[:, None])
        before = self._moments(_fit(self.x[sets], self.y[sets]))
        weight = absent.astype(float)
        return np.einsum("smr,sr->rm", moments, weight) - weight.T @ before

    def _divergences(self, whole: np.ndarray, change: np.ndarray) -> np.ndarray:
        outside = whole - self.size / len(self.x) * change
        (mean0, cov0), (mean1, cov1) = map(self._gaussian, (outside, outside + change))
        apart = mean1 - mean0
        inverses = np.linalg.inv(cov0), np.linalg.inv(cov1)
        traces = np.einsum("rij,rji->r", inverses[0], cov1)
        traces += np.einsum("rij,rji->r", inverses[1], cov0)
        distance = np.einsum("ri,rij,rj->r", apart, sum(inverses), apart)
        return (traces - 2 * apart.shape[1] + distance) / 2

    def _gaussian(self, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = len(self.centre)
        mean = moments[:, :p]
        second = np.empty((len(moments), p, p))
        i, j = self.upper
        second[:, i, j] = second[:, j, i] = moments[:, p:]
        return mean, second - mean[:, :, None] * mean[:, None, :]


def _fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    gram, moment = np.einsum("snp,snq->spq", x, x), np.einsum("snp,sn->sp", x, y)
    return np.linalg.solve(gram, moment[..., None])[..., 0]


def _parts(values: np.ndarray, length: int) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(values), length):
        yield start, values[start : start + length]


def measure(seeds: int, **fields) -> tuple[float, float, int]:
    """Mean of rho_KL over seeds, its standard error, and the degrees of freedom."""
    configs = [MEMBERSHIP.Config(model="linear", seed=s, **fields) for s in range(seeds)]
    values = [p.metrics[RHO_KL] for p in MEMBERSHIP.run(configs)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(seeds)), seeds - 1


def test_the_simulation_of_a_mean_gives_its_closed_form():
    """With one constant feature theta is a mean: J = (1 + (2n - 1) z^2) / (2n(n - 1)) at z.

    Exact for any law and finite N up to terms of order 1/N: compared with N = 5,000.
    """
    y = np.random.default_rng(0).standard_normal(5000)
    y = (y - y.mean()) / y.std()
    n = 8
    found = Simulation(np.ones((5000, 1)), y, n).mean(
        np.arange(5000), joined=2000, reference=200_000
    )
    assert found.mean == pytest.approx(1 / (n - 1), rel=0.01)


def test_rho_kl_of_asked_records_is_that_of_all_records():
    """All 442 records of diabetes, against eight seeds of 100 records each."""
    prepared = data.prepare("diabetes", 4)
    truth = Simulation(prepared.x, prepared.y, 25).mean(
        np.arange(442), joined=20_000, reference=400_000
    )
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
    ("size", "tolerance", "reference"),
    [(10, 0.03, 8_000_000), (30, 0.015, 2_000_000), (100, 0.015, 600_000), (1000, 0.015, 200_000)],
)
def test_rho_kl_of_16_times_400_records_of_adult_is_that_of_40_000(size, tolerance, reference):
    prepared = data.prepare("adult", 5)
    asked = np.random.default_rng(0).permutation(len(prepared.x))[:40_000]
    truth = Simulation(prepared.x, prepared.y, size).mean(asked, joined=10_000, reference=reference)
    found, error, freedom = measure(
        16, dataset="adult", features=5, train_size=size, records=400, draws=400
    )
    print(
        f"n = {size}: {found:.6f} +- {error:.6f}, simulated {truth.mean:.6f} +- {truth.error:.6f}"
    )
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
    found = influence_covariates(torch.from_numpy(x), torch.from_numpy(y), size, decay, noise)
    np.testing.assert_allclose(found.numpy(), np.stack(expected, axis=1), rtol=1e-6)


def test_a_value_that_the_covariates_explain_has_its_exact_mean():
    covariates = torch.from_numpy(np.random.default_rng(2).exponential(size=(1000, 4)))
    covariates[:, 0] = 1
    values = covariates @ torch.tensor([1.0, -2.0, 3.0, 0.5]).double()
    asked = torch.arange(50)
    found = ControlVariate.of(covariates, asked).mean(values[asked])
    assert found.value == pytest.approx(float(values.mean()))
    assert found.error < 1e-9
    assert Mean.over(values[asked]).error > 0.1


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
    assert mean == Mean.over(values)


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
    def asked(**fields) -> set[int]:
        config = MEMBERSHIP.Config(
            dataset="diabetes", model="linear", features=4, records=50, **fields
        )
        return set(attacked_records(config, 442).tolist())

    first, second = asked(train_size=20), asked(train_size=30)
    assert first != second
    assert len(first & second) < 20
    assert asked(train_size=20, seed=1) != first
    paired = [asked(train_size=size, paired=True) for size in (20, 30)]
    assert paired[0] == paired[1] != asked(train_size=20, paired=True, seed=1)
