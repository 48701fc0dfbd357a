"""`python -m campaigns.fuzz TARGET --inputs N --seed S`."""

from __future__ import annotations

import argparse
import resource
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from campaigns.fuzz.runner import Tally, by_atheris, by_hypothesis, record
from campaigns.fuzz.targets import TARGETS, target

_ADDRESS_SPACE = 12 * 2**30


def main() -> None:
    """Fuzz one target, and append what was counted to its table."""
    asked = _arguments()
    # What would take the machine's memory fails here instead.
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    with TemporaryDirectory(prefix="fuzz-", dir=asked.scratch) as folder:
        with _coverage(asked.engine):
            chosen = target(asked.target, Path(folder))
        engine = by_atheris if asked.engine == "atheris" else by_hypothesis
        tally = Tally()
        try:
            engine(chosen, asked.inputs, asked.seed, tally)
        finally:
            record(chosen, asked.engine, asked.seed, tally)
    print(
        f"{asked.target}: {tally.inputs:,} inputs, {tally.accepted:,} read, no finding",
        file=sys.stderr,
    )


def _coverage(engine: str) -> AbstractContextManager[None]:
    """While a target is made, and its reader imported: what atheris is to know the coverage of."""
    if engine != "atheris":
        return nullcontext()
    import atheris  # type: ignore[import-not-found, unused-ignore]

    watched: AbstractContextManager[None] = atheris.instrument_imports(
        include=["cluster", "privnets", "sweeps", "tracking", "yaml", "csv", "tarfile", "gzip"]
    )
    return watched


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("hypothesis", "atheris"), default="hypothesis")
    parser.add_argument("--scratch", type=Path, help="Where files go; a memory disk is fast.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
