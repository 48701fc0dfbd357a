"""Clipped gradients of torch modules, as stacks, from one pass of their own `forward`.

Gradients are taken by `recording`, record by record where a module cannot be mapped over records.
Both are compared on a few records before training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from privnets.differential_privacy.module_state import (
    attributes,
    changed_buffer,
    check_attributes,
    check_buffers,
    equal,
)
from privnets.differential_privacy.per_example import (
    ClippedGradients,
    ExampleGradients,
    GradientsOf,
    Loss,
    Materialised,
    clipping,
)
from privnets.differential_privacy.recording import recorded_gradients
from privnets.differential_privacy.tape import Tape, TapeForward, tape_gradients
from privnets.networks.module_stacks import (
    draws_random_numbers,
    mixes_records,
    seeded,
    split_tensors,
    tied_names,
)

_ELEMENTWISE: Final = (
    nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid,
    nn.Softplus,
)  # fmt: skip
_POOLING: Final = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_GHOST = "ghost clipping"
_HOOK_ADVICE = "DP-SGD clips gradients of single records, without hooks; remove it."
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
    batch: int = 0,
) -> tuple[ClippedGradients, str]:
    """Chooses how the per-example gradients of modules are taken, in training mode.

    Args:
        module: Module that is called with the tensors of each of S modules of equal shape; several
            are called together, by `torch.func.vmap`.
        parameters: Trained parameters, each of shape [S, ...], in the order of the module.
        constants: Frozen parameters and buffers, each of shape [S, ...]. Buffers may change once
            in a step.
        x: Some records, shape [S, n, ...], which differ.
        y: Their targets, shape [S, n].
        loss: Loss of each record.
        batch: Records in a batch of training, if records are to be computed in one of its size too.

    Returns:
        Clipped gradients, and in words how they are taken.

    Raises:
        ValueError: If a record's gradient depends on other records of its batch, the module keeps
            state of its records, or hooks change gradients. Steps raise it too.
    """
    _check_hooks(module)
    for name, layer in module.train().named_modules():
        is_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if is_norm and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"layer {name} is a {type(layer).__name__}, which mixes the records of a batch; "
                "DP-SGD needs normalisation of single records, such as nn.GroupNorm."
            )
    if (sequence := _sequence(module, is_vector=x.ndim == 3)) is not None:
        return _in_chunks(clipping(tape_gradients(sequence, loss)), _most_records(x)), _GHOST
    call = _Call(module)
    tried = slice(_TRIED_MODELS)
    own = [p[tried] for p in parameters], {name: t[tried] for name, t in constants.items()}
    few = x[tried], y[tried]
    with seeded(0):
        changing, replaced = _changed_buffers(call, *own, few[0], min(batch, _most_records(x)))
        call = replace(call, changing=changing)
        copied: set[int] = set()
        materialised, reason = _try_recording(call, *own, *few, loss, copied, replaced)
    if reason:
        gradients = single_gradients(call, loss, constants)
        how = f"each example's gradient was computed: {reason}"
    else:
        gradients = recorded_gradients(call, loss, constants, copied)
        how = _GHOST
        if copied:
            how = f"each example's gradient of {len(copied)} of {len(parameters)} parameters was "
            how += f"computed, {_GHOST} of others" if len(copied) < len(parameters) else "computed"
    most = _MATERIALISED_NUMBERS // max(1, materialised * len(x))
    clipped = _in_chunks(clipping(gradients), max(1, min(most, _most_records(x))))
    return (_advancing(clipped, call, constants) if call.changing else clipped), how


def _check_hooks(module: nn.Module) -> None:
    """Refuses hooks that change gradients, which plain training calls on sums over records."""
    for name, parameter in module.named_parameters():
        hooks = parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None)
        if any(hooks):
            raise ValueError(f"parameter {name} has a hook on its gradient; {_HOOK_ADVICE}")
    for name, layer in module.named_modules():
        if layer._backward_hooks or layer._backward_pre_hooks:
            given = f"layer {name}" if name else "the module"
            raise ValueError(f"{given} has a hook on its backward pass; {_HOOK_ADVICE}")


def _most_records(x: Tensor) -> int:
    """Number of records of each model whose activations are held at once."""
    if x.ndim == 3:
        return _ALL
    return max(1, _GPU_RECORDS // len(x)) if x.is_cuda else _CPU_RECORDS


def single_gradients(call: _Call, loss: Loss, constants: Mapping[str, Tensor]) -> GradientsOf:
    """Takes gradients by a pass for each record; slow, but right for any module.

    Raises ValueError if buffers or attributes change by a record.
    """

    def gradients(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        models = []
        before = attributes(call.module)
        for i in range(len(x)):
            held = {name: tensor[i] for name, tensor in constants.items()}
            leaves = [parameter[i].detach().requires_grad_() for parameter in parameters]
            expected = call.after_step(leaves, held, x[i])
            examples = []
            for own_x, own_y in zip(torch.split(x[i], 1), torch.split(y[i], 1), strict=True):
                with torch.enable_grad():
                    outputs, after = call.change(leaves, _copies(held), own_x)
                    total = loss(outputs[None], own_y[None]).sum()
                examples.append(torch.autograd.grad(total, leaves, materialize_grads=True))
                check_buffers(after, expected)
            models.append([torch.stack(own) for own in zip(*examples, strict=True)])
        check_attributes(before, call.module)
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
class _Call:
    """Forward pass of one model by a module; see `Forward`.

    Attributes:
        changing: Names of the buffers that change in training; a call leaves them as they were.
        training: Whether the module is in training mode.
    """

    module: nn.Module
    changing: frozenset[str] = frozenset()
    training: bool = True

    def __call__(
        self, parameters: Sequence[Tensor], constants: Mapping[str, Tensor], x: Tensor
    ) -> Tensor:
        """Outputs of records [B, ...]."""
        kept = _copies(constants)
        output, after = self.change(parameters, kept, x)
        for name in kept:  # `vmap` refuses other changes by records
            if after[name] is not kept[name]:
                raise changed_buffer(name)
        return output

    def change(
        self, parameters: Sequence[Tensor], constants: Mapping[str, Tensor], x: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Outputs of records [B, ...], and constants after the call, which may change those."""
        if self.module.training != self.training:
            self.module.train(self.training)
        state = dict(zip(self._names, parameters, strict=True)) | dict(constants)
        state |= {alias: state[name] for alias, name in self._aliases.items()}
        # A module may change its inputs.
        output: Tensor = functional_call(self.module, state, (x.clone(),), tie_weights=False)
        return output, {name: state[name] for name in constants}

    def after_step(
        self, parameters: Sequence[Tensor], constants: Mapping[str, Tensor], x: Tensor
    ) -> Mapping[str, Tensor]:
        """Constants after a pass of a record of zeros, like x, so that they hold no record."""
        if not constants:
            return {}
        with torch.no_grad():
            return self.change(parameters, _copies(constants), torch.zeros_like(x[:1]))[1]

    @cached_property
    def _names(self) -> list[str]:
        return list(split_tensors(self.module)[0])

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return tied_names(self.module)


