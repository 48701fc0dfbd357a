"""Stacks of torch modules of equal shape, computed from stacked parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

Tensors: TypeAlias = Mapping[str, Tensor]


class ModuleStack:
    """Computes modules of equal shape from parameters and buffers with a leading dimension S.

    Attributes:
        module: Module that is called with the tensors of each of the modules.
        vectorised: Whether one call serves all modules (`torch.func.vmap`), else one call each. A
            module that branches on values of its input, or draws random numbers, needs the latter.
    """

    def __init__(self, module: torch.nn.Module, *, vectorised: bool = True) -> None:
        """Wraps a module; its own parameters are not used."""
        self.module, self.vectorised = module, vectorised
        self._names = [name for name, _ in module.named_parameters()]

    def __call__(
        self, parameters: Sequence[Tensor], *inputs: Tensor, buffers: Tensors | None = None
    ) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by parameters [S, ...], in module order.

        In training, the module may change `buffers` [S, ...] in place.
        """
        state = dict(zip(self._names, parameters, strict=True)) | dict(buffers or {})
        if self.vectorised:
            stacked: Tensor = vmap(self._call, randomness="error")(state, *inputs)
            return stacked
        outputs = [
            self._call({name: tensor[i] for name, tensor in state.items()}, *(x[i] for x in inputs))
            for i in range(len(inputs[0]))
        ]
        return torch.stack(outputs)

    def _call(self, state: Tensors, *inputs: Tensor) -> Tensor:
        output: Tensor = functional_call(self.module, dict(state), inputs)
        return output


def stack_states(
    modules: Sequence[torch.nn.Module], device: str
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Stacks the parameters and the buffers of modules, each to [S, ...], in float32."""
    parameters, buffers = stack_module_state([module.float().to(device) for module in modules])
    detached = [tensor.detach() for tensor in parameters.values()]
    return detached, {name: tensor.detach() for name, tensor in buffers.items()}
