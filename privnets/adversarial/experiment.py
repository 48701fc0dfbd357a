"""The adversarial experiment: stacks of games in, trade-off points out.

This module answers what planning needs; training, and torch with it, loads with the first stack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from types import ModuleType
from typing import ClassVar, Final

from privnets.adversarial import metrics
from privnets.adversarial.attackers import ATTACKERS
from privnets.adversarial.config import (
    COPYING_RELEASERS,
    AdversarialConfig,
)
from privnets.adversarial.evaluation import cost_model
from privnets.adversarial.objectives import OBJECTIVES, WEIGHTS
from privnets.adversarial.problem import unused_field_errors
from privnets.adversarial.problems.opening import problem_of
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


class Adversarial(Experiment[AdversarialConfig]):
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

    def default_objectives(self, config: AdversarialConfig) -> Mapping[str, Direction]:
        """Success of the strongest attacker, or exact leakage, against the use of the release."""
        spec = problem_of(config).spec
        if config.evaluation == "exact":
            keys = ("exact/leakage", "exact/censored")
        elif not spec.copies_input:
            keys = ("privacy/leakage", "utility/censored")
        elif spec.utility_classes:
            keys = ("privacy/attacker_balanced_accuracy", "utility/accuracy")
        else:
            keys = ("privacy/attacker_balanced_accuracy", "utility/normalized_error")
        return {key: self.objectives[key] for key in keys}

    def metric_keys(self, config: AdversarialConfig) -> tuple[str, ...]:
        """All keys that a replicate reports."""
        return metrics.metric_keys(problem_of(config), config)

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Values that the problem cannot serve, and changed fields without effect."""
        problem = problem_of(config)
        errors = problem.invalid_fields(config)
        compares = OBJECTIVES.get(config.objective).compares_with_raw
        if compares and not problem.spec.utility_classes:
            expected = f"one without a utility label, as {problem.name} has none"
            errors.append(InvalidField("objective", config.objective, expected))
        if config.evaluation == "exact" and not problem.has_exact_information(config):
            expected = "attackers; exact information is known of linear filters of gaussian-mixture"
            errors.append(InvalidField("evaluation", "exact", expected))
        if not config.steps and config.releaser not in COPYING_RELEASERS:
            expected = f"at least 1, or releaser {' or '.join(COPYING_RELEASERS)}"
            errors.append(InvalidField("steps", "0", expected))
        others = metrics.metric_keys(problem, config.model_copy(update={"metrics": None}))
        errors += [
            InvalidField(f"metrics.{key}", key, "a name that no other metric has")
            for key in config.metrics or ()
            if key in others
        ]
        reported = {error.field for error in errors}
        for choice, fields in _unused_by_choice(config).items():
            unused = unused_field_errors(config, fields, problem.spec.defaults, choice)
            errors += [error for error in unused if error.field not in reported]
        return errors

    def unused_fields(self, config: AdversarialConfig) -> frozenset[str]:
        """Fields without effect on the problem, the objective, the scenario or the evaluation.

        Settings of learned releasers may stay in a configuration with an obfuscation, its baseline.
        """
        unused = frozenset[str]().union(*_unused_by_choice(config).values())
        if config.obfuscation == "none":
            return unused
        measures = OBJECTIVES.get(config.objective).metrics  # may read the weights
        return unused | _LEARNED | (frozenset() if measures else WEIGHTS)

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the records, and of the code of users and of other packages."""
        fields = {"releaser": config.releaser, "inference_network": config.inference_network}
        networks = {name: n for name, n in fields.items() if isinstance(n, NetworkReference)}
        sources = [source_digest(n.torch, f"{name}.torch") for name, n in networks.items()]
        if networks:  # fails early
            sources += _stages().build_networks(problem_of(config), config)
        if config.objective not in OBJECTIVES.builtin:
            added = type(OBJECTIVES.get(config.objective))
            sources.append(source_digest(f"{added.__module__}:{added.__qualname__}", "objective"))
        if config.metrics:  # tries each scorer on one record of each class
            from privnets.references import scorers  # loads scikit-learn, which few studies need

            labels = problem_of(config).utility_labels
            scorers.try_scorers(config.metrics, labels, labels)
            sources += scorers.scorer_digests(config.metrics)
        return "; ".join(
            [problem_of(config).fingerprint(config), *ATTACKERS.added_names(), *sources]
        )

    def remarks(self, config: AdversarialConfig) -> tuple[str, ...]:
        """Sentences on the records."""
        return problem_of(config).remarks

    def describe_labels(self, config: AdversarialConfig) -> tuple[str, ...]:
        """Returns a sentence on each label; see `Experiment.describe_labels`."""
        return problem_of(config).describe_labels(config)

    def cost(self, config: AdversarialConfig) -> Cost:
        """Rough cost: the game, then its evaluation."""
        return cost_model.estimate_cost(problem_of(config), config)

    def stages(
        self, configs: Sequence[AdversarialConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Trains a stack; see `Experiment.stages`."""
        return self.stages_with_rungs(configs, (), device, state)

    def interim_objectives(self, config: AdversarialConfig) -> frozenset[str]:
        """Reported objectives that a rung can estimate; see `metrics.interim_objectives`."""
        return metrics.interim_objectives(problem_of(config), config)

    def stages_with_rungs(
        self,
        configs: Sequence[AdversarialConfig],
        shares: Sequence[float],
        device: str = "cpu",
        state: State | None = None,
    ) -> Generator[Stage, Sequence[int] | None]:
        """Trains a stack whose members may be removed; see `Experiment.stages_with_rungs`.

        Shares are of the game's steps, including pretraining.
        """
        require_equal_structures(configs)
        run: Generator[Stage, Sequence[int] | None] = (
            _stages().StackRun(self, configs, device, state).stages(shares)
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
    if not problem_of(config).spec.utility_classes:
        unused["problem"] = ("metrics", "utility_weight")
    return unused
