"""Records sweeps in `docs/recorded`, and writes `claims.md` and `results.md` from them.

`record` trains what the sweeps of `recorded.yaml` lack, then stores each that is finished; `write`
writes the pages from the stored sweeps alone.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from privnets.points import TradeoffPoint
from sweeps.analysis.claims import ClaimFinding
from sweeps.analysis.results import Result, open_result
from sweeps.analysis.tables import front_table
from sweeps.analysis.text import Table, format_count
from sweeps.errors import InputError
from sweeps.planning.costs import cost_seconds, format_duration
from sweeps.report.display import load_plots
from sweeps.report.findings import SweepFindings, findings_markdown, judge_sweep
from sweeps.report.headline import headline_sentences
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, read_manifest, write_manifest
from sweeps.store.recorded import PREFIX
from sweeps.study.loader import load, study_names
from sweeps.study.validation import validate_study
from sweeps.study.yaml_reader import parse_yaml

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded"
_MAX_BYTES = 2**20
_FIGURES = ("information-plane.png", "tradeoff.png", "front.png")
_DONE = (0, 1)
"""Exit codes of a finished sweep, without and with failed points."""

_CLAIMS = """\
# Claims of the papers

Every table and figure that the platform can run, as claims of the packaged studies, with verdicts.
`make record` trains the sweeps of `docs/recorded.yaml`, `make pages` writes this page.
`sweeps claims SWEEP` judges any sweep.

- A claim agrees or disagrees if its 95% interval says so; otherwise the sweep cannot tell.
- A trend is Spearman's correlation, from -1 (always falling) to 1 (always rising). A value is a
  mean over points, an order the mean difference of two metrics. Intervals hold the spread of
  training and the error of shared test records.
- A trend needs five values and four replicates. With fewer the claim is not posed.
- A bound is claimed of every point, and judged by the worst.
- Points with a raised flag are left out of claims about attackers. Where only they are measured,
  the sweep cannot tell.
- Each claim is posed once, on the sweep that measures it best. A figure of records that this
  project lacks (six homes of ECO, CelebA) is not posed: the measured value stands beside it.
- Where the sweep cannot tell, the last column says what would decide.
- Settings are those that differ from the packaged study. Reduced settings may change a verdict;
  `sweeps run STUDY` runs the study at full size.
- "Theory" names a known error or limit of the published statement.
"""
_RESULTS = """\
# Results

