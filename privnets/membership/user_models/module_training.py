"""Training of torch modules of users: as stacks where they allow it, otherwise one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parameter import is_lazy

from privnets import data
from privnets.audit.references import ModelOutputs
from privnets.data import UserFormError
from privnets.data.user_files import describe_error
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.differential_privacy.module_gradients import clipped_gradients
from privnets.membership.private.guarantee import guarantee_of
from privnets.membership.user_models.augmentation import augment, changed_copies
from privnets.membership.user_models.estimators import true_outputs
from privnets.membership.user_models.forms import ModuleReference
from privnets.membership.user_models.module_stacks import (
    StackInTraining,
    learning_rate_factor,
    loss_gradients,
    make_optimiser,
    record_losses,
    train,
)
from privnets.membership.user_models.modules import Inputs, ModuleModel, input_shape, make_module
from privnets.membership.user_models.output_training import (
    OutputRequest,
    OutputTrainer,
    UserCodeError,
)
from privnets.networks.module_stacks import ModuleStack
from privnets.randomness import generator

_CPU_MODELS, _GPU_MODELS = 16, 256
# Parameters and inputs of a batch, over all models that train at once.
_CPU_NUMBERS, _GPU_NUMBERS = 2**23, 2**30
_ASKED_AT_ONCE = 32  # activations of more records exceed the cache
_TRIAL_RECORDS = 4
# Convolutions of a stack are grouped, which a CPU computes up to twice slower for larger images.
_MAX_PIXELS = 512


class ModuleTrainer(OutputTrainer):
    """Trains modules in float32, each from a seed of its own."""

    def fit(self, request: OutputRequest, models: range, device: str) -> NDArray[np.float64]:
        """Trains modules and asks them in evaluation mode."""
        try:
            outputs = ModuleJob.make(request, device).run(models)
        except UserFormError as error:
            raise UserCodeError(error.given) from error
        except Exception as error:  # any exception of the user's code
            raise UserCodeError(describe_error(error)) from error
        y, repeated = request.universe.y.cpu().numpy(), request.repeated_records
        asked = [np.concatenate([request.asked_records(j), repeated]) for j in models]
        return np.stack(
            [true_outputs(each, y[records]) for records, each in zip(asked, outputs, strict=True)]
        )

    def models_at_once(self, request: OutputRequest, seconds: float, device: str) -> int:
        """Number of models that fill the device, at least two."""
        is_cpu = torch.device(device).type == "cpu"
        most, numbers = (_CPU_MODELS, _CPU_NUMBERS) if is_cpu else (_GPU_MODELS, _GPU_NUMBERS)
        job = ModuleJob.make(request, "cpu")
        try:
            parameters = sum(p.numel() for p in job.module(0).parameters())
        except Exception:  # raised again, and reported, by `fit`
            return 1
        inputs = job.batch_size * request.universe.x.shape[1]
        return max(2, min(most, numbers // (parameters + inputs)))

    def notes(self, request: OutputRequest) -> str:
        """Whether modules were stacked, why not, and how DP-SGD clipped gradients."""
        job = ModuleJob.make(request, str(request.universe.x.device))
        reason = job.obstacle()
        note = f"modules were trained one by one: {reason}" if reason else "modules were stacked"
        if not job.is_private:
            return note
        network = ModuleStack(job.module(0), vectorised=not reason)
        _, reason = clipped_gradients(network, job.x.shape[1:], record_losses)
        how = f"each example's gradient was computed: {reason}" if reason else "ghost clipping"
        return f"{note}; {how}"


@dataclass(frozen=True, eq=False)
class ModuleJob:
    """Data of one configuration on a device.

    Attributes:
        x: Records, float32, shape [N, *inputs].
        y: Targets: int64 for classes, float32 for numbers.
    """

    request: OutputRequest
    reference: ModuleReference
    inputs: Inputs
    outputs: int
    x: Tensor
    y: Tensor

    @classmethod
    def make(cls, request: OutputRequest, device: str) -> ModuleJob:
        """Copies the data of a configuration to a device."""
        config, universe = request.design.config, request.universe
        described, info = cast(ModuleModel, config.target_model), data.info(config.dataset)
        inputs, x = input_shape(config, info), universe.x.to(device).float()
        x = x if isinstance(inputs, int) else x.reshape(len(x), *inputs)
        y = universe.y.to(device)
        classes = universe.classes if described.classifies(info) else 1
        y = y.long() if classes > 1 else y.float()
        return cls(request, described.recipe(config), inputs, classes, x, y)

    @property
    def batch_size(self) -> int:
        """Records in a batch."""
        return self.reference.training.batch_size or self.request.design.config.train_size

    def run(self, models: range) -> list[ModelOutputs]:
        """Trains modules and asks them."""
        modules = [self.module(j) for j in models]
        stack = StackInTraining.of(modules, str(self.x.device), vectorised=not self.obstacle())
        few = self.x[:_TRIAL_RECORDS]
        self.answers(stack, few.expand(len(modules), *few.shape))  # raises before training
        results = []
        for part, own in zip(stack.split(), self._split(models, stack), strict=True):
            curve = _LossCurve(self, part)
            with torch.random.fork_rng():
                torch.manual_seed(self._model_seed(own[0], "training"))
                if self.is_private:
                    self._train_privately(part, own, curve)
                else:
                    train(part, self._batches(own), self.reference.training, curve)
            results += self._ask(part, own, curve.outputs)
        return results

    @property
    def is_private(self) -> bool:
        """Whether modules train by DP-SGD."""
        return self.request.design.config.private_mechanism == "dp_sgd"

    def _train_privately(
        self, stack: StackInTraining, models: range, after_step: Callable[[int], None]
    ) -> None:
        config, recipe = self.request.design.config, self.reference.training
        gradients, _ = clipped_gradients(stack.network, self.x.shape[1:], record_losses)
        one = torch.ones(len(models), device=self.x.device)
        schedule = PrivateSchedule(
            recipe.steps,
            config.sample_rate,
            config.clip * one,
            guarantee_of(config).noise * one,
            recipe.weight_decay * one,
            partial(learning_rate_factor, recipe),
        )
        randoms = [generator(self._model_seed(j, "private training"), "batches") for j in models]
        members = self.request.design.sets[models.start : models.stop].astype(np.int64)
        train_privately(
            make_optimiser(stack, recipe),
            gradients,
            self.x,
            self.y,
            schedule,
            randoms,
            torch.from_numpy(members).to(self.x.device),
            after_step,
        )

    def module(self, model: int) -> torch.nn.Module:
        """Makes a module with the random parameters of a model."""
        with torch.random.fork_rng():
            torch.manual_seed(self._model_seed(model, "parameters"))
            module: torch.nn.Module = make_module(self.reference, self.inputs, self.outputs)
            if any(map(is_lazy, module.parameters())):
                module(self.x[:2].cpu())  # sets the shapes of its parameters
        return module

    def obstacle(self) -> str:
        """Reason why modules are not stacked, in words; empty if they are.

        Two modules are tried on a few records.
        """
        if self.x.device.type == "cpu" and self.x.ndim > 2 and self.x[0].numel() > _MAX_PIXELS:
            return "on a CPU that is faster for images of this size"
        index = torch.from_numpy(self.request.design.sets[:2, :_TRIAL_RECORDS].astype(np.int64))
        index = index.to(self.x.device)
        modules = [self.module(0), self.module(1)]
        try:
            stack = StackInTraining.of(modules, str(self.x.device), vectorised=True)
            loss_gradients(stack, self.x[index], self.y[index])
        except Exception as error:  # vmap raises several types, and so may the module
            return str(error).partition("\n")[0].partition(". ")[0]
        return ""

    def _split(self, models: range, stack: StackInTraining) -> list[range]:
        return (
            [models]
            if stack.network.vectorised
            else [models[i : i + 1] for i in range(len(models))]
        )

    def _batches(self, models: range) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of each model's training set, in an order of its own in each epoch."""
        sets = self.request.design.sets[models.start : models.stop].astype(np.int64)
        size, count = sets.shape[1], self.batch_size
        randoms = [generator(self._model_seed(j, "batches"), "order") for j in models]
        augmentations = [generator(self._model_seed(j, "batches"), "augmentation") for j in models]
        for step in range(self.reference.training.steps):
            start = step % (size // count) * count
            if start == 0 and count < size:
                sets = np.stack([r.permutation(own) for r, own in zip(randoms, sets, strict=True)])
            index = torch.from_numpy(sets[:, start : start + count]).to(self.x.device)
            x, kind = self.x[index], self.request.design.config.augmentation
            if kind != "none":
                changed = [augment(own, kind, r) for own, r in zip(x, augmentations, strict=True)]
                x = torch.stack(changed)
            yield x, self.y[index]

    def _ask(
        self, stack: StackInTraining, models: range, curve: Sequence[Tensor]
    ) -> list[ModelOutputs]:
        """Outputs at the asked records, at changed copies, and at the checkpoints of training."""
        config, count = self.request.design.config, len(models)
        asked = torch.from_numpy(np.stack([self.request.asked_records(j) for j in models]))
        at_records = self.answers(stack, self.x[asked.to(self.x.device)])
        copies = changed_copies(self.attacked_records, config.augmentation, config.queries)
        at_copies = [self.answers(stack, x.expand(count, *x.shape)) for x in copies]
        values = torch.cat([at_records, *at_copies, *curve], dim=1).double().cpu().numpy()
        if self.outputs == 1:
            return [ModelOutputs("predictions", each[:, 0]) for each in values]
        return [ModelOutputs("margins", each) for each in values]

    @property
    def attacked_records(self) -> Tensor:
        """Attacked records, shape [R, *inputs]."""
        return self.x[torch.from_numpy(self.request.design.records).to(self.x.device)]

    @torch.no_grad()
    def answers(self, stack: StackInTraining, x: Tensor) -> Tensor:
        """Outputs [S, n, outputs] of records [S, n, ...] in evaluation mode.

        Raises:
            ValueError: If the module returns another shape.
        """
        parts = [stack(part, training=False) for part in torch.split(x, _ASKED_AT_ONCE, dim=1)]
        values = torch.cat(parts, dim=1)
        if values.ndim == 2:
            values = values[..., None]
        if values.shape[1:] != (x.shape[1], self.outputs):
            raise ValueError(
                f"{self.reference.location!r} must return [records, {self.outputs}]; "
                f"got {list(values.shape[1:])} for {x.shape[1]} records"
            )
        return values

    def _model_seed(self, model: int, purpose: str) -> int:
        seed = self.request.design.config.seed
        return int(generator(seed, f"model {model} {purpose}").integers(2**31))


class _LossCurve:
    """Outputs at the attacked records at evenly spaced checkpoints, the last after training."""

    def __init__(self, job: ModuleJob, stack: StackInTraining) -> None:
        count, steps = job.request.design.config.checkpoints, job.reference.training.steps
        self._job, self._stack = job, stack
        self._steps = {round(steps * (i + 1) / count) for i in range(count)}
        self.outputs: list[Tensor] = []

    def __call__(self, steps: int) -> None:
        if steps in self._steps:
            x = self._job.attacked_records
            models = len(self._stack.parameters[0])
            self.outputs.append(self._job.answers(self._stack, x.expand(models, *x.shape)))
