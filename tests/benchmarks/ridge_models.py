"""Ridge models per second on one core, drawing of distinct records included.

This platform inside its membership estimate, against batched torch with draws that may repeat
(float64, with/without pairs sharing their sums) and a scikit-learn loop.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.linear_model import Ridge

import privnets
from privnets import data
from privnets.membership import linear
from privnets.membership.ridge import Moments
from privnets.membership.universe import Universe, asked_records
from tests.benchmarks.harness import alternate, publish

_DECAY = 1e-3
_FEATURES = 5
_LOOP_MODELS = 200


def _platform(universe: Universe, size: int, records: int, draws: int) -> None:
    config = privnets.experiment("membership").Config(
        dataset="adult",
        model="linear",
        train_size=size,
        features=_FEATURES,
        weight_decay=_DECAY,
        records=records,
        draws=draws,
    )
    moments = Moments.of(universe.x, universe.y)
    asked = asked_records(config, universe.size)
    sums = linear.training_sums(config, moments, asked)
    linear.fit(config, sums, _FEATURES)


def _batched_torch(universe: Universe, size: int, records: int, draws: int) -> None:
    """The obvious fast version: repeated draws allowed, library solver, sums shared in pairs."""
    x, y = universe.x, universe.y
    outer = (x[:, :, None] * x[:, None, :]).flatten(1)
    table = torch.cat([outer, x * y[:, None]], dim=1)
    chunk = max(1, 2**20 // (size * draws))
    for start in range(0, records, chunk):
        count = min(chunk, records - start) * draws
        index = torch.randint(len(x), (count, size - 1))
        shared = torch.nn.functional.embedding_bag(index, table, mode="sum")
        for extra in torch.randint(len(x), (2, count)):
            sums = shared + table[extra]
            gram = sums[:, : _FEATURES**2].view(-1, _FEATURES, _FEATURES) / size
            gram = gram + _DECAY * torch.eye(_FEATURES).double()
            torch.linalg.solve(gram, sums[:, _FEATURES**2 :] / size)


def _scikit_learn(universe: Universe, size: int) -> None:
    random = np.random.default_rng(0)
    x, y = universe.x.numpy(), universe.y.numpy()
    for _ in range(_LOOP_MODELS):
        chosen = random.choice(len(x), size, replace=False, shuffle=False)
        Ridge(alpha=size * _DECAY, fit_intercept=False).fit(x[chosen], y[chosen])


def main() -> None:
    """Measure and publish."""
    torch.set_num_threads(1)
    prepared = data.prepare("adult", _FEATURES)
    universe = Universe(torch.tensor(prepared.x), torch.tensor(prepared.y).double())
    rows = []
    for size, records in ((10, 1000), (30, 500), (100, 250), (1000, 25)):
        draws = 400
        models = 2 * records * draws
        timings = alternate(
            {
                "this platform": partial(_platform, universe, size, records, draws),
                "batched torch, repeats allowed": partial(
                    _batched_torch, universe, size, records, draws
                ),
                "scikit-learn loop": partial(_scikit_learn, universe, size),
            },
            rounds=5,
        )
        for name, timing in timings.items():
            trained = _LOOP_MODELS if name.startswith("scikit") else models
            rows.append(
                {
                    "contestant": name,
                    "train_size": size,
                    "models_per_second": round(trained / timing.median),
                    "slowest_round": round(trained / timing.high),
                    "quickest_round": round(trained / timing.low),
                }
            )
    publish("ridge_models", rows)


if __name__ == "__main__":
    main()
