"""Requirements of differentially private training on a configuration; imports no torch."""

from __future__ import annotations

from privnets.contract import InvalidField
from privnets.data import DatasetInfo
from privnets.differential_privacy.sampling import probability_of_use
from privnets.membership.config import MODELS, MembershipConfig


def invalid_privacy_fields(config: MembershipConfig, info: DatasetInfo) -> list[InvalidField]:
    """Returns values with which no guarantee can be proved."""
    if config.epsilon is None:
        return []
    invalid = []
    model = config.target_model
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
