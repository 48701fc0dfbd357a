"""Attacks that compare a saved signal, or the error of a model, with a threshold."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from privnets.attacks.base import Attack
from privnets.attacks.view import Array, AttackerView, BoolArray

_TINY = 1e-300
NOT_GIVEN: Final = "this signal was not given"
NO_TRAINING = "the errors and the training loss of the models are not observed"


class SavedSignal(Attack):
    """Signal of this name, larger for more likely members."""

    family = "threshold"

    def __init__(self, name: str, paper: str) -> None:
        """Names the signal and the source of the attack."""
        self.name, self.paper = name, paper

    def why_unavailable(self, view: AttackerView) -> str | None:
        """The signal must be given."""
        has_signal = view.outputs is not None and self.name in view.outputs.values
        return None if has_signal else NOT_GIVEN

    def score(self, view: AttackerView) -> Array:
        """The signal."""
        assert view.outputs is not None  # by `why_unavailable`
        return view.outputs.values[self.name]


_YEOM = "Yeom et al., CSF 2018, arXiv 1709.01604"
_SONG = "Song and Mittal, USENIX Security 2021, arXiv 2003.10595"

LOSS: Final = SavedSignal("loss", _YEOM)
CONFIDENCE: Final = SavedSignal("confidence", _SONG)
ENTROPY: Final = SavedSignal("entropy", _SONG)
MODIFIED_ENTROPY: Final = SavedSignal("modified_entropy", _SONG)
LOGIT: Final = SavedSignal(
    "logit", "log-odds of the true class, Carlini et al., IEEE S&P 2022, arXiv 2112.03570"
)
SCORE: Final = SavedSignal("score", "score of the user")
CORRECTNESS: Final = SavedSignal("correctness", _YEOM)


class ThresholdGaussian(Attack):
    """Calls a record a member if its error is below the crossing of two centred Gaussians.

    arXiv 2001.10648, section 6 (attack of Yeom et al.). The standard deviations of members' and
    other records' errors come from the reference models. If members' errors are not smaller, no
    record is called a member.
    """

    name = "threshold_gaussian"
    family = "threshold"
    paper = "arXiv 2001.10648, section 6"

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Errors must be observed."""
        return NO_TRAINING if view.training is None else None

    def score(self, view: AttackerView) -> Array:
        """Scores minus the size of the error."""
        assert view.training is not None  # by `why_unavailable`
        return -np.abs(view.training.error)

    def choose_threshold(self, view: AttackerView) -> float:
        """Minus the crossing; a member's error is smaller, not equal."""
        assert view.training is not None  # by `why_unavailable`
        error, member = view.training.error_of_references, view.references.member
        crossing = gaussian_crossing(*error_deviations(error, member))
        return float(np.nextafter(-crossing, math.inf))


class ThresholdMeanLoss(Attack):
    """Calls a record a member if its loss is at most the mean training loss (Yeom et al.).

    The training loss is not a function of the parameters alone, so no bound applies.
    """

    name = "threshold_mean_loss"
    family = "threshold"
    paper = _YEOM
    bounds = ()
    threshold = 0.0

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Losses in training must be observed."""
        return NO_TRAINING if view.training is None else None

    def score(self, view: AttackerView) -> Array:
        """Compares the loss with the training loss of the same model."""
        assert view.training is not None  # by `why_unavailable`
        own, mean = (
            np.log(np.maximum(loss, _TINY))
            for loss in (view.training.loss, view.training.mean_loss)
        )
        ratio: Array = mean - own
        return ratio


def error_deviations(error: Array, member: BoolArray) -> tuple[float, float]:
    """Root-mean-square error among members and among other records."""
    inside, outside = (
        math.sqrt(float(np.square(error[side]).mean())) for side in (member, ~member)
    )
    return inside, outside


def gaussian_crossing(inside: float, outside: float) -> float:
    """Point at which the densities of two centred Gaussians cross; 0 if r <= 1.

    e* = s_out sqrt(2 ln r / (r^2 - 1)), r = s_out / s_in, from the standard deviations of
    members' (`inside`) and other records' errors (arXiv 2001.10648, section 6).
    """
    if not outside > inside:
        return 0.0
    if inside <= 0:
        return _TINY
    ratio = outside / inside
    return outside * math.sqrt(2 * math.log(ratio) / (ratio**2 - 1))


def gaussian_threshold_advantage(inside: float, outside: float) -> float:
    """Advantage of `ThresholdGaussian` on centred Gaussian errors with these deviations.

    erf(e* / (s_in sqrt 2)) - erf(e* / (s_out sqrt 2)).
    """
    threshold = gaussian_crossing(inside, outside)
    if threshold == 0.0:
        return 0.0
    if inside <= 0:
        return 1.0
    root = math.sqrt(2)
    return math.erf(threshold / (inside * root)) - math.erf(threshold / (outside * root))
