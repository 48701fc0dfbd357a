"""Writes `claims.md`: verdicts on published claims, from the sweeps that `claims.yaml` lists."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps.analysis.results import Result, open_result
from sweeps.errors import InputError
from sweeps.planning.costs import cost_seconds, format_duration
from sweeps.report.findings import findings_markdown, judge_sweep
from sweeps.study.loader import load, study_names
from sweeps.study.validation import validate_study
from sweeps.study.yaml_reader import parse_yaml

_FOLDER = Path(__file__).parent
_DONE = (0, 1)
"""Exit codes of a finished sweep, without and with failed points."""

_INTRODUCTION = """\
# Claims of the papers

Every table and figure that the platform can run, as claims of the packaged studies, with
verdicts. `make claims` runs the sweeps of `docs/claims.yaml` that are unfinished, then writes this
page. `sweeps claims SWEEP` judges any sweep.

- A claim agrees or disagrees if its 95% interval says so; otherwise the sweep cannot tell.
- A trend is Spearman's correlation, from -1 (always falling) to 1 (always rising). A value is a
  mean over points, an order the mean difference of two metrics. Intervals hold the spread of
  training and the error of shared test records.
- A trend needs five values and four replicates. With fewer the claim is not posed.
- A bound is claimed of every point, and judged by the worst.
- Points with a raised flag are left out of claims about attackers. Where only they are measured,
  the sweep cannot tell.
- Settings are those that differ from the packaged study. Reduced settings may change a verdict;
  `sweeps run STUDY` runs the study at full size.
- "Theory" names a known error or limit of the published statement.
"""


@dataclass(frozen=True)
class ListedSweep:
    """Entry of `claims.yaml`.

    Attributes:
        name: Name of the sweep.
        study: Name of a packaged study.
        settings: Changes of the study, as `--set` takes them.
    """

    name: str
    study: str
    settings: tuple[str, ...] = ()


def main() -> None:
    """Runs what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", required=True)
    parser.add_argument("--tracking-uri", required=True)
    parser.add_argument("--write-only", action="store_true", help="train nothing")
    options = parser.parse_args()
    document = parse_yaml((_FOLDER / "claims.yaml").read_text(encoding="utf-8"))
    listed = TypeAdapter(list[ListedSweep]).validate_python(document.value)
    if not options.write_only:
        for sweep in listed:
            _finish(sweep, options.storage, options.tracking_uri)
    results = [_open(sweep, options.storage) for sweep in listed]
    text = "\n".join(_page([result for result in results if result is not None]))
    (_FOLDER / "claims.md").write_text(f"{text}\n", encoding="utf-8")


def _finish(sweep: ListedSweep, storage: str, tracking_uri: str) -> None:
    """Trains what a sweep lacks."""
    result = _open(sweep, storage)
    if result is not None and not result.pending:
        return
    command = [sys.executable, "-m", "sweeps", "run", sweep.study, "--name", sweep.name]
    command += ["--storage", storage, "--tracking-uri", tracking_uri]
    command += [part for setting in sweep.settings for part in ("--set", setting)]
    print(shlex.join(command), flush=True)
    if (code := subprocess.run(command, check=False).returncode) not in _DONE:
        sys.exit(code)


def _open(sweep: ListedSweep, storage: str) -> Result | None:
    """The sweep; None if it was not started."""
    try:
        return open_result(sweep.name, storage)
    except InputError:
        return None


def _page(results: Sequence[Result]) -> Iterator[str]:
    judged = [judge_sweep(result) for result in results if len(result.points)]
    yield _INTRODUCTION
    yield from findings_markdown(judged)
    claimed = {name: study for name in study_names() if (study := load(name)).claims}
    not_run = claimed.keys() - {sweep.study for sweep in judged}
    if not_run:
        yield "\n## Not run\n"
        yield "| study | claims | command at full size | estimate |\n|---|---|---|---|"
    for name in sorted(not_run):
        study = claimed[name]
        seconds = cost_seconds(study, validate_study(study, data=False).configs)
        estimate = f"{format_duration(seconds)} of one core"
        yield f"| {name} | {len(study.claims)} | `sweeps run {name}` | {estimate} |"


if __name__ == "__main__":
    main()
