"""Check of a released file: the panel of attackers on records whose secret the user knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from privnets.adversarial.attackers import PROFILES, ProfileName
from privnets.adversarial.attackers.neural import fit_utility
from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    discard_progress,
    score_releases,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import RecordEncoding
from privnets.adversarial.evaluation.evaluator import normalized_error, utility_accuracy
from privnets.adversarial.evidence import PARTS, Evidence
from privnets.adversarial.problem import subsample
from privnets.adversarial.problems.opening import open_records
from privnets.adversarial.problems.own import OwnProblem
from privnets.adversarial.records import load_pool, select_exposure
from privnets.adversarial.trained_releaser import TrainedReleaser
from privnets.audit.gate import GateAnswer, GateResult, Judge, check_limits
from privnets.data import DataError
from privnets.randomness import generator
from privnets.references.problems import OwnReference
from privnets.statistics.estimates import Estimate

_BEST: Final = "privacy/attacker_balanced_accuracy"
_FLOOR: Final = "floor/attacker_balanced_accuracy"
_RISK: Final = 0.05  # that an interval misses
_BLIND_SPOT: Final = (
    "Not seen: records unlike those that were checked, other releases of the same records, columns "
    "that --keep copies, and better attackers."
)
GATED_OF_RELEASES: Final = {
    "balanced_accuracy": (0.0, 1.0),
    "excess": (0.0, 1.0),
    "leakage": (0.0, math.inf),
}
"""Metrics of a released file that a limit may be about, with the range of their values."""

_SMALL: Final = 0.05  # excess of balanced accuracy that a check must be able to see


@dataclass(frozen=True, eq=False)
class ReleaseCheck:
    """Success of the panel on a released file.

    Attributes:
        utility: What the release keeps, by description: value and standard error.
        attack: Number of records that attackers learned from; others tuned and scored them.
    """

    result: PanelResult
    utility: Mapping[str, tuple[float, float]]
    attack: int
    validation: int
    test: int

    @property
    def floor(self) -> float:
        """Balanced accuracy that needs no release."""
        return self.result.metrics[_FLOOR]

    @property
    def strongest(self) -> str:
        """Attacker with the largest balanced accuracy on test, whichever validation chose."""
        return self._of_strongest("balanced_accuracy")[0]

    @property
    def balanced_accuracy(self) -> tuple[float, float, float]:
        """Balanced accuracy of the strongest attacker with its 95% interval.

        As one is chosen, the interval holds for all attackers at once (Bonferroni). Its upper end
        is the largest of them. An attacker that has the release may ignore it, so nothing is below
        the floor.
        """
        return self._of_strongest("balanced_accuracy", self.floor)[1]

    @property
    def leakage(self) -> tuple[float, float, float]:
        """Largest leakage of the secret in nats, with such an interval and the floor 0."""
        return self._of_strongest("leakage")[1]

    def _of_strongest(
        self, metric: str, floor: float = 0.0
    ) -> tuple[str, tuple[float, float, float]]:
        """Strongest attacker on test by a metric, and that metric with its interval."""
        errors, values = self.result.standard_errors, self.result.metrics
        prefix, suffix = "privacy/attacker/", f"/{metric}"
        keys = [key for key in values if key.startswith(prefix) and key.endswith(suffix)]
        quantile = float(ndtri(1 - _RISK / (2 * len(keys))))
        best = max(keys, key=lambda key: values[key])
        high = max(values[key] + quantile * errors[key] for key in keys)
        low = values[best] - quantile * errors[best]
        interval = max(values[best], floor), max(low, floor), max(high, floor)
        return best.split("/")[2], interval

    def check(
        self, limits: Mapping[str, float] = MappingProxyType({}), *, judge: Judge = "upper"
    ) -> GateResult:
        """Compares the release with limits; see `AuditResult.check`.

        Args:
            limits: Largest `balanced_accuracy`, `excess` of it over the floor, or `leakage` (nats).
            judge: End of the interval that must be at most the limit.

        Raises:
            AuditError: If a limit could never fail, or has another name.
        """
        value, low, high = self.balanced_accuracy
        intervals = {
            "balanced_accuracy": (value, low, high),
            "excess": (value - self.floor, low - self.floor, high - self.floor),
            "leakage": self.leakage,
        }
        attackers = dict.fromkeys(intervals, self.strongest)
        attackers["leakage"] = self._of_strongest("leakage")[0]
        answers = [
            GateAnswer("release", key, limit, intervals[key], attackers[key], judge)
            for key, limit in check_limits(GATED_OF_RELEASES, limits).items()
        ]
        return GateResult(tuple(answers), _BLIND_SPOT)

    @property
    def verdict(self) -> str:
        """Strongest attacker, floor, leakage and utility in sentences."""
        (accuracy, low, high), (leakage, least, most) = self.balanced_accuracy, self.leakage
        notes, count = self.result.notes, sum(key.endswith("/auc") for key in self.result.metrics)
        raised = [notes[key] for key in sorted(notes) if key.startswith("flag/")]
        half = float(ndtri(1 - _RISK / 2))
        utility = (
            f"utility that remains: {text} "
            f"{self._text(value, value - half * error, value + half * error)}"
            for text, (value, error) in self.utility.items()
        )
        return "\n".join(
            [
                f"balanced accuracy of the strongest of {count} attackers ({self.strongest}): "
                f"{self._text(accuracy, low, high)}, floor {self.floor:.3f}",
                self._conclusion(low - self.floor, high - self.floor),
                f"validation chose: {notes[_BEST]}",
                f"the floor is that {notes[_FLOOR]}",
                f"leakage of the secret: {leakage:.3f} nats ({least:.3f} to {most:.3f})",
                *utility,
                f"{self.attack:,} records to learn from, {self.validation:,} to tune the "
                f"attackers, {self.test:,} to test on; 95% intervals",
                *(f"warning: {reason}" for reason in raised),
            ]
        )

    @staticmethod
    def _text(value: float, low: float, high: float) -> str:
        return f"{value:.3f} ({low:.3f} to {high:.3f})"

    def _conclusion(self, least: float, most: float) -> str:
        """Sentence about the interval of the excess over the floor."""
        if least > 0:
            return f"the release reveals the secret: at least {least:.3f} above the floor"
        half = (most - least) / 2
        unseen = max(most, half)
        if unseen <= _SMALL:
            return f"these attackers find no leak: at most {unseen:.3f} above the floor"
        reason = (
            f"the interval reaches {most:.3f} above the floor"
            if most > half
            else f"the interval is so wide (± {half:.3f}) that a leak of this size may go unseen"
        )
        return f"cannot tell: with {self.test:,} records to test on, {reason}; check more records"


def check_release(
    releaser: TrainedReleaser,
    records: Path,
    released: Path,
    panel: ProfileName = "full",
    labels: Path | None = None,
    report: Callable[[], None] = lambda: None,
) -> ReleaseCheck:
    """Fits fresh attackers to a release, and scores them on records that they did not see.

    Attackers have the releaser, so they release their own records again with other noise.

    Args:
        records: File or folder of the original records.
        released: That of their release.
        labels: Table of the secrets, if the records have none.
        report: Called between steps of the training.

    Raises:
        DataError: If secrets are absent, or the releaser was trained on a packaged problem.
    """
    encoding: RecordEncoding = releaser.description.encoding
    problem = checked_problem(releaser, records, labels)
    z = torch.from_numpy(problem.encode_release(encoding.read_release(released)))
    config = AdversarialConfig.model_validate({"problem": problem.reference, "panel": panel})
    pool, (splits,) = load_pool(problem, [config], "cpu")
    known = np.concatenate([splits.train, splits.attack])
    own = subsample(known, min(len(known), PROFILES[panel].records))
    parts = {"attack": own, "validation": splits.validation, "test": splits.test}

    secret = pool.secret[own].numpy() if problem.spec.is_sequential else None

    def redraw(stream: str) -> Tensor:
        seed = int(generator(config.seed, stream).integers(2**62))
        again = releaser.release(problem.x[own], seed, secret)
        return torch.from_numpy(encoding.reencode(again))

    is_random = not torch.equal(redraw("one"), redraw("other"))
    exposures = (select_exposure(pool, parts[p], z[parts[p]]) for p in PARTS)
    evidence = Evidence(*exposures, is_random=is_random, redraw=redraw if is_random else None)
    raw = select_exposure(pool, parts["test"])
    utility = {"normalised error": normalized_error(problem, config, raw, evidence.test)}
    for result in _score(problem, config, evidence):
        if result is None:
            report()
        elif isinstance(result, PanelResult):
            score = result
        else:
            utility["accuracy of a network that was fitted to the release"] = result
    estimates = {text: (estimate.value, estimate.error) for text, estimate in utility.items()}
    return ReleaseCheck(score, estimates, len(own), len(splits.validation), len(splits.test))


def checked_problem(
    releaser: TrainedReleaser, records: Path, labels: Path | None = None
) -> OwnProblem:
    """Problem of the original records, with their secrets; arguments as of `check_release`.

    Raises:
        DataError: If secrets are absent, or the releaser was trained on a packaged problem.
    """
    reference = releaser.description.problem
    if not isinstance(reference, OwnReference):
        raise DataError(f"a check needs a releaser of the user's own records; got {reference}.")
    return open_records(reference.describe(records, labels), releaser.description.encoding)


def _score(
    problem: OwnProblem, config: AdversarialConfig, evidence: Evidence
) -> Generator[PanelResult | Estimate | None]:
    fits = discard_progress(fit_utility(problem, [config], [evidence], "refitted utility"))
    (utility,) = yield from fits
    if utility.likeliest_labels is not None:
        yield utility_accuracy(torch.from_numpy(utility.log_p), evidence.test)
    labels, panel = [utility.likeliest_labels], build_panel(problem, config)
    yield from score_releases([evidence], panel, [config], labels)
