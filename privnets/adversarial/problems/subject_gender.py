"""Faces that keep the person's identity and hide the gender; splits share people."""

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
    recognition_by_class,
    recognition_measures,
)
from privnets.data.faces.collection import UNKNOWN, FaceLabels
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

if TYPE_CHECKING:
    from privnets.adversarial.records import AttackerGuesses, KnownRows, Release

_SECRETS: Final = ("women", "men")
_MAN_PROBABILITIES: Final = tuple(
    f"diagnostic/man_probability_{of}"
    for of in ("prior", "men", "women", "gap_of_men", "gap_of_women")
)


class SubjectGenderProblem(FaceProblem):
    """The person's identity is useful, and the gender is secret.

    People are those with at least 20 images, or the 100 of them with most. Identity determines the
    gender. So no release can keep the identity and hide the gender from fresh attackers; it can
    only fool a network that is held fixed.
    """

    divides_people = True
    lfw_records = 3_023
    lfw_people: ClassVar[int] = 62

    @cached_property
    def spec(self) -> ProblemSpec:  # type: ignore[override]
        """Description, with a class for each person."""
        is_lfw = self._collection == "lfw"
        people = self.lfw_people if is_lfw else int(self._records.utility.max()) + 1
        measures = ("accuracy", "top5_accuracy")
        spec = face_spec("subject-gender", (2, people), measures, recognition_measures(_SECRETS))
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

    def attacker_details(
        self, guesses: AttackerGuesses, rows: KnownRows, prior: NDArray[np.float64]
    ) -> Mapping[str, Estimate]:
        """Recognition of women and of men; see `recognition_by_class`."""
        return recognition_by_class(_SECRETS, guesses, rows)
