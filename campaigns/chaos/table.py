"""The table of a chaos run: printed, and appended to a file."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from campaigns.chaos.options import Options


@dataclass(frozen=True)
class Row:
    """Effects of a kind of fault in all sweeps that had it.

    Attributes:
        fault: Kind of the fault.
        count: Number of injections.
        lost: Points and seeds missing from the ledger.
        doubled: Duplicate rows in the ledger and duplicate runs in MLflow.
        retrained: Trainings of finished replicates, and files of the ledger that changed.
        other: Different metrics or fronts, leftover files and processes.
    """

    fault: str
    count: int
    lost: int
    doubled: int
    retrained: int
    other: int


def publish(rows: Sequence[Row], options: Options, sweeps: int) -> None:
    """Prints the rows with their sum, and appends them with date and seed."""
    columns = [field.name for field in dataclasses.fields(Row)]
    table = Table(*columns, title=f"{sweeps} sweeps, seed {options.seed}")
    for row in rows:
        table.add_row(*(str(value) for value in dataclasses.astuple(row)))
    table.add_section()
    table.add_row("all", *(str(sum(getattr(row, name) for row in rows)) for name in columns[1:]))
    Console(width=100).print(table)
    about = {
        "date": datetime.now(UTC).date().isoformat(), "seed": options.seed, "sweeps": sweeps
    }  # fmt: skip
    options.results.parent.mkdir(parents=True, exist_ok=True)
    fresh = not options.results.exists()
    with options.results.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*about, *columns], lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows({**about, **dataclasses.asdict(row)} for row in rows)
