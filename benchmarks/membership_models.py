"""Target models of membership inference per second on one core: this platform against loops.

Every contestant draws its training sets and trains, on one thread; time is the processor's. Data
and hyperparameters are the same on all sides.

- Ridge (Adult, 5 components, decay 1e-3), drawing distinct records as the membership estimate
  needs them: this platform inside that estimate; batched torch, and batched numpy as one would
  write it, both with records that may repeat in a set (distinct ones would be their bottleneck),
  float64; scikit-learn's `Ridge` in a loop.
- Logistic (digits, 8 components, 10 classes, decay 1e-2): this platform's stacks of 64, converged
  to a gradient of 1e-7; scikit-learn's `LogisticRegression` in a loop, at its own, wider tolerance.
- Network (Adult, 5 components, 5 x 50 tanh, 500 full-batch Adam steps at rate 0.01, float32): this
  platform's stacks of 32; `torch.nn` and `torch.optim.Adam` in a loop; scikit-learn's
  `MLPRegressor` in a loop.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor

import privnets
from benchmarks.cleanup import run
from benchmarks.harness import alternate, publish
from privnets import data
from privnets.membership.models import linear
from privnets.membership.models.logistic import LogisticTrainer
from privnets.membership.models.mlp import MlpTrainer
from privnets.membership.models.shared import make_batch
from privnets.membership.observations import Universe, attacked_records
from privnets.membership.outputs import TrainingDesign
from privnets.membership.training_sets import distinct_subsets
from privnets.randomness import generator

_ROUNDS = 5
_FEATURES = 5
_RIDGE_DECAY, _LOGISTIC_DECAY = 1e-3, 1e-2
_DRAWS = 400
_STACK = 32
_STEPS, _RATE = 500, 0.01
_HIDDEN = (50,) * 5


@dataclass(frozen=True)
class _Contestant:
    """Work that trains a number of models."""

    models: int
    work: Callable[[], object]


def _universe(dataset: str, features: int) -> Universe:
    prepared = data.prepare(dataset, features)
    classes = max(prepared.classes, 1)
    return Universe(torch.tensor(prepared.x), torch.tensor(prepared.y).double(), classes)


def _subsets(universe: Universe, size: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Training sets for a loop, drawn one by one."""
    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.choice(universe.size, size, replace=False, shuffle=False)


def _ridge(size: int, records: int, universe: Universe) -> dict[str, _Contestant]:
    count, loop = records * _DRAWS, 200
    return {
        "this platform": _Contestant(2 * count, partial(_our_ridge, universe, size, records)),
        "batched torch, repeats allowed": _Contestant(
            2 * count, partial(_torch_ridge, universe, size, count)
        ),
        "batched numpy, repeats allowed": _Contestant(
            count // 8, partial(_numpy_ridge, universe, size, count // 8)
        ),
        "scikit-learn loop": _Contestant(loop, partial(_sklearn_ridge, universe, size, loop)),
    }


def _our_ridge(universe: Universe, size: int, records: int) -> None:
    config = privnets.experiment("membership").Config(
        dataset="adult",
        model="linear",
        train_size=size,
        features=_FEATURES,
        weight_decay=_RIDGE_DECAY,
        records=records,
        draws=_DRAWS,
    )
    moments = linear.Moments.of(universe.x, universe.y)
    asked = attacked_records(config, universe.size)
    sums = linear.training_sums(config, moments, asked)
    linear.fit(config, sums, _RIDGE_DECAY * torch.eye(_FEATURES).double())


