"""`sweeps compare`: the fronts of two or more sweeps side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Maximize, Minimize, Storage, named_objectives, print_table, say

if TYPE_CHECKING:
    from sweeps.analysis.comparison import Comparison
    from sweeps.analysis.tables import Table


def compare(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP SWEEP...", help="Their names.")],
    storage: Storage = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """Compare sweeps: hypervolume, what half of the replicates attain, whose front beats whose.

    On the objectives that the studies share unless others are named. Hypervolumes count up to the
    worst value of each objective over all these sweeps, so they compare with one another alone.
    """
    from json import dumps

    from sweeps.analysis.comparison import compare_sweeps, comparison_json
    from sweeps.analysis.results import open_result

    objectives = named_objectives(minimize or (), maximize or ())
    found = compare_sweeps([open_result(sweep, storage) for sweep in sweeps], objectives or None)
    if json:
        typer.echo(dumps(comparison_json(found), allow_nan=False))
        return
    print_table(_summary(found))
    say("Front of all together:")
    print_table(_front(found))


def _summary(found: Comparison) -> Table:
    from sweeps.analysis.tables import Table

    def row(what: str, *cells: object) -> tuple[str, ...]:
        return what, *map(str, cells)

    sides = found.sweeps
    rows = [
        row("points compared", *(side.points for side in sides)),
        row("replicates", *(side.replicates for side in sides)),
        row("on its own front", *(side.on_front for side in sides)),
        row("on the joint front", *(side.on_joint_front for side in sides)),
        row("hypervolume", *(f"{side.hypervolume:.4g}" for side in sides)),
        row("attained by half", *(_number(side.attained) for side in sides)),
    ]
    for rival in sides:
        shares = (side.dominated.get(rival.sweep) for side in sides)
        beaten = ("" if share is None else f"{share:.0%}" for share in shares)
        rows.append(row(f"of its front beaten by {rival.sweep}", *beaten))
    worst = ", ".join(f"{metric} {value:.4g}" for metric, value in found.reference.items())
    notes = [f"Hypervolumes count up to the worst of all these sweeps: {worst}."]
    notes += [
        f"They differ in {what}: {'; '.join(each)}." for what, each in found.differences.items()
    ]
    return Table(("", *(side.sweep for side in sides)), tuple(rows), " ".join(notes))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _front(found: Comparison) -> Table:
    from sweeps.analysis.tables import front_table, varying_fields

    front = found.front.rename(columns={"sweep": "config/sweep"})
    return front_table(front, found.objectives, ["sweep", *varying_fields(found.front)])
