"""Faces whose gender is a label: useful beside a secret smile, or secret beside the identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.problem import ProblemSpec, ReleaseDetails
from privnets.adversarial.problems.faces import (
    FaceProblem,
    FaceRecords,
    Scores,
    face_spec,
    identity_scores,
    people_with_many_images,
)
from privnets.data.faces import UNKNOWN, FaceLabels
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

if TYPE_CHECKING:
    from privnets.adversarial.records import AttackerGuesses, KnownRows, Release

_MAN_PROBABILITIES: Final = tuple(
    f"diagnostic/man_probability_{of}"
    for of in ("prior", "men", "women", "gap_of_men", "gap_of_women")
)


class AttributeProblem(FaceProblem):
    """Faces with a secret of two classes.

    Attributes:
        secrets: Names of the classes.
    """

    secrets: ClassVar[tuple[str, str]]

    @classmethod
    def describe(cls, name: str, utility_classes: int, measures: tuple[str, ...]) -> ProblemSpec:
        """Description; `measures` are the names that `measure` gives."""
        kinds = ("recall", "probability")
        keys = [f"attacker_{kind}/{secret}" for kind in kinds for secret in cls.secrets]
        return face_spec(name, (2, utility_classes), measures, keys)

    def attacker_details(
        self, guesses: AttackerGuesses, rows: KnownRows, prior: NDArray[np.float64]
    ) -> Mapping[str, Estimate]:
        """Share of each class that is recognised, and its mean probability.

        The probability of an uninformative release is the class's share.
        """
        found = {}
        for place, name in enumerate(self.secrets):
            own = (rows.secret == place).astype(float)
            right, belief = (guesses.decision == place) * own, np.exp(guesses.log_p[:, place]) * own
            found[f"attacker_recall/{name}"] = estimates.ratio(right, own, rows.cluster)
            found[f"attacker_probability/{name}"] = estimates.ratio(belief, own, rows.cluster)
        return found


class GenderEmotionProblem(AttributeProblem):
    """The person's gender is useful, and whether the person smiles is secret.

    Splits share no person.
    """

    secrets = ("not_smiling", "smiling")
    lfw_records = 12_442

    @cached_property
    def spec(self) -> ProblemSpec:  # type: ignore[override]
        """Description."""
        measures = ("accuracy", "balanced_accuracy", "accuracy_men", "accuracy_women")
        return self.describe("gender-emotion", 2, measures)

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


class SubjectGenderProblem(AttributeProblem):
    """The person's identity is useful, and the gender is secret; splits share people.

    People are those with at least 20 images, or the 100 of them with most. Identity determines the
    gender. So no release can keep the identity and hide the gender from fresh attackers; it can
    only fool a network that is held fixed.
    """

    secrets = ("women", "men")
    divides_people = True
    lfw_records = 3_023
    lfw_people: ClassVar[int] = 62

    @cached_property
    def spec(self) -> ProblemSpec:  # type: ignore[override]
        """Description, with a class for each person."""
        people = self.lfw_people if self._is_lfw else int(self._records.utility.max()) + 1
        spec = self.describe("subject-gender", people, ("accuracy", "top5_accuracy"))
        return replace(spec, extra_metrics=(*spec.extra_metrics, *_MAN_PROBABILITIES))

    def select(self, labels: FaceLabels) -> FaceRecords:
        """Images of people with many, whose gender is known."""
        known = np.flatnonzero(labels.male != UNKNOWN)
        people = np.sort(people_with_many_images(labels.identity[known]))
        rows = known[np.isin(labels.identity[known], people)]
        identity = labels.identity[rows]
        number = np.searchsorted(people, identity)
        return FaceRecords(rows, identity, labels.male[rows], number, None)

    def release_details(self, release: Release) -> ReleaseDetails:
        """Adds what the game's network of the gender believes about men and about women."""
        details = super().release_details(release)
        secret = release.released.test.secret.cpu().numpy()
        man = release.adversary[:, 1].exp().double().cpu().numpy()
        assert release.released.test.group is not None
        person = release.released.test.group.cpu().numpy()
        prior = estimates.mean(secret.astype(float), person)
        beliefs = [
            estimates.ratio(man * is_gender, is_gender.astype(float), person)
            for is_gender in (secret == 1, secret == 0)
        ]
        gaps = [replace(gap, value=abs(gap.value)) for gap in (each - prior for each in beliefs)]
        found = dict(zip(_MAN_PROBABILITIES, (prior, *beliefs, *gaps), strict=True))
        return details.with_estimates(found)

    @staticmethod
    def measure(
        log_p: NDArray[np.float64], label: NDArray[np.int64], prior: NDArray[np.float64]
    ) -> Mapping[str, Scores]:
        """See `identity_scores`."""
        return identity_scores(log_p, label)
