"""Baselines: success of attackers and utility networks on raw records.

A baseline depends on the records and the attackers' training, not on the releaser. So all points
of a sweep that share these share it: it is cached on disk and computed once per seed.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout

from privnets import cache
from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.neural import FittedUtility, fit_utility
from privnets.adversarial.attackers.panel import build_panel, score_releases
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackerGuesses, Evidence
from privnets.adversarial.metrics import PRIVACY_KEYS, under_labels
from privnets.adversarial.problem import Problem

_VERSION = 7
_POLL_SECONDS = 0.2
# Fields on which raw records and the attackers' training depend.
_FIELDS = {"problem", "seed", "train_size", "panel"}


@dataclass(frozen=True, eq=False)
class Baseline:
    """Results on the raw records of one configuration's splits.

    Attributes:
        attacker: Balanced accuracy of the strongest attacker, and its standard error.
        guesses: The strongest attacker's; None if no attacker is scored.
        other_labels: As `attacker`, on test records under the other rule of labels; NaN without.
    """

    attacker: tuple[float, float]
    utility: FittedUtility
    guesses: AttackerGuesses | None
    other_labels: tuple[float, float]


class Baselines:
    """Baselines of a stack; one that another process is computing is awaited, not repeated."""

    def __init__(
        self, problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
    ) -> None:
        """Prepares, without reading anything, for the raw records of each configuration."""
        self._problem, self._configs, self._raw = problem, configs, raw
        self._keys = [_cache_key(problem, config) for config in configs]
        self._baselines: dict[str, Baseline] = {}

    def compute(self) -> Generator[object, None, None]:
        """Computes, as one stack, those that no process has computed or is computing."""
        yield from self._compute(range(len(self._keys)))

    def get(self, place: int) -> Generator[object, None, Baseline]:
        """A configuration's baseline, awaited, or computed here if the other process ended."""
        while True:
            yield from self._compute([place])
            if (baseline := self._baselines.get(self._keys[place])) is not None:
                return baseline
            yield None
            time.sleep(_POLL_SECONDS)

    def _compute(self, places: Sequence[int]) -> Generator[object, None, None]:
        first = {self._keys[i]: i for i in reversed(places)}
        with ExitStack() as locks:
            own = [
                i
                for i in sorted(first.values())
                # Another process may finish it until the lock is held.
                if not self._is_available(i)
                and _acquire_lock(self._keys[i], locks)
                and not self._is_available(i)
            ]
            if own:
                configs, raw = [self._configs[i] for i in own], [self._raw[i] for i in own]
                baselines = yield from _compute_baselines(self._problem, configs, raw)
                for i, baseline in zip(own, baselines, strict=True):
                    self._baselines[self._keys[i]] = baseline
                    arrays = {
                        "attacker": np.array([baseline.attacker, baseline.other_labels]),
                        "log_utility": baseline.utility.log_p,
                        "utility_gain": np.array(baseline.utility.remaining_gain),
                    }
                    if baseline.guesses is not None:
                        arrays |= {
                            "decision": baseline.guesses.decision,
                            "log_secret": baseline.guesses.log_p,
                        }
                    cache.write(_path(self._keys[i]), arrays)

    def _is_available(self, place: int) -> bool:
        key = self._keys[place]
        if key not in self._baselines and (baseline := _read(key)) is not None:
            self._baselines[key] = baseline
        return key in self._baselines


def _acquire_lock(key: str, locks: ExitStack) -> bool:
    """Whether no other process computes this baseline until `locks` is closed."""
    path = cache.directory() / f"baseline-{key}.lock"

    def remove_lock() -> None:
        """A process that still locks a cached baseline finds the baseline."""
        if _path(key).exists():
            with suppress(OSError):  # some systems remove no open file, which leaves an empty one
                path.unlink(missing_ok=True)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        locks.enter_context(FileLock(path, timeout=0, thread_local=False))
        locks.callback(remove_lock)
    except Timeout:
        return False
    except (OSError, NotImplementedError):  # without a writable cache each process computes its own
        return True
    return True


def _compute_baselines(
    problem: Problem, configs: Sequence[AdversarialConfig], raw: Sequence[Evidence]
) -> Generator[object, None, list[Baseline]]:
    utility = yield from fit_utility(problem, configs, raw, "baseline utility")
    baselines: list[Baseline] = []
    labels = [fitted.likeliest_labels for fitted in utility]
    key = PRIVACY_KEYS[0]
    other = under_labels(key, problem.other_labels(configs[0]) or "")
    for result in score_releases(raw, build_panel(problem, configs[0]), configs, labels):
        yield None
        if result is not None:
            own, others = (
                (result.metrics.get(k, math.nan), result.standard_errors.get(k, math.nan))
                for k in (key, other)
            )
            baselines.append(Baseline(own, utility[len(baselines)], result.guesses, others))
    return baselines


def _cache_key(problem: Problem, config: AdversarialConfig) -> str:
    identity = {
        "version": _VERSION,
        "data": problem.fingerprint(config),
        "attackers": list(problem.spec.attackers),
        "attacker_width": problem.spec.attacker_width,
        "profile": astuple(PROFILES[config.panel]),
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        **config.model_dump(mode="json", include=_FIELDS),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def _read(key: str) -> Baseline | None:
    arrays = cache.read(_path(key))
    if arrays is None:
        return None
    own, others = map(tuple, arrays["attacker"].tolist())
    utility = FittedUtility(arrays["log_utility"], float(arrays["utility_gain"]))
    guesses = (
        AttackerGuesses(arrays["decision"], arrays["log_secret"]) if "decision" in arrays else None
    )
    return Baseline(own, utility, guesses, others)


def _path(key: str) -> Path:
    return cache.directory() / f"baseline-{key}"
