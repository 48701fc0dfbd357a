"""Fastest form of each stacked layer, by kind of device.

Forms compute the same values, up to rounding, by other operations. The choice depends on shapes
and on the kind of device alone, so that metrics do not depend on a machine's past.

On CPUs the choice is that of measured training steps (`benchmarks/network_forms.py`). On GPUs none
was timed: the choice has the fewest kernels in a captured step, as counted at up to 180 networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from torch import Tensor


class LayerForms(NamedTuple):
    """Forms of the layers on one kind of device.

    Attributes:
        groups_convolutions: Whether convolutions of all networks are one grouped convolution, else
            some networks at a time, with channels innermost in memory.
        looped_lstms: Largest number of networks for which PyTorch's LSTM runs one network after
            another; each time step is a batched product for more.
        vectorises_modules: Whether a stack of convolutional modules runs as one, else one by one.
    """

    groups_convolutions: bool
    looped_lstms: float
    vectorises_modules: bool


# A looped LSTM of `eco` has 137 kernels a network, and one step by step 11,152 for any number.
_FORMS: Final[Mapping[str, LayerForms]] = {
    "cpu": LayerForms(False, float("inf"), False),
    "cuda": LayerForms(True, 80, True),
}


def fastest_forms(x: Tensor) -> LayerForms:
    """Returns the forms for the device of a tensor."""
    return _FORMS.get(x.device.type, _FORMS["cpu"])
