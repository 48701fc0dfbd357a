"""Training steps as CUDA graphs, which start all kernels of a step at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

Step = Callable[[Sequence[Tensor]], dict[str, Tensor]]
"""Function of tensors, such as a batch. It changes its other tensors in place."""

_WARM_UPS = 3  # first calls, in which libraries choose kernels and allocate workspaces


class StepRunner:
    """Takes the steps of one stack; on a CUDA device from a graph that it captures.

    It keeps no reference to the step, whose owner would then never be freed at once.
    """

    def __init__(self, device: torch.device, *, captures: bool = True) -> None:
        """Prepares to run steps on a device, without a graph unless `captures`."""
        self._calls = 0
        can_capture = captures and device.type == "cuda"
        self._stream = _capture_stream(device) if can_capture else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: dict[str, Tensor] = {}

    def run(self, step: Step, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns what `step` returns: eagerly at first, and then by the graph.

        Inputs of other shapes than those of the graph are also computed eagerly.
        """
        if self._stream is None:
            return step(inputs)
        with torch.cuda.device(self._stream.device):
            self._calls += 1
            if self._calls == _WARM_UPS + 1:
                self._capture(self._stream, step, inputs)
            pairs = zip(self._inputs, inputs, strict=True)
            if self._graph is None or any(own.shape != given.shape for own, given in pairs):
                current = torch.cuda.current_stream()
                self._stream.wait_stream(current)
                with torch.cuda.stream(self._stream):
                    outputs = step(inputs)
                current.wait_stream(self._stream)
                return outputs
            if inputs:
                torch._foreach_copy_(self._inputs, list(inputs))
            self._graph.replay()
            return {name: tensor.clone() for name, tensor in self._outputs.items()}

    def _capture(self, stream: torch.cuda.Stream, step: Step, inputs: Sequence[Tensor]) -> None:
        """Records a step without taking it."""
        graph, own = torch.cuda.CUDAGraph(), [tensor.clone() for tensor in inputs]
        try:
            # A failed capture leaves its stream as the current one; the outer context restores it.
            # Other threads, such as those of attackers, may use the device meanwhile.
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._outputs = step(own)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            message = f"training is slower, as its steps cannot be a CUDA graph: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self._graph, self._inputs = graph, own


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all graphs of a device; cuBLAS keeps a workspace for each that it saw."""
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream
