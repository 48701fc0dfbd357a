"""Steps of a game as CUDA graphs, which start all kernels of a step at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from privnets.adversarial.records import Minibatch

Step = Callable[[Sequence[Minibatch], Tensor], dict[str, Tensor]]
"""Function of batches and a factor on learning rates. It changes its other tensors in place."""

_WARM_UPS = 3  # first calls, in which libraries choose kernels and allocate workspaces


class StepRunner:
    """Takes the steps of one stack; on a CUDA device from a graph that it captures.

    It keeps no reference to the step, whose owner would then never be freed at once.
    """

    def __init__(self, device: torch.device) -> None:
        """Prepares to run steps on a device; all have batches of equal shapes."""
        self._calls = 0
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: dict[str, Tensor] = {}

    def run(self, step: Step, batches: Sequence[Minibatch], scale: Tensor) -> dict[str, Tensor]:
        """Returns what `step` returns: eagerly at first, and then by the graph."""
        if self._stream is None:
            return step(batches, scale)
        self._calls += 1
        if self._calls == _WARM_UPS + 1:
            self._capture(step, batches, scale)
        if self._graph is None:
            return _call_on_stream(self._stream, step, batches, scale)
        torch._foreach_copy_(self._inputs, _tensors(batches, scale))
        self._graph.replay()
        return {name: tensor.clone() for name, tensor in self._outputs.items()}

    def _capture(self, step: Step, batches: Sequence[Minibatch], scale: Tensor) -> None:
        """Records a step without taking it."""
        graph, own_scale = torch.cuda.CUDAGraph(), scale.clone()
        clones: list[Any] = [{n: t.clone() for n, t in b.tensors().items()} for b in batches]
        own = [replace(batch, **fields) for batch, fields in zip(batches, clones, strict=True)]
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._outputs = step(own, own_scale)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            message = f"training is slower, as its steps cannot be a CUDA graph: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self._graph, self._inputs = graph, _tensors(own, own_scale)


def _call_on_stream(
    stream: torch.cuda.Stream, step: Step, batches: Sequence[Minibatch], scale: Tensor
) -> dict[str, Tensor]:
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        outputs = step(batches, scale)
    current.wait_stream(stream)
    return outputs


def _tensors(batches: Sequence[Minibatch], scale: Tensor) -> list[Tensor]:
    return [scale, *(tensor for batch in batches for tensor in batch.tensors().values())]
