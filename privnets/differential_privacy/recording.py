"""Per-example gradients from one forward pass of any code, by recording its operations.

A `Recorder` notes each operation that takes a trained parameter, with its input and the place of
its output in the graph of gradients. One backward pass up to those places gives what per-example
gradients need; no parameter gets a gradient of its own.

- Operations of `operations` have forms. Recurrent networks are computed as dense layers.
- Operations on parameters alone, such as slices or `weight_norm`, give derived parameters, from
  which the gradient of each example is pulled back.
- Any other operation is mapped over examples, each with a copy of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
)
from torch._decomp import decompositions
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from privnets.differential_privacy.operations import FORMS, Form, Rule
from privnets.differential_privacy.per_example import (
    ExampleGradients,
    GradientsOf,
    Loss,
    Materialised,
    combine,
)
from privnets.differential_privacy.tape import Tape

Layouts: TypeAlias = dict[tuple[object, ...], int | None]
"""Dimension of the examples in inputs of operations: None without, -1 if joined with others.

The first forward pass finds them; later ones, on other numbers of examples, share them.
"""

_Function: TypeAlias = Callable[..., Any]
_Note: TypeAlias = Callable[[Sequence[Tensor], Sequence[int | None]], None]


_READS: Final = frozenset(
    (
        *(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.item),
        *(Tensor.tolist, Tensor.numpy, Tensor.__array__, torch.equal, torch.allclose),
        *(Tensor.equal, Tensor.allclose),
    )
)
"""Operations that give code a value, by which one record could choose what others pass."""


class WithoutForm(Exception):
    """Raised for an operation that cannot be recorded; the message says why."""


class Recorder(TorchFunctionMode):
    """Context of the forward pass of one model, which may be within `torch.func.vmap`."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        constants: Iterable[Tensor],
        records: int,
        layouts: Layouts,
        *,
        is_mapped: bool,
    ) -> None:
        """Creates an empty record.

        Args:
            parameters: Trained parameters, as the pass uses them.
            constants: Other tensors that are the same for all examples.
            records: Number of examples.
            layouts: Layouts of earlier passes, to which this one adds.
            is_mapped: Whether the pass is within `vmap`.
        """
        super().__init__()
        self._records, self._layouts, self._is_mapped = records, layouts, is_mapped
        self._kept = [*parameters, *constants]  # keeps identifiers valid
        self._numbers = {id(tensor): i for i, tensor in enumerate(parameters)}
        self._constants = {id(tensor) for tensor in self._kept} - self._numbers.keys()
        self._derived: dict[int, tuple[Tensor, int | None]] = {}
        self._tape = Tape()

    def __torch_function__(
        self,
        func: _Function,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Computes an operation, and notes it if parameters take part."""
        kwargs = kwargs or {}
        given = {id(tensor) for tensor in _tensors((*args, *kwargs.values()))}
        if func in _READS and not given <= self._numbers.keys() | self._constants:
            raise WithoutForm("its code reads values that depend on records")
        if self._numbers.keys().isdisjoint(given):
            return func(*args, **kwargs)
        if func in _DECOMPOSED:
            with self:
                return _DECOMPOSED[func](*args, **kwargs)
        if given <= self._numbers.keys() | self._constants:
            output = func(*args, **kwargs)
            if func in _EXPANSIONS and self._note_copies(args[0], output):
                return output
            return self._derive(output)
        if func in FORMS and (form := FORMS[func](*args, **kwargs)) is not None:
            return self._apply(func, form, args, kwargs)
        return self._map(func, args, kwargs)

    def gradients(self, losses: Tensor, parameters: Sequence[Tensor]) -> list[ExampleGradients]:
        """Gradients of losses [S, B] by the parameters [S, ...]."""
        found = self._tape.gradients(losses, keep_graph=bool(self._derived))
        for number, (tensor, models) in self._derived.items():
            if number in found:
                values = combine(found.pop(number)).values()
                for i, own in self._pull_back(tensor, models, values, parameters):
                    found[i].append(own)
        return [
            combine(found[i])
            if i in found
            else Materialised(losses.new_zeros(*losses.shape, *parameter.shape[1:]))
            for i, parameter in enumerate(parameters)
        ]

    def _note_copies(self, parameter: Tensor, output: Tensor) -> bool:
        """Notes a parameter that is expanded to examples; False if it is expanded otherwise."""
        number = self._numbers[id(parameter)]
        examples = self._layout((Tensor.expand, number, output.ndim), output.shape)
        own = [1] * (output.ndim - parameter.ndim) + list(parameter.shape)
        if examples is None or examples < 0 or own.pop(examples) != 1:
            return False
        shape = [*output.shape[:examples], *output.shape[examples + 1 :]]
        if any(size not in (1, whole) for size, whole in zip(own, shape, strict=True)):
            return False  # repeats more than single numbers

        def rule(inputs: Tensor, gradient: Tensor) -> ExampleGradients:
            return Materialised(gradient.sum_to_size(*gradient.shape[:2], *own))

        self._note({number: rule}, output, output, examples)
        return True

    def _derive(self, output: Any) -> Any:
        """Notes the tensors of an output as derived parameters."""
        for leaf in tree_flatten(output)[0]:
            if isinstance(leaf, Tensor) and id(leaf) not in self._numbers:
                self._kept.append(leaf)
                number = self._numbers[id(leaf)] = len(self._kept)
                self._look(self._keep_derived(number), leaf)
        return output

    def _keep_derived(self, number: int) -> _Note:
        def keep(tensors: Sequence[Tensor], models: Sequence[int | None]) -> None:
            if tensors[0].requires_grad:
                self._derived[number] = tensors[0], models[0]

        return keep

    def _apply(
        self, func: _Function, form: Form, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Tensor:
        """Computes an operation with a form."""
        x = form.inputs
        rules = {self._numbers[id(p)]: rule for p, rule in form.rules if id(p) in self._numbers}
        shape = x.shape[: x.ndim - form.own_dimensions]
        examples = self._layout((func, *rules, x.ndim), shape)
        if examples is None and form.shares_inputs:  # such as numbers of positions
            x = x.expand(self._records, *x.shape[-1:])
            examples, args = 0, (x, *args[1:])
        if examples is None:
            raise WithoutForm(f"{_name(func)} takes an input without a dimension of examples")
        output: Tensor = func(*args, **kwargs)
        self._note(rules, x, output, examples)
        return output

    def _map(self, func: _Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Computes an operation example by example, each with copies of its parameters."""
        leaves, structure = tree_flatten((list(args), dict(kwargs)))
        mapped: dict[int, tuple[Tensor, int | None]] = {}
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor) or id(leaf) in self._constants:
                continue
            if (number := self._numbers.get(id(leaf))) is not None:
                mapped[i] = leaf.expand(self._records, *leaf.shape), None
                self._note({number: _itself}, *mapped[i][:1] * 2, 0)
            elif (dim := self._layout((func, i, leaf.ndim), leaf.shape)) is not None:
                mapped[i] = leaf if dim >= 0 else _split_examples(leaf, 0, self._records), dim
        if all(dim is None for _, dim in mapped.values()):
            raise WithoutForm(f"{_name(func)} takes a parameter, and no tensor with examples")
        return _map_examples(func, leaves, structure, mapped)

    def _layout(self, key: tuple[object, ...], shape: Sequence[int]) -> int | None:
        """Dimension of the examples in a shape; see `Layouts`."""
        count = self._records
        if key not in self._layouts:
            dims = [i for i, size in enumerate(shape) if size == count]
            if len(dims) > 1:
                raise WithoutForm(
                    f"several dimensions of {list(shape)} may hold the {count} examples"
                )
            is_joined = not dims and len(shape) > 0 and shape[0] > 0 and shape[0] % count == 0
            self._layouts[key] = -1 if is_joined else next(iter(dims), None)
        dim = self._layouts[key]
        if dim is not None and (shape[dim] != count if dim >= 0 else shape[0] % count):
            raise WithoutForm(f"the shape {list(shape)} does not fit {count} examples")
        return dim

    def _note(self, rules: Mapping[int, Rule], x: Tensor, output: Tensor, examples: int) -> None:
        def keep(tensors: Sequence[Tensor], models: Sequence[int | None]) -> None:
            def arrange(tensor: Tensor, place: int) -> Tensor:
                model = models[place]
                tensor = tensor[None] if model is None else tensor.movedim(model, 0)
                if examples < 0:
                    return _split_examples(tensor, 1, self._records)
                return tensor.movedim(examples + 1, 1)

            self._tape.note(rules, tensors[0], tensors[1], arrange)

        self._look(keep, x, output)

    def _look(self, note: _Note, *tensors: Tensor) -> None:
        """Passes on tensors with the models of a stack, which `vmap` hides."""
        models: list[int | None] = [None] * len(tensors)
        if self._is_mapped:
            models = [None if (dim := maybe_get_bdim(t)) < 0 else dim for t in tensors]
            tensors = tuple(get_unwrapped(t) if is_batchedtensor(t) else t for t in tensors)
        if any(map(is_functorch_wrapped_tensor, tensors)):
            raise WithoutForm("an operation is within a transformation of torch.func")
        note(tensors, models)

    def _pull_back(
        self, tensor: Tensor, models: int | None, values: Tensor, parameters: Sequence[Tensor]
    ) -> Iterator[tuple[int, ExampleGradients]]:
        """Gradients of parameters from values [S, B, ...] of those of a derived one."""
        shape = tensor[None].shape if models is None else tensor.movedim(models, 0).shape
        values = values.transpose(0, 1).reshape(-1, *shape)
        values = values[:, 0] if models is None else values.movedim(1, models + 1)
        pulled = torch.autograd.grad(
            tensor, parameters, values, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        for i, gradient in enumerate(pulled):
            if gradient is not None:
                yield i, Materialised(gradient.transpose(0, 1))


Forward: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Tensor], Tensor], Tensor]
"""One model: from its parameters, its constants and records [B, ...] to outputs [B, q]."""


