"""HTML page of a report: results of sweeps, their basis, and how they were run.

Every name and reason from users is escaped. The page's content security policy allows only its own
scripts and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import tracking
from privnets.audit.page import page_style
from sweeps.analysis.comparison import compare_sweeps, comparison_table, contrast_table
from sweeps.analysis.export import write_file_atomically
from sweeps.analysis.remarks import front_remarks
from sweeps.analysis.results import Result
from sweeps.analysis.text import field_label, format_count, metric_label
from sweeps.errors import InputError
from sweeps.planning.continuation import names_user_files
from sweeps.report.contents import ReportContents
from sweeps.report.explorer import explorer_data
from sweeps.report.figures import FIGURE_FILES, FRONT_PICTURE
from sweeps.report.figures.metrics import fronts_figure
from sweeps.report.figures.png import figure_png
from sweeps.report.figures.traces import figure_json, plotly_script
from sweeps.report.findings import settings_table
from sweeps.report.headline import methods_paragraph
from sweeps.report.tables import flag_warnings
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_runs_page
from sweeps.study.yaml_reader import dump_yaml


def write_report(results: Sequence[Result], path: Path) -> Path:
    """Writes the report of a sweep as one page that opens without a network.

    The page of several sweeps compares them. It links to their reports, which lie beside it under
    its name with that of the sweep.

    Raises:
        InputError: If a file cannot be written; an existing file is then kept.
    """
    reports = [ReportContents(result) for result in results]
    own = {path: reports}
    if len(reports) > 1:
        own |= {path.with_name(_report_name(path, each)): [each] for each in reports}
    links = [quote(_report_name(path, each)) for each in reports]
    for file, shown in own.items():
        write_file_atomically(file, render_page(shown, path.parent, links).encode())
    return path


def _report_name(path: Path, report: ReportContents) -> str:
    """Name of the report of one sweep beside the page that compares it."""
    return f"{path.stem}-{report.result.sweep}.html"


def write_report_files(result: Result, folder: Path) -> None:
    """Writes the report, the figures of releases as PNG, and the front as a table and as PNG.

    Raises:
        OSError: If a file cannot be written.
    """
    report = ReportContents(result)
    page = render_page([report], Path(result.storage, result.sweep))
    (folder / "report.html").write_text(page, encoding="utf-8", newline="\n")
    for figure in report.figures.values():
        file = f"{figure.name}.png"
        if file in (FRONT_PICTURE, *FIGURE_FILES) and (png := figure.file("png")) is not None:
            (folder / file).write_bytes(png)
    if not report.front.empty:
        report.front.to_parquet(folder / "front.parquet")


def render_page(
    reports: Sequence[ReportContents], folder: Path | None = None, links: Sequence[str] = ()
) -> str:
    """HTML of a page.

    Args:
        reports: One report, or several that the page compares.
        folder: Where the page will lie, for links to the artifacts of points.
        links: Addresses of the reports that the page compares.
    """
    scripts = [plotly_script(), _template_text("charts.js"), _template_text("explorer.js")]
    environment = Environment(
        loader=PackageLoader("sweeps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content: str = environment.get_template("page.html").render(
        report=reports[0],
        title=" and ".join(report.result.sweep for report in reports),
        compared=_comparison(reports) if len(reports) > 1 else None,
        links=list(zip(reports, links, strict=False)),
        policy=_security_policy(scripts),
        style=Markup(page_style()),
        scripts=[Markup(script) for script in scripts],
        figure_json=figure_json,
        script_json=_script_json,
        explorer_data=lambda report: explorer_data(
            report, _artifacts(report.result, folder), _point_filter(report.result)
        ),
        runs_page=_runs_page,
        image_source=lambda figure: f"data:image/png;base64,{_base64(figure_png(figure))}",
        dump_yaml=dump_yaml,
        methods_paragraph=methods_paragraph,
        field_label=field_label,
        heading=lambda name: metric_label(name) if "/" in name else field_label(name),
        warnings=lambda report: flag_warnings(report.points),
        # The headline makes some remarks of a front with points already.
        remarks=lambda report: [
            each
            for each in front_remarks(report.result, report.front)
            if report.front.empty or each not in report.headline
        ],
        format_count=format_count,
        names_user_files=names_user_files,
    )
    return content


def _comparison(reports: Sequence[ReportContents]) -> dict[str, Any]:
    """Figure and tables that compare sweeps; a sentence if they share no objectives."""
    try:
        comparison = compare_sweeps([report.result for report in reports])
    except (InputError, ValueError) as error:
        return {"problem": str(error)}
    points = {report.result.sweep: report.points for report in reports}
    return {
        "problem": "",
        "figure": fronts_figure(points, comparison.objectives),
        "table": comparison_table(comparison),
        "contrasts": contrast_table(comparison),
        "settings": settings_table({each.result.sweep: each.result.study for each in reports}),
    }


def _artifacts(result: Result, folder: Path | None) -> str:
    """Address of the artifacts of a sweep on this machine; empty for other storages."""
    stored = Path(result.storage, result.sweep, "artifacts")
    if folder is None or "://" in result.storage or not stored.is_dir():
        return ""
    is_beside = folder.resolve() == stored.parent.resolve()
    return "artifacts" if is_beside else stored.resolve().as_uri()


def _runs_page(result: Result) -> str:
    """Address of a sweep's runs in MLflow; empty if unknown."""
    return read_runs_page(Ledger(result.storage, result.sweep)) if result.storage else ""


def _point_filter(result: Result) -> str:
    """Address of a search in MLflow that lacks only the quoted id of a point; empty if unknown."""
    condition = quote(f"tags.sweep = '{result.sweep}' and tags.point_id = ")
    # Runs in order of a metric are listed without the sweep's run above them.
    order = quote(f"metrics.`{tracking.OBJECTIVE}{next(iter(result.objectives))}`")
    return (page := _runs_page(result)) and f"{page}&orderByKey={order}&searchFilter={condition}"


def _template_text(name: str) -> str:
    return (resources.files("sweeps.report") / "templates" / name).read_text(encoding="utf-8")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _script_json(content: Any) -> Markup:
    """JSON for a script element; without "<", no content can end the element."""
    text = content if isinstance(content, str) else json.dumps(content, allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _security_policy(scripts: Sequence[str]) -> str:
    """Loads nothing and runs only the given scripts."""
    digests = [_base64(hashlib.sha256(script.encode()).digest()) for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
