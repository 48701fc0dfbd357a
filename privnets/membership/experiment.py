"""The membership experiment: stacks of target models in, trade-off points out.

What plans need is here; what trains, and torch with it, loads with the first stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from privnets import data
from privnets.config import ExperimentConfig
from privnets.contract import (
    Cost,
    Direction,
    Experiment,
    InvalidField,
    Stage,
    State,
    require_equal_structures,
)
from privnets.membership import design, pricing
from privnets.membership.config import MembershipConfig
from privnets.membership.metrics import OBJECTIVES, metric_keys, utility_keys


class Membership(Experiment):
    """Membership leakage of trained models (arXiv 2001.10648)."""

    name = "membership"
    version = 1
    Config = MembershipConfig
    objectives: ClassVar[Mapping[str, Direction]] = OBJECTIVES
    training_modules = ("privnets.membership.stacks",)

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Advantage of the strongest attack against utility on unseen records."""
        keys = ("privacy/membership_advantage", utility_keys(_own(config))[0])
        return {key: OBJECTIVES[key] for key in keys}

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Every key that a replicate reports."""
        return metric_keys(_own(config))

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """Sizes that the data set cannot serve, and models that cannot predict its target."""
        own = _own(config)
        info = data.info(own.dataset)
        found: list[InvalidField] = []

        def most(field: str, value: int, limit: int) -> None:
            if value > limit:
                found.append(InvalidField(field, str(value), f"at most {limit} with {info.name}"))

        most("train_size", own.train_size, info.records - 1)
        most("records", own.records, info.records)
        if own.features is not None:
            most("features", own.features, info.attributes)
        if own.model != "linear":
            found += _unservable(own, info.records)
        if own.model == "linear" and info.task == "multiclass":
            found.append(InvalidField("model", "linear", f"logistic or mlp with {info.name}"))
        if own.model == "logistic" and info.task == "regression":
            found.append(InvalidField("model", "logistic", f"linear or mlp with {info.name}"))
        return found

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Of the data set as published."""
        return data.fingerprint(_own(config).dataset)

    def cost(self, config: ExperimentConfig) -> Cost:
        """A rough price: training, then five attacks on every trial."""
        return pricing.cost(_own(config), data.info(_own(config).dataset))

    def estimate_runtime(self, configs: Sequence[ExperimentConfig], device: str = "cpu") -> float:
        """Train a few models of a stack; see `Experiment.estimate_runtime`."""
        from privnets.membership.rehearsal import rehearsed

        require_equal_structures(configs)
        return rehearsed([_own(config) for config in configs], device)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack; see `Experiment.stages`."""
        from privnets.membership import stacks

        require_equal_structures(configs)
        return stacks.stages(self, [_own(config) for config in configs], device, state)


def _unservable(config: MembershipConfig, population: int) -> list[InvalidField]:
    """What the design of shared training sets cannot do."""
    asked, size = config.records, config.train_size
    if design.members_per_half(population, asked, size, config.draws) is None:
        return []
    found = []
    if asked > population - size:
        allowed = f"at most {population - size} with so few draws: the rest of a set is not asked"
        found.append(InvalidField("records", str(asked), allowed))
    fewest = design.fewest_sets(asked, size)
    if config.draws < fewest:
        allowed = f"at least {fewest} with {asked} records and train_size {size}, or fewer records"
        found.append(InvalidField("draws", str(config.draws), allowed))
    return found


def _own(config: ExperimentConfig) -> MembershipConfig:
    return cast(MembershipConfig, config)
