"""Check of a released file: the panel of attackers on records whose secret the user knows."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.attackers.neural import fit_utility
from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    discard_progress,
    score_releases,
)
from privnets.adversarial.attackers.profiles import PROFILES, ProfileName
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import RecordEncoding
from privnets.adversarial.problem import subsample
from privnets.adversarial.problems.own import OwnProblem, OwnReference
from privnets.adversarial.records import PARTS, Evidence, load_pool, select_exposure
from privnets.adversarial.trained_releaser import TrainedReleaser
from privnets.data import DataError
from privnets.randomness import generator

_BEST: Final = "privacy/attacker_balanced_accuracy"
_FLOOR: Final = "floor/attacker_balanced_accuracy"
_LEAKAGE: Final = "privacy/leakage"
_INTERVAL: Final = 1.96  # standard errors, for 95%
_SMALL: Final = 0.05  # excess of balanced accuracy that a check must be able to see


@dataclass(frozen=True, eq=False)
class ReleaseCheck:
    """Success of the panel on a released file.

    Attributes:
        result: Scores of every attacker.
        attack: Records that attackers learned from.
        validation: Records that tuned them.
        test: Records that they are scored on.
    """

    result: PanelResult
    attack: int
    validation: int
    test: int

    def interval(self, key: str) -> tuple[float, float, float]:
        """Value of a metric and its 95% interval, from the errors of the test records."""
        value = self.result.metrics[key]
        error = _INTERVAL * self.result.standard_errors.get(key, float("nan"))
        return value, value - error, value + error

    @property
    def verdict(self) -> str:
        """Strongest attacker, floor and leakage in sentences."""
        accuracy, low, high = self.interval(_BEST)
        floor, notes = self.result.metrics[_FLOOR], self.result.notes
        leakage, least, most = self.interval(_LEAKAGE)
        raised = [notes[key] for key in sorted(notes) if key.startswith("flag/")]
        return "\n".join(
            [
                f"balanced accuracy of the strongest attacker: {accuracy:.3f} "
                f"({low:.3f} to {high:.3f}), floor {floor:.3f}",
                self._conclusion(low - floor, high - floor),
                f"strongest attacker: {notes[_BEST]}",
                f"the floor is that {notes[_FLOOR]}",
                f"leakage of the secret: {leakage:.3f} nats ({least:.3f} to {most:.3f})",
                f"{self.attack:,} records to learn from, {self.validation:,} to tune the "
                f"attackers, {self.test:,} to test on; 95% intervals",
                *(f"warning: {reason}" for reason in raised),
            ]
        )

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
        panel: Size and training of the attackers.
        labels: Table of the secrets, if the records have none.
        report: Called between steps of the training.

    Raises:
        DataError: If secrets are absent, or the releaser was trained on a packaged problem.
    """
    encoding: RecordEncoding = releaser.description.encoding
    problem = checked_problem(releaser, records, labels)
    z = torch.from_numpy(problem.encode_release(encoding.read(released)))
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
    for result in _score(problem, config, evidence):
        if result is None:
            report()
        else:
            score = result
    return ReleaseCheck(score, len(own), len(splits.validation), len(splits.test))


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
    return reference.describe(records, labels).problem(releaser.description.encoding)


def _score(
    problem: OwnProblem, config: AdversarialConfig, evidence: Evidence
) -> Generator[PanelResult | None]:
    fits = discard_progress(fit_utility(problem, [config], [evidence], "refitted utility"))
    (utility,) = yield from fits
    labels, panel = [utility.likeliest_labels], build_panel(problem, config)
    yield from score_releases([evidence], panel, [config], labels)