def _torch_ridge(universe: Universe, size: int, count: int) -> None:
    """Library solver, and sums shared by the two models of a with/without pair."""
    x, y = universe.x, universe.y
    outer = (x[:, :, None] * x[:, None, :]).flatten(1)
    table = torch.cat([outer, x * y[:, None]], dim=1)
    chunk = max(1, 2**20 // size)
    for start in range(0, count, chunk):
        pairs = min(chunk, count - start)
        index = torch.randint(len(x), (pairs, size - 1))
        common = torch.nn.functional.embedding_bag(index, table, mode="sum")
        for extra in torch.randint(len(x), (2, pairs)):
            sums = common + table[extra]
            gram = sums[:, : _FEATURES**2].view(-1, _FEATURES, _FEATURES) / size
            gram = gram + _RIDGE_DECAY * torch.eye(_FEATURES).double()
            torch.linalg.solve(gram, sums[:, _FEATURES**2 :] / size)


def _numpy_ridge(universe: Universe, size: int, count: int) -> None:
    """Gather, multiply, solve: each a single call on as many models as stay in cache."""
    random = np.random.default_rng(0)
    x, y = universe.x.numpy(), universe.y.numpy()
    chunk = max(1, 2**15 // size)
    for start in range(0, count, chunk):
        index = random.integers(len(x), size=(min(chunk, count - start), size))
        chosen = x[index]
        gram = chosen.transpose(0, 2, 1) @ chosen / size + _RIDGE_DECAY * np.eye(_FEATURES)
        product = chosen.transpose(0, 2, 1) @ y[index][..., None] / size
        np.linalg.solve(gram, product)


def _sklearn_ridge(universe: Universe, size: int, count: int) -> None:
    x, y = universe.x.numpy(), universe.y.numpy()
    for chosen in _subsets(universe, size, count):
        Ridge(alpha=size * _RIDGE_DECAY, fit_intercept=False).fit(x[chosen], y[chosen])


def _logistic(size: int, universe: Universe) -> dict[str, _Contestant]:
    config = {"dataset": "digits", "model": "logistic", "features": 8}
    config |= {"weight_decay": _LOGISTIC_DECAY, "train_size": size}
    count, loop = 4 * _STACK, 20
    return {
        "this platform": _Contestant(count, partial(_our_stacks, config, universe, count)),
        "scikit-learn loop": _Contestant(loop, partial(_sklearn_logistic, universe, size, loop)),
    }


def _our_stacks(config: Mapping[str, object], universe: Universe, count: int) -> None:
    """Training sets and stacks as in the membership experiment, without what is asked of them."""
    own = privnets.experiment("membership").Config(**config, draws=count)
    random = generator(own.seed, "training sets")
    sets = distinct_subsets(random, universe.size, own.train_size, count)
    trainer = LogisticTrainer() if own.model == "logistic" else MlpTrainer()
    nobody = np.zeros(0, dtype=np.int64)
    design = TrainingDesign(own, nobody, sets, np.zeros((0, count), dtype=bool))
    stack = trainer.model.cpu_models
    for start in range(0, count, stack):
        trainer.fit(make_batch([(design, range(start, start + stack))], universe))


def _sklearn_logistic(universe: Universe, size: int, count: int) -> None:
    x, y = universe.x.numpy(), universe.y.numpy()
    strength = 1 / (2 * size * _LOGISTIC_DECAY)
    for chosen in _subsets(universe, size, count):
        model = LogisticRegression(C=strength, fit_intercept=False, max_iter=1000)
        model.fit(x[chosen], y[chosen])


def _network(size: int, universe: Universe) -> dict[str, _Contestant]:
    config = {"dataset": "adult", "model": "mlp", "features": _FEATURES, "train_size": size}
    config |= {"hidden_layers": len(_HIDDEN), "hidden_units": _HIDDEN[0]}
    config |= {"steps": _STEPS, "learning_rate": _RATE}
    return {
        "this platform": _Contestant(_STACK, partial(_our_stacks, config, universe, _STACK)),
        "eager torch loop": _Contestant(2, partial(_eager_networks, universe, size, 2)),
        "scikit-learn loop": _Contestant(2, partial(_sklearn_networks, universe, size, 2)),
    }


def _eager_networks(universe: Universe, size: int, count: int) -> None:
    for chosen in _subsets(universe, size, count):
        x, y = universe.x[chosen].float(), universe.y[chosen].float()[:, None]
        widths = (_FEATURES, *_HIDDEN)
        layers: list[torch.nn.Module] = []
        for inputs, outputs in zip(widths, _HIDDEN, strict=False):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(_HIDDEN[-1], 1))
        optimiser = torch.optim.Adam(network.parameters(), _RATE)
        for _ in range(_STEPS):
            optimiser.zero_grad()
            torch.nn.functional.mse_loss(network(x), y).backward()
            optimiser.step()


def _sklearn_networks(universe: Universe, size: int, count: int) -> None:
    x, y = universe.x.float().numpy(), universe.y.float().numpy()
    for chosen in _subsets(universe, size, count):
        model = MLPRegressor(
            hidden_layer_sizes=_HIDDEN,
            activation="tanh",
            alpha=0.0,
            batch_size=size,
            learning_rate_init=_RATE,
            max_iter=_STEPS,
            tol=0.0,
            n_iter_no_change=_STEPS,
        )
        with warnings.catch_warnings():
            # All steps are taken on every side, converged or not.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x[chosen], y[chosen])


def _rows(model: str, size: int, contestants: Mapping[str, _Contestant]) -> list[dict[str, object]]:
    works = {name: contestant.work for name, contestant in contestants.items()}
    timings = alternate(works, _ROUNDS, time.process_time)
    rates = {
        name: [contestants[name].models / seconds for seconds in (t.median, t.high, t.low)]
        for name, t in timings.items()
    }
    return [
        {
            "model": model,
            "contestant": name,
            "train_size": size,
            "rounds": _ROUNDS,
            "models_per_second": _round_rate(median),
            "slowest_round": _round_rate(low),
            "quickest_round": _round_rate(high),
        }
        for name, (median, low, high) in rates.items()
    ]


def _round_rate(rate: float) -> float:
    return round(rate) if rate >= 100 else round(rate, 1)


def _on_adult(universe: Universe) -> list[dict[str, object]]:
    rows = []
    for size, records in ((10, 1000), (30, 500), (100, 250), (1000, 25)):
        rows += _rows("ridge", size, _ridge(size, records, universe))
    for size in (30, 100, 300):
        rows += _rows("network", size, _network(size, universe))
    return rows


def main() -> None:
    """Measure and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    digits = _universe("digits", 8)
    rows = []
    for size in (20, 80, 200):
        rows += _rows("logistic", size, _logistic(size, digits))
    if data.status("adult") == "absent":
        print("Ridge and network are left out: they need `sweeps data fetch adult`.")
    else:
        rows += _on_adult(_universe("adult", _FEATURES))
    publish("membership_models", rows)


if __name__ == "__main__":
    run(main)
