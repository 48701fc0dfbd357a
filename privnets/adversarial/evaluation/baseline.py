"""What attackers and users get from raw records, which no releaser changes.

A baseline depends on the records and on how attackers are fitted, so every point of a sweep that
shares those shares it: it is kept on disk and computed once per seed.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from privnets.adversarial.attackers.panel import judging
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import inference
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import Evidence
from privnets.data import cache

_VERSION = 1
_WAIT = 0.2  # seconds between looks for another process's baseline
# What raw records and the attackers' training depend on.
_FIELDS = frozenset(
    {
        "problem",
        "seed",
        "dependence",
        "train_size",
        "attack_size",
        "resolution",
        "adversary_width",
        "attack_steps",
    }
)


@dataclass(frozen=True, eq=False)
class Baseline:
    """On raw records, of one configuration's splits.

    Attributes:
        attacker: Balanced accuracy of the strongest attacker, and its standard error.
        log_utility: Log probabilities of each test record's utility label, shape [n, C]; empty
            when there is none.
    """

    attacker: tuple[float, float]
    log_utility: NDArray[np.float64]


class Baselines:
    """The baselines of a stack; what another process is computing is waited for, not repeated."""

    def __init__(
        self, problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
    ) -> None:
        """Prepare; nothing is read or computed yet.

        Args:
            problem: What is released.
            configs: Of one structure.
            raw: Each one's unreleased records.
        """
        self._problem, self._configs, self._raw = problem, configs, raw
        self._keys = [_key(problem, config) for config in configs]
        self._found: dict[str, Baseline] = {}

    def compute(self) -> Generator[object, None, None]:
        """Compute, as one stack, those that nobody has computed or is at."""
        yield from self._compute(range(len(self._keys)))

    def of(self, place: int) -> Generator[object, None, Baseline]:
        """A configuration's, as soon as there is one; computed here if another process gave up."""
        while True:
            yield from self._compute([place])
            if (found := self._found.get(self._keys[place])) is not None:
                return found
            yield None
            time.sleep(_WAIT)

    def _compute(self, places: Sequence[int]) -> Generator[object, None, None]:
        first = {self._keys[i]: i for i in reversed(places)}
        with ExitStack() as claims:
            mine = [i for i in sorted(first.values()) if self._claimed(i, claims)]
            if mine:
                configs, raw = [self._configs[i] for i in mine], [self._raw[i] for i in mine]
                made = yield from _computed(self._problem, configs, raw)
                for i, baseline in zip(mine, made, strict=True):
                    self._found[self._keys[i]] = baseline
                    _write(self._keys[i], baseline)

    def _claimed(self, place: int, claims: ExitStack) -> bool:
        """Whether it falls to this process; another may have written it until the claim."""
        unknown = not self._known(place) and _claimed(self._keys[place], claims)
        return unknown and not self._known(place)

    def _known(self, place: int) -> bool:
        key = self._keys[place]
        if key not in self._found and (held := _read(key)) is not None:
            self._found[key] = held
        return key in self._found


def _claimed(key: str, claims: ExitStack) -> bool:
    """Whether no other process is at it, until the claims are closed."""
    path = cache.directory() / f"baseline-{key}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        claims.enter_context(FileLock(path, timeout=0, thread_local=False))
        claims.callback(_forget, key, path)
    except Timeout:
        return False
    except (OSError, NotImplementedError):  # where nothing can be kept, each computes its own
        return True
    return True


def _forget(key: str, lock: Path) -> None:
    """Remove the lock of a baseline that is kept: whoever locks it after all finds the baseline."""
    if _path(key).exists():
        with suppress(OSError):  # a system that removes no open file keeps an empty one
            lock.unlink(missing_ok=True)


def _computed(
    problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
) -> Generator[object, None, list[Baseline]]:
    first, seeds = configs[0], [config.seed for config in configs]
    utility = yield from inference.utility(problem, configs, raw, "baseline utility")
    attackers: list[tuple[float, float]] = []
    for verdict in judging(
        raw,
        networks=problem.attacking_networks(first),
        analytic=problem.analytic_attackers(first),
        alphas=[1.0] * len(configs),
        seeds=seeds,
        attack_steps=first.attack_steps,
        inferred=[inference.labels(log_p) for log_p in utility],
    ):
        yield None
        if verdict is not None:
            key = "privacy/attacker_balanced_accuracy"
            attackers.append((verdict.metrics[key], verdict.standard_errors.get(key, math.nan)))
    return [Baseline(a, u) for a, u in zip(attackers, utility, strict=True)]


def _key(problem: Problem, config: AdversarialConfig) -> str:
    identity = {
        "version": _VERSION,
        "data": problem.statement.fingerprint(config),
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        **config.model_dump(mode="json", include=set(_FIELDS)),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def _read(key: str) -> Baseline | None:
    held = cache.read(_path(key))
    if held is None:
        return None
    value, error = held["attacker"].tolist()
    return Baseline((value, error), held["log_utility"])


def _write(key: str, baseline: Baseline) -> None:
    arrays = {"attacker": np.array(baseline.attacker), "log_utility": baseline.log_utility}
    cache.write(_path(key), arrays)


def _path(key: str) -> Path:
    return cache.directory() / f"baseline-{key}"