def _copies(constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in constants.items()}


def _changed_buffers(
    call: _Call,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    batch: int,
) -> tuple[frozenset[str], str]:
    """Finds the buffers that a pass of the first model changes.

    Returns:
        Names of those with other numbers; name of one that is another tensor, else empty.

    Raises:
        ValueError: If outputs depend on the other records of a batch, or state on records.
    """
    before, own = {n: tensor[0] for n, tensor in constants.items()}, [p[0] for p in parameters]
    kept = attributes(call.module)
    with seeded(1):
        expected = call.after_step(own, before, x[0])
    replaced = ""

    @torch.no_grad()
    def outputs(records: Tensor) -> Tensor:
        nonlocal replaced
        held = _copies(before)
        with seeded(0):
            found, after = call.change(own, held, records)
        check_buffers(after, expected)
        replaced = next((name for name in held if after[name] is not held[name]), replaced)
        return found

    is_mixed = mixes_records(outputs, x[0], batch)
    check_attributes(kept, call.module)
    if is_mixed:
        raise ValueError(
            "outputs for a record depend on the other records of its batch; DP-SGD needs a "
            "module that computes each record by itself."
        )
    return frozenset(n for n, tensor in before.items() if not equal(expected[n], tensor)), replaced


def _try_recording(
    call: _Call,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    copied: set[int],
    replaced: str,
) -> tuple[int, str]:
    """Compares recorded gradients with those of single records.

    A module that draws random numbers is compared in evaluation mode.

    Returns:
        Number of numbers of a record's gradient that are materialised; why gradients cannot be
        recorded, else an empty string.
    """
    numbers = sum(parameter[0].numel() for parameter in parameters)
    if replaced:
        return numbers, f"training replaces buffer {replaced}"
    first = [p[0] for p in parameters], {name: t[0] for name, t in constants.items()}

    @torch.no_grad()
    def outputs() -> Tensor:
        return call(*first, x[0])

    def outputs_with_same_numbers() -> None:
        with torch.random.fork_rng(devices=[]):
            outputs()

    if draws_random_numbers(outputs_with_same_numbers):
        return numbers, "its code draws random numbers that are not torch's"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop")  # of vmap
            found = recorded_gradients(call, loss, constants, copied)(parameters, x, y)
            if not torch.equal(outputs(), outputs()):
                call = replace(call, training=False)
                found = recorded_gradients(call, loss, constants, copied)(parameters, x, y)
    except Exception as error:  # of any type, from `vmap` or the module
        return numbers, str(error).partition("\n")[0].partition(". ")[0]
    right = single_gradients(call, loss, constants)(parameters, x, y)
    if not _agree(found, right):
        return numbers, "gradients of its operations differ from those of single records"
    kinds = [each.gradients for each in found if isinstance(each, Materialised)]
    return sum(each[0, 0].numel() for each in kinds), ""


def _agree(found: Sequence[ExampleGradients], right: Sequence[ExampleGradients]) -> bool:
    """Whether gradients, and their norms, are equal up to rounding, for each parameter."""
    pairs = [
        pair
        for own, true in zip(found, right, strict=True)
        for pair in (
            (own.values(), true.values()),
            (own.squares().sqrt(), true.squares().sqrt()),
        )
    ]
    floor = 1e-4 * torch.stack([true.norm() for _, true in pairs]).norm()
    return all(
        bool((own - true).norm() <= _TOLERANCE * torch.maximum(true.norm(), floor))
        for own, true in pairs
    )


def _advancing(
    clipped: ClippedGradients, call: _Call, constants: Mapping[str, Tensor]
) -> ClippedGradients:
    """Changes buffers once in a step, however many passes its records take."""

    def total(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        sums = clipped(parameters, x, y, clip, counted)
        with torch.no_grad():
            for i, records in enumerate(x):
                own = {name: tensor[i] for name, tensor in constants.items()}
                after = call.after_step([p[i] for p in parameters], own, records)
                for name in call.changing:
                    own[name].copy_(after[name])
        return sums

    return total


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
