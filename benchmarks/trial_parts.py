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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

from benchmarks.cleanup import run
from benchmarks.harness import publish
from privnets.adversarial.attackers import SIDE
from privnets.adversarial.attackers.attacker import Posterior, ReleaseView
from privnets.adversarial.attackers.floors import fit_floors
from privnets.adversarial.attackers.neural import fit_network, fit_utility
from privnets.adversarial.attackers.panel import build_panel
from privnets.adversarial.attackers.scores import assess
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.baselines import Baselines
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.evidence import Evidence
from privnets.adversarial.problem import Problem, class_frequencies
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import known_rows, load_pool
from privnets.adversarial.training.game import Game
from privnets.data import DataError
from tests.support import finish

_TRIALS: Mapping[str, tuple[int, Mapping[str, object]]] = {
    "gaussian-mixture": (8, {"steps": 200}),
    "digits": (4, {"objective": "alpha", "gradient": "label"}),
    "amnist": (1, {"steps": 200, "adversary_width": 8, "panel": "quick"}),
    "eco": (1, {"steps": 50, "panel": "quick"}),
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
        pool, splits = load_pool(problem, configs, "cpu")
    with clock("game"):
        game = Game(problem, configs, pool, splits)
        game.advance(configs[0].steps)
    with clock("release"):
        releases = [release_records(game, i, pool, own) for i, own in enumerate(splits)]
    with clock("raw-data baseline"):
        raw = [release.original for release in releases]
        finish(Baselines(problem, configs, raw).compute())
    evidence = [release.released for release in releases]
    with clock("refitted utility"):
        utility = finish(fit_utility(problem, configs, evidence, "refitted utility"))
    posteriors = _fit_attackers(clock, problem, configs, evidence)
    for i, release in enumerate(releases):
        labels = utility[i].likeliest_labels
        with clock("floors"):
            fit_floors(evidence[i], problem.spec.secret_classes, configs[i].seed, labels)
        _score(clock, problem, evidence[i], [own[i] for own in posteriors])
        with clock("details of the release"):
            problem.release_details(release)
    return clock.seconds


def _fit_attackers(
    clock: _Clock, problem: Problem, configs: list[AdversarialConfig], evidence: list[Evidence]
) -> list[list[Posterior]]:
    """Posteriors [attacker][release]."""
    panel, seeds = build_panel(problem, configs[0]), [config.seed for config in configs]
    posteriors, steps = [], panel.profile.steps
    for name, shape in panel.networks.items():
        with clock(f"attackers: {name}"):
            posteriors.append(finish(fit_network(name, shape, evidence, seeds, steps)))
    for sees_side in (False, True) if problem.spec.side_features else (False,):
        views = [ReleaseView(one, sees_side, panel.profile) for one in evidence]
        with clock("attackers: tables"):
            for view in views:
                _ = view.tables
        for name, attacker in panel.attackers.items():
            if name.endswith(SIDE) == sees_side:
                with clock(f"attackers: {name}"):
                    pairs = zip(views, seeds, strict=True)
                    posteriors.append([attacker.fit(view, seed) for view, seed in pairs])
    return posteriors


def _score(
    clock: _Clock, problem: Problem, evidence: Evidence, posteriors: list[Posterior]
) -> None:
    with clock("calibration and scores"):
        validation, test = known_rows(evidence.validation), known_rows(evidence.test)
        secret = known_rows(evidence.attack).secret
        prior = class_frequencies(secret, problem.spec.secret_classes)
        for posterior in posteriors:
            assess(posterior, validation, test, prior)


def _rows(name: str) -> list[dict[str, object]]:
    replicates, fields = _TRIALS[name]
    # Another knob for each, as in a sweep: nothing that replicates share is counted once alone.
    knob = "tradeoff" if name == "gaussian-mixture" else "privacy_weight"
    values = [(i + 0.5) / replicates for i in range(replicates)]
    configs = [
        AdversarialConfig.model_validate({"problem": name, "seed": i, knob: value, **fields})
        for i, value in enumerate(values)
    ]
    seconds = _measure_trial(PROBLEMS.get(name), configs)
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
        # Idle threads of numerical libraries would count as processor time.
        with tempfile.TemporaryDirectory() as empty, threadpool_limits(1):
            os.environ["PRIVNETS_CACHE"] = empty
            try:
                rows += _rows(name)
            except DataError as error:
                print(f"{name} is left out: {error}")
    publish("trial_parts", rows)


if __name__ == "__main__":
    run(main)
