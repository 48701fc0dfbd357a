"""The adversarial experiment: stacks of games in, trade-off points out.

What plans need is here; what trains, and torch with it, loads with the first stack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import ClassVar, cast

from privnets.adversarial import metrics
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import cost_model as pricing
from privnets.adversarial.problems import registry_statement as registry
from privnets.adversarial.problems.fields_statement import idle
from privnets.adversarial.statement import Statement
from privnets.adversarial.training import interim
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

# Fields that an objective makes no use of.
_IDLE: Mapping[str, tuple[str, ...]] = {
    "alpha": ("tradeoff", "estimator", "squaring"),
    "squared-kl": (
        "privacy_weight",
        "gradient",
        "sequence",
        "distortion_weight",
        "utility_weight",
    ),
}


class Adversarial(Experiment):
    """Adversarial data release (arXiv 2310.18241 and the ICLR 2019 submission on filters)."""

    name = "adversarial"
    version = 1
    Config = AdversarialConfig
    objectives: ClassVar[Mapping[str, Direction]] = metrics.OBJECTIVES
    data_field = "problem"
    training_modules = ("privnets.adversarial.training.stacks",)

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """The strongest attacker against what the release is for."""
        return metrics.default_objectives(_statement(config), _own(config))

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Every key that a replicate reports."""
        return metrics.metric_keys(_statement(config), _own(config))

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """What the problem cannot serve, objectives it has no labels for, and idle fields.

        The order `alpha` serves either objective: leakage of that order is always measured.
        """
        own, statement = _own(config), _statement(config)
        found = statement.invalid_fields(own)
        if own.objective == "squared-kl" and not statement.utility_classes:
            found.append(InvalidField("objective", "squared-kl", f"alpha with {own.problem}"))
        if own.evaluation == "exact" and not statement.exact(own):
            allowed = "attackers; exact information is known of linear filters of gaussian-mixture"
            found.append(InvalidField("evaluation", "exact", allowed))
        named = {problem.field for problem in found}
        for choice, fields in _unused(own).items():
            found += [p for p in idle(own, fields, choice) if p.field not in named]
        return found

    def unused_fields(self, config: ExperimentConfig) -> frozenset[str]:
        """Fields that the problem, the objective, the scenario or the evaluation has no use for."""
        own = _own(config)
        return frozenset(_statement(own).idle).union(*_unused(own).values())

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Of the records and the way they are read."""
        return _statement(config).fingerprint(_own(config))

    def cost(self, config: ExperimentConfig) -> Cost:
        """A rough price: the game, then the attackers."""
        return pricing.cost(_own(config), _statement(config).sizes(_own(config)))

    def estimate_runtime(self, configs: Sequence[ExperimentConfig], device: str = "cpu") -> float:
        """Take a few steps of a stack's game; see `Experiment.estimate_runtime`."""
        from privnets.adversarial.evaluation.rehearsal import rehearsed

        require_equal_structures(configs)
        return rehearsed([_own(config) for config in configs], device)

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Train a stack; see `Experiment.stages`."""
        return self.stages_with_rungs(configs, (), device, state)

    def interim_objectives(self, config: ExperimentConfig) -> frozenset[str]:
        """Those reported that a training curve stands in for."""
        known = interim.surrogates(_statement(config), _own(config))
        return frozenset(known.keys() & self.metric_keys(config))

    def stages_with_rungs(
        self,
        configs: Sequence[ExperimentConfig],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """Train a stack that members may leave; see `Experiment.stages_with_rungs`.

        A share is of the game's steps, those of pretraining included.
        """
        from privnets.adversarial.training import stacks

        require_equal_structures(configs)
        return stacks.stages(self, [_own(config) for config in configs], shares, device, state)


def _unused(config: AdversarialConfig) -> dict[str, tuple[str, ...]]:
    """A choice that was made to the fields that mean nothing with it."""
    found = {"objective": _IDLE[config.objective]}
    if config.scenario == "joint":
        found["scenario"] = ("pretrain_steps",)
    if config.evaluation == "exact":
        found["evaluation"] = ("attack_size", "attack_steps")
    return found


def _statement(config: ExperimentConfig) -> Statement:
    return registry.statement(_own(config).problem)


def _own(config: ExperimentConfig) -> AdversarialConfig:
    return cast(AdversarialConfig, config)
