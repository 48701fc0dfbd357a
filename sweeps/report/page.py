"""The page: what a sweep found, what it rests on, and how it was run.

Everything that a user named (sweeps, fields, values, reasons) is escaped, and the page's content
security policy lets no script run but the two it was written with, and nothing load.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sweeps.analysis.claims import judge_claim
from sweeps.analysis.pareto import attainment, pareto_front
from sweeps.analysis.tables import (
    Table,
    best_first,
    describe_config,
    evenly_spaced_rows,
    front_table,
    varying_fields,
)
from sweeps.report.figures.attackers import attacker_report
from sweeps.report.figures.axes import SweptAxis, axis_figure
from sweeps.report.figures.curves import curve_set
from sweeps.report.figures.pictures import Picture, pictures
from sweeps.report.figures.plots import front_figure
from sweeps.report.figures.roc import roc_figure
from sweeps.report.sources import ReportSource
from sweeps.report.tables import facts_table, failures_table, notes_table, stopped_table
from sweeps.study.yaml_reader import dump_yaml

_ROC_POINTS = 4


@dataclass(frozen=True, slots=True)
class _Chart:
    """A figure to embed.

    Attributes:
        name: Its element's id.
        label: What it shows, for those who cannot see it.
        json: The figure, safe inside a script element.
        height: Pixels.
    """

    name: str
    label: str
    json: Markup
    height: int


@dataclass(frozen=True, slots=True)
class _Section:
    """A picture with what is said about it.

    Attributes:
        name: Its id.
        heading: Its heading.
        captions: Paragraphs below it.
        missing: What could not be shown.
        chart: To explore; None for a still picture.
        image: A still picture as a data URI; empty where there is none.
        label: What the still picture shows.
    """

    name: str
    heading: str
    captions: tuple[str, ...]
    missing: tuple[str, ...]
    chart: _Chart | None
    image: str
    label: str


@dataclass(frozen=True, slots=True)
class _Front:
    chart: _Chart
    table: Table
    excluded: str
    attained: bool


def write_report(data: ReportSource, path: Path, drawn: Sequence[Picture] | None = None) -> Path:
    """Write the report of a sweep as one page that opens without a network.

    Args:
        data: The sweep's result.
        path: Where to; replaced whole if it is there.
        drawn: Its pictures, if they were made already.

    Returns:
        The path.

    Raises:
        OSError: If the file cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(render(data, drawn), encoding="utf-8", newline="\n")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def render(data: ReportSource, drawn: Sequence[Picture] | None = None) -> str:
    """The report's HTML; see `write_report`."""
    points = data.points
    fields = varying_fields(points)
    front = _pareto(data, points)
    plotly, charts = _script(get_plotlyjs()), _script(_text("charts.js"))
    content: str = _template().render(
        sweep=data.sweep,
        study=data.study,
        policy=_policy(plotly, charts),
        style=Markup(_text("page.css")),
        plotly=plotly,
        charts=charts,
        counts=_counts(data, points),
        objectives=", ".join(data.objectives),
        findings=[judge_claim(claim, data.replicates) for claim in data.study.claims],
        pictures=[_section(p) for p in (pictures(data) if drawn is None else drawn)],
        attackers=attacker_report(curve_set(data)),
        front=None if front is None else _front(data, points, front, fields),
        axes=list(_axes(data, points)),
        roc=None if front is None else _roc(data, front, fields),
        notes=notes_table(data.notes, points, fields),
        failures=failures_table(data, points, fields),
        stopped=stopped_table(data, points, fields),
        pending=data.pending,
        command=data.spec.get("command", f"sweeps run {data.study.name}"),
        facts=facts_table({**_times(data), **_without(data.spec, "study", "command")}),
        study_text=dump_yaml(data.study.to_dict()),
    )
    return content


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("sweeps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("page.html")


def _text(name: str) -> str:
    return (resources.files("sweeps.report") / "templates" / name).read_text(encoding="utf-8")


def _script(source: str) -> Markup:
    if "</script" in source.lower():
        raise ValueError("a script to embed must not hold the end of a script element.")
    return Markup(source)


def _policy(*scripts: str) -> str:
    """Nothing loads and only the given scripts run; WebGL charts compile their own functions."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _counts(data: ReportSource, points: pd.DataFrame) -> list[tuple[str, str]]:
    count = {s: int((points["status"] == s).sum()) for s in ("finished", "failed", "stopped")}
    stopped = [("points stopped early", f"{count['stopped']:,}")] if count["stopped"] else []
    return [
        ("points finished", f"{count['finished']:,}"),
        ("points failed", f"{count['failed']:,}"),
        *stopped,
        ("points pending", f"{data.pending:,}"),
        ("replicates per point", f"{data.study.replicates:,}"),
    ]


def _pareto(data: ReportSource, points: pd.DataFrame) -> pd.DataFrame | None:
    """The front, if there is any: a sweep whose points all failed knows no metric."""
    if not set(data.objectives) <= set(points.columns):
        return None
    front = pareto_front(points, data.objectives)
    return None if front.empty else front


def _front(
    data: ReportSource, points: pd.DataFrame, front: pd.DataFrame, fields: Sequence[str]
) -> _Front:
    attained = None
    if len(data.objectives) == 2 and data.study.replicates > 1:
        attained = attainment(data.replicates, data.objectives)
    figure = front_figure(points, front, data.objectives, attained)
    return _Front(
        chart=_chart("front-chart", "Pareto front with 95% intervals", figure),
        table=front_table(front, data.objectives, fields),
        excluded=_excluded(data, points, front),
        attained=attained is not None,
    )


def _excluded(data: ReportSource, points: pd.DataFrame, front: pd.DataFrame) -> str:
    """Which points could take no part in the front, in words; empty when all did."""
    counts = front.attrs["excluded"]
    finished = points.loc[points["status"] == "finished"]
    gaps = {metric: int(finished[metric].isna().sum()) for metric in data.objectives}
    where = ", ".join(f"{metric} at {count}" for metric, count in gaps.items() if count)
    stopped = int((points["status"] == "stopped").sum())
    parts = []
    if failed := counts["not_finished"] - stopped:
        parts.append(f"{failed} failed")
    if stopped:
        parts.append(f"{stopped} stopped early")
    if counts["undefined"]:
        parts.append(f"{counts['undefined']} have an undefined objective ({where})")
    return f"Points left out of the front: {'; '.join(parts)}." if parts else ""


def _section(picture: Picture) -> _Section:
    chart, image = None, ""
    if (figure := picture.figure) is not None:
        chart = _chart(f"{picture.name}-chart", picture.label, figure)
    elif (still := picture.png) is not None:
        image = f"data:image/png;base64,{base64.b64encode(still).decode()}"
    return _Section(
        picture.name,
        picture.heading,
        picture.captions,
        picture.missing,
        chart,
        image,
        picture.label,
    )


def _axes(data: ReportSource, points: pd.DataFrame) -> Iterator[_Chart]:
    """A chart for each swept field in which finished points differ."""
    finished = points.loc[points["status"] == "finished"]
    swept = [field for field in varying_fields(finished) if field in data.study.space]
    for index, field in enumerate(swept):
        metrics = [m for m in _metrics(data, field) if m in finished and finished[m].notna().any()]
        if not metrics:
            continue
        others = tuple(other for other in swept if other != field)
        axis = SweptAxis(field, others, field in data.log_fields)
        figure = axis_figure(finished, axis, metrics, data.objectives)
        yield _chart(f"axis-chart-{index}", f"Metrics along {field}", figure)


def _metrics(data: ReportSource, field: str) -> list[str]:
    claimed = [claim.metric for claim in data.study.claims if claim.axis == field]
    return list(dict.fromkeys([*data.objectives, *claimed]))


def _roc(data: ReportSource, front: pd.DataFrame, fields: Sequence[str]) -> _Chart | None:
    chosen = evenly_spaced_rows(best_first(front, data.objectives), _ROC_POINTS)
    labels = {row["point_id"]: describe_config(row, fields) for row in chosen.to_dict("records")}
    figure = roc_figure(list(data.select_points(labels).values()), labels)
    return None if figure is None else _chart("roc-chart", "ROC curves of attacks", figure)


def _chart(name: str, label: str, figure: go.Figure) -> _Chart:
    # No "<" survives, so no content can end the script element that carries it.
    content = Markup(figure.to_json().replace("<", "\\u003c"))
    return _Chart(name, label, content, figure.layout.height)


def _times(data: ReportSource) -> dict[str, str]:
    finished = data.replicates["finished_at"]
    times = {"sweep": data.sweep, "replicates recorded": f"{len(finished):,}"}
    if len(finished):
        first, last = finished.min(), finished.max()
        times["first replicate finished"] = f"{first:%Y-%m-%d %H:%M:%S} UTC"
        times["last replicate finished"] = f"{last:%Y-%m-%d %H:%M:%S} UTC"
    return times


def _without(content: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}
