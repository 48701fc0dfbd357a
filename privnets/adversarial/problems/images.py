"""What the problems on images of digits share: splits, networks, and pictures of the release."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets import measures
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Examined, Problem, Releaser
from privnets.adversarial.problems.images_statement import DigitImagesStatement
from privnets.adversarial.records import Exposure
from privnets.adversarial.training.releasers import EncoderDecoder, PerceptronReleaser
from privnets.networks.architecture import Architecture

_SHOWN = 20


class DigitImages(Problem):
    """Images of digits: the digit is to be kept and the thickness of its strokes to be hidden."""

    statement: ClassVar[DigitImagesStatement]

    def releaser(self, config: AdversarialConfig) -> Releaser:
        """An encoder and decoder, or a perceptron that gives pixels."""
        side, width = self.statement.side, config.releaser_width
        if config.releaser == "convolutional":
            return EncoderDecoder(side, width)
        return PerceptronReleaser((1, side, side), width, pixels=True)

    def adversary(self, config: AdversarialConfig) -> Architecture:
        """Infers thickness."""
        return self.classifier(config.adversary_width, self.statement.secret_classes)

    def utility(self, config: AdversarialConfig) -> Architecture:
        """Infers the digit."""
        return self.classifier(config.adversary_width, self.statement.utility_classes)

    def attacking_networks(self, config: AdversarialConfig) -> Mapping[str, Architecture]:
        """One like the adversary, and one of twice its width and a layer more."""
        wide = self.classifier(2 * config.adversary_width, self.statement.secret_classes, True)
        return {"network": self.adversary(config), "large_network": wide}

    def dependence_bound(self, config: AdversarialConfig, secret: Tensor, utility: Tensor) -> float:
        """I(U;S) by frequencies, for an image shows both, so that I(U;S|X) is zero."""
        shape = self.statement.utility_classes, self.statement.secret_classes
        cells = shape[1] * utility.long() + secret.long()
        counts = torch.bincount(cells.cpu(), minlength=math.prod(shape))
        joint = counts.view(shape).double() / len(cells)
        return float(measures.mutual_information(joint))

    def examine(
        self,
        config: AdversarialConfig,
        parameters: Sequence[Tensor],
        original: Exposure,
        released: Exposure,
    ) -> Examined:
        """Up to 20 images before and after: a thin and a thick one of every digit."""
        from safetensors.torch import save

        rows = examples(original.secret.cpu().numpy(), _utility(original).cpu().numpy(), _SHOWN)
        chosen = torch.from_numpy(rows)
        tensors = {
            "original": original.z.cpu()[chosen].float(),
            "released": released.z.cpu()[chosen].float(),
            "secret": original.secret.cpu()[chosen].long(),
            "utility": _utility(original).cpu()[chosen].long(),
        }
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        return Examined(artifacts={"release.safetensors": content})

    @abstractmethod
    def classifier(self, width: int, classes: int, larger: bool = False) -> Architecture:
        """A network that infers a label from an image."""


def examples(secret: NDArray[np.int64], utility: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The first records of each pair of labels, as evenly as they are there.

    Returns:
        At most `most` indices, ordered by utility label and then by secret.
    """
    pairs = sorted({*zip(utility.tolist(), secret.tolist(), strict=True)})
    each = max(1, most // max(1, len(pairs)))
    rows: Iterable[int] = (
        int(row) for u, s in pairs for row in np.flatnonzero((utility == u) & (secret == s))[:each]
    )
    return np.fromiter(rows, dtype=np.int64)[:most]


def as_pixels(levels: NDArray[np.generic], largest: int) -> Tensor:
    """Images [n, h, w] of grey levels as float32 [n, 1, h, w] in [0, 1]."""
    return torch.from_numpy(levels.astype(np.float32) / largest).unsqueeze(1)


def _utility(exposure: Exposure) -> Tensor:
    if exposure.utility is None:
        raise ValueError("images of digits have a utility label; got none.")
    return exposure.utility
