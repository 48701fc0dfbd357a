"""HTML page of a report: results of a sweep, their basis, and how it was run.

Every name and reason from users is escaped. The page's content security policy allows only its own
two scripts and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sweeps.analysis.claims import judge_claim
from sweeps.analysis.export import write_file_atomically
from sweeps.analysis.pareto import attainment, pareto_front
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    best_first,
    describe_config,
    evenly_spaced,
    front_table,
    varying_fields,
)
from sweeps.report.figures import releases
from sweeps.report.figures.axes import field_chart
from sweeps.report.figures.charts import Chart
from sweeps.report.figures.curves import CurveSet, group_curves
from sweeps.report.figures.front import front_chart, roc_chart, save_front
from sweeps.report.figures.plane import information_plane
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import chart_png, figure_png
from sweeps.report.figures.releases import choose_points
from sweeps.report.figures.tradeoff import tradeoff_chart, tradeoff_pairs
from sweeps.report.tables import (
    attacker_report,
    facts_table,
    failures_table,
    notes_table,
    stopped_table,
)
from sweeps.study.yaml_reader import dump_yaml

_ROC_POINTS = 4


@dataclass(frozen=True, eq=False)
class FigureSection:
    """Figure of a report, also kept as a PNG file: a chart, or an image.

    Attributes:
        name: Name of the section, and of the PNG file without the suffix.
        heading: Heading of the section.
        label: Description for readers who cannot see the figure.
        chart: The chart, if any.
        image: Content of the PNG file in place of a chart.
        missing: Sentences about data that could not be shown.
    """

    name: str
    heading: str
    label: str
    chart: Chart | None = None
    image: bytes | None = None
    missing: Sequence[str] = ()

    @property
    def png(self) -> bytes | None:
        """Content of the PNG file; None if nothing could be shown."""
        return self.image if self.chart is None else chart_png(self.chart)


def write_report(result: Result, path: Path) -> Path:
    """Writes the report of a sweep as one page that opens without a network.

    Raises:
        InputError: If the file cannot be written; an existing file is then kept.
    """
    write_file_atomically(path, render_report(result).encode())
    return path


def write_report_files(result: Result, folder: Path) -> None:
    """Writes the report, each figure as PNG, and the front as a table, a page and a PNG file.

    Raises:
        OSError: If a file cannot be written.
    """
    sections = figure_sections(result)
    page = render_report(result, sections)
    (folder / "report.html").write_text(page, encoding="utf-8", newline="\n")
    for section in sections:
        if (png := section.png) is not None:
            (folder / f"{section.name}.png").write_bytes(png)
    front = _front(result, result.points)
    if front is not None:
        front.to_parquet(folder / "front.parquet")
        chart = front_chart(result.points, front, result.objectives)
        for name in ("front.html", "front.png"):
            save_front(chart, folder / name)


def render_report(result: Result, sections: Sequence[FigureSection] | None = None) -> str:
    """The report's HTML, with figure sections that exist already if given."""
    points, curves = result.points, group_curves(result)
    fields = varying_fields(points)
    front = _front(result, points)
    plotly, charts = _script(get_plotlyjs()), _script(_template_text("charts.js"))
    content: str = _page_template().render(
        sweep=result.sweep,
        study=result.study,
        policy=_security_policy(plotly, charts),
        style=Markup(_template_text("page.css")),
        plotly=plotly,
        charts=charts,
        counts=_counts(result, points),
        objectives=", ".join(result.objectives),
        findings=[judge_claim(claim, result.replicates) for claim in result.study.claims],
        sections=[
            (section, *_figure(section))
            for section in (figure_sections(result) if sections is None else sections)
        ],
        along=curves.along if curves.joined else None,
        attackers=attacker_report(curves),
        front=None if front is None else _front_section(result, points, front, fields),
        axes=list(_field_charts(result, points)),
        roc=None if front is None else _roc(result, front, fields),
        notes=notes_table(result.notes, points, fields),
        failures=failures_table(result, points, fields),
        stopped=stopped_table(result, points, fields),
        pending=result.pending,
        command=result.spec.get("command", f"sweeps run {result.study.name}"),
        facts=facts_table(_facts(result)),
        study_text=dump_yaml(result.study.to_dict()),
    )
    return content


def figure_sections(result: Result) -> list[FigureSection]:
    """Every figure section that the sweep's data allow, in the order of a report."""
    curves = group_curves(result)
    sections = [
        *_tradeoff(result, curves),
        *_images(result, curves),
        *_week(result, curves),
        *_plane(result, curves),
        *_records(result, curves),
    ]
    return [section for section in sections if section.chart or section.image or section.missing]


