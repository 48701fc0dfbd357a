"""Per-example gradients of any code, from one pass that `torch.func.vmap` maps over examples.

Each example is a batch of one, so that no example can influence another. All examples share a
parameter that only operations of `operations` take; its gradients follow from the inputs and output
gradients of these operations. Of any other parameter each example gets a copy, with a gradient of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from privnets.differential_privacy.operations import FORMS, Rule
from privnets.differential_privacy.per_example import (
    ExampleGradients,
    GradientsOf,
    Loss,
    Materialised,
    combine,
)
from privnets.differential_privacy.tape import Tape

Forward: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Tensor], Tensor], Tensor]
"""One model: from its parameters, its constants and records [B, ...] to outputs [B, q]."""

# Recurrent networks, which `decompose` writes with `functional.linear`.
_RECURRENT: Final = {
    torch.gru: torch.ops.aten.gru.input,
    torch.lstm: torch.ops.aten.lstm.input,
    torch.rnn_tanh: torch.ops.aten.rnn_tanh.input,
    torch.rnn_relu: torch.ops.aten.rnn_relu.input,
}


def recorded_gradients(
    forward: Forward,
    loss: Loss,
    constants: Mapping[str, Tensor] = MappingProxyType({}),
    copied: set[int] | None = None,
) -> GradientsOf:
    """Takes gradients of single records from one pass on all of them.

    Args:
        forward: Forward pass of one model, which `vmap` can map.
        loss: Loss of each record.
        constants: Frozen parameters and buffers of the models, each of shape [S, ...].
        copied: Numbers of the parameters that records get copies of; passes add to them.
    """
    copies = set() if copied is None else copied

    def gradients(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        while True:
            try:
                return attempt(parameters, x, y)
            except _TakenOtherwise as error:
                copies.update(error.parameters)

    def attempt(parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> list[ExampleGradients]:
        tape, is_stack = Tape(), len(x) > 1
        given = [parameter.detach().requires_grad_() for parameter in parameters]

        def of_record(own: Sequence[Tensor], held: Mapping[str, Tensor], record: Tensor) -> Tensor:
            shared = {id(tensor): i for i, tensor in enumerate(own) if i not in copies}
            with _Recorder(tape, shared, record, is_stack=is_stack):
                return forward(own, held, record[None])

        places = [0 if i in copies else None for i in range(len(given))]
        of_model = vmap(of_record, (places, None, 0), randomness="different")
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # `vmap` has no other attention
            for i in copies:
                given[i] = given[i].unsqueeze(1).expand(*x.shape[:2], *given[i].shape[1:])
                tape.note({i: _itself}, given[i], given[i])
            if is_stack:
                outputs = vmap(of_model, randomness="different")(given, dict(constants), x)
            else:
                held = {name: tensor[0] for name, tensor in constants.items()}
                outputs = of_model([tensor[0] for tensor in given], held, x[0])[None]
            losses = loss(outputs.flatten(2, 3) if outputs.ndim > 3 else outputs, y)
        found = tape.gradients(losses)
        return [
            combine(found[i])
            if i in found
            else Materialised(p.new_zeros(*x.shape[:2], *p.shape[1:]))
            for i, p in enumerate(parameters)
        ]

    return gradients


class _TakenOtherwise(BaseException):
    """Raised for an operation without a form that takes shared parameters.

    Not an Exception, which a module may catch.
    """

    def __init__(self, parameters: Iterable[int]) -> None:
        super().__init__()
        self.parameters = list(parameters)


class _Recorder(TorchFunctionMode):
    """Context of a pass that notes the operations with a form that take shared parameters."""

    def __init__(
        self, tape: Tape, shared: Mapping[int, int], record: Tensor, *, is_stack: bool
    ) -> None:
        super().__init__()
        self._tape, self._shared = tape, shared
        self._record, self._is_stack = record, is_stack

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Computes an operation, and notes it if shared parameters take part."""
        kwargs = kwargs or {}
        if func in _RECURRENT:
            with self, _without_mkldnn():
                return _RECURRENT[func].decompose(*args, **kwargs)
        output = func(*args, **kwargs)
        taken = {id(tensor) for tensor in _tensors((*args, *kwargs.values()))} & self._shared.keys()
        if not taken:
            return output
        form = FORMS[func](*args, **kwargs) if func in FORMS else None
        if form is not None:
            rules = {id(parameter): rule for parameter, rule in form.rules}
            if id(form.inputs) not in taken and taken <= rules.keys():
                own = {self._shared[each]: rules[each] for each in taken}
                use = _Use(self._tape, own, 1 + self._is_stack)
                return _unmap(use, [], self._record, form.inputs, output)
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(output)):
            raise _TakenOtherwise(self._shared[each] for each in taken)
        return output


@dataclass(frozen=True, eq=False)
class _Use:
    """Operation that shared parameters take part in, within a number of levels of `vmap`."""

    tape: Tape
    rules: Mapping[int, Rule]
    levels: int


class _Unmapped(torch.autograd.Function):
    """Returns an output, and notes it with its input as they are outside of `vmap`."""

    @staticmethod
    def forward(use: _Use, dims: list[Any], record: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Is required, but never called: `record` is mapped in every level."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps nothing."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Sequence[Any],
        use: _Use,
        dims: list[Any],
        record: Tensor,
        x: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, int]:
        """Leaves one level; `dims` has the dimensions of x and y in the levels within it."""
        of_x, of_y = in_dims[-2:]
        if of_y is None:  # the same for all examples, as are embeddings of positions
            y, of_y = y.expand(info.batch_size, *y.shape), 0
        dims = [(of_x, of_y), *dims]
        if len(dims) < use.levels:
            return _unmap(use, dims, record, x, y), of_y

        def arrange(tensor: Tensor, place: int) -> Tensor:
            for i, own in enumerate(dims):
                dim = own[place]
                tensor = tensor.unsqueeze(i) if dim is None else tensor.movedim(dim + i, i)
            return tensor if len(dims) > 1 else tensor[None]

        use.tape.note(use.rules, x, y, arrange)
        return y, of_y


_unmap: Final[Callable[..., Tensor]] = _Unmapped.apply


def _itself(inputs: Tensor, gradient: Tensor) -> ExampleGradients:
    """Gradient at copies of a parameter, one for each example."""
    return Materialised(gradient)


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Context in which an LSTM takes no kernel of mkldnn, which `vmap` cannot map."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
