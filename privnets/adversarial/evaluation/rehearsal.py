"""How long a stack of games would take, from a few of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import cost_model as pricing
from privnets.adversarial.problems import registry
from privnets.adversarial.training.game import Game
from privnets.runtime import extrapolate_seconds

_REHEARSED_STEPS = 10


def rehearsed(configs: Sequence[AdversarialConfig], device: str) -> float:
    """Seconds that a stack would take: some steps are taken, the judging is estimated.

    Args:
        configs: Of one structure.
        device: Where tensors live.
    """
    problem = registry.problem(configs[0].problem)
    pool, splits = problem.materials(configs, device)
    # One step of pretraining: what is rehearsed is the game, and pretraining is like it.
    first, sizes = configs[0], problem.statement.sizes(configs[0])
    whole = pricing.passes(first) // (first.adversary_steps + 1)
    begun = [config.model_copy(update={"pretrain_steps": 1, "steps": whole}) for config in configs]

    def play(steps: int) -> None:
        Game(problem, begun, pool, splits).advance(steps)

    game = extrapolate_seconds(play, least=_REHEARSED_STEPS, whole=whole, device=device)
    return game + len(configs) * pricing.judging_seconds(first, sizes, device)
