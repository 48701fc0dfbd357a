"""How long a stack of target models would take, from a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privnets.membership import linear, pricing, shared
from privnets.membership.config import MembershipConfig
from privnets.membership.evaluation import replicate
from privnets.membership.universe import Universe, prepared
from privnets.runtime import extrapolate_seconds

# A rehearsal asks few records (linear), takes few steps (mlp) or trains few models (logistic).
_REHEARSED_RECORDS, _REHEARSED_STEPS, _REHEARSED_SECONDS = 4, 5, 0.2


def rehearsed(configs: Sequence[MembershipConfig], device: str) -> float:
    """Seconds that a stack would take: a few models are trained.

    Args:
        configs: Of one structure.
        device: Where tensors live.
    """
    universe, classes = prepared(configs[0], device)
    if configs[0].model == "linear":
        return _linear(configs, universe)
    return _shared(configs, universe, classes) + len(configs) * pricing.scoring_seconds(configs[0])


def _linear(configs: Sequence[MembershipConfig], universe: Universe) -> float:
    def study(records: int) -> None:
        asked = [config.model_copy(update={"records": records}) for config in configs]
        for group in pricing.by_seed(asked):
            for config, seen in linear.observe(group, universe):
                replicate(config, seen)

    device = str(universe.x.device)
    records = configs[0].records
    return extrapolate_seconds(study, least=_REHEARSED_RECORDS, whole=records, device=device)


def _shared(configs: Sequence[MembershipConfig], universe: Universe, classes: int) -> float:
    first, device, features = configs[0], str(universe.x.device), universe.x.shape[1]
    models = len(configs) * first.draws
    at_once = pricing.stack(first, features, classes, universe.x.device.type)
    if first.model == "logistic" and device == "cpu":
        at_once = min(at_once, pricing.lasting(_REHEARSED_SECONDS, first, features, classes))
    at_once = min(at_once, models)
    tasks = [shared.Task.of(c, universe.size) for c in configs[: -(-at_once // first.draws)]]
    counts = [min(first.draws, at_once - i * first.draws) for i in range(len(tasks))]

    def fit(steps: int) -> None:
        short = [replace(t, config=t.config.model_copy(update={"steps": steps})) for t in tasks]
        parts = [(task, slice(0, count)) for task, count in zip(short, counts, strict=True)]
        shared.train(parts, universe, classes)

    whole = first.steps if first.model == "mlp" else 1
    return (
        extrapolate_seconds(fit, least=_REHEARSED_STEPS, whole=whole, device=device)
        * models
        / at_once
    )
