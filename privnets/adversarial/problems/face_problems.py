"""Problems on faces (ICLR 2019 submission): whose gender, smile or identity is useful or secret.

- `gender-emotion`: the gender is useful, and whether the person smiles is secret.
- `subject-gender`: the identity is useful, and the gender is secret.
- `subject-within-subject`: identity is useful where a user consents, and secret elsewhere, so each
  image has one label only. Some of the private users are observed while the releaser trains;
  attackers meet all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.evidence import AttackerGuesses, KnownRows, Release
from privnets.adversarial.problem import (
    SHARES,
    ProblemSpec,
    ReleaseDetails,
    stratified_sizes,
    stratified_split,
)
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

_MAN_PROBABILITIES: Final = tuple(
    f"diagnostic/man_probability_{of}"
    for of in ("prior", "men", "women", "gap_of_men", "gap_of_women")
)
_GROUPS: Final = ("consenting", "observed", "unobserved")
_TURNS: Final = (0, 1, 0, 2)
"""Group of the people, in the order of their numbers of images, again and again."""
_MEASURES: Final = ("accuracy", "top5_accuracy")
_KINDS: Final = ("baseline", "release")


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


class SubjectWithinSubjectProblem(FaceProblem):
    """The identity of half of the people is useful, that of the others secret.

    People are those with at least 20 images, or the 100 of them with most. A quarter is private
    and observed in training. Another quarter is private and appears only after training.
    """

    divides_people = True
    lfw_records = 3_023
    lfw_people: ClassVar[int] = 62
    lfw_unobserved: ClassVar[int] = 577

    @cached_property
    def spec(self) -> ProblemSpec:  # type: ignore[override]
        """Description, with a class of the utility label or of the secret for each person."""
        people = self.lfw_people if self._is_lfw else len(np.unique(self._records.person))
        consenting, observed, unobserved = np.bincount(_groups(people), minlength=3).tolist()
        attacks = [f"attacker_{m}/{group}" for m in _MEASURES for group in _GROUPS[1:]]
        classes = (observed + unobserved, consenting)
        spec = face_spec("subject-within-subject", classes, _MEASURES, attacks)
        keys = (
            *spec.extra_metrics,
            *(_verification_key(*each) for each in product(_KINDS, _GROUPS)),
        )
        return replace(spec, extra_metrics=keys, shows_labels=False, has_either_label=True)

    def select(self, labels: FaceLabels) -> FaceRecords:
        """Images of people with many; the secret has observed people first."""
        people = people_with_many_images(labels.identity)
        groups = _groups(len(people))
        rows = np.flatnonzero(np.isin(labels.identity, people))
        order = np.argsort(people)
        place = order[np.searchsorted(people, labels.identity[rows], sorter=order)]
        consenting, observed, unobserved = (np.flatnonzero(groups == i) for i in range(3))
        secret = _number(np.r_[observed, unobserved], len(people))[place]
        utility = _number(consenting, len(people))[place]
        return FaceRecords(rows, labels.identity[rows], secret, utility, None)

    @staticmethod
    def measure(
        log_p: NDArray[np.float64], label: NDArray[np.int64], prior: NDArray[np.float64]
    ) -> Mapping[str, Scores]:
        """Identity scores by beliefs without the prior; every person has the same weight.

        So numbers of images help no group: without the release, k guesses find k / C of people.
        """
        weight = 1 / np.bincount(label)[label]
        scores = identity_scores(log_p - np.log(prior), label)
        return {name: (right * weight, each * weight) for name, (right, each) in scores.items()}

    def attacker_details(
        self, guesses: AttackerGuesses, rows: KnownRows, prior: NDArray[np.float64]
    ) -> Mapping[str, Estimate]:
        """Scores of `measure` for observed and for unobserved private people."""
        scores = self.measure(guesses.log_p, rows.secret, prior)
        found = {}
        for group, is_group in zip(_GROUPS[1:], self._is_group(rows.secret), strict=True):
            for name, (right, each) in scores.items():
                estimate = estimates.ratio(right * is_group, each * is_group, rows.cluster)
                found[f"attacker_{name}/{group}"] = estimate
        return found

    def release_details(self, release: Release) -> ReleaseDetails:
        """Adds verification by the network of raw images."""
        details = super().release_details(release)
        if release.raw_utility is None:
            return details
        test = release.original.test
        assert test.group is not None
        secret, person = test.secret.cpu().numpy(), test.group.cpu().numpy()
        members = (secret == UNKNOWN, *self._is_group(secret))
        raw, released = (log_p.double().cpu().numpy() for log_p in release.raw_utility)
        found, notes = {}, dict(details.notes)
        for kind, probes in zip(_KINDS, (raw, released), strict=True):
            for group, own in zip(_GROUPS, members, strict=True):
                key = _verification_key(kind, group)
                estimate = verification(probes[own], raw[own], person[own])
                if estimate is None:
                    notes[key] = "fewer than two people of the group have two test images"
                else:
                    found[key] = estimate
        return replace(details, notes=notes).with_estimates(found)

    def _is_group(self, secret: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether secrets are those of observed, and of unobserved people."""
        people = self.spec.secret_classes + self.spec.utility_classes
        observed = int((_groups(people) == 1).sum())
        return (secret != UNKNOWN) & (secret < observed), secret >= observed

    @cached_property
    def _counts(self) -> list[int]:
        count, later = self.lfw_records, self.lfw_unobserved
        if not self._is_lfw:
            is_later = self._is_group(self._records.secret)[1]
            count, later = len(is_later), int(is_later.sum())
        train, *parts = stratified_sizes(count - later, SHARES)
        unseen = stratified_sizes(later, SHARES[1:])
        return [train, *(a + b for a, b in zip(parts, unseen, strict=True))]

    def _split(self, seed: int) -> list[NDArray[np.int64]]:
        """Parts sorted by person; unobserved people are in all but the first."""
        records = self._records
        later = self._is_group(records.secret)[1]
        own, unseen = np.flatnonzero(~later), np.flatnonzero(later)
        train, *parts = stratified_split(records.person[own], SHARES, seed)
        others = stratified_split(records.person[unseen], SHARES[1:], seed)
        joined = (np.r_[own[a], unseen[b]] for a, b in zip(parts, others, strict=True))
        rest = (part[np.argsort(records.person[part], kind="stable")] for part in joined)
        return [own[train], *rest]


