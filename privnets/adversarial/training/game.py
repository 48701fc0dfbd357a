"""The game as a stack: inference networks and releaser in turn (Algorithm 1 of both papers).

Every iteration takes `adversary_steps` steps of the inference networks on fresh batches, with the
release held fixed, then one step of the releaser on another batch. With objective `alpha` the
utility network takes one step beside the releaser's (arXiv 2310.18241); with `squared-kl` it is
trained as the adversary is (ICLR 2019 submission). Networks that a scenario holds fixed are trained
on raw records before the first iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem, Releaser, with_side
from privnets.adversarial.records import Pool, Splits
from privnets.adversarial.training import objectives
from privnets.adversarial.training.batches import Batch, Batches
from privnets.adversarial.training.curves import TrainingCurves
from privnets.adversarial.training.inference_networks import Role, Roles, Team, logits, teams
from privnets.adversarial.training.losses import cross_entropy
from privnets.adversarial.training.objectives import Seen
from privnets.networks.architecture import stack_parameters
from privnets.networks.memory import keep_freed_memory
from privnets.networks.training import TrainingStack, add_prefix, differentiable, select_prefix
from privnets.points import Curve
from privnets.randomness import generator

# Training curves have about so many points, each a mean over so many steps at least.
_CURVE_POINTS, _LEAST_STEPS = 100, 20
# Learning rates fall along a cosine to this share of where they start, so that the game settles.
_LAST_RATE = 0.02
# A player whose opponent moves should not look far back.
_BETAS = (0.5, 0.999)


class Game:
    """A stack of games in progress."""

    def __init__(
        self,
        problem: Problem,
        configs: Sequence[AdversarialConfig],
        pool: Pool,
        splits: Sequence[Splits],
    ) -> None:
        """Set up the networks, each drawn from its configuration's seed.

        Args:
            problem: What is released.
            configs: Of one structure.
            pool: Records, on the device to compute on.
            splits: One per configuration.
        """
        keep_freed_memory()
        first = configs[0]
        self.configs, self.step, self._pretrained = list(configs), 0, 0
        self._roles = Roles.of(first, problem.statement.utility_classes > 0)
        self._total = first.steps
        self._pretraining = first.pretrain_steps if self._roles.fixed else 0
        releaser = problem.releaser(first)
        self._batches = Batches(configs, releaser, pool, splits)
        self._teams = teams(problem, configs, self._roles, pool.x.device, _BETAS)
        self._releaser = _releaser(releaser, configs, pool.x.device)
        self._log_prior = _log_prior(pool, splits, problem.statement.secret_classes)
        self._objective = objectives.build(configs, self._log_prior)
        every = max(_LEAST_STEPS, first.steps // _CURVE_POINTS)
        self._curves = TrainingCurves(problem, self._log_prior, every)

    @property
    def ended(self) -> bool:
        """Whether every step is taken, or nobody is left to take one."""
        return not self.configs or self.step >= self._total

    @property
    def done(self) -> float:
        """Share of the steps taken, those of pretraining included."""
        return (self._pretrained + self.step) / (self._pretraining + self._total)

    def steps_to(self, share: float) -> int:
        """How many steps it takes from here until `done` is at least a share; 0 if it is."""
        wanted = math.ceil(share * (self._pretraining + self._total) - 1e-9)
        return max(0, wanted - self._pretrained - self.step)

    def advance(self, steps: int) -> dict[int, str]:
        """Take some steps, or those that are left, and drop the members that diverged.

        Steps of pretraining come first, where the scenario has any.

        Returns:
            The place of each dropped member before, and why it was.
        """
        before = min(steps, self._pretraining - self._pretrained)
        self._pretrain(before)
        self._play(steps - before)
        return self._drop_diverged()

    def _pretrain(self, steps: int) -> None:
        """Train on raw records the networks that are held fixed afterwards."""
        for batch in self._batches.raw(self._pretrained, self._pretrained + steps):
            scale = _scale(self._pretrained, self._pretraining)
            self._infer(self._roles.fixed, batch.x, batch, scale)
            self._pretrained += 1

    def _play(self, steps: int) -> None:
        for batches in self._batches.between(self.step, min(self.step + steps, self._total)):
            scale = _scale(self.step, self._total)
            for batch in batches[:-1]:
                self._train_inference(batch, scale)
            self._train_releaser(batches[-1], scale)
            self.step += 1
            self._curves.reach(self.step, self._releaser.parameters)
        self._curves.settle(self.configs)

    def release(self, member: int, records: np.ndarray, stream: str) -> Tensor:
        """One member's release of records of the pool; see `Batches.release`."""
        return self._batches.release(self._releaser.parameters, member, records, stream)

    def infer(self, name: Role, member: int, z: Tensor, side: Tensor | None) -> Tensor:
        """Log probabilities that one member's inference network gives for releases z [n, ...]."""
        team = self._team(name)
        parameters = [p[member : member + 1] for p in team.of((name,))]
        side = self._batches.seen(None if side is None else side[None])
        with torch.no_grad():
            logits = team.architecture.forward(parameters, with_side(z[None], side))
        return logits[0].log_softmax(-1)

    def parameters(self, member: int) -> list[Tensor]:
        """One releaser's, without the stack's dimension."""
        return [p[member].detach().clone() for p in self._releaser.parameters]

    def curves(self, member: int) -> dict[str, Curve]:
        """One member's training curves."""
        return self._curves.of(member)

    def keep(self, members: Sequence[int]) -> None:
        """Go on with these members alone."""
        index = torch.tensor(list(members), dtype=torch.int64, device=self._log_prior.device)
        self.configs = [self.configs[i] for i in members]
        self._releaser.keep(index)
        for team in self._teams:
            team.keep(index)
        self._batches.keep(members)
        self._objective.keep(members)
        self._log_prior = self._log_prior[index]
        self._curves.keep(index)

    def state(self) -> dict[str, Tensor]:
        """Tensors from which a game over the same members goes on."""
        found = {"step": torch.tensor(self.step), "pretrained": torch.tensor(self._pretrained)}
        for name, stack in self._stacks.items():
            found |= add_prefix(f"{name}.", stack.state())
        found |= add_prefix("objective.", _copied(self._objective.state()))
        return found | add_prefix("curves.", _copied(self._curves.state()))

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state.

        Raises:
            ValueError: If it is of another game.
        """
        try:
            self._restore(state)
        except (KeyError, ValueError, RuntimeError, IndexError) as error:
            raise ValueError(f"the state is of another stack: {error}") from error

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        step, pretrained = int(state["step"]), int(state["pretrained"])
        if not (0 <= step <= self._total and 0 <= pretrained <= self._pretraining):
            raise ValueError(f"it is at step {step} after {pretrained} of pretraining.")
        for name, stack in self._stacks.items():
            stack.restore(select_prefix(state, f"{name}."))
        self._objective.restore(select_prefix(state, "objective."))
        self._curves.restore(select_prefix(state, "curves."))
        self.step, self._pretrained = step, pretrained

    @property
    def _stacks(self) -> dict[str, TrainingStack]:
        return {"releaser": self._releaser, **{"+".join(t.names): t.stack for t in self._teams}}

    def _team(self, name: Role) -> Team:
        return next(team for team in self._teams if name in team.names)

    def _train_inference(self, batch: Batch, scale: float) -> None:
        with torch.no_grad():
            z = self._batches.released(self._releaser.parameters, batch)
        self._infer(self._roles.inner, z, batch, scale)

    def _infer(self, names: Sequence[Role], z: Tensor, batch: Batch, scale: float) -> None:
        """One step of cross-entropy for the teams of some names."""
        released, raw = self._with_side(z, batch), self._with_side(batch.x, batch)
        records = {name: raw if name == "reference" else released for name in names}
        labels = {name: _target(name, batch) for name in names}
        for team in self._teams:
            if team.names[0] in names:
                team.train(records, labels, scale)

    def _train_releaser(self, batch: Batch, scale: float) -> None:
        releaser = self._releaser.parameters
        beside = {name: self._team(name).stack for name in self._roles.beside}
        with differentiable([*releaser, *(p for s in beside.values() for p in s.parameters)]):
            z = self._batches.released(releaser, batch)
            seen = self._seen(z, batch)
            loss = self._objective.loss(seen)
            gradients = {
                name: torch.autograd.grad(
                    cross_entropy(_said(name, seen), _target(name, batch)).sum(),
                    stack.parameters,
                    retain_graph=True,
                )
                for name, stack in beside.items()
            }
            pull = torch.autograd.grad(loss.sum(), releaser)
        for name, stack in beside.items():
            stack.step(gradients[name], scale)
        self._releaser.step(pull, scale)
        self._curves.see(seen, loss)

    def _seen(self, z: Tensor, batch: Batch) -> Seen:
        read = [name for name in self._roles.networks if name != "reference"]
        said = logits(self._teams, read, self._with_side(z, batch))
        with torch.no_grad():
            known = logits(self._teams, self._roles.informed, self._with_side(batch.x, batch))
        reference = next(iter(known.values()), None)
        return Seen(batch, z, said["adversary"], said.get("utility"), reference)

    def _with_side(self, z: Tensor, batch: Batch) -> Tensor:
        return with_side(z, self._batches.seen(batch.side))

    def _drop_diverged(self) -> dict[int, str]:
        finite = [self._releaser.is_finite(), *(team.finite() for team in self._teams)]
        sound = torch.stack(finite).all(0)
        lost = [i for i, well in enumerate(sound.tolist()) if not well]
        if lost:
            self.keep([i for i in range(len(self.configs)) if i not in lost])
        taken = f"{self.step} steps" if self.step else f"{self._pretrained} steps of pretraining"
        return {i: f"diverged: parameters not finite after {taken}" for i in lost}


def _said(name: Role, seen: Seen) -> Tensor:
    said = seen.utility if name == "utility" else seen.adversary
    assert said is not None
    return said


def _releaser(
    shape: Releaser, configs: Sequence[AdversarialConfig], device: torch.device
) -> TrainingStack:
    networks = [shape.initial(generator(config.seed, "releaser")) for config in configs]
    rates = torch.tensor([config.learning_rate for config in configs])
    parameters = [p.to(device) for p in stack_parameters(networks)]
    return TrainingStack(parameters, rates.to(device), _BETAS)


def _log_prior(pool: Pool, splits: Sequence[Splits], classes: int) -> Tensor:
    """Log frequencies of the known secrets in each member's training split, shape [S, C]."""
    rows = []
    for split in splits:
        secret = pool.secret[torch.from_numpy(split.train).to(pool.secret.device)].flatten()
        counts = torch.stack([(secret == c).sum() for c in range(classes)]) + 0.5
        rows.append((counts / counts.sum()).log())
    return torch.stack(rows).to(pool.x.dtype)


def _target(name: str, batch: Batch) -> Tensor:
    if name == "adversary":
        return batch.secret
    assert batch.utility is not None
    return batch.utility


def _scale(taken: int, total: int) -> float:
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * taken / total))


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}
