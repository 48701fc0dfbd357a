"""`sweeps release`: new records through a trained releaser, and the check of a release."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import privnets
from privnets.adversarial.attackers import ProfileName
from privnets.adversarial.problems.own import OwnProblem
from privnets.adversarial.release_check import GATED_OF_RELEASES, ReleaseCheck, checked_problem
from privnets.adversarial.trained_releaser import TrainedReleaser
from privnets.audit.gate import GateResult, plain_number
from privnets.references.problems import OwnReference
from privnets.references.user_files import import_object
from sweeps.analysis.results import Result, open_result
from sweeps.cli.audit import JudgedEnd, JUnit, Limits, finish_gates, parse_limits
from sweeps.cli.options import Json, Storage, Sweep
from sweeps.cli.terminal import say
from sweeps.errors import InputError, describe_choices
from sweeps.planning.costs import format_duration

_REPORT_SECONDS = 10

KeptColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Copy this column, unprotected; repeatable."),
]
NetworkName = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="Function that made your own releaser."),
]
NoiseSeed = Annotated[
    int | None,
    typer.Option(min=0, help="Repeat the noise of this seed.", show_default="fresh noise"),
]


def release(
    sweep: Sweep,
    point: Annotated[str, typer.Argument(help="Id of the point, or its first digits.")],
    records: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Records of the form that it was trained on.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUTPUT", help="Write the release here.")
    ],
    storage: Storage = None,
    replicate: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="Take this replicate.", show_default="the first"),
    ] = None,
    seed: NoiseSeed = None,
    keep: KeptColumns = None,
    check: Annotated[
        bool, typer.Option("--check", help="Attack the release; INPUT must have the secret.")
    ] = False,
    fail_above: Limits = None,
    judge: JudgedEnd = "upper",
    junit: JUnit = None,
    json: Json = False,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of secrets for --check of images."),
    ] = None,
    network: NetworkName = None,
    panel: Annotated[
        ProfileName, typer.Option(metavar="PANEL", help="Attackers of --check: full or quick.")
    ] = "full",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write to OUTPUT although it exists.")
    ] = False,
) -> None:
    """Release new records by the trained releaser of a point, with its noise.

    INPUT and OUTPUT are tables (.csv, .parquet), folders of images, or arrays (.npy). Only
    attributes are released. Secret and utility label are left out unless --keep copies them.
    """
    if labels is not None and not check:
        raise InputError(f"--labels serves --check alone; got --labels {labels} without --check")
    if (fail_above or junit or json) and not check:
        raise InputError("--fail-above, --junit and --json report on --check; give it too")
    limits = parse_limits(fail_above or (), GATED_OF_RELEASES)
    factory: Any = None if network is None else import_object(network, "--network")
    result = open_result(sweep, storage)
    content = _stored_releaser(result, point, replicate)
    releaser = privnets.load_releaser(content, factory)
    if check:  # before anything is written
        _warn_of_training_file(result, releaser, checked_problem(releaser, records, labels))
    try:
        counts = releaser.release_files(records, output, seed, keep or (), overwrite=overwrite)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    say(f"released {counts.released:,} records to {output}", err=json)
    if counts.left_out:
        say(f"left out {counts.left_out:,} records with missing values", err=json)
    for change in counts.columns:
        say(change.description, err=json)
    if check:
        found = _check_release(releaser, records, output, panel, labels)
        gates = found.check(limits, judge=judge)
        if json:
            typer.echo(json_format.dumps(_document(found, gates), allow_nan=False))
        else:
            say(found.verdict)
        finish_gates(gates, str(output), junit, quiet=json)


def _check_release(
    releaser: TrainedReleaser, records: Path, output: Path, panel: ProfileName, labels: Path | None
) -> ReleaseCheck:
    """Attacks a release; prints the time since the start, at most every ten seconds."""
    advice = "; --panel quick is faster" if panel == "full" else ""
    say(f"checking the release with the {panel} panel: may take minutes{advice}", err=True)
    start = last = time.monotonic()

    def report() -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _REPORT_SECONDS:
            last = now
            say(f"checking the release, {format_duration(now - start)} so far", err=True)

    return privnets.check_release(releaser, records, output, panel, labels, report)


def _document(check: ReleaseCheck, gates: GateResult) -> dict[str, Any]:
    metrics, errors = check.result.metrics, check.result.standard_errors
    return {
        "format": 1,
        "verdict": check.verdict,
        "strongest": check.strongest,
        "balanced_accuracy": check.balanced_accuracy,
        "floor": check.floor,
        "metrics": {key: plain_number(value) for key, value in metrics.items()},
        "standard_errors": {key: plain_number(value) for key, value in errors.items()},
        "utility": {key: value for key, (value, _) in check.utility.items()},
        "gates": [answer.to_json() for answer in gates.answers],
        "passed": gates.has_passed,
    }


def _warn_of_training_file(result: Result, releaser: TrainedReleaser, problem: OwnProblem) -> None:
    """Warns if the content of the input is that of the files that the sweep trained on."""
    trained_on = releaser.description.problem
    stored = set("; ".join(result.manifest.data.values()).split("; "))
    if isinstance(trained_on, OwnReference) and problem.fingerprint_as(trained_on) in stored:
        say(
            "Warning: INPUT has the records that the sweep trained on, so the check is not "
            "independent of training; use new records.",
            err=True,
        )


def _stored_releaser(result: Result, prefix: str, seed: int | None) -> bytes:
    """Returns the file of a trained releaser of a sweep."""
    known = sorted(result.points["point_id"])
    ids = [each for each in known if each.startswith(prefix)]
    if len(ids) != 1:
        begun = f"the ids of {len(ids)} points" if ids else "no id of a finished point"
        raise InputError(
            f"point: got {prefix!r}, which begins {begun}; expected "
            f"{describe_choices(ids or known, prefix)}"
        )
    stored = {each.seed: each for each in result.select_points(ids)[ids[0]].replicates}
    replicate = stored.get(min(stored) if seed is None else seed)
    if replicate is None:
        raise InputError(
            f"--replicate: got {seed}; expected {describe_choices(map(str, stored), str(seed))}"
        )
    try:
        return replicate.artifacts["releaser.safetensors"]
    except (KeyError, OSError) as error:
        raise InputError(f"point {ids[0]} has no trained releaser: {error}") from error
