"""Multilayer perceptrons as target models, trained by full-batch Adam."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privnets import data
from privnets.differential_privacy.per_example import Tape, dense_gradients
from privnets.membership.config import MembershipConfig
from privnets.membership.models import Mlp
from privnets.membership.models.leakage_penalty import output_leakage
from privnets.membership.models.shared import ModelBatch, SharedTrainer, fit_privately
from privnets.networks.capture import StepRunner
from privnets.networks.mlp import FlatPerceptron, forward
from privnets.networks.training import StackedAdam
from privnets.randomness import generator


class MlpTrainer(SharedTrainer):
    """Trains perceptrons with tanh units; a covariance of their parameters is out of reach."""

    model = Mlp()
    has_covariance = False

    def parameter_count(self, config: MembershipConfig, features: int, classes: int) -> int:
        """All weights and biases."""
        return _network(config, features, classes).parameter_count

    def fit(self, batch: ModelBatch) -> tuple[Tensor, Tensor]:
        """Takes a fixed number of steps, in float32; every model counts as converged."""
        config, device = batch.config, batch.x.device
        network = _network(config, batch.x.shape[-1], batch.classes)
        initial = [
            torch.stack([network.initial(generator(own.seed, f"network {j}")) for j in models])
            for own, models in batch.members
        ]
        flat = torch.cat(initial).to(device).float()
        if config.private_mechanism == "dp_sgd":
            return fit_privately(batch, network.unpack(flat), dense_gradients(_on_tape, _losses))
        _descend(batch, network.unpack(flat))
        return flat.double(), torch.ones(len(flat), dtype=torch.bool, device=device)

    def outputs(self, config: MembershipConfig, flat: Tensor, x: Tensor, classes: int) -> Tensor:
        """Outputs of the last layer."""
        return forward(_network(config, x.shape[-1], classes).unpack(flat), x)


def _network(config: MembershipConfig, features: int, classes: int) -> FlatPerceptron:
    """One output for a number, one for each class otherwise."""
    outputs = classes if Mlp().classifies(data.info(config.dataset)) else 1
    hidden = (config.hidden_units,) * config.hidden_layers
    return FlatPerceptron((features, *hidden, outputs))


def _descend(batch: ModelBatch, parameters: Sequence[Tensor]) -> None:
    """Minimises the mean loss plus the weighted squared norm and leakage, in place."""
    x, y = batch.x.float(), batch.y.float()
    references = None if batch.references is None else [each.float() for each in batch.references]
    weight, decay = batch.leakage_weight.float(), batch.weight_decay.float()
    for parameter in parameters:
        parameter.requires_grad_()
    optimiser = StackedAdam(parameters, batch.learning_rate.float())
    doubled, has_decay = 2 * decay.view(-1, 1, 1), bool(decay.any())

    def take_step(_: Sequence[Tensor]) -> dict[str, Tensor]:
        output = forward(parameters, x)
        loss = _losses(output, y).mean(1)
        if references is not None:
            with torch.no_grad():
                outside = _signals(forward(parameters, references[0]), references[1])
            loss = loss + weight * output_leakage(_signals(output, y), outside)
        gradients = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            if has_decay:
                for gradient, parameter in zip(gradients, parameters, strict=True):
                    gradient.addcmul_(doubled, parameter)
            optimiser.step(gradients)
        return {}

    runner = StepRunner(x.device)
    for _ in range(batch.steps):
        runner.run(take_step, ())


def _signals(output: Tensor, y: Tensor) -> Tensor:
    """Residual, or log-odds of the true class, of each record, shape [S, n]."""
    if output.shape[-1] == 1:
        return y - output[..., 0]
    true = y.long()[..., None]
    others = output.scatter(-1, true, -torch.inf).logsumexp(-1)
    return output.gather(-1, true)[..., 0] - others


def _losses(output: Tensor, y: Tensor) -> Tensor:
    """Squared error or cross-entropy of each record, shape [S, n]."""
    if output.shape[-1] == 1:
        return (output[..., 0] - y).square()
    loss = torch.nn.functional.cross_entropy(
        output.flatten(0, 1), y.long().flatten(), reduction="none"
    )
    return loss.view(y.shape)


def _on_tape(tape: Tape, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """Computes outputs of perceptrons [S, n, q] for records [S, n, p]."""
    hidden = x
    for layer in range(0, len(parameters), 2):
        if layer:
            hidden = hidden.tanh()
        hidden = tape.dense(hidden, *parameters[layer : layer + 2])
    return hidden
