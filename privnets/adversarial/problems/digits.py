"""Images of digits: the shared base, and scikit-learn's 8x8 digits for quick runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import (
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
    stratified_sizes,
    stratified_split,
    subsample,
)

if TYPE_CHECKING:
    from privnets.adversarial.records import Release

THIN: Final = 0
THICK: Final = 1

_RECORDS, _SIDE, _LARGEST_LEVEL = 1_797, 8, 16
_SHARES = (8, 7, 2, 3)  # of train, attack, validation and test: 40, 35, 10 and 15%
_EXAMPLES = 20


class DigitImages(Problem):
    """Images of digits: the digit is useful and the thickness of its strokes is secret.

    Attributes:
        data_set: Name in `privnets.data`.
        side: Height and width of an image, in pixels.
        whole_sizes: Records in each split without `train_size`.
    """

    data_set: ClassVar[str]

    side: ClassVar[int]
    whole_sizes: ClassVar[tuple[int, ...]]

    def split_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Sizes of the whole splits, or fewer training images where asked for."""
        train, attack, validation, test = self.whole_sizes
        train = config.train_size or train
        return SplitSizes(train, attack, validation, test, (1, self.side, self.side))

    def size_limits(self) -> dict[str, int]:
        """Size of the whole train split."""
        return {"train_size": self.whole_sizes[0]}

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the published files, or of the digits that scikit-learn ships."""
        return data.fingerprint(self.data_set)

    def release_details(self, release: Release) -> ReleaseDetails:
        """Shows up to 20 test images before and after release, each digit thin and thick."""
        original, released = release.original.test, release.released.test
        assert original.utility is not None
        secret, digit = original.secret.cpu().numpy(), original.utility.cpu().numpy()
        rows = example_records(secret, digit, _EXAMPLES)
        arrays = {
            "original": original.z.cpu().numpy()[rows],
            "released": released.z.cpu().numpy()[rows],
            "secret": secret[rows],
            "utility": digit[rows],
        }
        return ReleaseDetails(artifacts={"release.safetensors": save(arrays)})


class DigitsProblem(DigitImages):
    """1,797 digits of 8x8 pixels; the secret is whether a digit has much ink.

    An image is thick if its pixels sum to more than the median sum over all images of its digit,
    else thin; the 23 images at a median are thin. So the digit says little about the secret. Labels
    do not depend on the seed; the split does, stratified by digit and secret.
    """

    spec = ProblemSpec(
        name="digits",
        secret_classes=2,
        utility_classes=10,
        pixels=True,
        shows_labels=True,
        releasers=("mlp", "convolutional"),
        defaults={"releaser_width": 128, "steps": 1000, "batch_size": 64},
    )

    data_set = "digits"
    side = _SIDE
    whole_sizes = tuple(stratified_sizes(_RECORDS, _SHARES))

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """All digits, and a split for each configuration."""
        ink, digit, thick = _labelled_digits(data.fingerprint("digits"))
        records = RecordArrays(scale_pixels(ink, _LARGEST_LEVEL), thick, digit)
        strata = 2 * digit + thick
        return records, [Splits(*subsampled_split(config, strata, _SHARES)) for config in configs]

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """All digits, of which each seed draws a test split at random."""
        return self.name, self.whole_sizes[-1] / _RECORDS


def example_records(
    secret: NDArray[np.int64], utility: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """The first records of each pair of labels, as evenly as possible.

    Returns:
        At most `most` indices, ordered by utility label and then by secret.
    """
    pairs = sorted({*zip(utility.tolist(), secret.tolist(), strict=True)})
    each = max(1, most // len(pairs))
    rows = [np.flatnonzero((utility == u) & (secret == s))[:each] for u, s in pairs]
    return np.concatenate(rows)[:most]


def subsampled_split(
    config: AdversarialConfig, strata: NDArray[np.int64], shares: Sequence[int]
) -> list[NDArray[np.int64]]:
    """A stratified split, its train part reduced to `train_size` records."""
    train, *others = stratified_split(strata, shares, config.seed)
    return [subsample(train, config.train_size), *others]


def scale_pixels(levels: NDArray[np.generic], largest: int) -> NDArray[np.float32]:
    """Grey levels [n, h, w] from 0 to `largest` as pixels [n, 1, h, w] in [0, 1]."""
    pixels: NDArray[np.float32] = levels.astype(np.float32) / np.float32(largest)
    return pixels[:, None]


@lru_cache(maxsize=1)
def _labelled_digits(
    _fingerprint: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Grey levels [1797, 8, 8] from 0 to 16, digits [1797], and the secret [1797]."""
    table = data.load("digits")
    digit = table.y.astype(np.int64)
    levels = table.x.astype(np.float64)
    ink = levels.sum(axis=1)
    medians = np.array([np.median(ink[digit == d]) for d in range(10)])
    return levels.reshape(-1, _SIDE, _SIDE), digit, (ink > medians[digit]).astype(np.int64)
