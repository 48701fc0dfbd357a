"""What every experiment offers: configurations in, trade-off points out, as a stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from privnets.config import ExperimentConfig, point_id
from privnets.points import Replicate, TradeoffPoint

if TYPE_CHECKING:
    import torch

Direction = Literal["min", "max"]
State = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A value that its type allows and the data or another field does not."""

    field: str
    found: str
    allowed: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What one configuration takes: a stack of K takes about `shared + K * seconds`.

    Attributes:
        seconds: One core's, for each member of a stack.
        memory: Bytes of the device, for each member of a stack.
        shared: One core's, for a stack once: what its size does not change, such as the launching
            of kernels.
    """

    seconds: float
    memory: int
    shared: float = 0.0


@dataclass(frozen=True)
class Stage:
    """A resting place of a stack in training.

    Attributes:
        done: Share of the stack's work behind it, in [0, 1].
        points: Points (of one replicate each) that finished since the stage before.
        state: Gives the tensors from which `stages` continues the unfinished rest.
    """

    done: float
    points: tuple[TradeoffPoint, ...]
    state: Callable[[], State]


@dataclass(frozen=True, slots=True)
class InterimEstimate:
    """What an objective seems to be while training goes on, by the networks trained so far.

    It serves to compare members of one stack and nothing else: in-loop networks flatter a release.

    Attributes:
        value: In any unit whose order, and direction, are the objective's.
        error: Standard error of `value` within this training, at least 0; NaN while untold.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Rung(Stage):
    """A stage at which members may leave the stack.

    Attributes:
        share: Of the training, in (0, 1].
        estimates: Objective to estimate, for each unfinished member in the stack's order.
    """

    share: float
    estimates: tuple[Mapping[str, InterimEstimate], ...]


class Experiment(ABC):
    """An experiment trains stacks of configurations that share every shape.

    Attributes:
        name: How study files call it.
        version: Raised when its results change meaning; part of every `point_id`.
        Config: The configuration's type.
        objectives: Every metric that has a direction, to that direction.
        data_field: The configuration field that says which data are used.
        training_modules: Modules that training loads and nothing else needs, such as those that
            load torch; workers load them before they have a stack.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    Config: ClassVar[type[ExperimentConfig]]
    objectives: ClassVar[Mapping[str, Direction]]
    data_field: ClassVar[str] = "dataset"
    training_modules: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """The objectives of a study that names none."""

    @abstractmethod
    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Every key that a replicate of this configuration reports; the same for a structure."""

    @abstractmethod
    def problems(self, config: ExperimentConfig) -> list[FieldProblem]:
        """What the data set's size and kind, or another field, forbid; reads no file."""

    def unused(self, config: ExperimentConfig) -> frozenset[str]:
        """Fields that mean nothing beside the others' values; none unless an experiment says so."""
        return frozenset()

    @abstractmethod
    def fingerprint(self, config: ExperimentConfig) -> str:
        """Of the data this configuration uses.

        Raises:
            DataError: If the data set is absent or altered.
        """

    @abstractmethod
    def cost(self, config: ExperimentConfig) -> Cost:
        """A rough price, for plans and packs."""

    def rehearse(self, configs: Sequence[ExperimentConfig], device: str = "cpu") -> float | None:
        """How long a stack would take, told from a short slice of its work.

        What slices cannot tell, and stacking does not change, is taken from `cost`. The slice
        itself takes a second or two on a CPU.

        Args:
            configs: Of equal `structure()`.
            device: Where tensors live, as torch names it.

        Returns:
            Seconds of the whole stack on the device, with as many threads as torch has now; None
            from an experiment that cannot tell.

        Raises:
            ValueError: If structures differ.
            DataError: If the data set is absent or altered.
        """
        return None

    @abstractmethod
    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack, pausing at stages of a few seconds.

        Args:
            configs: Configurations of equal `structure()`.
            device: Where tensors live, as torch names it.
            state: A stage's state to continue from; `configs` are then those unfinished at it.

        Raises:
            ValueError: If structures differ, or the state is of another stack; at the latest
                when the first stage is asked for.
        """

    def interim_objectives(self, config: ExperimentConfig) -> frozenset[str]:
        """The objectives that `stages_with_rungs` estimates; none unless an experiment says so."""
        return frozenset()

    def stages_with_rungs(
        self,
        configs: Sequence[ExperimentConfig],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """The same as `stages`, with rungs at which members may leave.

        Sent the places of members (among the unfinished, in the stack's order) right after a
        `Rung`, it drops them and answers at once with a stage of those left. What these come to
        is the same as if all had stayed.

        Args:
            configs: Configurations of equal `structure()`.
            shares: Of the training at which there is a rung, rising, each in (0, 1]; those that
                `state` has behind it are passed over, and of several that fall on one step the
                last counts.
            device: Where tensors live, as torch names it.
            state: A stage's state to continue from; `configs` are then those unfinished at it.

        Raises:
            ValueError: If no objective is estimated in training; else as `stages` does.
        """
        raise ValueError(f"{self.name} estimates no objective in training.")

    def run(
        self,
        configs: Sequence[ExperimentConfig],
        device: str = "cpu",
        report: Callable[[Stage], None] | None = None,
    ) -> list[TradeoffPoint]:
        """Train a stack to its end.

        Args:
            configs: Configurations of equal `structure()`; they may differ in stackable fields.
            device: Where tensors live, as torch names it.
            report: Called at each stage.

        Returns:
            One point, of one replicate, per configuration and in the same order.

        Raises:
            ValueError: If structures differ.
            DataError: If the data set is absent or altered.
        """
        found: dict[tuple[str, int], TradeoffPoint] = {}
        for stage in self.stages(configs, device):
            found.update({(p.point_id, p.replicates[0].seed): p for p in stage.points})
            if report is not None:
                report(stage)
        return [found[self.point_id(config), config.seed] for config in configs]

    def point_id(self, config: ExperimentConfig) -> str:
        """The identity of the point this configuration is a replicate of.

        Raises:
            DataError: If the data set is absent or altered.
        """
        return point_id(self.name, self.version, config, self.fingerprint(config))

    def point(self, config: ExperimentConfig, replicate: Replicate) -> TradeoffPoint:
        """A point of one replicate."""
        return TradeoffPoint(self.point_id(config), self.name, config.resolved(), (replicate,))


def one_structure(configs: Sequence[ExperimentConfig]) -> None:
    """Check that configurations may be stacked.

    Raises:
        ValueError: If there are none, or structures differ.
    """
    structures = {config.structure() for config in configs}
    if len(structures) != 1:
        raise ValueError(f"a stack needs one structure; got {len(structures)}.")
