"""The game as a stack: inference networks and releaser in turn (Algorithm 1 of both papers).

Every iteration takes `adversary_steps` steps of the inference networks on fresh batches, with the
release held fixed, then one step of the releaser on another batch. With objective `alpha` the
utility network takes one step beside the releaser's (arXiv 2310.18241); with `squared-kl` it is
trained as the adversary is (ICLR 2019 submission). Networks that a scenario holds fixed are trained
on raw records before the first iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial import objectives
from privnets.adversarial.batches import Batch, Batches
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.losses import cross_entropy
from privnets.adversarial.objectives import Seen
from privnets.adversarial.problem import Problem, Releaser, with_side
from privnets.adversarial.records import Pool, Splits
from privnets.adversarial.training_curves import TrainingCurves
from privnets.networks.adam import StackedAdam
from privnets.networks.architecture import Architecture, stacked
from privnets.networks.memory import keep_freed_memory
from privnets.points import Curve
from privnets.randomness import generator

# Training curves have about so many points, each a mean over so many steps at least.
_CURVE_POINTS, _LEAST_STEPS = 100, 20
# Learning rates fall along a cosine to this share of where they start, so that the game settles.
_LAST_RATE = 0.02
# A player whose opponent moves should not look far back.
_BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class Roles:
    """Which inference networks there are, and when each of them trains.

    `adversary` infers the secret from the release and `utility` the utility label; `reference`
    infers the utility label from raw records.

    Attributes:
        inner: At every adversary step.
        beside: Once beside each releaser step.
        fixed: On raw records beforehand, and never again.
    """

    inner: tuple[str, ...]
    beside: tuple[str, ...]
    fixed: tuple[str, ...]

    @classmethod
    def of(cls, config: AdversarialConfig, has_utility: bool) -> Roles:
        """As objective and scenario say (eq. 8 to 10 of the ICLR 2019 submission)."""
        held = {"joint": 0, "fixed-utility": 1, "fixed-both": 2}[config.scenario]
        fixed: list[str] = []
        inner: list[str] = []
        beside: list[str] = []
        (fixed if held == 2 else inner).append("adversary")
        if has_utility and held:
            fixed.append("utility")
        elif has_utility and config.objective == "alpha":
            beside.append("utility")
        elif has_utility:
            inner += ["utility", "reference"]
        return cls(tuple(inner), tuple(beside), tuple(fixed))

    @property
    def networks(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.inner, *self.beside, *self.fixed)


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
        self._roles = Roles.of(first, problem.utility_classes > 0)
        self._total = first.steps
        self._pretraining = first.pretrain_steps if self._roles.fixed else 0
        self._shapes = _inferring(problem, first, self._roles)
        releaser = problem.releaser(first)
        self._batches = Batches(configs, releaser, pool, splits)
        device = pool.x.device
        shapes: dict[str, Architecture | Releaser] = {"releaser": releaser, **self._shapes}
        self._networks = {
            name: [p.to(device) for p in _initial(shape, configs, name)]
            for name, shape in shapes.items()
        }
        self._optimisers = {
            name: StackedAdam(parameters, _rates(configs, name).to(device), _BETAS)
            for name, parameters in self._networks.items()
        }
        self._log_prior = _log_prior(pool, splits, problem.secret_classes)
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
            self._curves.reach(self.step, self._networks["releaser"])
        self._curves.settle(self.configs)

    def release(self, member: int, records: np.ndarray, stream: str) -> Tensor:
        """One member's release of records of the pool; see `Batches.release`."""
        return self._batches.release(self._networks["releaser"], member, records, stream)

    def infer(self, name: str, member: int, z: Tensor, side: Tensor | None) -> Tensor:
        """Log probabilities that one member's inference network gives for releases z [n, ...]."""
        parameters = [p[member : member + 1] for p in self._networks[name]]
        side = self._batches.seen(None if side is None else side[None])
        with torch.no_grad():
            return (
                self._shapes[name].forward(parameters, with_side(z[None], side))[0].log_softmax(-1)
            )

    def parameters(self, member: int) -> list[Tensor]:
        """One releaser's, without the stack's dimension."""
        return [p[member].detach().clone() for p in self._networks["releaser"]]

    def curves(self, member: int) -> dict[str, Curve]:
        """One member's training curves."""
        return self._curves.of(member)

    def keep(self, members: Sequence[int]) -> None:
        """Go on with these members alone."""
        index = torch.tensor(list(members), dtype=torch.int64, device=self._log_prior.device)
        self.configs = [self.configs[i] for i in members]
        for name, parameters in self._networks.items():
            kept = [p[index] for p in parameters]
            self._networks[name] = kept
            self._optimisers[name].keep(index, kept)
        self._batches.keep(members)
        self._objective.keep(members)
        self._log_prior = self._log_prior[index]
        self._curves.keep(index)

    def state(self) -> dict[str, Tensor]:
        """Tensors from which a game over the same members goes on."""
        found = {"step": torch.tensor(self.step), "pretrained": torch.tensor(self._pretrained)}
        for name, parameters in self._networks.items():
            found |= {f"{name}.{i}": p.clone() for i, p in enumerate(parameters)}
            found |= _prefixed(f"adam.{name}.", self._optimisers[name].state())
        found |= _prefixed("objective.", _copied(self._objective.state()))
        return found | _prefixed("curves.", _copied(self._curves.state()))

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state.

        Raises:
            ValueError: If it is of another game.
        """
        try:
            self._restore(state)
        except (KeyError, RuntimeError, IndexError) as error:
            raise ValueError(f"the state is of another stack: {error}") from error

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        step, pretrained = int(state["step"]), int(state["pretrained"])
        if not (0 <= step <= self._total and 0 <= pretrained <= self._pretraining):
            at = f"step {step} after {pretrained} of pretraining"
            raise ValueError(f"the state is of another stack: it is at {at}.")
        for name, parameters in self._networks.items():
            for i, parameter in enumerate(parameters):
                saved = state[f"{name}.{i}"]
                if saved.shape != parameter.shape:
                    raise ValueError(f"the state is of another stack: {name}.{i} differs in shape.")
                parameter.copy_(saved)
            self._optimisers[name].restore(_under(state, f"adam.{name}."))
        self._objective.restore(_under(state, "objective."))
        self._curves.restore(_under(state, "curves."))
        self.step, self._pretrained = step, pretrained

    def _train_inference(self, batch: Batch, scale: float) -> None:
        with torch.no_grad():
            z = self._batches.released(self._networks["releaser"], batch)
        self._infer(self._roles.inner, z, batch, scale)

    def _infer(self, names: Sequence[str], z: Tensor, batch: Batch, scale: float) -> None:
        """One step of cross-entropy for some networks; they share no parameter."""
        for name in names:
            parameters = self._networks[name]
            with _differentiable(parameters):
                loss = cross_entropy(self._logits(name, z, batch), _target(name, batch))
                gradients = torch.autograd.grad(loss.sum(), parameters)
            self._optimisers[name].step(gradients, scale)

    def _train_releaser(self, batch: Batch, scale: float) -> None:
        releaser, beside = self._networks["releaser"], self._roles.beside
        with _differentiable([*releaser, *(p for name in beside for p in self._networks[name])]):
            z = self._batches.released(releaser, batch)
            seen = self._seen(z, batch)
            loss = self._objective.loss(seen)
            gradients = {
                name: torch.autograd.grad(
                    cross_entropy(self._said(name, seen), _target(name, batch)).sum(),
                    self._networks[name],
                    retain_graph=True,
                )
                for name in beside
            }
            gradients["releaser"] = torch.autograd.grad(loss.sum(), releaser)
        for name, gradient in gradients.items():
            self._optimisers[name].step(gradient, scale)
        self._curves.see(seen, loss)

    def _seen(self, z: Tensor, batch: Batch) -> Seen:
        utility = reference = None
        if "utility" in self._shapes:
            utility = self._logits("utility", z, batch)
            with torch.no_grad():
                reference = self._reference(batch)
        return Seen(batch, z, self._logits("adversary", z, batch), utility, reference)

    def _reference(self, batch: Batch) -> Tensor | None:
        """What raw records tell of the utility label, where a network was trained on them."""
        if "reference" in self._shapes:
            return self._logits("reference", batch.x, batch)
        return self._logits("utility", batch.x, batch) if "utility" in self._roles.fixed else None

    def _said(self, name: str, seen: Seen) -> Tensor:
        said = seen.utility if name == "utility" else seen.adversary
        assert said is not None
        return said

    def _logits(self, name: str, z: Tensor, batch: Batch) -> Tensor:
        seen = with_side(batch.x if name == "reference" else z, self._batches.seen(batch.side))
        return self._shapes[name].forward(self._networks[name], seen)

    def _drop_diverged(self) -> dict[int, str]:
        sound = torch.ones(len(self.configs), dtype=torch.bool, device=self._log_prior.device)
        for parameters in self._networks.values():
            for parameter in parameters:
                sound &= parameter.flatten(1).isfinite().all(1)
        lost = [i for i, well in enumerate(sound.tolist()) if not well]
        if lost:
            self.keep([i for i in range(len(self.configs)) if i not in lost])
        taken = f"{self.step} steps" if self.step else f"{self._pretrained} steps of pretraining"
        return {i: f"diverged: parameters not finite after {taken}" for i in lost}


def _inferring(
    problem: Problem, config: AdversarialConfig, roles: Roles
) -> dict[str, Architecture]:
    utility = problem.utility(config)
    shapes = {"adversary": problem.adversary(config)}
    if utility is not None:
        shapes["utility"] = utility
    if utility is not None and "reference" in roles.networks:
        shapes["reference"] = utility
    return shapes


def _initial(
    shape: Architecture | Releaser, configs: Sequence[AdversarialConfig], name: str
) -> list[Tensor]:
    return stacked([shape.initial(generator(config.seed, name)) for config in configs])


def _rates(configs: Sequence[AdversarialConfig], name: str) -> Tensor:
    field = "learning_rate" if name == "releaser" else "adversary_learning_rate"
    return torch.tensor([getattr(config, field) for config in configs], dtype=torch.float32)


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


@contextmanager
def _differentiable(parameters: Sequence[Tensor]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
