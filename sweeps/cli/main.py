"""The `sweeps` command. Each command's module loads what it needs only when it runs."""

from __future__ import annotations

import sys

import typer

from cluster.proxies import spare_own_machine
from sweeps.cli.compare import compare
from sweeps.cli.data import app as data_app
from sweeps.cli.doctor import doctor
from sweeps.cli.list import list as list_studies
from sweeps.cli.logs import logs
from sweeps.cli.pareto import pareto
from sweeps.cli.points import points
from sweeps.cli.report import report
from sweeps.cli.resume import resume
from sweeps.cli.run import run
from sweeps.cli.serve import serve
from sweeps.cli.show import show
from sweeps.cli.status import status
from sweeps.cli.stop import stop
from sweeps.cli.submit import submit
from sweeps.cli.sync import sync
from sweeps.cli.ui import ui
from sweeps.cli.verify import verify
from sweeps.engine.garbage import patient_collection
from sweeps.errors import make_printable

app = typer.Typer(
    name="sweeps",
    help="Draw privacy-utility trade-off curves: run sweeps, compare them, read their fronts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command("list")(list_studies)
for _command in (show, run, resume, points, pareto, report, compare):
    app.command()(_command)
for _kept in (sync, verify, ui, serve, doctor):
    app.command()(_kept)
for _remote in (submit, status, logs, stop):
    app.command()(_remote)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line; bad input gets one message and exit code 2."""
    patient_collection()
    spare_own_machine()
    try:
        app()
    except Exception as error:
        if not _is_bad_input(error):
            raise
        from tracking.errors import redact

        typer.echo(f"Error: {make_printable(redact(str(error)))}", err=True)
        sys.exit(2)


def _is_bad_input(error: Exception) -> bool:
    from cluster.errors import ConnectionFailed, ServingRefused
    from cluster.jobs import JobFailed
    from cluster.secrets import SecretRefused
    from cluster.submission import SubmissionRefused
    from privnets.data import DataError
    from sweeps.errors import InputError, StudyError
    from tracking.errors import TrackingError

    kinds = (InputError, StudyError, DataError, TrackingError, ConnectionFailed)
    of_clusters = (ServingRefused, SecretRefused, JobFailed, SubmissionRefused)
    return isinstance(error, (*kinds, *of_clusters))
