"""The membership experiment behind a turnstile: a stack trains once there is a ticket for it.

Added as a package would add its own experiment: by the entry point beside this file. With as many
tickets as are to be trained, the others are in training for as long as a test wants, on a machine
of any speed; and they can be kept as checkpoints meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from privnets.config import ExperimentConfig
from privnets.contract import Stage, State
from privnets.membership.experiment import Membership

TICKETS = "PRIVNETS_TURNSTILE"
"""The variable that names the directory of tickets, each of which is a file."""

_PAUSE_SECONDS = 0.1


class Turnstile(Membership):
    """Waits for a ticket, in stages of which nothing comes; then trains as ever."""

    name = "turnstile"

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Wait, then train from the start; see `Experiment.stages`."""
        tickets = Path(os.environ[TICKETS])
        while not _taken(tickets):
            time.sleep(_PAUSE_SECONDS)
            yield Stage(0.0, (), lambda: {"waiting": torch.ones(1)})
        yield from super().stages(configs, device)


def _taken(tickets: Path) -> bool:
    """Whether there was a ticket, which nobody else gets then."""
    for ticket in tickets.iterdir():
        try:
            ticket.unlink()
        except FileNotFoundError:  # another was quicker
            continue
        return True
    return False
