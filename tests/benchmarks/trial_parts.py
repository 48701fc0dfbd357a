"""Time of a full trial by part: the game, each family of attackers, the evaluation.

Processor time of one core per replicate, by part, of stacks that start as fresh processes do but
for imports. Parts are the same calls that a trial makes, one after the other; baselines are
computed again, as they are once per seed and machine. `AMNIST` and `ECO` are reduced, so that they
take minutes; where their data are absent they are left out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from privnets.adversarial.attackers import classical
from privnets.adversarial.attackers.assessment import assess
from privnets.adversarial.attackers.features import tables
from privnets.adversarial.attackers.floors import floors
from privnets.adversarial.attackers.names import CLASSIFIERS, SIDE
from privnets.adversarial.attackers.networks import fit_network
from privnets.adversarial.attackers.posterior import Posterior
from privnets.adversarial.attackers.rows import frequencies, known_rows
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import inference
from privnets.adversarial.evaluation.baseline import Baselines
from privnets.adversarial.evaluation.releases import Release, released
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import registry
from privnets.adversarial.records import Evidence
from privnets.adversarial.training.game import Game
from privnets.data import DataError
from tests.benchmarks.cleanup import run
from tests.benchmarks.harness import publish

_TRIALS: Mapping[str, tuple[int, Mapping[str, object]]] = {
    "gaussian-mixture": (8, {"steps": 200, "attack_steps": 300}),
    "digits": (4, {"objective": "alpha", "gradient": "label"}),
    "amnist": (1, {"steps": 200, "attack_size": 4000, "attack_steps": 300, "adversary_width": 8}),
    "eco": (1, {"steps": 50, "attack_steps": 300}),
}
"""By problem: replicates, and fields."""

_T = TypeVar("_T")


@dataclass
class _Clock:
    """Processor seconds by part, in the order in which parts were met."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.process_time()
        yield
        spent = time.process_time() - start
        self.seconds[part] = self.seconds.get(part, 0.0) + spent


def _measure_trial(problem: Problem, configs: list[AdversarialConfig]) -> dict[str, float]:
    clock = _Clock()
    with clock("records"):
        pool, splits = problem.materials(configs, "cpu")
    with clock("game"):
        game = Game(problem, configs, pool, splits)
        game.advance(configs[0].steps)
    with clock("release"):
        releases = [released(game, i, pool, own) for i, own in enumerate(splits)]
    with clock("raw-data baseline"):
        raw = [release.original for release in releases]
        _run_to_end(Baselines(problem, configs, raw).compute())
    evidence = [release.released for release in releases]
    with clock("refitted utility"):
        told = _run_to_end(inference.utility(problem, configs, evidence, "refitted utility"))
    posteriors = _attackers(clock, problem, configs, evidence)
    for i, release in enumerate(releases):
        labels = inference.labels(told[i])
        with clock("floors"):
            floors(evidence[i], problem.statement.secret_classes, configs[i].seed, labels)
        _judge(clock, problem, evidence[i], [own[i] for own in posteriors])
        _examine(clock, problem, release)
    return clock.seconds


def _attackers(
    clock: _Clock, problem: Problem, configs: list[AdversarialConfig], evidence: list[Evidence]
) -> list[list[Posterior]]:
    """Posteriors [attacker][release]."""
    first, seeds = configs[0], [config.seed for config in configs]
    found = []
    for name, shape in problem.attacking_networks(first).items():
        with clock(f"attackers: {name}"):
            found.append(_run_to_end(fit_network(name, shape, evidence, seeds, first.attack_steps)))
    for side in (False, True) if problem.statement.side_features else (False,):
        with clock("attackers: tables"):
            seen = [tables(one, side=side) for one in evidence]
        for name in CLASSIFIERS:
            full = name + SIDE if side else name
            with clock(f"attackers: {full}"):
                pairs = zip(seen, seeds, strict=True)
                found.append([classical.fit(full, part, seed, name) for part, seed in pairs])
    for attacker in problem.analytic_attackers(first):
        with clock("attackers: analytic"):
            fitted = [attacker.fit(one, seed) for one, seed in zip(evidence, seeds, strict=True)]
        found += [list(own) for own in zip(*fitted, strict=True)]
    return found


def _judge(
    clock: _Clock, problem: Problem, evidence: Evidence, posteriors: list[Posterior]
) -> None:
    with clock("calibration and scores"):
        validation, test = known_rows(evidence.validation), known_rows(evidence.test)
        prior = frequencies(known_rows(evidence.attack).secret, problem.statement.secret_classes)
        for posterior in posteriors:
            assess(posterior, validation, test, prior)


def _examine(clock: _Clock, problem: Problem, release: Release) -> None:
    with clock("what the problem examines"):
        original, test = release.original.test, release.released.test
        problem.examine(release.config, release.parameters, original, test)


def _run_to_end(run: Generator[object, None, _T]) -> _T:
    while True:
        try:
            next(run)
        except StopIteration as ended:
            found: _T = ended.value
            return found


def _rows(name: str) -> list[dict[str, object]]:
    replicates, fields = _TRIALS[name]
    # Another knob for each, as in a sweep: nothing that replicates share is counted once alone.
    knob = "tradeoff" if name == "gaussian-mixture" else "privacy_weight"
    values = [(i + 0.5) / replicates for i in range(replicates)]
    configs = [
        AdversarialConfig.model_validate({"problem": name, "seed": i, knob: value, **fields})
        for i, value in enumerate(values)
    ]
    seconds = _measure_trial(registry.problem(name), configs)
    total = sum(seconds.values())
    return [
        {
            "problem": name,
            "replicates": replicates,
            "contestant": part,
            "rounds": 1,
            "seconds_per_replicate": round(spent / replicates, 3),
            "share": f"{spent / total:.0%}",
        }
        for part, spent in [*seconds.items(), ("all", total)]
    ]


def main() -> None:
    """Measure and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    import sklearn.ensemble  # noqa: F401

    torch.set_num_threads(1)
    rows = []
    for name in _TRIALS:
        with tempfile.TemporaryDirectory() as empty:
            os.environ["PRIVNETS_CACHE"] = empty
            try:
                rows += _rows(name)
            except DataError as error:
                print(f"{name} is left out: {error}")
    publish("trial_parts", rows)


if __name__ == "__main__":
    run(main)
