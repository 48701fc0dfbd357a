"""Clipped gradients of torch modules, as stacks, by `torch.func.vmap` over records and models.

Each record is a batch of one, so that no record can influence another. The gradient of a weight
that one dense layer alone takes, for one vector, stays a product of its input and output gradient:
that takes a tenth of the time.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from privnets.differential_privacy.module_state import (
    attributes,
    check_attributes,
    check_buffers,
)
from privnets.differential_privacy.per_example import (
    ClippedGradients,
    ExampleGradients,
    Loss,
    Materialised,
    Products,
    clipped_sums,
)
from privnets.networks.module_stacks import (
    draws_random_numbers,
    mixes_records,
    seeded,
    split_tensors,
    tied_names,
)

_HOOK_ADVICE: Final = "DP-SGD clips gradients of single records, without hooks; remove it."
_TRIED_RECORDS: Final = 4
# Largest difference of gradients, relative to their norm; 16-bit operations have errors of 0.01.
_TOLERANCE: Final = 0.03
# Numbers of per-example gradients held at once, of all models.
_CPU_NUMBERS, _GPU_NUMBERS = 2**23, 2**27
# Records whose activations are held at once: of each model on a CPU, of all on a GPU.
_CPU_RECORDS, _GPU_RECORDS = 512, 4096

Numbered: TypeAlias = Mapping[int, Tensor]
"""Tensors of some parameters, by their numbers."""


def clipped_gradients(
    module: nn.Module,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    batch: int = 0,
) -> ClippedGradients:
    """Tries modules on some records, in training mode, and returns their clipped gradients.

    Args:
        module: Module that is called with the tensors of each of S modules of equal shape; several
            are called together, by `torch.func.vmap`.
        parameters: Trained parameters, each of shape [S, ...], in the order of the module.
        constants: Frozen parameters and buffers, each of shape [S, ...]. Each step changes them
            once, as a pass does.
        x: Some records, shape [S, n, ...], which differ.
        y: Their targets, shape [S, n].
        loss: Loss of each record.
        batch: Records in a batch of training, if records are to be computed in one of its size too.

    Raises:
        ValueError: If a record's gradient depends on other records of its batch, the module keeps
            state of its records, hooks change gradients, or `torch.func` cannot map the module.
    """
    _check_layers(module.train())
    few = x[:, :_TRIED_RECORDS], y[:, :_TRIED_RECORDS]
    with seeded(0):
        _check_records(_Call(module, loss), *_model(0, parameters, constants), few[0][0], batch)
        call = _mapped_call(_Call(module, loss), parameters, constants, *few)
    numbers = sum(p.numel() for i, p in enumerate(parameters) if i not in call.dense)
    most, records = (
        (_GPU_NUMBERS, _GPU_RECORDS // len(x)) if x.is_cuda else (_CPU_NUMBERS, _CPU_RECORDS)
    )
    chunk = max(1, min(most // max(1, numbers), records))

    @torch.no_grad()
    def clipped(
        parameters: Sequence[Tensor], x: Tensor, y: Tensor, clip: Tensor, counted: Tensor
    ) -> list[Tensor]:
        total: list[Tensor] = []
        for some_x, some_y, factors in zip(
            *(torch.split(each, chunk, dim=1) for each in (x, y, counted)), strict=True
        ):
            with _mappable():
                gradients, after = call.stacked_gradients(parameters, constants, some_x, some_y)
            sums = clipped_sums(gradients, parameters, clip, factors)
            total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
        for name, tensor in constants.items():
            tensor.copy_(after[name])
        return total

    return clipped


def _check_layers(module: nn.Module) -> None:
    """Refuses batch normalisation, and hooks, which plain training calls on sums over records."""
    for name, parameter in module.named_parameters():
        hooks = parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None)
        if any(hooks):
            raise ValueError(f"parameter {name} has a hook on its gradient; {_HOOK_ADVICE}")
    for name, layer in module.named_modules():
        if layer._backward_hooks or layer._backward_pre_hooks:
            given = f"layer {name}" if name else "the module"
            raise ValueError(f"{given} has a hook on its backward pass; {_HOOK_ADVICE}")
        is_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if is_norm and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"layer {name} is a {type(layer).__name__}, which mixes the records of a batch; "
                "DP-SGD needs normalisation of single records, such as nn.GroupNorm."
            )


class _DenseLayers(TorchFunctionMode):
    """Context of a pass of one record that notes dense layers.

    Layers with given weights add a shift of zeros to their output: the gradient at the shift is
    that at the output. Their weights get no gradient from them.

    Attributes:
        inputs: Inputs of these layers, by the number of the weight.
        calls: For each weight, by its id, whether each input is a single vector.
    """

    def __init__(self, weights: Numbered, shifts: Numbered) -> None:
        super().__init__()
        self._numbers, self._shifts = {id(weight): i for i, weight in weights.items()}, shifts
        self.inputs: dict[int, Tensor] = {}
        self.calls: dict[int, list[bool]] = defaultdict(list)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Computes an operation."""
        compute = self._linear if func is functional.linear else func
        return compute(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        self.calls[id(weight)].append(input.numel() == input.shape[-1])
        number = self._numbers.get(id(weight))
        if number is None:
            return functional.linear(input, weight, bias)
        self.inputs[number] = input.flatten().to(weight.dtype)
        output = functional.linear(input, weight.detach(), bias)
        return output + self._shifts[number].to(output.dtype)


@dataclass(frozen=True, eq=False)
class _Call:
    """Passes of one model by a module in training mode.

    Attributes:
        dense: Numbers of the weights that one dense layer alone takes.
        copies: Whether each record has its own copy of other parameters.
    """

    module: nn.Module
    loss: Loss
    dense: Sequence[int] = ()
    copies: bool = False

    def outputs(
        self, parameters: Sequence[Tensor], constants: Mapping[str, Tensor], x: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs of records [B, ...], and constants after the pass."""
        if not self.module.training:
            self.module.train()
        state = dict(zip(self._names, parameters, strict=True))
        state |= {name: tensor.clone() for name, tensor in constants.items()}
        state |= {alias: state[name] for alias, name in self._aliases.items()}
        # A module may change its inputs.
        output: Tensor = functional_call(self.module, state, (x.clone(),), tie_weights=False)
        return output, {name: state[name] for name in constants}

    def plain_gradients(
        self,
        parameters: Sequence[Tensor],
        constants: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
    ) -> Sequence[Tensor]:
        """Gradients of the sum of losses in one batch, which torch may refuse to compute."""
        leaves = [p.detach().requires_grad_() for p in parameters]
        outputs, _ = self.outputs(leaves, constants, x)
        total = self.loss(outputs[None], y[None]).sum()
        return torch.autograd.grad(total, leaves, materialize_grads=True)

    def gradients(
        self,
        parameters: Sequence[Tensor],
        constants: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
        is_alone: bool = False,
    ) -> tuple[Numbered, Numbered, Numbered, Mapping[str, Tensor]]:
        """Computes gradients of the losses of single records, [B, ...].

        Outside of another `vmap`, it raises an error if records change constants, or dense weights
        have gradients other than those of their layers.

        Returns:
            Gradients of parameters that are not dense weights; output gradients and inputs of dense
            layers; constants after the pass.
        """
        weights = {i: parameters[i] for i in self.dense}
        others = {i: tensor for i, tensor in enumerate(parameters) if i not in weights}
        if self.copies:
            others = {i: tensor.expand(len(x), *tensor.shape) for i, tensor in others.items()}
        shifts = {i: weight.new_zeros(len(weight)) for i, weight in weights.items()}
        in_dims = (0 if self.copies else None, None, None, None, 0, 0)
        gradients = grad(self._record_loss, argnums=(0, 1, 2), has_aux=True)
        # A result without a dimension of records is proven to depend on none.
        out_dims: Any = ((0, None, 0), (0, None)) if is_alone else 0
        of_records = vmap(gradients, in_dims, out_dims, randomness="different")
        (found, _, slopes), (inputs, after) = of_records(
            others, weights, shifts, dict(constants), x, y
        )
        if not is_alone:
            after = {name: tensor[0] for name, tensor in after.items()}
        return found, slopes, inputs, after

    def stacked_gradients(
        self,
        parameters: Sequence[Tensor],
        constants: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
    ) -> tuple[list[ExampleGradients], Mapping[str, Tensor]]:
        """Computes gradients of S models, by parameter, and constants after the pass."""
        if len(x) > 1:
            of_models = vmap(self.gradients, randomness="different")
            parts: Any = of_models(list(parameters), dict(constants), x, y)
        else:  # not all modules that are mapped over records can be mapped over models too
            own, held = _model(0, parameters, constants)
            alone = self.gradients(own, held, x[0], y[0], is_alone=True)
            parts = [{key: tensor[None] for key, tensor in part.items()} for part in alone]
        others, slopes, inputs, after = parts
        found: list[ExampleGradients] = [
            Products(slopes[i], inputs[i]) if i in slopes else Materialised(others[i])
            for i in range(len(parameters))
        ]
        return found, after

    def _record_loss(
        self,
        others: Numbered,
        weights: Numbered,
        shifts: Numbered,
        constants: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, tuple[dict[int, Tensor], dict[str, Tensor]]]:
        parameters = {**others, **weights}
        with _DenseLayers(weights, shifts) as layers:
            own = [parameters[i] for i in range(len(parameters))]
            outputs, after = self.outputs(own, constants, x[None])
        if any(layers.calls[id(weight)] != [True] for weight in weights.values()):
            raise ValueError(
                "a dense layer is called otherwise than in the first pass; DP-SGD needs a module "
                "that calls each layer as often, and for as many vectors, in all passes."
            )
        return self.loss(outputs[None], y[None, None]).sum(), (layers.inputs, after)

    @cached_property
    def _names(self) -> list[str]:
        return list(split_tensors(self.module)[0])

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return tied_names(self.module)


@torch.no_grad()
def _check_records(
    call: _Call,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    batch: int,
) -> None:
    """Tries passes of batches of records.

    Raises:
        ValueError: If outputs depend on the other records of a batch, state depends on records, or
            random numbers are not torch's.
    """
    kept = attributes(call.module)
    with seeded(1):
        _, expected = call.outputs(parameters, constants, torch.zeros_like(x[:1]))

    def outputs(records: Tensor) -> Tensor:
        with seeded(0):
            found, after = call.outputs(parameters, constants, records)
        check_buffers(after, expected)
        return found

    is_mixed = mixes_records(outputs, x, min(batch, _CPU_RECORDS))
    check_attributes(kept, call.module)
    if is_mixed:
        raise ValueError(
            "outputs for a record depend on the other records of its batch; DP-SGD needs a "
            "module that computes each record by itself."
        )

    def pass_with_same_numbers() -> None:
        with torch.random.fork_rng(devices=[]):
            call.outputs(parameters, constants, x)

    if draws_random_numbers(pass_with_same_numbers):
        raise ValueError(
            f"{type(call.module).__name__} draws random numbers that are not torch's, which would "
            "be the same for all records; draw them by torch."
        )


def _mapped_call(
    call: _Call,
    parameters: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
) -> _Call:
    """Finds how modules are mapped over records.

    One model proves that records change no constants, and that dense weights have no gradients but
    those of their layers. Modules of a stack draw no random numbers; their gradients are compared
    with those of plain torch.

    Raises:
        ValueError: If `torch.func` cannot map the module.
        Exception: Any that a plain pass raises.
    """
    kept = attributes(call.module)
    own, held = _model(0, parameters, constants)
    with _DenseLayers({}, {}) as layers, torch.no_grad():
        call.outputs(own, held, x[0, :1])
    dense = [i for i, parameter in enumerate(own) if layers.calls.get(id(parameter)) == [True]]
    right = [
        call.plain_gradients(*_model(i, parameters, constants), x[i], y[i]) for i in range(len(x))
    ]
    reason = ""
    # A recurrent network needs copies of its parameters, spectral normalisation needs none.
    for shared, copies in ((dense, False), (dense, True), ((), False), ((), True)):
        mapped = replace(call, dense=shared, copies=copies)
        try:
            with _mappable():
                mapped.gradients(own, held, x[0], y[0], is_alone=True)
                found, _ = mapped.stacked_gradients(parameters, constants, x, y)
        except Exception as error:  # of any type, from `vmap` or the module
            reason = reason or str(error).partition("\n")[0].partition(". ")[0]
            continue
        check_attributes(kept, call.module)
        sums = [own.sums(torch.ones_like(y, dtype=torch.float32)) for own in found]
        if len(x) == 1 or _agree(sums, right):
            return mapped
        reason = reason or "its gradients differ from those of plain torch"
    raise ValueError(
        f"torch.func cannot map {type(call.module).__name__} over records ({reason.rstrip('.')}); "
        "DP-SGD needs a module that neither reads values of its records nor keeps state of them."
    )


def _agree(found: Sequence[Tensor], right: Sequence[Sequence[Tensor]]) -> bool:
    """Whether gradients of stacked models equal those of each, up to rounding; NaN equals any."""
    norms = torch.stack([g.norm() for own in right for g in own])
    floor = 1e-4 * norms.nan_to_num(0, 0, 0).norm()
    return not any(
        bool((sums[i].view_as(g) - g).norm() > _TOLERANCE * torch.maximum(g.norm(), floor))
        for i, own in enumerate(right)
        for sums, g in zip(found, own, strict=True)
    )


def _model(
    i: int, parameters: Sequence[Tensor], constants: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Tensors of one model of a stack."""
    return [p[i] for p in parameters], {name: t[i] for name, t in constants.items()}


@contextmanager
def _mappable() -> Iterator[None]:
    """Context in which `vmap` maps attention, and is silent about operations that it repeats."""
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield
