"""Stacks of torch modules of equal shape, computed from stacked parameters."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from privnets.networks.devices import cast_inputs, fastest_forms
from privnets.networks.training import differentiable

Tensors: TypeAlias = Mapping[str, Tensor]
ImageShape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""


class ModuleStack:
    """Computes modules of equal shape from their tensors with a leading dimension S.

    Attributes:
        module: Module that is called with the tensors of each of the modules.
        vectorised: Whether one call serves all modules (`torch.func.vmap`), else one call each. A
            module that branches on values of its input, or draws random numbers, needs the latter.
    """

    def __init__(self, module: torch.nn.Module, *, vectorised: bool = True) -> None:
        """Wraps a module; its own parameters are not used."""
        self.module, self.vectorised = module, vectorised
        self._names, self._aliases = list(split_tensors(module)[0]), tied_names(module)

    def __call__(
        self, parameters: Sequence[Tensor], *inputs: Tensor, buffers: Tensors | None = None
    ) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by trained parameters [S, ...], in order.

        `buffers` [S, ...] hold frozen parameters too. In training, the module may change buffers in
        place.
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
        tied = {alias: state[name] for alias, name in self._aliases.items() if name in state}
        output: Tensor = functional_call(self.module, {**state, **tied}, inputs, tie_weights=False)
        return output


class ConvolutionStack:
    """Computes convolutional modules of equal shape as a `ModuleStack`, in the fastest form."""

    def __init__(self, module: torch.nn.Module) -> None:
        """Wraps a module; its own parameters are not used."""
        self._one_by_one = ModuleStack(module, vectorised=False)
        self._together = ModuleStack(module)

    def __call__(self, parameters: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        """Outputs [S, n, ...] of inputs [S, n, ...] by parameters [S, ...], in module order."""
        vectorises = fastest_forms(inputs[0]).vectorises_modules
        stack = self._together if vectorises else self._one_by_one
        return stack(cast_inputs(parameters), *cast_inputs(inputs))


def split_tensors(module: torch.nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Tensors of a module by name: parameters that train; frozen parameters and buffers."""
    trained: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        (trained if parameter.requires_grad else others)[name] = parameter
    return trained, others | dict(module.named_buffers())


def tied_names(module: torch.nn.Module) -> dict[str, str]:
    """Other names of shared tensors, with the name that `split_tensors` gives them.

    `functional_call` finds them itself, but then loses the tensors of a layer that occurs twice.
    """
    first: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for prefix, layer in module.named_modules():
        for own, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            name = f"{prefix}.{own}" if prefix else own
            if tensor is not None and first.setdefault(id(tensor), name) != name:
                aliases[name] = first[id(tensor)]
    return aliases


