"""Environment variables that commands read: the cluster to use, and the command of a job."""

from __future__ import annotations

import os
from typing import Final

ADDRESS_VARIABLE: Final = "RAY_ADDRESS"

SUBMIT_COMMAND: Final = "SWEEPS_SUBMITTED_BY"
"""Variable of a cluster's job: the command line that submitted the sweep."""


def is_job_server(address: str | None) -> bool:
    """Returns whether an address is that of a job server, not of a Ray to join."""
    return address is not None and address.startswith(("http://", "https://"))


def default_job_server() -> str | None:
    """Returns the job server that RAY_ADDRESS names; None if it names none."""
    address = os.environ.get(ADDRESS_VARIABLE)
    return address if is_job_server(address) else None


def address_option(address: str) -> str:
    """Returns the option that repeats an address; empty if RAY_ADDRESS names it."""
    return "" if os.environ.get(ADDRESS_VARIABLE) == address else f" --address {address}"