def verification(
    probe: NDArray[np.float64], gallery: NDArray[np.float64], person: NDArray[np.int64]
) -> Estimate | None:
    """Area under the ROC curve of verification, averaged over ordered pairs of people.

    For each probe of the first person, other images of that person compete with those of the second
    person. Equal probes of all people have 0.5. Embeddings are log probabilities, and their
    closeness is the cosine of the angle between them without their means.

    Args:
        probe: Log probabilities of the images to verify, shape [n, C].
        gallery: Those of the same images before release, of which a probe meets all but its own.
        person: Person of each image, shape [n]; people with one image do not count.

    Returns:
        Area with the jackknife's error over people, which is NaN for two; None for fewer.
    """
    several = np.bincount(person, minlength=1)[person] > 1
    people, place, counts = np.unique(person[several], return_inverse=True, return_counts=True)
    if len(people) < 2:
        return None
    areas = np.zeros((len(people), len(people)))
    closeness = _subtract_mean(probe[several]) @ _subtract_mean(gallery[several]).T
    for i, row in enumerate(closeness):
        is_same = place == place[i]
        is_same[i] = False
        same = np.sort(row[is_same])
        above = len(same) - sum(np.searchsorted(same, row, side) / 2 for side in ("left", "right"))
        areas[place[i]] += np.bincount(place, above) / (counts * len(same) * counts[place[i]])
    np.fill_diagonal(areas, 0)
    both = (areas + areas.T).sum(1) / 2 / (len(people) - 1)
    left_out = (len(people) - 1) / (len(people) - 2) if len(people) > 2 else np.nan
    influence = left_out * 2 * (both - both.mean()) / len(people)
    return Estimate.of_records(float(both.mean()), influence, people)


def _subtract_mean(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    values = log_p - log_p.mean(1, keepdims=True)
    unit: NDArray[np.float64] = values / np.maximum(np.linalg.norm(values, axis=1), 1e-12)[:, None]
    return unit


def _groups(people: int) -> NDArray[np.int64]:
    """Group of each person in the order of numbers of images, as an index of `_GROUPS`."""
    return np.resize(np.array(_TURNS), people)


def _number(members: NDArray[np.int64], people: int) -> NDArray[np.int64]:
    """Place of each of the people among `members`, `UNKNOWN` for others."""
    number = np.full(people, UNKNOWN)
    number[members] = np.arange(len(members))
    return number


def _verification_key(kind: str, group: str) -> str:
    of_release = "utility" if group == "consenting" else "privacy"
    first = of_release if kind == "release" else kind
    return f"{first}/raw_network_verification/{group}"
