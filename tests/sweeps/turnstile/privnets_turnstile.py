"""Membership experiment behind a turnstile: a stack trains once there is a ticket for it.

A package adds its own experiment like this: by the entry point beside this file. Stacks without a
ticket stay in training for as long as a test wants, on a machine of any speed, and can be kept as
checkpoints meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import torch

from privnets.config import ExperimentConfig
from privnets.contract import Stage, State
from privnets.membership.experiment import Membership

TICKETS = "PRIVNETS_TURNSTILE"
"""Variable that names the directory of tickets, each of which is a file.

While it has a directory `failures`, every attempt to train leaves a file there, and fails.
"""

_PAUSE_SECONDS = 0.1


class Turnstile(Membership):
    """Waits for a ticket in empty stages, then trains."""

    name = "turnstile"

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        """Waits, then trains from the start; see `Experiment.stages`."""
        tickets = Path(os.environ[TICKETS])
        if (failures := tickets / "failures").is_dir():
            (failures / uuid4().hex).touch()
            raise TypeError("a broken model")
        while not _taken(tickets):
            time.sleep(_PAUSE_SECONDS)
            yield Stage(0.0, (), lambda: {"waiting": torch.ones(1)})
        yield from super().stages(configs, device)


def _taken(tickets: Path) -> bool:
    """Takes a ticket, if there is one."""
    for ticket in tickets.iterdir():
        try:
            ticket.unlink()
        except FileNotFoundError:  # another worker took it
            continue
        return True
    return False
