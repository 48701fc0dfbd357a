"""DP-SGD for target models: schedules and draws from configurations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privnets.differential_privacy.dp_sgd import PrivateSchedule, train_privately
from privnets.differential_privacy.per_example import ClippedGradients
from privnets.membership.models.shared import ModelBatch
from privnets.membership.observations import random_stream
from privnets.membership.private.guarantee import guarantee_of
from privnets.networks.training import StackedAdam


def fit_privately(
    batch: ModelBatch, initial: Sequence[Tensor], gradients: ClippedGradients
) -> tuple[Tensor, Tensor]:
    """Trains a batch by DP-SGD, in float32, from initial parameters [S, ...].

    Returns:
        Flat parameters, shape [S, d], float64, and whether each model converged (all count as
        converged), shape [S].
    """
    device = batch.x.device
    parameters = [tensor.to(device).float().contiguous() for tensor in initial]
    configs = [config for config, models in batch.members for _ in models]
    noise = [guarantee_of(config).noise for config in configs]
    schedule = PrivateSchedule(
        batch.steps,
        batch.config.sample_rate,
        torch.tensor([config.clip for config in configs], device=device),
        torch.tensor(noise, device=device),
        batch.weight_decay,
    )
    randoms = [
        random_stream(config, f"private training {j}")
        for config, models in batch.members
        for j in models
    ]
    optimiser = StackedAdam(parameters, batch.learning_rate.float())
    train_privately(optimiser, gradients, batch.x.float(), batch.y, schedule, randoms)
    flat = torch.cat([tensor.flatten(1) for tensor in parameters], dim=1).double()
    return flat, torch.ones(len(flat), dtype=torch.bool, device=device)