def stack_states(
    modules: Sequence[torch.nn.Module], device: str
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Stacks the tensors of modules, each to [S, ...], contiguous; see `split_tensors`.

    Raises:
        ValueError: If modules differ in the names of their tensors, or in what is frozen.
    """
    states = [split_tensors(module.to(device)) for module in modules]
    if any(list(map(list, state)) != list(map(list, states[0])) for state in states):
        raise ValueError("modules must have the same parameters and freeze the same ones.")
    trained, others = (
        # A module's memory format may be channels_last, and `FusedAdam` ignores strides.
        {name: torch.stack([own[name].detach() for own in part]).contiguous() for name in part[0]}
        for part in zip(*states, strict=True)
    )
    return list(trained.values()), others


def stacking_obstacle(
    modules: Sequence[torch.nn.Module], inputs: Sequence[Tensor], *, vectorised: bool = True
) -> str:
    """Reason why a stack does not compute what its modules compute alone; empty if it does.

    Outputs, gradients and buffers of a step of training are compared, then outputs in evaluation
    mode. Recomputation in the backward pass, tensors outside of parameters and buffers, and tensors
    that share memory can make them differ. The modules are changed.

    Args:
        inputs: Each of shape [S, n, ...].
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop")  # of vmap
            return _difference(modules, inputs, vectorised)
    except Exception as error:  # vmap raises several types, and so may the module
        return str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__


def _difference(
    modules: Sequence[torch.nn.Module], inputs: Sequence[Tensor], vectorised: bool
) -> str:
    """See `stacking_obstacle`.

    Raises:
        Exception: Any that vmap or the modules raise.
    """
    parameters, others = stack_states(modules, inputs[0].device.type)
    stack = ModuleStack(modules[0], vectorised=vectorised)
    for training in (True, False) if parameters else (False,):  # frozen ones do not train
        for module in modules:
            module.train(training)
        before = _random_state()
        outputs, slopes = _step(parameters, inputs, partial(stack, parameters, buffers=others))
        if vectorised and _random_state() != before:
            return "it draws random numbers"
        for i, module in enumerate(modules):
            own, rest = split_tensors(module)
            alone, expected = _step(list(own.values()), [x[i] for x in inputs], module)
            kept = [others[name][i] for name in rest]
            pairs = [([outputs[i]], [alone]), ([g[i] for g in slopes], expected)]
            if not all(_are_close(*pair) for pair in (*pairs, (kept, list(rest.values())))):
                return "its outputs, gradients or buffers in a stack differ from those alone"
    return ""


def _step(
    parameters: Sequence[Tensor], inputs: Sequence[Tensor], call: Callable[..., Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs of a call, and gradients of parameters, which move along them, and of inputs."""
    records = [x.detach().clone().requires_grad_() for x in inputs]
    with differentiable(parameters):
        outputs = call(*(x.clone() for x in records))  # a module may change its inputs
        loss = outputs.square().sum() + outputs.sum()
        slopes = torch.autograd.grad(loss, [*parameters, *records], materialize_grads=True)
    with torch.no_grad():
        for parameter, slope in zip(parameters, slopes, strict=False):
            parameter.sub_(0.01 * slope)
    return outputs.detach(), list(slopes)


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether tensors are equal but for rounding, relative to the largest number of them all."""
    sizes = [e.double().abs().nan_to_num(0, 0, 0).max().item() for e in expected if e.numel()]
    near = 1e-4 * max(sizes, default=0.0) + 1e-7
    return all(
        torch.allclose(f, e, rtol=1e-3, atol=near, equal_nan=True)
        for f, e in zip(found, expected, strict=True)
    )


def mixes_records(call: Callable[[Tensor], Tensor], x: Tensor, size: int = 0) -> bool:
    """Whether outputs for a record depend on the others of its batch.

    Each record's output in the batch is compared with that in a batch of its copies, at the same
    place, so that rounding and random numbers are the same.

    Args:
        call: Outputs [n, ...] of records [n, ...]; draws the same random numbers in every call.
        x: Records that differ.
        size: Records in a larger batch, which repeats x, where the first one is compared too.
    """
    larger = x[torch.arange(size, device=x.device) % len(x)]
    for batch, compared in ((x, len(x)), (larger, 1)) if size > len(x) else ((x, len(x)),):
        together = call(batch)[:compared]
        alone = torch.stack([call(batch[i].expand_as(batch))[i] for i in range(compared)])
        near = 1e-4 * together.abs().nan_to_num(0, 0, 0).max().item()
        if not torch.allclose(alone, together, rtol=0, atol=near, equal_nan=True):
            return True
    return False


def draws_random_numbers(call: Callable[[], object]) -> bool:
    """Whether a call on a CPU draws from the generators of torch, NumPy or Python."""
    before = _random_state()
    call()
    return _random_state() != before


def _random_state() -> tuple[object, ...]:
    numbers = np.random.get_state(legacy=False)["state"]
    drawn = numbers["key"].tobytes(), numbers["pos"]
    return random.getstate(), drawn, torch.get_rng_state().numpy().tobytes()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context in which torch, NumPy and Python draw from a seed; their own states return after."""
    own, numbers = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numbers)


def draw_parameters(
    make: Callable[[], torch.nn.Module], source: np.random.Generator
) -> list[Tensor]:
    """Tensors of one module as its constructor draws them, not stacked: those that train first."""
    with seeded(int(source.integers(2**62))):
        trained, others = split_tensors(make())
    return [tensor.detach().clone() for tensor in (*trained.values(), *others.values())]


@dataclass(frozen=True)
class ImageClassifier:
    """Classifier of images by a torch module without buffers; an `Architecture`.

    Attributes:
        make: Makes the module from the shape of an image, the number of classes and the width.
        shape: Channels, height and width of an image.
    """

    make: Callable[[ImageShape, int, int], torch.nn.Module]
    shape: ImageShape
    classes: int
    width: int

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the parameters of one network; see `Architecture.initial`."""
        return draw_parameters(self._make, random)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Returns logits [S, n, classes] of images [S, n, *shape]."""
        return self._stack(parameters, x)

    @cached_property
    def _stack(self) -> ConvolutionStack:
        return ConvolutionStack(self._make())

    def _make(self) -> torch.nn.Module:
        return self.make(self.shape, self.classes, self.width)
