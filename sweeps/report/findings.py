"""Verdicts on the claims of recorded sweeps, as text or as tables in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import privnets
from privnets.registry import is_own_experiment
from sweeps.analysis.claims import ClaimFinding, judge_claim
from sweeps.analysis.flags import FLAG_TEXTS, raised_flags
from sweeps.analysis.results import Result
from sweeps.analysis.text import Table, format_count, format_setting
from sweeps.analysis.trends import Verdict
from sweeps.study.loader import load, study_names
from sweeps.study.spec import Study

_COLUMNS = ("claim", "source", "measured [95% interval]", "verdict", "why")


@dataclass(frozen=True, slots=True)
class SweepFindings:
    """Verdicts on the claims of one sweep.

    Attributes:
        sweep: Name of the sweep.
        study: Name of its study.
        settings: Settings that differ from the packaged study, and other facts to know.
        findings: One per claim.
    """

    sweep: str
    study: str
    settings: str
    findings: Sequence[ClaimFinding]


def judge_sweep(result: Result) -> SweepFindings:
    """Judges a sweep by the claims that its packaged study has today, or else by its own."""
    study, plan = result.study, result.manifest.plan
    is_packaged = study.name in study_names()
    claims = load(study.name).claims if is_packaged else study.claims
    settings = ", ".join(changed_settings(study)) if is_packaged else "not a packaged study"
    facts = [settings or "as packaged"]
    if result.pending:
        facts.append(f"{result.pending} of {format_count(result.size, 'point')} unfinished")
    # The source of a user's experiment is part of each point's id; judging does not run it.
    is_own = is_own_experiment(study.experiment)
    now = plan.experiment_version if is_own else privnets.experiment(study.experiment).version
    if plan.experiment_version != now:
        facts.append(f"version {plan.experiment_version} of the experiment (now {now})")
    raised = raised_flags(result.points)
    flagged = result.points.loc[raised.any(axis=1), "point_id"]
    if len(flagged):
        texts = (FLAG_TEXTS.get(str(flag), str(flag)) for flag in raised.columns[raised.any()])
        facts.append(f"flags at {format_count(len(flagged), 'point')} ({', '.join(texts)})")
    ids = flagged.tolist()
    findings = [judge_claim(claim, result.replicates, ids, result.pending) for claim in claims]
    return SweepFindings(result.sweep, study.name, "; ".join(facts), findings)


def changed_settings(study: Study) -> list[str]:
    """Settings that differ from the packaged study of that name, as `--set` takes them."""
    own, packaged = (settings_texts(each) for each in (study, load(study.name)))
    return [
        f"{key}={own.get(key, _format(None))}"
        for key in {**packaged, **own}
        if own.get(key) != packaged.get(key)
    ]


def settings_texts(study: Study) -> dict[str, str]:
    """What a study trains, by key, as `--set` takes it."""
    chosen = ("replicates", "early_stopping", "fixed.", "search.", "space.")
    return {key: _format(v) for key, v in study.settings().items() if key.startswith(chosen)}


def settings_table(studies: Mapping[str, Study]) -> Table:
    """Settings in which the studies of sweeps differ, a column per sweep."""
    settings = {sweep: settings_texts(study) for sweep, study in studies.items()}
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    rows = [(key, *(own.get(key, "") for own in settings.values())) for key in keys]
    return Table(("setting", *settings), tuple(row for row in rows if len({*row[1:]}) > 1))


def _format(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_format(item)}' for key, item in value.items())}}}"
    return format_setting(value)


def findings_text(sweeps: Sequence[SweepFindings]) -> Iterator[str]:
    """Lines of text: each sweep, and below it each claim with its verdict."""
    for each in sweeps:
        yield f"{each.sweep}: {each.study} ({each.settings})"
        for finding in each.findings:
            yield f"  {finding.verdict.upper()}: {finding.claim.statement}"
            yield f"    source: {finding.claim.source or 'not stated'}"
            yield f"    measured: {finding.quantity}: {_format_interval(finding)}"
            yield f"    why: {finding.why}"
        if not each.findings:
            yield "  no claims"
    yield count_verdicts(sweeps)


def findings_markdown(sweeps: Sequence[SweepFindings]) -> Iterator[str]:
    """Lines of Markdown: a section with a table for each sweep that has claims."""
    for each in sweeps:
        if each.findings:
            yield from (f"## {each.study}", "", f"Sweep `{each.sweep}`; settings: {each.settings}.")
            yield from ("", _row(_COLUMNS), _row(["---"] * len(_COLUMNS)))
            for finding in each.findings:
                claim, measured = finding.claim, f"{finding.quantity}: {_format_interval(finding)}"
                cells = claim.statement, claim.source or "not stated", measured, finding.verdict
                theory = f" *Theory:* {' '.join(claim.caveat.split())}" if claim.caveat else ""
                yield _row((*cells, finding.why + theory))
            yield ""
    yield count_verdicts(sweeps)


def count_verdicts(sweeps: Sequence[SweepFindings]) -> str:
    """Numbers of claims by verdict, in one line."""
    counts = Counter(finding.verdict for each in sweeps for finding in each.findings)
    total = format_count(sum(counts.values()), "claim")
    verdicts = ", ".join(f"{verdict} {counts[verdict]}" for verdict in get_args(Verdict))
    return f"{total}: {verdicts}."


def _format_interval(finding: ClaimFinding) -> str:
    return "nothing" if finding.measured is None else str(finding.measured)


def _row(cells: Sequence[str]) -> str:
    plain = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(plain)} |"
