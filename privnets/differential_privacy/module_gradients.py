"""Clipped gradients of torch modules, as stacks, from one pass of their own `forward`.

Gradients are taken by `recording`. They are compared with gradients of single records on a few
records before training. Where they differ, or where a module has operations that cannot be
recorded, records are passed through the module one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from privnets.differential_privacy.per_example import (
    ClippedGradients,
    ExampleGradients,
    GradientsOf,
    Loss,
    Materialised,
    clipping,
)
from privnets.differential_privacy.recording import Forward, Layouts, recorded_gradients
from privnets.differential_privacy.tape import Tape, TapeForward, tape_gradients
from privnets.networks.module_stacks import split_tensors, tied_names

_ELEMENTWISE: Final = (
    nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid,
    nn.Softplus,
)  # fmt: skip
_POOLING: Final = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
# Records that gradients are compared on; other numbers if a dimension of the module has that size.
_TRIED = (5, 7, 11)
_TRIED_MODELS = 2
# Largest difference of gradients, relative to their norm; 16-bit operations have errors of 0.01.
_TOLERANCE = 0.03
# Images or series whose activations are held at once: of each model on a CPU, of all on a GPU.
_CPU_RECORDS, _GPU_RECORDS = 32, 4096
_MATERIALISED_NUMBERS = 2**25
_ALL = 2**40


def clipped_gradients(
    module: nn.Module,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
) -> tuple[ClippedGradients, str]:
    """Chooses how the per-example gradients of modules are taken, in training mode.

    Args:
        module: Module that is called with the tensors of each of S modules of equal shape; several
            are called together, by `torch.func.vmap`.
        parameters: Trained parameters, each of shape [S, ...], in the order of the module.
        constants: Frozen parameters and buffers, each of shape [S, ...].
        x: Some records, shape [S, n, ...].
        y: Their targets, shape [S, n].
        loss: Loss of each record.

    Returns:
        Clipped gradients, and in words why records pass one at a time; empty if they do not.

    Raises:
        ValueError: If a record's gradient depends on other records of its batch.
    """
    for name, layer in module.train().named_modules():
        is_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if is_norm and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"layer {name} is a {type(layer).__name__}, which mixes the records of a batch; "
                "DP-SGD needs normalisation of single records, such as nn.GroupNorm."
            )
    if (sequence := _sequence(module, is_vector=x.ndim == 3)) is not None:
        return _in_chunks(clipping(tape_gradients(sequence, loss)), _most_records(x)), ""
    tried = slice(_TRIED_MODELS)
    own = [p[tried] for p in parameters], {name: t[tried] for name, t in constants.items()}
    layouts, materialised, reason = _Trial(module, *own, x[tried], y[tried], loss).run()
    forward = _forward_of(module, training=True)
    gradients = (
        single_gradients(forward, loss, constants)
        if reason
        else recorded_gradients(forward, loss, constants, layouts)
    )
    most = _MATERIALISED_NUMBERS // max(1, materialised * len(x))
    return _in_chunks(clipping(gradients), max(1, min(most, _most_records(x)))), reason


def _most_records(x: Tensor) -> int:
    """Number of records of each model whose activations are held at once."""
    if x.ndim == 3:
        return _ALL
    return max(1, _GPU_RECORDS // len(x)) if x.is_cuda else _CPU_RECORDS


def single_gradients(forward: Forward, loss: Loss, constants: Mapping[str, Tensor]) -> GradientsOf:
    """Takes gradients by a pass for each record; slow, but right for any module."""

    def gradients(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        models = []
        for i in range(len(x)):
            held = {name: tensor[i] for name, tensor in constants.items()}
            leaves = [parameter[i].detach().requires_grad_() for parameter in parameters]
            examples = []
            for own_x, own_y in zip(torch.split(x[i], 1), torch.split(y[i], 1), strict=True):
                with torch.enable_grad():
                    total = loss(forward(leaves, held, own_x)[None], own_y[None]).sum()
                examples.append(torch.autograd.grad(total, leaves, materialize_grads=True))
            models.append([torch.stack(own) for own in zip(*examples, strict=True)])
        return [Materialised(torch.stack(own)) for own in zip(*models, strict=True)]

    return gradients


def _sequence(module: nn.Module, is_vector: bool) -> TapeForward | None:
    """Forward pass of a stack of plain sequences of layers; None for any other module.

    It takes half the time of a pass by `torch.func.vmap`.
    """
    layers = list(_leaves(module))
    for layer in layers:
        kind = type(layer)
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
            is_vector = True
        elif not (
            (kind is nn.Linear and is_vector)
            or (isinstance(layer, nn.Conv2d) and not is_vector and _has_form(layer))
            or (kind in _POOLING and not is_vector)
            or kind in _ELEMENTWISE
        ):
            return None
    own = [list(layer.parameters()) for layer in layers]
    given = [parameter for each in own for parameter in each]
    has_hooks = any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())
    if has_hooks or len({*map(id, given)}) < len(given) or not all(p.requires_grad for p in given):
        return None

    def forward(tape: Tape, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        remaining = iter(parameters)
        for layer, parts in zip(layers, own, strict=True):
            tensors = list(islice(remaining, len(parts)))
            if isinstance(layer, nn.Linear):
                x = tape.dense(x, *tensors, is_transposed=True)
            elif isinstance(layer, nn.Conv2d):
                x = tape.convolve(x, tensors[0], tensors[1], layer.stride[0])
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(layer, _POOLING):
                x = layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                x = layer(x)
        return x

    return forward


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _has_form(layer: nn.Conv2d) -> bool:
    """Whether a convolution is one of `privnets.networks.convolution`."""
    side = layer.kernel_size[0]
    padding = layer.padding if layer.padding != "same" else (side // 2, side // 2)
    return (
        type(layer) is nn.Conv2d
        and side % 2 == 1
        and layer.kernel_size == (side, side)
        and padding == (side // 2, side // 2)
        and layer.stride[0] == layer.stride[1]
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and layer.bias is not None
    )


@dataclass(frozen=True, eq=False)
class _Trial:
    """Modules on some records before training; see `clipped_gradients`."""

    module: nn.Module
    parameters: Sequence[Tensor]
    constants: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    loss: Loss

    def run(self) -> tuple[Layouts, int, str]:
        """Compares recorded gradients with those of single records.

        Returns:
            Layouts of the module's operations; the number of numbers of a record's gradient that
            are materialised; and why gradients cannot be recorded, else an empty string.

        Raises:
            ValueError: If records of a batch influence each other.
        """
        reason = ""
        with torch.random.fork_rng():
            training = torch.equal(self._outputs(True), self._outputs(True))  # draws nothing
            self._require_separate_records(training)
            for count in _TRIED:
                index = torch.arange(count, device=self.x.device) % self.x.shape[1]
                few = self.parameters, self.x[:, index], self.y[:, index]
                right = single_gradients(self._forward(training), self.loss, self._held())(*few)
                layouts: Layouts = {}
                try:
                    found, _ = (
                        recorded_gradients(self._forward(mode), self.loss, self._held(), layouts)(
                            *few
                        )
                        for mode in (training, True)
                    )
                except Exception as error:  # of any type, from `vmap` or the module
                    reason = str(error).partition("\n")[0].partition(". ")[0]
                    continue
                if _agree(found, right):
                    kinds = [each.gradients for each in found if isinstance(each, Materialised)]
                    return layouts, sum(each[0, 0].numel() for each in kinds), ""
                reason = "gradients of its operations differ from those of single records"
        return {}, sum(parameter[0].numel() for parameter in self.parameters), reason

    def _require_separate_records(self, training: bool) -> None:
        """Refuses a module in which records of a batch influence each other.

        Raises:
            ValueError: If outputs depend on the batch, or buffers on its records.
        """
        states = [self._held() for _ in range(min(2, self.x.shape[1]))]
        for i, state in enumerate(states):
            torch.manual_seed(0)
            self._outputs(True, slice(i, i + 1), state)
        for name, tensor in states[0].items():
            if not torch.equal(tensor, states[-1][name]):
                raise ValueError(
                    f"training changes buffer {name} by its records, which DP-SGD does not "
                    "protect; use a module whose buffers do not depend on records."
                )
        alone = [
            self._outputs(training, slice(i, i + 1)) for i in range(min(_TRIED[0], self.x.shape[1]))
        ]
        together = self._outputs(training, slice(len(alone)))
        if not (together - torch.cat(alone)).norm() <= _TOLERANCE * together.norm():
            raise ValueError(
                "outputs for a record depend on the other records of its batch; DP-SGD needs a "
                "module that computes each record by itself."
            )

    @torch.no_grad()
    def _outputs(
        self, training: bool, records: slice = slice(None), held: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Outputs of the first model."""
        own = {name: tensor[0] for name, tensor in (held or self._held()).items()}
        parameters = [parameter[0] for parameter in self.parameters]
        return self._forward(training)(parameters, own, self.x[0, records])

    def _held(self) -> dict[str, Tensor]:
        """Copies of constants, which a forward pass may change."""
        return {name: tensor.clone() for name, tensor in self.constants.items()}

    def _forward(self, training: bool) -> Forward:
        return _forward_of(self.module, training=training)


