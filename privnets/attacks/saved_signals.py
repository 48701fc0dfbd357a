"""Attacks that call a record a member if one saved signal of the model is above a threshold."""

from __future__ import annotations

from typing import Final

from privnets.attacks.base import Attack
from privnets.attacks.view import Array, AttackerView

NOT_GIVEN: Final = "this signal was not given"


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
