"""The adversarial experiment: stacks of games in, trade-off points out.

This module answers what planning needs; training, and torch with it, loads with the first stack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from types import ModuleType
from typing import ClassVar, Final, cast

from privnets.adversarial import metrics
from privnets.adversarial.attackers import ATTACKERS
from privnets.adversarial.config import (
    COPYING_RELEASERS,
    AdversarialConfig,
)
from privnets.adversarial.evaluation import cost_model
from privnets.adversarial.objectives import OBJECTIVES, WEIGHTS
from privnets.adversarial.problem import Problem, unused_field_errors
from privnets.adversarial.problems.opening import problem_of
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
from privnets.references.models import NetworkReference
from privnets.references.user_files import source_digest

_LEARNED: Final = frozenset({"releaser", "releaser_width", "noise_std", "learning_rate"})
"""Settings of learned releasers alone."""


class Adversarial(Experiment):
    """Adversarial data release (arXiv 2310.18241 and the ICLR 2019 submission on filters)."""

    name = "adversarial"
    version = 7
    Config = AdversarialConfig
    objectives: ClassVar[Mapping[str, Direction]] = metrics.objectives()
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        key: (0.0, 1.0) for key in objectives if key.endswith(("accuracy", "auc"))
    }
    data_field = "problem"
    training_modules = ("privnets.adversarial.stages",)

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        """Success of the strongest attacker, or exact leakage, against the use of the release."""
        spec = _problem(config).spec
        if _own(config).evaluation == "exact":
            keys = ("exact/leakage", "exact/censored")
        elif not spec.copies_input:
            keys = ("privacy/leakage", "utility/censored")
        elif spec.utility_classes:
            keys = ("privacy/attacker_balanced_accuracy", "utility/accuracy")
        else:
            keys = ("privacy/attacker_balanced_accuracy", "utility/normalized_error")
        return {key: self.objectives[key] for key in keys}

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        """All keys that a replicate reports."""
        return metrics.metric_keys(_problem(config), _own(config))

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        """Values that the problem cannot serve, and changed fields without effect."""
        own, problem = _own(config), _problem(config)
        errors = problem.invalid_fields(own)
        compares = OBJECTIVES.get(own.objective).compares_with_raw
        if compares and not problem.spec.utility_classes:
            expected = f"one without a utility label, as {problem.name} has none"
            errors.append(InvalidField("objective", own.objective, expected))
        if own.evaluation == "exact" and not problem.has_exact_information(own):
            expected = "attackers; exact information is known of linear filters of gaussian-mixture"
            errors.append(InvalidField("evaluation", "exact", expected))
        if not own.steps and own.releaser not in COPYING_RELEASERS:
            expected = f"at least 1, or releaser {' or '.join(COPYING_RELEASERS)}"
            errors.append(InvalidField("steps", "0", expected))
        others = metrics.metric_keys(problem, own.model_copy(update={"metrics": None}))
        errors += [
            InvalidField(f"metrics.{key}", key, "a name that no other metric has")
            for key in own.metrics or ()
            if key in others
        ]
        reported = {error.field for error in errors}
        for choice, fields in _unused_by_choice(own).items():
            unused = unused_field_errors(own, fields, problem.spec.defaults, choice)
            errors += [error for error in unused if error.field not in reported]
        return errors

    def unused_fields(self, config: ExperimentConfig) -> frozenset[str]:
        """Fields without effect on the problem, the objective, the scenario or the evaluation.

        Settings of learned releasers may stay in a configuration with an obfuscation, its baseline.
        """
        own = _own(config)
        unused = frozenset[str]().union(*_unused_by_choice(own).values())
        if own.obfuscation == "none":
            return unused
        measures = OBJECTIVES.get(own.objective).metrics  # may read the weights
        return unused | _LEARNED | (frozenset() if measures else WEIGHTS)

    def fingerprint(self, config: ExperimentConfig) -> str:
        """Fingerprint of the records, and of the code of users and of other packages."""
        own = _own(config)
        fields = {"releaser": own.releaser, "inference_network": own.inference_network}
        networks = {name: n for name, n in fields.items() if isinstance(n, NetworkReference)}
        sources = [source_digest(n.torch, f"{name}.torch") for name, n in networks.items()]
        if networks:  # fails early
            sources += _stages().build_networks(_problem(config), own)
        if own.objective not in OBJECTIVES.builtin:
            added = type(OBJECTIVES.get(own.objective))
            sources.append(source_digest(f"{added.__module__}:{added.__qualname__}", "objective"))
        if own.metrics:  # tries each scorer on one record of each class
            from privnets.references import scorers  # loads scikit-learn, which few studies need

            labels = _problem(config).utility_labels
            scorers.try_scorers(own.metrics, labels, labels)
            sources += scorers.scorer_digests(own.metrics)
        return "; ".join([_problem(config).fingerprint(own), *ATTACKERS.added_names(), *sources])

    def remarks(self, config: ExperimentConfig) -> tuple[str, ...]:
        """Sentences on the records."""
        return _problem(config).remarks

    def cost(self, config: ExperimentConfig) -> Cost:
        """Rough cost: the game, then its evaluation."""
        return cost_model.estimate_cost(_problem(config), _own(config))

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Trains a stack; see `Experiment.stages`."""
        return self.stages_with_rungs(configs, (), device, state)

    def interim_objectives(self, config: ExperimentConfig) -> frozenset[str]:
        """Reported objectives that a rung can estimate; see `metrics.interim_objectives`."""
        return metrics.interim_objectives(_problem(config), _own(config))

    def stages_with_rungs(
        self,
        configs: Sequence[ExperimentConfig],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """Trains a stack whose members may be removed; see `Experiment.stages_with_rungs`.

        Shares are of the game's steps, including pretraining.
        """
        require_equal_structures(configs)
        own = [_own(config) for config in configs]
        run: Generator[Stage, Sequence[int] | None] = (
            _stages().StackRun(self, own, device, state).stages(shares)
        )
        return run


def _stages() -> ModuleType:
    """Imports the training of stacks, and torch with it."""
    from privnets.adversarial import stages

    return stages


def _unused_by_choice(config: AdversarialConfig) -> dict[str, tuple[str, ...]]:
    """Fields without effect, by the field whose value makes them so."""
    unused = {"objective": tuple(sorted(WEIGHTS - OBJECTIVES.get(config.objective).fields))}
    if config.scenario == "joint" and config.releaser not in COPYING_RELEASERS:
        unused["scenario"] = ("pretrain_steps",)
    for name, width in (("releaser", "releaser_width"), ("inference_network", "adversary_width")):
        if isinstance(getattr(config, name), NetworkReference):
            unused[name] = (width,)
    if config.obfuscation == "none":
        unused["obfuscation"] = ("strength",)
    if config.evaluation == "exact":
        unused["evaluation"] = ("panel", "metrics")
    if not _problem(config).spec.utility_classes:
        unused["problem"] = ("metrics", "utility_weight")
    return unused


def _problem(config: ExperimentConfig) -> Problem:
    return problem_of(_own(config))


def _own(config: ExperimentConfig) -> AdversarialConfig:
    return cast(AdversarialConfig, config)