def _tradeoff(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    pairs = tradeoff_pairs(curves, result.objectives)
    if pairs:
        total = len(result.points)
        hidden = total - len(pairs[0][2])
        reason = f"{hidden} of {total} points are not shown: unfinished, or a metric is undefined."
        label = "The strongest attacker against utility, with 95% intervals, floor and raw data"
        chart = tradeoff_chart(curves, pairs, result.objectives)
        missing = [reason] if hidden else []
        yield FigureSection("tradeoff", "Trade-off curves", label, chart, missing=missing)


def _images(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    points, missing = choose_points(result, curves, releases.IMAGES_FILE, releases.read_images, 4)
    image = figure_png(releases.draw_images(points)) if points else None
    label = "Original and released images"
    yield FigureSection("releases", "Images before and after", label, None, image, missing)


def _week(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    points, missing = choose_points(result, curves, releases.WEEK_FILE, releases.read_week, 3)
    chart = releases.week_chart(points) if points else None
    label = "Power before and after its release, with occupancy"
    yield FigureSection("week", "A week of power before and after", label, chart, None, missing)


def _plane(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    chart = information_plane(result, curves)
    label = "Leakage against censored information: training, estimates, bound and optimum"
    yield FigureSection("information-plane", "Information plane", label, chart)


def _records(result: Result, curves: CurveSet) -> Iterator[FigureSection]:
    points, missing = choose_points(result, curves, releases.RECORDS_FILE, releases.read_records, 4)
    chart = releases.records_chart(points) if points else None
    label = "Released records by their two bits"
    yield FigureSection("scatter", "Releases in the plane", label, chart, None, missing)


def _page_template() -> Any:
    environment = Environment(
        loader=PackageLoader("sweeps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("page.html")


def _template_text(name: str) -> str:
    return (resources.files("sweeps.report") / "templates" / name).read_text(encoding="utf-8")


def _script(source: str) -> Markup:
    if "</script" in source.lower():
        raise ValueError("a script to embed must not contain the end of a script element.")
    return Markup(source)


def _security_policy(*scripts: str) -> str:
    """Loads nothing and runs only the given scripts; WebGL charts compile their own functions."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _counts(result: Result, points: pd.DataFrame) -> list[tuple[str, str]]:
    finished, failed, stopped = (
        int((points["status"] == status).sum()) for status in ("finished", "failed", "stopped")
    )
    counts = {"points finished": finished, "points failed": failed}
    counts |= {"points stopped early": stopped} if stopped else {}
    counts |= {"points pending": result.pending, "replicates per point": result.study.replicates}
    return [(label, f"{count:,}") for label, count in counts.items()]


def _front(result: Result, points: pd.DataFrame) -> pd.DataFrame | None:
    """The front; None without one, as in a sweep whose points all failed."""
    if not set(result.objectives) <= set(points.columns):
        return None
    front = pareto_front(points, result.objectives)
    return None if front.empty else front


def _front_section(
    result: Result, points: pd.DataFrame, front: pd.DataFrame, fields: Sequence[str]
) -> dict[str, Any]:
    attained = None
    if len(result.objectives) == 2 and result.study.replicates > 1:
        attained = attainment(result.replicates, result.objectives)
    chart = front_chart(points, front, result.objectives, attained)
    return {
        "chart": _chart_element("front-chart", "Pareto front with 95% intervals", chart),
        "table": front_table(front, result.objectives, fields),
        "excluded": _describe_exclusions(result, points, front),
        "attained": attained is not None,
    }


def _describe_exclusions(result: Result, points: pd.DataFrame, front: pd.DataFrame) -> str:
    """A sentence about points that took no part in the front; empty if all did."""
    counts = front.attrs["excluded"]
    finished = points.loc[points["status"] == "finished"]
    gaps = {metric: int(finished[metric].isna().sum()) for metric in result.objectives}
    undefined = ", ".join(f"{metric} at {count}" for metric, count in gaps.items() if count)
    stopped = int((points["status"] == "stopped").sum())
    parts = {
        "failed": counts["not_finished"] - stopped,
        "stopped early": stopped,
        f"have an undefined objective ({undefined})": counts["undefined"],
    }
    listed = "; ".join(f"{count} {reason}" for reason, count in parts.items() if count)
    return f"Points left out of the front: {listed}." if listed else ""


def _field_charts(result: Result, points: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A chart for each swept field in which finished points differ."""
    finished = points.loc[points["status"] == "finished"]
    swept = [field for field in varying_fields(finished) if field in result.study.space]
    defined = set(finished.columns[finished.notna().any()])
    for index, field in enumerate(swept):
        claimed = [claim.metric for claim in result.study.claims if claim.axis == field]
        metrics = [m for m in dict.fromkeys([*result.objectives, *claimed]) if m in defined]
        if metrics:
            fields = [field, *(other for other in swept if other != field)]
            log = field in result.log_fields
            chart = field_chart(finished, fields, metrics, result.objectives, log=log)
            yield _chart_element(f"axis-chart-{index}", f"Metrics along {field}", chart)


def _roc(result: Result, front: pd.DataFrame, fields: Sequence[str]) -> dict[str, Any] | None:
    rows = best_first(front, result.objectives).iloc[evenly_spaced(len(front), _ROC_POINTS)]
    labels = {row["point_id"]: describe_config(row, fields) for row in rows.to_dict("records")}
    chart = roc_chart(list(result.select_points(labels).values()), labels)
    return None if chart is None else _chart_element("roc-chart", "ROC curves of attacks", chart)


def _chart_element(name: str, label: str, chart: Chart) -> dict[str, Any]:
    """Id, label for screen readers, figure and height of a chart's element."""
    figure = plotly_figure(chart)
    # Without "<" no content can end the script element that contains it.
    content = Markup(figure.to_json().replace("<", "\\u003c"))
    return {"name": name, "label": label, "json": content, "height": figure.layout.height}


def _figure(section: FigureSection) -> tuple[dict[str, Any] | None, str]:
    """The section's chart, or its image as a data URI."""
    if section.chart is not None:
        return _chart_element(f"{section.name}-chart", section.label, section.chart), ""
    content = base64.b64encode(section.image or b"").decode()
    return None, f"data:image/png;base64,{content}" if content else ""


def _facts(result: Result) -> dict[str, Any]:
    times = result.replicates["finished_at"]
    facts = {"sweep": result.sweep, "replicates recorded": f"{len(times):,}"}
    if len(times):
        facts["first replicate finished"] = f"{times.min():%Y-%m-%d %H:%M:%S} UTC"
        facts["last replicate finished"] = f"{times.max():%Y-%m-%d %H:%M:%S} UTC"
    return facts | {k: v for k, v in result.spec.items() if k not in ("study", "command")}
