"""`sweeps run`: run a study's sweep to its end."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Storage
from sweeps.cli.run_options import Address, TrackingUri
from sweeps.cli.study_options import Changes, NumPoints, StudyName, Yes


def run(
    study: StudyName,
    set_: Changes = None,
    address: Address = None,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
    num_points: NumPoints = None,
    name: Annotated[
        str | None, typer.Option(help="The sweep's name; an unfinished one is continued.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Run a study's sweep: train every point, record it in MLflow, report the Pareto front.

    Exit codes: 0 done; 1 some points failed, the others are kept and recorded; 2 bad input, nothing
    was started; 130 after Ctrl-C and 143 after SIGTERM, with the command that continues.
    """
    from sweeps.analysis.results import DEFAULT_STORAGE
    from sweeps.cli.running import run_plan
    from sweeps.engine.executor import new_sweep_name
    from sweeps.errors import InputError
    from sweeps.planning.plan import confirmation_question, make_plan
    from sweeps.store.filesystem import absolute_storage
    from sweeps.study.loader import load

    planned = make_plan(load(study, set_ or ()), num_points)
    question = confirmation_question(planned)
    if question is not None and not yes:
        raise InputError(question)
    where = absolute_storage(storage or DEFAULT_STORAGE)
    run_plan(
        planned,
        sweep=name or new_sweep_name(where, planned.study.name),
        storage=where,
        tracking_uri=tracking_uri,
        address=address,
    )
