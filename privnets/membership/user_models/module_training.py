"""Torch modules of users: as stacks where they allow it, otherwise trained one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from privnets.audit.model_outputs import ModelOutputs
from privnets.data import UserFormError
from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.membership.config import MembershipConfig
from privnets.membership.guarantee import guarantee_of
from privnets.membership.observations import Universe
from privnets.membership.user_models.augmentation import augment, changed_copies
from privnets.membership.user_models.estimators import Answers, answers
from privnets.membership.user_models.module_stacks import (
    StackInTraining,
    learning_rate_factor,
    make_optimiser,
    private_gradients,
    train,
)
from privnets.membership.user_models.module_trials import ASKED_AT_ONCE, ModuleSource
from privnets.membership.user_models.output_training import (
    OutputRequest,
    OutputTrainer,
    UserCodeError,
)
from privnets.networks.module_stacks import seeded
from privnets.randomness import generator
from privnets.references.user_files import describe_error

_CPU_MODELS, _GPU_MODELS = 16, 256
# Parameters and inputs of a batch, over all models that train at once.
_CPU_NUMBERS, _GPU_NUMBERS = 2**23, 2**30


class ModuleTrainer(OutputTrainer):
    """Trains modules in float32, each from a seed of its own."""

    def check(self, config: MembershipConfig) -> None:
        """Tries a module on records of the data set; see `ModuleSource.check`."""
        ModuleSource.load(config, Universe.load(config, "cpu"), "cpu").check()

    def fit(self, request: OutputRequest, models: range, device: str) -> list[Answers]:
        """Trains modules and asks them in evaluation mode."""
        try:
            outputs = ModuleJob.make(request, device).run(models)
        except UserFormError as error:
            raise UserCodeError(error.given) from error
        except torch.OutOfMemoryError:  # the models are too many at once
            raise
        except Exception as error:  # any exception of the user's code
            raise UserCodeError(describe_error(error)) from error
        y, repeated = request.universe.y.cpu().numpy(), request.repeated_records
        asked = [np.concatenate([request.asked_records(j), repeated]) for j in models]
        test, classes = request.test_columns, request.classes
        return [
            answers(each, y[records], test, classes)
            for records, each in zip(asked, outputs, strict=True)
        ]

    def models_at_once(self, request: OutputRequest, seconds: float, device: str) -> int:
        """Number of models that fill the device, at least two."""
        is_cpu = torch.device(device).type == "cpu"
        most, numbers = (_CPU_MODELS, _CPU_NUMBERS) if is_cpu else (_GPU_MODELS, _GPU_NUMBERS)
        source = ModuleJob.make(request, "cpu").source
        try:
            parameters = sum(p.numel() for p in source.module(0).parameters())
        except Exception:  # raised again, and reported, by `fit`
            return 1
        inputs = source.batch_size * request.universe.x.shape[1]
        return max(2, min(most, numbers // (parameters + inputs)))

    def notes(self, request: OutputRequest) -> str:
        """Whether modules were stacked, and why not."""
        reason = ModuleJob.make(request, str(request.universe.x.device)).source.obstacle()
        return f"modules were trained one by one: {reason}" if reason else "modules were stacked"


@dataclass(frozen=True, eq=False)
class ModuleJob:
    """Training of the modules of one configuration on their training sets."""

    request: OutputRequest
    source: ModuleSource

    @classmethod
    def make(cls, request: OutputRequest, device: str) -> ModuleJob:
        """Copies the data of a configuration to a device."""
        config = request.design.config
        return cls(request, ModuleSource.load(config, request.universe, device))

    def run(self, models: range) -> list[ModelOutputs]:
        """Trains modules and asks them."""
        source = self.source
        captures = not source.check()
        modules, device = [source.module(j) for j in models], str(source.x.device)
        if source.obstacle():
            stacks = [StackInTraining.alone(module, device) for module in modules]
            owners = [models[i : i + 1] for i in range(len(models))]
        else:
            stacks, owners = [StackInTraining.of(modules, device, captures=captures)], [models]
        return [
            answers
            for stack, own in zip(stacks, owners, strict=True)
            for answers in self._train_stack(stack, own)
        ]

    def _train_stack(self, stack: StackInTraining, models: range) -> list[ModelOutputs]:
        """Trains a stack and asks it, also about attacked records at the checkpoints."""
        source = self.source
        count, total = source.config.checkpoints, source.reference.training.steps
        checkpoints = {round(total * (i + 1) / count) for i in range(count)}
        curve: list[Tensor] = []

        def after_step(steps: int) -> None:
            if steps in checkpoints:
                x = self.attacked_records
                curve.append(self.answers(stack, x.expand(len(models), *x.shape)))

        with seeded(source.seed(models[0], "training")):
            if source.is_private:
                self._train_privately(stack, models, after_step)
            else:
                train(stack, self._batches(models), source.reference.training, after_step)
            return self._ask(stack, models, curve)

    def _train_privately(
        self, stack: StackInTraining, models: range, after_step: Callable[[int], None]
    ) -> None:
        source, config = self.source, self.source.config
        recipe = source.reference.training
        one = torch.ones(len(models), device=source.x.device)
        schedule = PrivateSchedule(
            recipe.steps,
            config.sample_rate,
            config.clip * one,
            guarantee_of(config).noise * one,
            recipe.weight_decay * one,
            partial(learning_rate_factor, recipe),
        )
        randoms = [generator(source.seed(j, "private training"), "batches") for j in models]
        members = self.request.design.sets[models.start : models.stop].astype(np.int64)
        train_privately(
            make_optimiser(stack, recipe),
            private_gradients(stack, *source.few()),
            source.x,
            source.y,
            schedule,
            randoms,
            torch.from_numpy(members).to(source.x.device),
            after_step,
        )
        if not all(bool(parameter.isfinite().all()) for parameter in stack.parameters):
            raise ValueError(
                "a record's gradient is not a finite number, so that DP-SGD cannot clip it; "
                "train slower, or keep roots and divisions away from zero."
            )

    def _batches(self, models: range) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of each model's training set, in an order of its own in each epoch."""
        source = self.source
        sets = self.request.design.sets[models.start : models.stop].astype(np.int64)
        size, count = sets.shape[1], source.batch_size
        randoms = [generator(source.seed(j, "batches"), "order") for j in models]
        augmentations = [generator(source.seed(j, "batches"), "augmentation") for j in models]
        for step in range(source.reference.training.steps):
            start = step % (size // count) * count
            if start == 0 and count < size:
                sets = np.stack([r.permutation(own) for r, own in zip(randoms, sets, strict=True)])
            index = torch.from_numpy(sets[:, start : start + count]).to(source.x.device)
            x = augment(source.x[index], source.config.augmentation, augmentations)
            yield x, source.y[index]

    def _ask(
        self, stack: StackInTraining, models: range, curve: Sequence[Tensor]
    ) -> list[ModelOutputs]:
        """Outputs at the asked records, at changed copies, and at the checkpoints of training."""
        source, config, count = self.source, self.source.config, len(models)
        asked = torch.from_numpy(np.stack([self.request.asked_records(j) for j in models]))
        at_records = self.answers(stack, source.x[asked.to(source.x.device)])
        copies = changed_copies(self.attacked_records, config.augmentation, config.queries)
        at_copies = [self.answers(stack, x.expand(count, *x.shape)) for x in copies]
        values = torch.cat([at_records, *at_copies, *curve], dim=1).double().cpu().numpy()
        if source.outputs == 1:
            return [ModelOutputs("predictions", each[:, 0]) for each in values]
        return [ModelOutputs("margins", each) for each in values]

    @property
    def attacked_records(self) -> Tensor:
        """Attacked records, shape [R, *inputs]."""
        x = self.source.x
        return x[torch.from_numpy(self.request.design.records).to(x.device)]

    @torch.no_grad()
    def answers(self, stack: StackInTraining, x: Tensor) -> Tensor:
        """Outputs [S, n, outputs] of records [S, n, ...] in evaluation mode."""
        parts = torch.split(x, ASKED_AT_ONCE, dim=1)
        # A module may change its inputs, which other models share.
        answers = [stack(part.clone(), training=False) for part in parts]
        return self.source.shaped(torch.cat(answers, dim=1), x.shape[1])