def _agree(found: Sequence[ExampleGradients], right: Sequence[ExampleGradients]) -> bool:
    """Whether gradients are equal up to rounding, for each parameter."""
    pairs = [(own.values(), true.values()) for own, true in zip(found, right, strict=True)]
    floor = 1e-4 * torch.stack([true.norm() for _, true in pairs]).norm()
    return all(
        bool((own - true).norm() <= _TOLERANCE * torch.maximum(true.norm(), floor))
        for own, true in pairs
    )


def _forward_of(module: nn.Module, *, training: bool) -> Forward:
    """Forward pass of a module in training or evaluation mode."""
    names, aliases = list(split_tensors(module)[0]), tied_names(module)

    def forward(parameters: Sequence[Tensor], constants: Mapping[str, Tensor], x: Tensor) -> Tensor:
        if module.training != training:
            module.train(training)
        state = dict(zip(names, parameters, strict=True)) | dict(constants)
        tied = {alias: state[name] for alias, name in aliases.items()}
        output: Tensor = functional_call(module, state | tied, (x,), tie_weights=False)
        return output

    return forward


def _in_chunks(clipped: ClippedGradients, chunk: int) -> ClippedGradients:
    """Adds up the gradients of some examples of each model at a time."""

    def total(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        sums: list[Tensor] = []
        for own in zip(*(torch.split(each, chunk, dim=1) for each in (x, y, counted)), strict=True):
            part = clipped(parameters, own[0], own[1], clip, own[2])
            if not sums:
                sums = [each.contiguous() for each in part]
            else:
                torch._foreach_add_(sums, part)
        return sums

    return total
