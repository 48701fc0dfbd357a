"""Images of digits: the shared base, and scikit-learn's 8x8 digits for quick runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import Release
from privnets.adversarial.problem import (
    SHARES,
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
    split_records,
    stratified_sizes,
)

THIN: Final = 0
THICK: Final = 1

_RECORDS, _SIDE, _LARGEST_LEVEL = 1_797, 8, 16
_EXAMPLES = 20


class DigitImages(Problem):
    """Images of digits: the digit is useful and the thickness of its strokes is secret.

    Subclasses name their `data_set`, the `side` of an image in pixels, and `counts` of splits.
    """

    data_set: ClassVar[str]
    side: ClassVar[int]
    counts: ClassVar[Sequence[int]]

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of images, one grey channel each."""
        return SplitSizes.from_counts(self.counts, (1, self.side, self.side))

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the published files, or of the digits that scikit-learn ships."""
        return data.fingerprint(self.data_set)

    def release_details(self, release: Release) -> ReleaseDetails:
        """Shows up to 20 test images before and after release, each digit thin and thick."""
        return ReleaseDetails(artifacts=example_images(release, _EXAMPLES))


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
    counts = stratified_sizes(_RECORDS, SHARES)

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """All digits, and a split for each configuration."""
        ink, digit, thick = _labelled_digits(data.fingerprint("digits"))
        records = RecordArrays(scale_pixels(ink, _LARGEST_LEVEL), thick, digit)
        return records, split_records(2 * digit + thick, configs)

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """All digits, of which each seed draws a test split at random."""
        return self.name, self.counts[-1] / _RECORDS


def example_images(release: Release, most: int) -> dict[str, bytes]:
    """At most `most` test images before and after release, as evenly of all pairs of labels.

    They are ordered by utility label and then by secret.
    """
    original, released = release.original.test, release.released.test
    assert original.utility is not None
    secret, utility = original.secret.cpu().numpy(), original.utility.cpu().numpy()
    pairs = sorted({*zip(utility.tolist(), secret.tolist(), strict=True)})
    each = max(1, most // len(pairs))
    of_pairs = [np.flatnonzero((utility == u) & (secret == s))[:each] for u, s in pairs]
    rows = np.concatenate(of_pairs)[:most]
    images = {"original": original.z, "released": released.z}
    arrays = {name: z.cpu().numpy()[rows] for name, z in images.items()}
    labels = {"secret": secret[rows], "utility": utility[rows]}
    return {"release.safetensors": save({**arrays, **labels})}


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
