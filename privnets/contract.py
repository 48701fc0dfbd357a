"""Interface of an experiment: configurations in, trade-off points out, trained as a stack."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeAlias, TypeVar

from privnets.config import ExperimentConfig, point_id
from privnets.points import Replicate, TradeoffPoint
from privnets.statistics.estimates import Estimate

if TYPE_CHECKING:
    import torch

Direction = Literal["min", "max"]
ConfigT = TypeVar("ConfigT", bound=ExperimentConfig)
Tensor: TypeAlias = "torch.Tensor"
"""Tensor in annotations of modules that load without torch."""
State: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class InvalidField:
    """A value of the right type that the data or another field rules out.

    Attributes:
        expected: Values accepted, in words.
    """

    field: str
    value: str
    expected: str


class InvalidConfigError(ValueError):
    """Raised when `Experiment.run` receives configurations with invalid fields."""

    def __init__(self, experiment: str, fields: Sequence[InvalidField]) -> None:
        """Lists every invalid field in the message."""
        self.fields = tuple(dict.fromkeys(fields))
        lines = [f"{each.field} must be {each.expected}; got {each.value}." for each in self.fields]
        super().__init__("\n  ".join([f"invalid configuration of {experiment!r}:", *lines]))


@dataclass(frozen=True, slots=True)
class Cost:
    """Estimated cost of a configuration: a stack of K takes about `shared + K * seconds`.

    Attributes:
        seconds: Core-seconds for each member of a stack.
        memory: Bytes of device memory for each member of a stack.
        shared: Core-seconds for the stack as a whole, such as the launch of kernels.
    """

    seconds: float
    memory: int
    shared: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Progress report yielded between chunks of training.

    Attributes:
        done: Share of the stack's work that is finished, in [0, 1].
        points: Points (of one replicate each) finished since the previous stage.
        state: Returns the tensors from which `stages` continues the unfinished members.
        live: Returns values to watch while training runs, such as losses: means over the stack.
    """

    done: float
    points: tuple[TradeoffPoint, ...]
    state: Callable[[], State]
    live: Callable[[], Mapping[str, float]] = field(default=dict, kw_only=True)


@dataclass(frozen=True)
class Rung(Stage):
    """Stage at which members may be removed from the stack.

    Attributes:
        share: Share of the training that is finished, in (0, 1].
        estimates: For each unfinished member, in the stack's order: objective to an estimate of it
            about the releases or models of that moment. It is cheaper and weaker than the
            evaluation, in any unit with the objective's order and direction, for equal seeds.
    """

    share: float
    estimates: tuple[Mapping[str, Estimate], ...]


