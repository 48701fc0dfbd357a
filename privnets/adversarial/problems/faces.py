"""Photographs of faces with a useful label and a secret one (ICLR 2019 submission).

Standard errors are clustered by person.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import ImageEncoding
from privnets.adversarial.evidence import Release
from privnets.adversarial.problem import (
    SHARES,
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
    class_frequencies,
    stratified_sizes,
    stratified_split,
)
from privnets.adversarial.problems.digits import example_images
from privnets.data import UserFormError
from privnets.data.catalog import DATASETS, combined_fingerprint
from privnets.data.faces import UNKNOWN, FaceLabels, FaceSource
from privnets.data.files import directory
from privnets.points import Scalar
from privnets.randomness import generator
from privnets.references.problems import ProblemSettings
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

Scores: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numerator and denominator of a share, as `estimates.ratio` takes them, shape [n] each."""

_USED_SHARE: Final = 0.97  # people are not divided, so that some images fit into no split
_DEFAULTS: Final[Mapping[str, Scalar]] = {
    "objective": "squared-kl",
    "scenario": "fixed-utility",
    "releaser": "unet",
    "releaser_width": 64,
    "adversary_width": 32,
    "steps": 20_000,
    "pretrain_steps": 2_000,
    "batch_size": 64,
}
_ATTACKER_WIDTH: Final = 64
"""Of the full panel; the quick one has half of it, as much as the adversary by default."""
_KINDS: Final = ("baseline", "utility")
"""First parts of the keys of a network of raw images: on the raw records, and on the release."""
_MIN_IMAGES: Final = 20  # of a person whose identity is a label
_MAX_PEOPLE: Final = 100
_TOP: Final = 5
_MAX_NUMBERS: Final = 2**30  # pixels of all images, times channels; 4 GiB
_EXAMPLES: Final = 24


class FaceSettings(ProblemSettings):
    """Settings of a problem on faces."""

    collection: Literal["lfw", "celeba"] = Field(default="lfw", description="data set of faces")
    size: int = Field(
        default=64,
        ge=16,
        le=512,
        description="height and width to which images are resized, in pixels",
    )
    examples: bool = Field(
        default=False,
        description="whether points store some test images before and after release; off by "
        "default, as the collections are photographs of real people, for research only",
    )


@dataclass(frozen=True, eq=False)
class FaceRecords:
    """Images that a problem uses, by their row in the collection, and their labels, shape [n].

    `is_test` is that of `FaceLabels`. A label that does not count is `UNKNOWN`.
    """

    rows: NDArray[np.int64]
    person: NDArray[np.int64]
    secret: NDArray[np.int64]
    utility: NDArray[np.int64]
    is_test: NDArray[np.bool_] | None


def face_spec(
    name: str,
    classes: tuple[int, int],
    network_measures: Sequence[str],
    attacker_measures: Sequence[str],
) -> ProblemSpec:
    """Description of a problem with classes of the secret and of the utility label.

    Measures are names that `FaceProblem.measure` and `FaceProblem.attacker_details` give.
    """
    keys = [f"{kind}/raw_network_{m}" for kind in _KINDS for m in network_measures]
    keys += [f"{kind}/{m}" for kind in ("baseline", "privacy") for m in attacker_measures]
    return ProblemSpec(
        name=name,
        secret_classes=classes[0],
        utility_classes=classes[1],
        network="separable",
        pixels=True,
        shows_labels=True,
        attacker_width=_ATTACKER_WIDTH,
        releasers=("mlp", "convolutional", "unet", "fader"),
        defaults=_DEFAULTS,
        extra_metrics=tuple(keys),
        has_judge=False,
    )


