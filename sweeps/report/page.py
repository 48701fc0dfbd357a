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
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from sweeps.analysis.claims import judge_claim
from sweeps.analysis.export import write_file_atomically
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.pareto import attainment
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    best_first,
    describe_config,
    evenly_spaced,
    front_table,
    varying_fields,
)
from sweeps.report import tables
from sweeps.report.figures.charts import Chart
from sweeps.report.figures.curves import group_curves
from sweeps.report.figures.metrics import field_chart, front_chart, roc_chart, save_front
from sweeps.report.figures.plane import information_plane
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import chart_png, figure_png
from sweeps.report.figures.releases import (
    IMAGES_FILE,
    RECORDS_FILE,
    WEEK_FILE,
    choose_points,
    draw_images,
    read_images,
    read_records,
    read_week,
    records_chart,
    week_chart,
)
from sweeps.report.figures.tradeoff import tradeoff_chart, tradeoff_pairs
from sweeps.study.yaml_reader import dump_yaml

_ROC_POINTS = 4


@dataclass(frozen=True, eq=False)
class FigureSection:
    """Figure of a report, also kept as a PNG file: a chart, or an image.

    Attributes:
        name: Name of the section, and of the PNG file without the suffix.
        chart: The chart, if any.
        image: Content of the PNG file in place of a chart.
        missing: Sentences about data that could not be shown.
    """

    name: str
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
    sections, front = figure_sections(result), result.front()
    page = render_report(result, sections)
    (folder / "report.html").write_text(page, encoding="utf-8", newline="\n")
    for section in sections:
        if (png := section.png) is not None:
            (folder / f"{section.name}.png").write_bytes(png)
    if not front.empty:
        front.to_parquet(folder / "front.parquet")
        chart = front_chart(result.points, front, result.objectives)
        for name in ("front.html", "front.png"):
            save_front(chart, folder / name)


