"""Stack of games: inference networks and releasers train in turn (Algorithm 1 of both papers).

Every iteration takes `adversary_steps` steps of the inference networks on fresh batches, with the
release held fixed, then one step of the releaser on another batch. The utility network takes one
step beside the releaser's (arXiv 2310.18241), or trains as the adversary does if the objective
compares it with one of raw records (ICLR 2019 submission). Networks that a scenario holds fixed are
trained on raw records before the first iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import ArrayEncoding
from privnets.adversarial.evidence import AttackView
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problem import Problem, Splits
from privnets.adversarial.records import Minibatch, Pool
from privnets.adversarial.training.batches import BatchSource, RecordReleaser
from privnets.adversarial.training.curves import TrainingCurves
from privnets.adversarial.training.inference_networks import (
    Role,
    TrainingSchedule,
    append_side,
    build_groups,
    infer_logits,
)
from privnets.adversarial.training.losses import GameStep
from privnets.adversarial.training.releasers import build_releaser
from privnets.adversarial.training.user_networks import ModuleClassifier
from privnets.networks.capture import StepRunner
from privnets.networks.devices import computed_in, keep_freed_memory
from privnets.networks.layers import stack_parameters
from privnets.networks.training import StackedAdam, add_prefix, differentiable, select_prefix
from privnets.points import Curve
from privnets.randomness import generator

_CURVE_POINTS, _MIN_CURVE_INTERVAL = 100, 20  # points of a curve, and steps between two
_INFERRED_NUMBERS = 2**21  # of records that a network sees together, for memory
# Learning rates fall along a cosine to this share of their start, so that the game settles.
_LAST_RATE = 0.02
# Short memory of the first moment suits a player whose opponent moves.
_BETAS = (0.5, 0.999)

_Step = Callable[[Sequence[Minibatch], Tensor], dict[str, Tensor]]
"""Function of batches and a factor on learning rates. It changes its other tensors in place."""


class Game:
    """A stack of games in training.

    Attributes:
        configs: Configurations of the members still in training.
        step: Releaser steps taken.
    """

    def __init__(
        self,
        problem: Problem,
        configs: Sequence[AdversarialConfig],
        pool: Pool,
        splits: Sequence[Splits],
    ) -> None:
        """Draws all networks, each from its configuration's seed, on the pool's device."""
        keep_freed_memory()
        first, device = configs[0], pool.x.device
        self.configs, self.step, self._pretrained = list(configs), 0, 0
        self._schedule = TrainingSchedule.from_config(first, problem.spec.utility_classes > 0)
        self._total = first.steps
        self._network = build_releaser(problem, first)
        encoding = problem.record_encoding(first)
        self._encoding = None if isinstance(encoding, ArrayEncoding) else encoding  # rounds nothing
        is_pretrained = self._schedule.pretrained or self._network.copies_first
        self._pretraining = first.pretrain_steps if is_pretrained else 0
        self._scales = _rate_scales(self._total, device)
        self._pretraining_scales = _rate_scales(self._pretraining, device)
        self._precision = first.precision
        self._batches = BatchSource(configs, self._network, pool, splits)
        self._groups = build_groups(problem, configs, self._schedule, device, _BETAS, pool.complete)
        self._runner = self._make_runner(device)
        networks = [self._network.initial(generator(c.seed, "releaser")) for c in configs]
        rates = torch.tensor([config.learning_rate for config in configs]).to(device)
        parameters = [p.to(device) for p in stack_parameters(networks)]
        self._releaser = StackedAdam(parameters, rates, _BETAS, self._network.trained)
        shares = []  # of the known secrets in each member's training split
        for split in splits:
            secret = pool.secret[torch.from_numpy(split.train).to(device)].flatten()
            known = [(secret == c).sum() for c in range(problem.spec.secret_classes)]
            counts = torch.stack(known) + 0.5
            shares.append(counts / counts.sum())
        self._log_prior = torch.stack([each.log() for each in shares]).to(pool.x.dtype)
        self._loss = OBJECTIVES.get(first.objective).loss(configs, self._log_prior, pool.complete)
        self._ones = torch.ones(len(configs), device=device)  # gradients of the losses
        interval = max(_MIN_CURVE_INTERVAL, first.steps // _CURVE_POINTS)
        self._curves = TrainingCurves(problem, self._log_prior, interval)

    @property
    def is_finished(self) -> bool:
        """Whether every step is taken, or no member is left."""
        return not self.configs or self._pretrained + self.step >= self._pretraining + self._total

    @property
    def done(self) -> float:
        """Share of the steps taken, including pretraining, in [0, 1]."""
        return (self._pretrained + self.step) / (self._pretraining + self._total)

    def steps_to(self, share: float) -> int:
        """Steps from here until `done` is at least a share; 0 if it is."""
        target = math.ceil(share * (self._pretraining + self._total) - 1e-9)
        return max(0, target - self._pretrained - self.step)

    def advance(self, steps: int) -> dict[int, str]:
        """Takes some steps, or all that are left, and removes members that diverged.

        Steps of pretraining come first, where the scenario has any.

        Returns:
            Place before the call and reason of each removed member.
        """
        pretraining = min(steps, self._pretraining - self._pretrained)
        self._set_training(True)
        self._pretrain(pretraining)
        self._play(steps - pretraining)
        self._set_training(False)
        finite = [group.is_finite() for group in self._groups]
        if self._releaser.parameters:
            finite.append(self._releaser.is_finite())
        is_finite = torch.stack(finite).all(0).tolist()
        diverged = [i for i, each in enumerate(is_finite) if not each]
        if diverged:
            self.keep([i for i in range(len(self.configs)) if i not in diverged])
        taken = f"{self.step} steps" if self.step else f"{self._pretrained} steps of pretraining"
        return {i: f"diverged: parameters not finite after {taken}" for i in diverged}

    def _make_runner(self, device: torch.device) -> StepRunner:
        networks = [group.architecture for group in self._groups]
        own = [each for each in networks if isinstance(each, ModuleClassifier)]
        captures = self._network.captures and all(each.captures for each in own)
        return StepRunner(device, captures=captures)

    def _set_training(self, training: bool) -> None:
        """Puts networks of users into training or evaluation mode."""
        self._network.set_training(training)
        for group in self._groups:
            if isinstance(group.architecture, ModuleClassifier):
                group.architecture.set_training(training)

    def record_releaser(self, member: int) -> RecordReleaser:
        """One member's releaser as trained so far, which releases any records of the pool."""
        return self._batches.record_releaser(self._releaser.parameters, member, self._encoding)

    def infer(self, role: Role, member: int, released: AttackView) -> Tensor:
        """Log probabilities of one member's inference network, shape [n, C] or [n, T, C]."""
        group = next(group for group in self._groups if role in group.roles)
        parameters = [p[member : member + 1] for p in group.parameters((role,))]
        side = released.side if self.configs[member].settings.shows_side_information else None
        x = append_side(released.z, side)[None]
        together = max(1, _INFERRED_NUMBERS // x[0, 0].numel())
        with torch.no_grad():
            parts = [group.architecture.forward(parameters, p) for p in torch.split(x, together, 1)]
        return torch.cat(parts, 1)[0].log_softmax(-1)

    def infer_from_raw_data(self, member: int, records: AttackView) -> Tensor | None:
        """Log probabilities of the utility label by the network trained on raw records, [n, C].

        None if the game has no such network.
        """
        role = self._schedule.raw_data_role
        return None if role is None else self.infer(role, member, records)

    def parameters(self, member: int) -> list[Tensor]:
        """One member's releaser parameters, without the stack's dimension."""
        return [p[member].detach().clone() for p in self._releaser.parameters]

    def curves(self, member: int) -> dict[str, Curve]:
        """One member's training curves."""
        return self._curves.member(member)

    def live(self) -> dict[str, float]:
        """Latest value of each training curve, the mean over members; empty before the first."""
        return self._curves.latest_means()

    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""
        index = torch.tensor(list(members), dtype=torch.int64, device=self._log_prior.device)
        self.configs = [self.configs[i] for i in members]
        self._releaser.keep(index)
        for group in self._groups:
            group.keep(index)
        self._batches.keep(members)
        self._loss.keep(members)
        self._log_prior, self._ones = self._log_prior[index], self._ones[index]
        self._curves.keep(index)
        self._runner = self._make_runner(index.device)

    def state(self) -> dict[str, Tensor]:
        """Copies all tensors from which a game over the same members continues."""
        state = {"step": torch.tensor(self.step), "pretrained": torch.tensor(self._pretrained)}
        for name, stack in self._stacks.items():
            state |= add_prefix(f"{name}.", stack.state())
        state |= add_prefix("objective.", _copy(self._loss.state()))
        return state | add_prefix("curves.", _copy(self._curves.state()))

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a saved state; raises ValueError if it belongs to another game."""
        try:
            self.step, self._pretrained = int(state["step"]), int(state["pretrained"])
            if not 0 <= self.step <= self._total or not 0 <= self._pretrained <= self._pretraining:
                raise ValueError(f"step {self.step} after {self._pretrained} steps of pretraining.")
            for name, stack in self._stacks.items():
                stack.restore(select_prefix(state, f"{name}."))
            self._loss.restore(select_prefix(state, "objective."))
            self._curves.restore(select_prefix(state, "curves."))
        except (KeyError, ValueError, RuntimeError, IndexError) as error:
            raise ValueError(f"the state belongs to another stack: {error}") from error

    @property
    def _stacks(self) -> dict[str, StackedAdam]:
        groups = {"+".join(group.roles): group.stack for group in self._groups}
        return {"releaser": self._releaser, **groups}

    def _pretrain(self, steps: int) -> None:
        """Trains on raw records the networks that are then held fixed, and a releaser to copy."""
        for batch in self._batches.raw_batches(self._pretrained, self._pretrained + steps):
            scale = self._pretraining_scales[self._pretrained]
            self._run(self._take_pretraining_step, [batch], scale)
            self._pretrained += 1
            if self._pretrained == self._pretraining:
                self._runner = self._make_runner(scale.device)  # the game's steps are others
                # Gradients of the game are larger: by the moments of copying, its first steps would
                # be many times the learning rate.
                self._releaser.forget_gradients()

    def _play(self, steps: int) -> None:
        last = min(self.step + steps, self._total)
        for batches in self._batches.game_batches(self.step, last):
            result = self._run(self._take_step, batches, self._scales[self.step])
            recorded = {name: result.pop(name) for name in ("loss", "distortion")}
            self._curves.add_step(GameStep(batches[-1], **result), **recorded)
            self.step += 1
            self._curves.add_point(self.step, self._releaser.parameters)
        self._curves.settle(self.configs)

    def _run(self, step: _Step, batches: Sequence[Minibatch], scale: Tensor) -> dict[str, Tensor]:
        names = [list(batch.tensors()) for batch in batches]

        def take(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
            values = iter(inputs)
            fields: list[Any] = [dict(zip(own, values, strict=False)) for own in names]
            pairs = zip(batches, fields, strict=True)
            return step([replace(batch, **own) for batch, own in pairs], next(values))

        columns = [tensor for batch in batches for tensor in batch.tensors().values()]
        with computed_in(self._precision, scale.device):
            return self._runner.run(take, [*columns, scale])

    def _take_pretraining_step(
        self, batches: Sequence[Minibatch], scale: Tensor
    ) -> dict[str, Tensor]:
        """Takes one step on a batch of raw records; see `_take_step`. Returns nothing."""
        (batch,) = batches
        self._train_networks(self._schedule.pretrained, batch.x, batch, scale)
        if self._network.copies_first:
            with differentiable(parameters := self._releaser.trained):
                loss = self._network.copying_loss(self._releaser.parameters, batch).sum()
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            self._releaser.step(gradients, scale)
        return {}

    def _take_step(self, batches: Sequence[Minibatch], scale: Tensor) -> dict[str, Tensor]:
        """Takes the adversary's steps, then the releaser's, each on a batch.

        It depends on tensors alone, which it changes in place: a CUDA graph may repeat it. Returns
        the fields of the releaser's `GameStep` but `batch`, its `loss` [S] and `distortion` [S].
        """
        for batch in batches[:-1]:
            with torch.no_grad():
                z = self._release(batch)
            self._train_networks(self._schedule.adversary_step, z, batch, scale)
        step, loss = self._train_releaser(batches[-1], scale)
        logits = {"adversary": step.adversary, "utility": step.utility, "reference": step.reference}
        tensors = {"z": step.z, **logits, "loss": loss, "distortion": step.distortion}
        return {name: tensor.detach() for name, tensor in tensors.items() if tensor is not None}

    def _train_networks(
        self, roles: Sequence[Role], z: Tensor, batch: Minibatch, scale: Tensor
    ) -> None:
        """Takes one step of cross-entropy for the groups of some roles."""
        released, raw = append_side(z, batch.side), append_side(batch.x, batch.side)
        records = {role: raw if role == "reference" else released for role in roles}
        given = {r: batch.secret if r == "adversary" else batch.utility for r in roles}
        labels = {role: label for role, label in given.items() if label is not None}
        for group in self._groups:
            if group.roles[0] in roles:
                group.train(records, labels, scale)

    def _train_releaser(self, batch: Minibatch, scale: Tensor) -> tuple[GameStep, Tensor]:
        parameters = self._releaser.trained
        # At most the utility network trains beside the releaser.
        roles = self._schedule.releaser_step
        groups = [g for g in self._groups if g.roles[0] in roles and g.stack.trained]
        beside = [p for group in groups for p in group.stack.trained]
        trained = [*parameters, *beside]
        with differentiable(trained):
            z = self._release(batch)
            released: dict[Role, Tensor] = {"adversary": z}
            if "utility" in self._schedule.roles:
                released["utility"] = self._loss.utility_input(z)
            inputs = {role: append_side(own, batch.side) for role, own in released.items()}
            logits = infer_logits(self._groups, inputs)
            raw_role, reference = self._schedule.raw_data_role, None
            if raw_role is not None:
                with torch.no_grad():
                    raw = append_side(batch.x, batch.side)
                    reference = infer_logits(self._groups, {raw_role: raw})[raw_role]
            step = GameStep(batch, z, logits["adversary"], logits.get("utility"), reference)
            loss = self._loss(step)
            gradients = (
                torch.autograd.grad(loss, trained, self._ones, materialize_grads=True)
                if trained
                else ()
            )
        for group in groups:
            group.stack.step(gradients[len(parameters) :], scale)
        if parameters:
            self._releaser.step(gradients[: len(parameters)], scale)
        return step, loss

    def _release(self, batch: Minibatch) -> Tensor:
        return self._network.release(self._releaser.parameters, batch).float()


def _rate_scales(steps: int, device: torch.device) -> Tensor:
    """Factor on learning rates in each step, shape [steps]."""
    angles = math.pi * torch.arange(steps, dtype=torch.float64) / max(steps, 1)
    scales = _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + angles.cos())
    return scales.float().to(device)


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}