class FaceProblem(Problem):
    """Images of a collection of faces with two labels.

    Attributes:
        divides_people: Whether splits share people, as they must where identity is a label.
        lfw_records: Images of LFW that `select` finds, known without reading it.
    """

    divides_people: ClassVar[bool] = False
    lfw_records: ClassVar[int]

    Settings = FaceSettings

    def __init__(self, settings: FaceSettings | None = None) -> None:
        """Describes the images of a collection, without reading it; by default LFW's."""
        self._settings = settings or FaceSettings()
        self._collection, self._size = self._settings.collection, self._settings.size

    def configured(self, settings: ProblemSettings) -> FaceProblem:
        """The problem, once per process; its images are read when training needs them."""
        assert isinstance(settings, FaceSettings)
        return _face_problem(type(self), settings, directory())

    @abstractmethod
    def select(self, labels: FaceLabels) -> FaceRecords:
        """Images that the problem uses."""

    @staticmethod
    @abstractmethod
    def measure(
        log_p: NDArray[np.float64], label: NDArray[np.int64], prior: NDArray[np.float64]
    ) -> Mapping[str, Scores]:
        """Accuracies by name, of log probabilities [n, C] for known labels [n] with prior [C]."""

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of images, in colour."""
        return SplitSizes.from_counts(self._counts, (3, self._size, self._size))

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the published files, and of the way images and releases are read.

        Raises:
            DataError: If the data set is absent or altered.
            UserFormError: If images of this size need too much memory.
        """
        count = sum(self._counts)
        if count * 3 * self._size**2 > _MAX_NUMBERS:
            given = f"{self._size} for {count:,} images"
            largest = math.isqrt(_MAX_NUMBERS // (3 * count))
            raise UserFormError(
                f"problem.{self.name}.size", given, f"at most {largest}, to fit into 4 GiB"
            )
        # The quick panel read releases by other networks before.
        form = f"{self.name} {self._collection} {self._size} centre, convolutional quick panel"
        return combined_fingerprint(form, (self._source.fingerprint(),))

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """All images of the problem, and a split for each configuration."""
        records = self._records
        arrays = RecordArrays(self._x, records.secret, records.utility, group=records.person)
        return arrays, [Splits(*self._split(config.seed)) for config in configs]

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """All images, of which each seed draws those of some people, or the published ones."""
        sizes = self._counts
        is_drawn = self._is_lfw or self._records.is_test is None
        return f"{self.name} {self._collection}", sizes[-1] / sum(sizes) if is_drawn else 1.0

    def record_encoding(self, config: AdversarialConfig) -> ImageEncoding:
        """Square images of the size that the releaser was trained on."""
        return ImageEncoding(size=self._size)

    def release_details(self, release: Release) -> ReleaseDetails:
        """Accuracy of the network of raw images on raw and on released ones; examples if asked."""
        found: dict[str, Estimate] = {}
        notes: dict[str, str] = {}
        test = release.original.test
        assert test.utility is not None
        assert test.group is not None
        label, person = test.utility.cpu().numpy(), test.group.cpu().numpy()
        known = label != UNKNOWN
        if release.raw_utility is None:
            reason = "the objective trains no utility network on raw images in scenario joint"
            keys = [key for key in self.spec.extra_metrics if "raw_network" in key]
            notes = dict.fromkeys(keys, reason)
        else:
            attack = release.original.attack.utility
            assert attack is not None
            known_attack = attack[attack != UNKNOWN].cpu().numpy()
            prior = class_frequencies(known_attack, self.spec.utility_classes)
            for kind, log_p in zip(_KINDS, release.raw_utility, strict=True):
                beliefs = log_p.double().cpu().numpy()[known]
                measures = self.measure(beliefs, label[known], prior)
                for name, scores in measures.items():
                    found[f"{kind}/raw_network_{name}"] = estimates.ratio(*scores, person[known])
        artifacts = example_images(release, _EXAMPLES) if self._settings.examples else {}
        return ReleaseDetails(notes=notes, artifacts=artifacts).with_estimates(found)

    @property
    def _source(self) -> FaceSource:
        source = DATASETS.get(self._collection)
        assert isinstance(source, FaceSource)
        return source

    @property
    def _is_lfw(self) -> bool:
        """Whether the sizes are known without reading the collection."""
        return self._collection == "lfw"

    @cached_property
    def _counts(self) -> list[int]:
        """Images in each split."""
        count = self.lfw_records if self._is_lfw else len(self._records.rows)
        if self.divides_people:
            return stratified_sizes(count, SHARES)
        is_test = None if self._is_lfw else self._records.is_test
        if is_test is None:
            return stratified_sizes(int(_USED_SHARE * count), SHARES)
        sizes = stratified_sizes(int(_USED_SHARE * np.count_nonzero(~is_test)), SHARES[:3])
        return [*sizes, int(np.count_nonzero(is_test))]

    @property
    def _records(self) -> FaceRecords:
        return self.select(self._source.labels())

    @cached_property
    def _x(self) -> NDArray[np.float32]:
        """Pixels in [0, 1], read once per process, shape [n, 3, size, size]."""
        levels = self._source.pixels(self._records.rows, self._size)
        x: NDArray[np.float32] = levels.astype(np.float32) / np.float32(255)
        x.setflags(write=False)
        return x

    def _split(self, seed: int) -> list[NDArray[np.int64]]:
        """Parts sorted by labels.

        Where the authors keep images for tests, these are the test split of all seeds.
        """
        records, sizes = self._records, self._counts
        if self.divides_people:
            return stratified_split(records.utility, SHARES, seed)
        order = np.lexsort((records.utility, records.secret))
        if records.is_test is None:
            parts = split_by_person(records.person, sizes, seed)
        else:
            own, test = np.flatnonzero(~records.is_test), np.flatnonzero(records.is_test)
            others = split_by_person(records.person[own], sizes[:-1], seed)
            parts = [*(own[part] for part in others), test]
        return [order[np.isin(order, part)] for part in parts]


@lru_cache(maxsize=4)
def _face_problem(kind: type[FaceProblem], settings: FaceSettings, _directory: Path) -> FaceProblem:
    return kind(settings)


def people_with_many_images(identity: NDArray[np.int64]) -> NDArray[np.int64]:
    """The 100 people with most images, those with at least 20, the most first."""
    counts = np.bincount(identity)
    most = np.argsort(-counts, kind="stable")[:_MAX_PEOPLE]
    people: NDArray[np.int64] = most[counts[most] >= _MIN_IMAGES]
    return people


def identity_scores(log_p: NDArray[np.float64], label: NDArray[np.int64]) -> Mapping[str, Scores]:
    """Accuracy of the first, and of the first five guesses; ties and NaN are wrong."""
    own = log_p[np.arange(len(label)), label][:, None]
    others = (~(log_p < own)).sum(1) - 1
    each = np.ones(len(label))
    return {
        "accuracy": ((others < 1).astype(float), each),
        "top5_accuracy": ((others < _TOP).astype(float), each),
    }


def split_by_person(
    person: NDArray[np.int64], sizes: Sequence[int], seed: int
) -> list[NDArray[np.int64]]:
    """Divides images into parts of given sizes, none of which share a person.

    People come in the order of their numbers of images, the largest first, and go to a random part
    with room for them, in proportion to the room. Once a person fits nowhere, the part with most
    room gets as many of the images as it has room for. The other images are in no part.

    Args:
        person: Person of each image, shape [n].
        sizes: Together less than n, by more than people with few images have.
    """
    random = generator(seed, "splits")
    people, place, counts = np.unique(person, return_inverse=True, return_counts=True)
    images = np.split(np.argsort(place, kind="stable"), np.cumsum(counts)[:-1])
    shuffled = random.permutation(len(people))
    order = shuffled[np.argsort(-counts[shuffled], kind="stable")]
    room, parts = np.array(sizes), [[np.empty(0, dtype=np.int64)] for _ in sizes]
    for one, draw in zip(order, random.random(len(order)), strict=True):
        fits = room * (room >= counts[one])
        part = int(room.argmax())
        if fits.any():
            part = int(np.searchsorted(fits.cumsum(), draw * fits.sum(), side="right"))
        parts[part].append(images[one][: room[part]])
        room[part] -= len(parts[part][-1])
    return [np.concatenate(part) for part in parts]