def render_report(result: Result, sections: Sequence[FigureSection] | None = None) -> str:
    """The report's HTML, with figure sections that exist already if given."""
    curves, front = group_curves(result), result.front()
    fields = varying_fields(result.points)
    flagged = result.points.loc[is_flagged(result.points), "point_id"].tolist()
    scripts = [get_plotlyjs(), _template_text("charts.js")]
    environment = Environment(
        loader=PackageLoader("sweeps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    content: str = environment.get_template("page.html").render(
        result=result,
        study=result.study,
        policy=_security_policy(scripts),
        style=Markup(_template_text("page.css")),
        scripts=[Markup(script) for script in scripts],
        plotly_figure=plotly_figure,
        figure_json=_figure_json,
        base64=_base64,
        findings=[
            judge_claim(claim, result.replicates, flagged, result.pending)
            for claim in result.study.claims
        ],
        sections=figure_sections(result) if sections is None else sections,
        along=curves.along if curves.joined else None,
        attackers=tables.attacker_report(curves),
        front=_front_section(result, front, fields) if _is_drawn(front) else None,
        axes=list(_field_charts(result)),
        roc=None if front.empty else _front_roc(result, front, fields),
        notes=tables.notes_table(result.notes, result.points, fields),
        failures=tables.failures_table(result, fields),
        stopped=tables.stopped_table(result, fields),
        command=result.spec.get("command", f"sweeps run {result.study.name}"),
        facts=tables.facts_table(result),
        study_text=dump_yaml(result.study.to_dict()),
    )
    return content


def figure_sections(result: Result) -> list[FigureSection]:
    """Every figure section that the sweep's data allow, in the order of a report."""
    curves, total = group_curves(result), len(result.points)
    pairs = tradeoff_pairs(curves, result.objectives)
    hidden = total - len(pairs[0][2]) if pairs else 0
    reason = f"{hidden} of {total} points are not shown: unfinished, or a metric is undefined."
    images, bad_images = choose_points(result, curves, IMAGES_FILE, read_images, 4)
    weeks, bad_weeks = choose_points(result, curves, WEEK_FILE, read_week, 3)
    records, bad_records = choose_points(result, curves, RECORDS_FILE, read_records, 4)
    tradeoff = tradeoff_chart(curves, pairs, result.objectives)
    sections = [
        FigureSection("tradeoff", tradeoff, missing=[reason] if hidden else []),
        FigureSection(
            "releases",
            image=figure_png(draw_images(images)) if images else None,
            missing=bad_images,
        ),
        FigureSection("week", week_chart(weeks), missing=bad_weeks),
        FigureSection("information-plane", information_plane(result, curves)),
        FigureSection("scatter", records_chart(records), missing=bad_records),
    ]
    return [section for section in sections if section.chart or section.image or section.missing]


def _template_text(name: str) -> str:
    return (resources.files("sweeps.report") / "templates" / name).read_text(encoding="utf-8")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _figure_json(figure: Figure) -> Markup:
    """JSON of a figure; without "<", no content can end the script element that contains it."""
    return Markup(figure.to_json().replace("<", "\\u003c"))


def _security_policy(scripts: Sequence[str]) -> str:
    """Loads nothing and runs only the given scripts; WebGL charts compile their own functions."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{_base64(digest)}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _is_drawn(front: pd.DataFrame) -> bool:
    """Whether a chart of the front shows anything: a point of the front, or a flagged one."""
    excluded = front.attrs.get("excluded", {})  # Without any finished point nothing was counted.
    return len(front) > 0 or excluded.get("flagged", 0) > 0


def _front_section(result: Result, front: pd.DataFrame, fields: Sequence[str]) -> dict[str, Any]:
    attained = None
    if len(front) and len(result.objectives) == 2 and result.study.replicates > 1:
        flagged = result.points.loc[is_flagged(result.points), "point_id"]
        judged = result.replicates.loc[~result.replicates["point_id"].isin(flagged)]
        attained = attainment(judged, result.objectives)
    return {
        "chart": front_chart(result.points, front, result.objectives, attained),
        "table": front_table(front, result.objectives, fields),
        "excluded": list(_exclusions(result, front)),
        "attained": attained is not None,
    }


def _exclusions(result: Result, front: pd.DataFrame) -> Iterator[str]:
    """Causes that kept points off the front, with their numbers."""
    counts, points, stopped = front.attrs["excluded"], result.points, result.counts["stopped"]
    gaps = points.loc[points["status"] == "finished", list(result.objectives)].isna().sum()
    undefined = ", ".join(f"{metric} at {count}" for metric, count in gaps.items() if count)
    for count, cause in (
        (counts["not_finished"] - stopped, "failed"),
        (stopped, "stopped early"),
        (counts["undefined"], f"have an undefined objective ({undefined})"),
        (counts["flagged"], "have a raised flag"),
    ):
        if count:
            yield f"{count} {cause}"


def _field_charts(result: Result) -> Iterator[tuple[str, Chart]]:
    """Each swept field in which finished points differ, with its chart."""
    finished = result.points.loc[result.points["status"] == "finished"]
    swept = [field for field in varying_fields(finished) if field in result.study.space]
    defined = set(finished.columns[finished.notna().any()])
    for field in swept:
        claimed = [claim.metric for claim in result.study.claims if claim.axis == field]
        metrics = [m for m in dict.fromkeys([*result.objectives, *claimed]) if m in defined]
        if metrics:
            fields = [field, *(other for other in swept if other != field)]
            log = field in result.log_fields
            yield field, field_chart(finished, fields, metrics, result.objectives, log=log)


def _front_roc(result: Result, front: pd.DataFrame, fields: Sequence[str]) -> Chart | None:
    """ROC curves of a few points of the front."""
    rows = best_first(front, result.objectives).iloc[evenly_spaced(len(front), _ROC_POINTS)]
    labels = {row["point_id"]: describe_config(row, fields) for row in rows.to_dict("records")}
    return roc_chart(list(result.select_points(labels).values()), labels)
