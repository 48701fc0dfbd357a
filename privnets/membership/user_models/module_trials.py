"""Modules of one configuration: made from seeds, and tried on a few records before they train."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import cast

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from privnets import data
from privnets.data import UserFormError
from privnets.differential_privacy.module_state import attributes, changed_attribute, equal
from privnets.membership.config import MembershipConfig
from privnets.membership.observations import Universe
from privnets.membership.user_models.module_stacks import (
    StackInTraining,
    private_gradients,
    record_losses,
)
from privnets.membership.user_models.modules import Inputs, ModuleModel, input_shape, make_module
from privnets.networks.module_stacks import (
    mixes_records,
    seeded,
    split_tensors,
    stacking_obstacle,
)
from privnets.randomness import generator
from privnets.references.models import ModuleReference
from privnets.references.user_files import describe_error

ASKED_AT_ONCE = 32  # activations of more records exceed the cache
_TRIAL_RECORDS, _SEARCHED_RECORDS = 4, 10_000
# Convolutions of a stack are grouped, which a CPU computes up to twice slower for larger images.
_MAX_PIXELS = 512


@dataclass(frozen=True, eq=False)
class ModuleSource:
    """Modules of one configuration, with the records of its data set on a device.

    Attributes:
        x: Records, float32, shape [N, *inputs].
        y: Targets: int64 for classes, float32 for numbers.
    """

    config: MembershipConfig
    reference: ModuleReference
    inputs: Inputs
    outputs: int
    x: Tensor
    y: Tensor

    @classmethod
    def load(cls, config: MembershipConfig, universe: Universe, device: str) -> ModuleSource:
        """Copies the records to a device."""
        described, info = cast(ModuleModel, config.target_model), data.info(config.dataset)
        inputs, x = input_shape(config, info), universe.x.to(device).float()
        x = x if isinstance(inputs, int) else x.reshape(len(x), *inputs)
        y = universe.y.to(device)
        classes = universe.classes if described.classifies(info) else 1
        y = y.long() if classes > 1 else y.float()
        return cls(config, described.recipe(config), inputs, classes, x, y)

    @property
    def batch_size(self) -> int:
        """Records in a batch."""
        return self.reference.training.batch_size or self.config.train_size

    @property
    def is_private(self) -> bool:
        """Whether modules train by DP-SGD."""
        return self.config.private_mechanism == "dp_sgd"

    def seed(self, model: int, purpose: str) -> int:
        """Seed of a model for one purpose."""
        return int(generator(self.config.seed, f"model {model} {purpose}").integers(2**31))

    def module(self, model: int) -> torch.nn.Module:
        """Makes a module with the random parameters of a model."""
        with seeded(self.seed(model, "parameters")):
            module: torch.nn.Module = make_module(self.reference, self.inputs, self.outputs)
            if any(map(is_lazy, chain(module.parameters(), module.buffers()))):
                with torch.no_grad():
                    module.eval()(self.x[:2].cpu())  # sets the shapes of its parameters
        return module

    def check(self) -> str:
        """Tries a module in evaluation mode, in training, and by DP-SGD if it trains so.

        Returns:
            Name of an attribute of Python that training changes; empty if there is none.

        Raises:
            UserFormError: If the module cannot be trained or asked.
        """
        module = self.module(0)
        shared = _shared_names(module, self.module(1))
        trained, _ = split_tensors(module)
        if not trained:
            raise self._refusal("has no parameter that requires a gradient")
        for name, parameter in trained.items():
            if parameter.dtype != torch.float32:
                given = f"trains parameter {name} in {str(parameter.dtype).removeprefix('torch.')}"
                raise self._refusal(f"{given}; parameters that train must be float32")
        try:
            with seeded(0):
                before = _copies(module)
                self._try_evaluation(module.to(self.x.device).eval())
                state = self._try_training(module.train())
                changing = {*trained, *_changed_names(before, module)}
        except UserFormError:
            raise
        except Exception as error:  # any exception of the user's code
            raise self._refusal(f"fails: {describe_error(error)}") from error
        if both := [name for name in shared if name in changing]:  # each would train the others
            raise self._refusal(
                f"returns modules that share {both[0]}, which training changes; the function "
                "must return a new module each time"
            )
        if self.is_private:
            self._try_private_training(self.module(0))
        return state

    def obstacle(self) -> str:
        """Reason why modules are not stacked, in words; empty if they are.

        Two modules are tried on a few records.
        """
        if self.x.device.type == "cpu" and self.x.ndim > 2 and self.x[0].numel() > _MAX_PIXELS:
            return "on a CPU that is faster for images of this size"
        x, _ = self.few()
        return stacking_obstacle([self.module(0), self.module(1)], [torch.stack([x, x.flip(0)])])

    def shaped(self, outputs: object, records: int) -> Tensor:
        """Outputs of modules as [S, records, outputs].

        Raises:
            UserFormError: If the outputs have another form.
        """
        expected = f"must return [records, {self.outputs}]"
        if not isinstance(outputs, Tensor):
            raise self._refusal(f"{expected}; got a {type(outputs).__name__}")
        values = outputs[..., None] if outputs.ndim == 2 else outputs
        if values.shape[1:] != (records, self.outputs):
            raise self._refusal(f"{expected}; got {list(outputs.shape[1:])} for {records} records")
        return values

    def few(self) -> tuple[Tensor, Tensor]:
        """Some records that differ, and their targets."""
        x, places = self.x[:_SEARCHED_RECORDS], [0]
        differs = torch.ones(len(x), dtype=torch.bool, device=x.device)
        while len(places) < min(_TRIAL_RECORDS, self.batch_size):
            differs &= (x != x[places[-1]]).flatten(1).any(1)
            if not differs.any():
                break
            places.append(int(differs.nonzero()[0]))
        return x[places], self.y[places]

    @torch.no_grad()
    def _try_evaluation(self, module: torch.nn.Module) -> None:
        x, _ = self.few()
        outputs = module(x.clone())
        values = self.shaped(outputs[None] if isinstance(outputs, Tensor) else outputs, len(x))
        self._check_logits(values)

        def answer(records: Tensor) -> Tensor:
            with seeded(0):
                answers: Tensor = module(records.clone())
            return answers

        if mixes_records(answer, x, ASKED_AT_ONCE):
            tensors, state = _copies(module), attributes(module)
            answer(x)
            changed = [*_changed_names(tensors, module), changed_attribute(state, module)]
            does = f"changes {changed[0]}" if changed[0] else "mixes the records of a batch"
            raise self._refusal(f"{does} in evaluation mode")

    def _try_training(self, module: torch.nn.Module) -> str:
        """Name of an attribute that a call changes; empty if there is none."""
        (x, y), state = self.few(), attributes(module)
        outputs = self.shaped(module(x)[None], len(x))
        self._check_logits(outputs)
        if not outputs.requires_grad:
            raise self._refusal("has outputs that do not depend on parameters that train")
        trained, _ = split_tensors(module)
        loss = record_losses(outputs, y[None]).mean()
        torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
        return changed_attribute(state, module)

    def _check_logits(self, outputs: Tensor) -> None:
        """Refuses probabilities of classes, which would count as logits."""
        in_range = bool(((outputs >= 0) & (outputs <= 1)).all())
        if self.outputs > 1 and in_range and bool(((outputs.sum(-1) - 1).abs() < 1e-3).all()):
            raise self._refusal("returns probabilities; return logits (leave out the last softmax)")

    def _try_private_training(self, module: torch.nn.Module) -> None:
        stack = StackInTraining.alone(module, str(self.x.device))
        try:
            batch = round(self.config.sample_rate * self.config.train_size)
            private_gradients(stack, *self.few(), batch)
        except Exception as error:  # any exception of the user's code
            raise self._refusal(f"cannot train by DP-SGD: {describe_error(error)}") from error

    def _refusal(self, words: str) -> UserFormError:
        shape = ", ".join(map(str, self.x.shape[1:]))
        expected = f"a module that maps records [n, {shape}] to [n, {self.outputs}]"
        given = f"{self.reference.location!r}, which {words}"
        return UserFormError(self.reference.entry, given, expected)


def _dense_tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, but for sparse ones."""
    trained, others = split_tensors(module)
    return {n: t for n, t in {**trained, **others}.items() if t.layout == torch.strided}


def _shared_names(module: torch.nn.Module, other: torch.nn.Module) -> list[str]:
    """Names of tensors of a module that share memory with another module."""

    def place(tensor: Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    places = {*map(place, _dense_tensors(other).values())} - {0}  # 0 for empty tensors
    return [name for name, tensor in _dense_tensors(module).items() if place(tensor) in places]


def _copies(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().cpu().clone() for name, t in _dense_tensors(module).items()}


def _changed_names(before: dict[str, Tensor], module: torch.nn.Module) -> list[str]:
    after = _copies(module)
    return [name for name, tensor in before.items() if not equal(after[name], tensor)]