Each section is a finished sweep that comes with the project. `make pages` writes this page from
these sweeps. `sweeps report recorded:NAME` writes the interactive report of one,
`sweeps.open_result("recorded:NAME")` opens it in Python, and `--reuse recorded:NAME` extends it.
Values are means over replicates with 95% intervals. [Claims](claims.md) sets each published
statement beside its measurement.
"""


@dataclass(frozen=True)
class ListedSweep:
    """Entry of `recorded.yaml`.

    Attributes:
        name: Name of the sweep.
        study: Name of a packaged study.
        settings: Changes of the study, as `--set` takes them.
        judged: Whether claims are posed on it; a study with several sweeps has one such sweep.
        text: What its curve shows, in Markdown.
    """

    name: str
    study: str
    settings: tuple[str, ...] = ()
    judged: bool = True
    text: str = ""


def main() -> None:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write")
    recording = commands.add_parser("record")
    recording.add_argument("--storage", required=True)
    recording.add_argument("--tracking-uri", required=True)
    recording.add_argument("names", nargs="*", help="sweeps; all if none is given")
    options = parser.parse_args()
    if options.command == "record":
        for sweep in listed_sweeps():
            if sweep.name in (options.names or (sweep.name,)):
                _train(sweep, options.storage, options.tracking_uri)
                record(sweep.name, options.storage)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def listed_sweeps() -> list[ListedSweep]:
    """Sweeps of `recorded.yaml`, in their order."""
    document = parse_yaml((FOLDER / "recorded.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(list[ListedSweep]).validate_python(document.value)


def _train(sweep: ListedSweep, storage: str, tracking_uri: str) -> None:
    """Trains what a sweep lacks."""
    try:
        if not open_result(sweep.name, storage).pending:
            return
    except InputError:  # not started
        pass
    command = [sys.executable, "-m", "sweeps", "run", sweep.study, "--name", sweep.name]
    command += ["--storage", storage, "--tracking-uri", tracking_uri]
    command += [part for setting in sweep.settings for part in ("--set", setting)]
    print(shlex.join(command), flush=True)
    if (code := subprocess.run(command, check=False).returncode) not in _DONE:
        sys.exit(code)


def record(name: str, storage: str) -> None:
    """Stores a finished sweep in `docs/recorded`: manifest, one file of points, front.

    Artifacts are left out: they are large, and faces in them belong to people.
    """
    source = Ledger(storage, name)
    points = [_without_artifacts(point) for point in source.read_points()]
    rmtree(RECORDED / name, ignore_errors=True)
    target = Ledger(str(RECORDED), name)
    write_manifest(target, _without_places(read_manifest(source)))
    target.write_pack("points", points)
    _draw(name)
    size = sum(file.stat().st_size for file in (RECORDED / name).rglob("*") if file.is_file())
    if size > _MAX_BYTES:
        raise ValueError(f"{name} has {size:,} bytes; at most {_MAX_BYTES:,} are recorded.")


def _draw(name: str) -> None:
    """Draws the plane of information, the trade-off curve of a release, or else the front."""
    with TemporaryDirectory() as folder:
        written = load_plots().write_figures(open_result(name, str(RECORDED)), Path(folder))
        figures = {path.name: path for path in written}
        best = next(n for n in _FIGURES if n in figures)
        (RECORDED / name / "front.png").write_bytes(figures[best].read_bytes())


def _without_artifacts(point: TradeoffPoint) -> TradeoffPoint:
    replicates = (replace(replicate, artifacts={}) for replicate in point.replicates)
    return replace(point, replicates=tuple(replicates))


def _without_places(manifest: Manifest) -> Manifest:
    """The manifest without the directories of the machine that trained it."""
    words = shlex.split(manifest.command)
    named = [i for i, word in enumerate(words) if word in ("--storage", "--tracking-uri")]
    kept = [word for i, word in enumerate(words) if i not in named and i - 1 not in named]
    changes = {"command": shlex.join(kept), "tracking_uri": "sqlite:///mlflow.db", "reused": ()}
    return manifest.model_copy(update=changes)


def pages() -> dict[str, str]:
    """Text of each page, by file name."""
    stored = {folder.name for folder in RECORDED.iterdir()}
    sweeps = [
        (each, open_result(PREFIX + each.name)) for each in listed_sweeps() if each.name in stored
    ]
    judged = [judge_sweep(result) for sweep, result in sweeps if sweep.judged]
    sections = (line for sweep, result in sweeps for line in _section(sweep, result))
    return {
        "claims.md": "\n".join((_CLAIMS, *_claims(judged), "")),
        "results.md": "\n".join((_RESULTS, *sections)),
    }


def _section(sweep: ListedSweep, result: Result) -> Iterator[str]:
    """Lines of a section of `results.md`."""
    front, plan = result.front(all=True), result.manifest.plan
    yield from (f"## {sweep.name}", "", sweep.text.strip() or result.study.description, "")
    yield from (f"![Trade-off of {sweep.name}](recorded/{sweep.name}/front.png)", "")
    yield from (" ".join(headline_sentences(result, front)), "")
    yield from _markdown(front_table(front, result.objectives, result.swept_fields))
    settings = "".join(f' \\\n  --set "{setting}"' for setting in sweep.settings)
    size = f"{format_count(result.size, 'point')}, {format_count(len(plan.seeds), 'replicate')}"
    version = f"version {plan.experiment_version} of `{result.study.experiment}`"
    commit = (result.manifest.git_commit or "unknown")[:7]
    seconds = (result.replicates["finished_at"].max() - result.manifest.created_at).total_seconds()
    yield from ("", f"{size} each; {version}, commit {commit}; {format_duration(seconds)}.", "")
    yield from (
        "```",
        f"sweeps run {sweep.study} --reuse {PREFIX}{sweep.name}{settings}",
        "```",
        "",
    )


def _markdown(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    yield from (f"| {' | '.join(row)} |" for row in table.rows)


def _claims(judged: Sequence[SweepFindings]) -> Iterator[str]:
    """Lines of `claims.md` below its introduction."""
    posed = [replace(sweep, findings=[*filter(_is_shown, sweep.findings)]) for sweep in judged]
    yield from findings_markdown(posed)
    left = {name: len(study.claims) for name in study_names() if (study := load(name)).claims}
    left |= {a.study: len(a.findings) - len(b.findings) for a, b in zip(judged, posed, strict=True)}
    yield "\n## Not run\n"
    yield "Claims of settings that no recorded sweep has.\n"
    yield "| study | claims | command at full size | estimate |\n|---|---|---|---|"
    for name in sorted(name for name, count in left.items() if count):
        study = load(name)
        seconds = cost_seconds(study, validate_study(study, data=False).configs)
        estimate = f"{format_duration(seconds)} of one core"
        yield f"| {name} | {left[name]} | `sweeps run {name}` | {estimate} |"


def _is_shown(finding: ClaimFinding) -> bool:
    return finding.verdict != "not posed" or finding.measured is not None


if __name__ == "__main__":
    main()