class Experiment(ABC, Generic[ConfigT]):
    """Base class of experiments.

    A stack is a sequence of configurations of equal `structure()`; its device is a device name of
    torch. Methods that read data raise DataError if the data set is absent or altered.

    Attributes:
        name: Name in study files.
        version: Raised when the meaning of results changes; part of every `point_id`.
        Config: Type of configuration.
        objectives: Direction of every metric that may be an objective.
        ranges: Smallest and largest value of metrics that have both.
        data_field: Configuration field that names the data set.
        training_modules: Modules that only training needs, such as those that import torch.
            Workers import them before they receive a stack.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    Config: ClassVar[type[ExperimentConfig]]
    objectives: ClassVar[Mapping[str, Direction]]
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = MappingProxyType({})
    data_field: ClassVar[str] = "dataset"
    training_modules: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def default_objectives(self, config: ConfigT) -> Mapping[str, Direction]:
        """Returns the objectives of a study that names none."""

    @abstractmethod
    def metric_keys(self, config: ConfigT) -> tuple[str, ...]:
        """Returns every metric key that a replicate reports; equal for equal structures."""

    def limit_mistake(self, metric: str, limit: float) -> str | None:
        """Values that a limit of a metric may have, if the limit is no such value; else None."""
        low, high = self.ranges.get(metric, (-math.inf, math.inf))
        if low <= limit <= high:
            return None
        return f"limits in [{low:g}, {high:g}]; divide percentages by 100"

    def unsupported_objectives(self, config: ConfigT) -> Mapping[str, str]:
        """Returns the objectives that this configuration leaves undefined, with the reasons."""
        return {}

    @abstractmethod
    def invalid_fields(self, config: ConfigT) -> list[InvalidField]:
        """Returns values that the data set or another field rules out; reads no file."""

    def unused_fields(self, config: ConfigT) -> frozenset[str]:
        """Returns the fields that have no effect beside the other values."""
        return config.redundant_fields()

    @abstractmethod
    def fingerprint(self, config: ConfigT) -> str:
        """Returns the fingerprint of the data that this configuration uses."""

    def remarks(self, config: ConfigT) -> tuple[str, ...]:
        """Returns sentences on the data for the author of a study; reads the data."""
        return ()

    def describe_labels(self, config: ConfigT) -> tuple[str, ...]:
        """Returns sentences on classes and their shares, the largest first; reads the data."""
        return ()

    def try_code(self, config: ConfigT) -> None:
        """Tries code of the user that training will run, once in a process for each structure.

        Raises:
            UserFormError: If training would fail.
        """

    @abstractmethod
    def cost(self, config: ConfigT) -> Cost:
        """Returns a rough estimate of time and memory, without training anything."""

    @abstractmethod
    def stages(
        self, configs: Sequence[ConfigT], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Trains a stack and yields a stage every few seconds.

        Args:
            state: State of a stage to continue from; `configs` are then the members that were
                unfinished at that stage.

        Raises:
            ValueError: If structures differ, or the state belongs to another stack. It may be
                raised by the first `next`.
        """

    def interim_objectives(self, config: ConfigT) -> frozenset[str]:
        """Returns the objectives that `stages_with_rungs` estimates; none by default."""
        return frozenset()

    def stages_with_rungs(
        self,
        configs: Sequence[ConfigT],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """Trains a stack like `stages`, with rungs at which members may be removed.

        Send the indices of members (among the unfinished, in the stack's order) right after a
        `Rung` to remove them; the reply is a stage of the remaining members. Their results do not
        depend on the removal.

        Args:
            shares: Shares of the training at which to yield a rung, increasing, each in (0, 1].
                Shares before `state` are skipped; of several in one step the last counts.

        Raises:
            ValueError: If the experiment estimates no objective during training; otherwise as
                for `stages`.
        """
        raise ValueError(f"experiment {self.name!r} estimates no objective during training.")

    def run(
        self,
        configs: Sequence[ConfigT],
        device: str = "cpu",
        report: Callable[[Stage], None] | None = None,
    ) -> list[TradeoffPoint]:
        """Trains a stack to its end.

        Args:
            configs: Configurations of equal `structure()`; stackable fields may differ.

        Returns:
            One point with one replicate for each configuration, in the same order.

        Raises:
            InvalidConfigError: If the data or another field rules out a value.
            ValueError: If structures differ.
            DataError: If the data set is absent or altered.
        """
        if invalid := [each for config in configs for each in self.invalid_fields(config)]:
            raise InvalidConfigError(self.name, invalid)
        points: dict[tuple[str, int], TradeoffPoint] = {}
        for stage in self.stages(configs, device):
            points.update({(p.point_id, p.replicates[0].seed): p for p in stage.points})
            if report is not None:
                report(stage)
        return [points[self.point_id(config), config.seed] for config in configs]

    def point_id(self, config: ConfigT) -> str:
        """Returns the identity of the point to which this configuration belongs."""
        return point_id(self.name, self.version, config, self.fingerprint(config))

    def point(self, config: ConfigT, replicate: Replicate) -> TradeoffPoint:
        """Returns a point with one replicate."""
        resolved = config.canonical().resolved()
        return TradeoffPoint(self.point_id(config), self.name, resolved, (replicate,))


def require_equal_structures(configs: Sequence[ExperimentConfig]) -> None:
    """Checks that configurations may be stacked."""
    structures = {config.structure() for config in configs}
    if len(structures) != 1:
        raise ValueError(f"a stack needs one structure; got {len(structures)}.")