def recorded_gradients(
    forward: Forward,
    loss: Loss,
    constants: Mapping[str, Tensor] = MappingProxyType({}),
    layouts: Layouts | None = None,
) -> GradientsOf:
    """Takes gradients of single records from one forward pass on all of them.

    Args:
        forward: Forward pass of one model, in which no record depends on the others.
        loss: Loss of each record.
        constants: Frozen parameters and buffers of the models, each of shape [S, ...].
        layouts: Layouts of earlier passes.
    """
    known: Layouts = {} if layouts is None else layouts

    def gradients(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        recorders: list[Recorder] = []

        def one(own: Sequence[Tensor], held: Mapping[str, Tensor], records: Tensor) -> Tensor:
            recorder = Recorder(own, held.values(), len(records), known, is_mapped=len(x) > 1)
            recorders.append(recorder)
            with recorder:
                return forward(own, held, records)

        with torch.enable_grad():
            if len(x) == 1:
                held = {name: tensor[0] for name, tensor in constants.items()}
                outputs = one([leaf[0] for leaf in leaves], held, x[0])[None]
            else:
                outputs = vmap(one)(leaves, dict(constants), x)
            losses = loss(outputs, y)
        return recorders[0].gradients(losses, leaves)

    return gradients


def _map_examples(
    func: _Function,
    leaves: Sequence[Any],
    structure: Any,
    mapped: Mapping[int, tuple[Tensor, int | None]],
) -> Any:
    """Computes an operation for each example and joins the results.

    Args:
        func: Operation.
        leaves: Its arguments.
        structure: Their structure.
        mapped: By places among the leaves, tensors with the dimension of the examples: None for
            copies of a parameter, -1 if the first one is joined from examples and others.
    """
    first = next(dim for _, dim in mapped.values() if dim is not None)
    outputs: list[Any] = []
    places: dict[int, int] = {}
    form: Any = None

    def compute(*tensors: Tensor) -> list[Tensor]:
        nonlocal form
        own = list(leaves)
        for (i, (_, dim)), tensor in zip(mapped.items(), tensors, strict=True):
            own[i] = tensor if dim is None or dim < 0 else tensor.unsqueeze(dim)
        args, kwargs = tree_unflatten(own, structure)
        outputs[:], form = tree_flatten(func(*args, **kwargs))
        for i, output in enumerate(outputs):
            if isinstance(output, Tensor):
                dims = [
                    d for d in (first, 0) if d < output.ndim and (d < 0 or output.shape[d] == 1)
                ]
                if not dims:
                    raise WithoutForm(f"{_name(func)} returns a tensor without examples")
                places[i] = dims[0]
        return [outputs[i] if d < 0 else outputs[i].select(d, 0) for i, d in places.items()]

    given = [0 if dim is None else max(0, dim) for _, dim in mapped.values()]
    tensors = [tensor for tensor, _ in mapped.values()]
    with sdpa_kernel(SDPBackend.MATH):  # other kernels of attention cannot be mapped
        results = vmap(compute, tuple(given), randomness="different")(*tensors)
    for (i, dim), result in zip(places.items(), results, strict=True):
        outputs[i] = result.flatten(0, 1) if dim < 0 else result.movedim(0, dim)
    return tree_unflatten(outputs, form)


def _split_examples(tensor: Tensor, dim: int, records: int) -> Tensor:
    """A tensor with a joined dimension as examples and the rest."""
    return tensor.reshape(*tensor.shape[:dim], records, -1, *tensor.shape[dim + 1 :])


def _itself(inputs: Tensor, gradient: Tensor) -> ExampleGradients:
    """Gradient at copies of a parameter, one for each example."""
    return Materialised(gradient)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _name(func: _Function) -> str:
    return getattr(func, "__name__", str(func))


_EXPANSIONS: Final = {Tensor.expand, Tensor.expand_as, Tensor.repeat}


def _lstm(x: Tensor, *others: Any) -> Any:
    """Computes an LSTM; for inputs without gradients, torch would take a kernel of inference."""
    return decompositions.lstm_impl(x if x.requires_grad else x.detach().requires_grad_(), *others)


# Functions of recurrent networks on whole batches, written with `functional.linear`.
_DECOMPOSED: Final[Mapping[_Function, _Function]] = {
    torch.gru: decompositions.gru_impl,
    torch.lstm: _lstm,
    torch.rnn_tanh: decompositions.rnn_tanh_input,
    torch.rnn_relu: decompositions.rnn_relu_input,
}
