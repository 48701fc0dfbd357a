"""Faces that keep the gender and hide whether the person smiles; splits share no person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.problems.faces import (
    FaceProblem,
    FaceRecords,
    Scores,
    face_spec,
    recognition_by_class,
    recognition_measures,
)
from privnets.data.faces.collection import UNKNOWN, FaceLabels
from privnets.statistics.estimates import Estimate

if TYPE_CHECKING:
    from privnets.adversarial.records import AttackerGuesses, KnownRows

_SECRETS: Final = ("not_smiling", "smiling")
_MEASURES: Final = ("accuracy", "balanced_accuracy", "accuracy_men", "accuracy_women")


class GenderEmotionProblem(FaceProblem):
    """The person's gender is useful, and whether the person smiles is secret."""

    lfw_records = 12_442
    spec = face_spec("gender-emotion", (2, 2), _MEASURES, recognition_measures(_SECRETS))

    def select(self, labels: FaceLabels) -> FaceRecords:
        """Images with both labels."""
        rows = np.flatnonzero((labels.male != UNKNOWN) & (labels.smiling != UNKNOWN))
        is_test = None if labels.is_test is None else labels.is_test[rows]
        return FaceRecords(
            rows, labels.identity[rows], labels.smiling[rows], labels.male[rows], is_test
        )

    @staticmethod
    def measure(
        log_p: NDArray[np.float64], label: NDArray[np.int64], prior: NDArray[np.float64]
    ) -> Mapping[str, Scores]:
        """Accuracy, its mean over both genders, and that for men and for women."""
        right = (log_p.argmax(1) == label).astype(float)
        men, women = (label == 1).astype(float), (label == 0).astype(float)
        balance = men / max(men.sum(), 1) + women / max(women.sum(), 1)
        return {
            "accuracy": (right, np.ones(len(label))),
            "balanced_accuracy": (right * balance, balance),
            "accuracy_men": (right * men, men),
            "accuracy_women": (right * women, women),
        }

    def attacker_details(
        self, guesses: AttackerGuesses, rows: KnownRows, prior: NDArray[np.float64]
    ) -> Mapping[str, Estimate]:
        """Recognition of smiles and of their absence; see `recognition_by_class`."""
        return recognition_by_class(_SECRETS, guesses, rows)
