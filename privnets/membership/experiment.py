"""Membership experiment: stacks of target models in, trade-off points out.

This module serves planning; the trainers, and torch with them, are imported with the first stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from privnets import data
from privnets.attacks import ATTACKS, attack_names
from privnets.contract import (
    Cost,
    Direction,
    Experiment,
    InvalidField,
    Stage,
    State,
    require_equal_structures,
)
from privnets.data import DatasetInfo, UserFormError
from privnets.differential_privacy.sampling import probability_of_use
from privnets.membership.config import (
    CLASS_UTILITIES,
    FALSE_POSITIVE_RATES,
    MODELS,
    NUMBER_UTILITIES,
    OBJECTIVES,
    RANGES,
    MembershipConfig,
    attack_keys,
    metric_keys,
    too_few_non_members,
    utilities,
)
from privnets.membership.models import model_of
from privnets.references.models import ModelReference


class Membership(Experiment[MembershipConfig]):
    """Membership leakage of trained models (arXiv 2001.10648)."""

    name = "membership"
    version = 9
    Config = MembershipConfig
    objectives: ClassVar[Mapping[str, Direction]] = OBJECTIVES
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = RANGES
    training_modules = ("privnets.membership.models.linear", "privnets.membership.models.mlp")

    def default_objectives(self, config: MembershipConfig) -> Mapping[str, Direction]:
        """Advantage of the strongest attack, and utility on records outside the training set."""
        main = utilities(config)[0]
        keys = ("privacy/membership_advantage", f"utility/test_{main}")
        return {key: OBJECTIVES[key] for key in keys}

    def metric_keys(self, config: MembershipConfig) -> tuple[str, ...]:
        """Returns every key that a replicate reports."""
        return metric_keys(config)

    def unsupported_objectives(self, config: MembershipConfig) -> Mapping[str, str]:
        """Returns other utilities, attacks that cannot run, and rates of too few non-members."""
        model, info = model_of(config), data.info(config.data_form)
        non_members = model.non_members(config, info)
        reasons = dict(model.unavailable)
        if config.checkpoints:
            del reasons["loss_trajectory"]
        unavailable = {key: reason for n, reason in reasons.items() for key in attack_keys(n)}
        predicted = "classes" if model.classifies(info) else "numbers"
        unfit = f"{config.model} predicts {predicted} of {info.name}"
        others = (CLASS_UTILITIES | NUMBER_UTILITIES).keys() - {*model.utilities(info)}
        unavailable |= {f"utility/test_{name}": unfit for name in others}
        return unavailable | {
            f"privacy/attack/{name}/tpr_at_fpr_{rate}": reason
            for rate in FALSE_POSITIVE_RATES
            if (reason := too_few_non_members(non_members, rate))
            for name in attack_names("sweeps")
        }

    def invalid_fields(self, config: MembershipConfig) -> list[InvalidField]:
        """Returns sizes beyond the data set, and models that cannot predict its target."""
        try:
            info = data.info(config.data_form)
        except UserFormError as error:
            if isinstance(config.model, ModelReference):
                try:  # report mistakes in the model's code, too
                    config.model.digest()
                except UserFormError as other:
                    error.others += (other,)
            raise
        limits = {
            "train_size": (config.train_size, info.records - 1),
            "records": (config.records, info.records),
            "features": (config.features or 0, info.attributes),
        }
        invalid = [
            InvalidField(field, str(value), f"at most {limit} with {info.name}")
            for field, (value, limit) in limits.items()
            if value > limit
        ]
        invalid += [
            InvalidField(f"metrics.{key}", key, "a name that no other metric has")
            for key in config.metrics or ()
            if key.startswith(("utility/test_", "utility/train_")) or key in OBJECTIVES
        ]
        try:
            keys = config.group_keys()
            if len(set(keys)) < len(keys):
                expected = "a column whose values differ in letters, digits, dots or dashes"
                invalid.append(InvalidField("groups", str(config.groups), expected))
        except UserFormError as error:
            invalid.append(InvalidField("groups", error.given, error.expected))
        invalid += _invalid_privacy_fields(config, info)
        return invalid + model_of(config).invalid_fields(config, info)

    def fingerprint(self, config: MembershipConfig) -> str:
        """Returns the fingerprint of the data set, of the user's code, and of added attacks."""
        code = [config.model.digest()] if isinstance(config.model, ModelReference) else []
        if config.metrics:
            # Scikit-learn, which few studies need before training.
            from privnets.membership.own_utilities import try_own_utilities
            from privnets.references.scorers import scorer_digests

            code += (digests := scorer_digests(config.metrics))
            try_own_utilities(config, "; ".join([data.fingerprint(config.data_form), *digests]))
        return "; ".join([data.fingerprint(config.data_form), *code, *ATTACKS.added_names()])

    def remarks(self, config: MembershipConfig) -> tuple[str, ...]:
        """Returns sentences on the data set, and on the form in which the model gets it."""
        about = data.info(config.data_form).remarks
        return about + model_of(config).remarks(config.dataset)

    def describe_labels(self, config: MembershipConfig) -> tuple[str, ...]:
        """Returns a sentence on the target; see `Experiment.describe_labels`."""
        from privnets.references.tables import describe_target  # pandas takes half a second

        form = config.data_form
        info = data.info(form)
        classes = tuple(map(str, info.labels or range(info.classes)))
        return (describe_target(f"of {info.name}", data.load(form).y, classes),)

    def try_code(self, config: MembershipConfig) -> None:
        """Trains one model of the user where nothing else tries it; see `Experiment.try_code`."""
        model_of(config).try_training(config)

    def cost(self, config: MembershipConfig) -> Cost:
        """Returns a rough estimate: training, then all attacks on every trial."""
        return model_of(config).cost(config, data.info(config.data_form))

    def stages(
        self, configs: Sequence[MembershipConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Trains a stack; see `Experiment.stages`."""
        require_equal_structures(configs)
        trainer = model_of(configs[0]).load_trainer()
        stages: Iterator[Stage] = trainer.stages_in_float32(self, configs, device, state or {})
        return stages


def _invalid_privacy_fields(config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
    """Values with which no guarantee can be proved."""
    if config.epsilon is None:
        return []
    invalid = []
    model = model_of(config)
    if not model.mechanisms:
        private = [name for name in MODELS.names() if MODELS.get(name).mechanisms]
        expected = f"{', '.join(private)} or a torch module with epsilon, since {model.not_private}"
        invalid.append(InvalidField("model", str(config.model), expected))
    if config.noise_std > 0:
        expected = "0 with epsilon, which determines the noise"
        invalid.append(InvalidField("noise_std", str(config.noise_std), expected))
    if config.leakage_weight > 0:
        expected = "0 with epsilon, whose noise does not cover this penalty"
        invalid.append(InvalidField("leakage_weight", str(config.leakage_weight), expected))
    limit = probability_of_use(config.sample_rate, model.steps(config))
    if config.private_mechanism == "dp_sgd" and config.delta >= limit:
        expected = f"below {limit:.4g}, the probability of a record to be in any batch"
        invalid.append(InvalidField("delta", str(config.delta), expected))
    if config.private_mechanism != "output_perturbation" or not model.mechanisms:
        return invalid
    if config.weight_decay == 0:
        expected = "above 0 with output perturbation: one record can change other models freely"
        invalid.append(InvalidField("weight_decay", "0", expected))
    if info.task == "regression":
        expected = "a data set of classes with epsilon: other targets have no bound"
        invalid.append(InvalidField("dataset", info.name, expected))
    return invalid
