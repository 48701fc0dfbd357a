"""The command line of a chaos run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.chaos.faults import FAULTS

RESULTS = Path(__file__).parent / "results" / "chaos.csv"


@dataclass(frozen=True)
class Options:
    """Options of a campaign.

    Attributes:
        faults: Faults to inject.
        seed: Seed of the random generator.
        only: Kinds of faults; empty for all.
        results: File to which the table is appended.
    """

    faults: int
    seed: int
    only: tuple[str, ...]
    results: Path


def parse_options(arguments: Sequence[str]) -> Options:
    """Parses the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="faults to inject")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random generator")
    parser.add_argument("--only", type=_kinds, default=(), metavar="KIND,...", help=_fault_names())
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="file to which the table is appended"
    )
    found = parser.parse_args(arguments)
    return Options(found.faults, found.seed, found.only, found.results)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    for kind in kinds:
        if kind not in FAULTS:
            raise argparse.ArgumentTypeError(
                f"{kind!r} is unknown; expected one of {_fault_names()}"
            )
    return kinds


def _fault_names() -> str:
    return ", ".join(FAULTS)
