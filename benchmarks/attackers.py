"""Strength and processor time of attackers, by release, for comparison between commits.

Releases of AMNIST are its raw images, and these with Gaussian pixel noise; the others come from
short games. Every attacker and the refitted utility network are fitted as in a trial, on one core.
Where LightGBM is installed, its trees are fitted too: sizes and stopping are those of boosted
trees, but each tree has its own sample of the columns, where those have one for each split.
Accuracy is balanced for the secret. Information is nats gained of the secret, or minus the loss of
the utility label. One row for each release, seed and attacker.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.cleanup import run
from benchmarks.harness import publish
from privnets.adversarial.attackers import SIDE, classical
from privnets.adversarial.attackers.attacker import (
    Matrix,
    Posterior,
    ReleaseAttacker,
    ReleaseView,
    Tables,
)
from privnets.adversarial.attackers.classical import BoostedTrees, FittedModel, TableAttacker
from privnets.adversarial.attackers.neural import fit_network, fit_utility
from privnets.adversarial.attackers.panel import build_panel
from privnets.adversarial.attackers.scores import assess
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.evidence import Evidence
from privnets.adversarial.problem import class_frequencies
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import known_rows, load_pool, raw_evidence
from privnets.adversarial.training.game import Game
from privnets.randomness import generator
from tests.support import finish

try:
    import lightgbm
except ImportError:  # no other part needs it
    lightgbm = None

_GAMES: Mapping[str, Mapping[str, object]] = {
    "gaussian-mixture": {"steps": 100},
    "digits": {"steps": 150, "objective": "alpha", "gradient": "label"},
    "eco": {"steps": 15, "panel": "quick"},
}


class _LightGbm(TableAttacker):
    name: ClassVar[str] = "lightgbm"
    most_draws: ClassVar[int] = BoostedTrees.most_draws

    def train(self, tables: Tables, random: np.random.Generator) -> FittedModel:
        attack, validation = tables.attack, tables.validation
        classes = 1 + int(attack.rows.secret.max())
        trees = classical._IMAGE_TREES if tables.is_image else classical._TREES
        settings = {
            "objective": "multiclass",
            "num_class": classes,
            "learning_rate": classical._IMAGE_TREE_RATE
            if tables.is_image
            else classical._TREE_RATE,
            "feature_fraction": min(1.0, classical._SPLIT_COLUMNS / attack.x.shape[1]),
            "seed": int(random.integers(2**31)),
            "num_threads": 1,
            "verbose": -1,
        }
        if classes == 2:
            settings |= {"objective": "binary", "num_class": 1}
        records = lightgbm.Dataset(attack.x, attack.rows.secret)
        model = lightgbm.train(
            settings,
            records,
            min(trees, max(classical._PATIENCE, classical._MAX_CLASS_TREES // classes)),
            [lightgbm.Dataset(validation.x, validation.rows.secret, reference=records)],
            callbacks=[lightgbm.early_stopping(classical._PATIENCE, verbose=False)],
        )
        return FittedModel(_predict(model, validation.x), partial(_predict, model, tables.test.x))


def _predict(model: lightgbm.Booster, x: Matrix) -> NDArray[np.float64]:
    """Class probabilities, shape [n, C]."""
    predicted = model.predict(x, num_threads=1)
    return predicted if predicted.ndim > 1 else np.stack([1 - predicted, predicted], axis=1)


def _amnist(std: float, seed: int) -> tuple[AdversarialConfig, Evidence]:
    config = AdversarialConfig.model_validate({"problem": "amnist", "seed": seed})
    pool, (splits,) = load_pool(problem_of(config), [config], "cpu")
    raw = raw_evidence(pool, splits)
    if not std:
        return config, raw

    def release(x: Tensor, stream: str) -> Tensor:
        own = torch.Generator().manual_seed(int(generator(seed, stream).integers(2**31)))
        return x + std * torch.randn(x.shape, generator=own)

    names = ("attack", "validation", "test")
    parts = (replace(s, z=release(s.z, n)) for s, n in zip(raw.splits, names, strict=True))
    return config, Evidence(*parts, is_random=True, redraw=lambda s: release(raw.attack.z, s))


def _game(name: str, seed: int, share: float) -> tuple[AdversarialConfig, Evidence]:
    knob = "tradeoff" if name == "gaussian-mixture" else "privacy_weight"
    fields = {"problem": name, "seed": seed, knob: share, **_GAMES[name]}
    config = AdversarialConfig.model_validate(fields)
    problem = problem_of(config)
    pool, (splits,) = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, [splits])
    game.advance(config.steps)
    return config, release_records(game, 0, pool, splits).released


def _measure(
    config: AdversarialConfig, evidence: Evidence, only: list[str]
) -> Iterator[tuple[str, float, float, float]]:
    """Attacker, seconds, accuracy and information."""
    problem = problem_of(config)
    panel = build_panel(problem, config)
    attackers: dict[str, ReleaseAttacker] = dict(panel.attackers)
    if lightgbm is not None:
        attackers[_LightGbm.name] = _LightGbm()
    utility = ["utility"] if problem.spec.utility_classes else []
    for name in [*utility, *panel.networks, *attackers]:
        if only and name not in only:
            continue
        # Training replaces inputs in place.
        own = replace(evidence, attack=replace(evidence.attack, z=evidence.attack.z.clone()))
        start = time.process_time()
        if name == "utility":
            (fitted,) = finish(fit_utility(problem, [config], [own], "refitted utility"))
        elif name in panel.networks:
            shape, profile = panel.networks[name], panel.profile
            (posterior,) = finish(fit_network(name, shape, [own], [config.seed], profile.steps))
        else:
            view = ReleaseView(own, name.endswith(SIDE), panel.profile)
            posterior = attackers[name].fit(view, config.seed)
        seconds = time.process_time() - start
        if name == "utility":
            assert evidence.test.utility is not None
            label = evidence.test.utility.numpy()
            right = fitted.log_p.argmax(1) == label
            yield name, seconds, right.mean(), fitted.log_p[np.arange(len(label)), label].mean()
        else:
            yield name, seconds, *_scores(posterior, evidence)


def _scores(posterior: Posterior, evidence: Evidence) -> tuple[float, float]:
    validation, test = known_rows(evidence.validation), known_rows(evidence.test)
    secret = known_rows(evidence.attack).secret
    prior = class_frequencies(secret, 1 + int(secret.max()))
    score = assess(posterior, validation, test, prior)
    return score.accuracy.value, score.leakage.value


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", default="amnist 0,amnist 0.15,amnist 0.5," + ",".join(_GAMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attackers", default="", help="names; all if empty")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for release in asked.releases.split(","):
        name, _, std = release.partition(" ")
        for seed in range(asked.seeds):
            share = (seed + 0.5) / asked.seeds
            given = _amnist(float(std), seed) if std else _game(name, seed, share)
            with threadpool_limits(1):
                for attacker, seconds, accuracy, nats in _measure(
                    *given, [a for a in asked.attackers.split(",") if a]
                ):
                    rows.append(
                        {
                            "release": release,
                            "seed": seed,
                            "contestant": attacker,
                            "rounds": 1,
                            "seconds": round(seconds, 2),
                            "accuracy": round(float(accuracy), 4),
                            "information": round(float(nats), 4),
                        }
                    )
    publish("attackers", rows)


if __name__ == "__main__":
    run(main)
