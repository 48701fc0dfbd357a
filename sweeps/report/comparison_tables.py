"""Tables that compare sweeps, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweeps.analysis.comparison import Comparison
from sweeps.analysis.tables import Table
from sweeps.analysis.text import metric_label
from sweeps.report.findings import settings_texts
from sweeps.study.spec import Study


def comparison_table(comparison: Comparison) -> Table:
    """Sizes, fronts and hypervolumes of compared sweeps, a column per sweep."""
    rows = [tuple(row) for row in _comparison_rows(comparison)]
    worst = ", ".join(
        f"{metric_label(metric)} {value:.4g}" for metric, value in comparison.reference.items()
    )
    notes = [f"Hypervolume reference, the worst values over all these sweeps: {worst}."]
    for subject, values in comparison.differences.items():
        notes.append(f"Differences in {subject}: {'; '.join(values)}.")
    columns = ("", *(side.sweep for side in comparison.sweeps))
    return Table(columns, tuple(rows), " ".join(notes))


def contrast_table(comparison: Comparison) -> Table:
    """Differences between sweeps with their intervals and verdicts."""
    rows = [
        (
            each.sweep,
            metric_label(each.metric),
            str(each.difference),
            each.verdict,
            str(each.points) if each.points else "front",
            str(each.seeds) if each.seeds else "none",
        )
        for each in comparison.contrasts
    ]
    columns = ("sweep", "quantity", "difference", "verdict", "equal settings", "common seeds")
    return Table(columns, tuple(rows))


def settings_table(studies: Mapping[str, Study]) -> Table:
    """Settings in which the studies of sweeps differ, a column per sweep."""
    settings = {sweep: settings_texts(study) for sweep, study in studies.items()}
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    rows = [(key, *(own.get(key, "") for own in settings.values())) for key in keys]
    return Table(("setting", *settings), tuple(row for row in rows if len({*row[1:]}) > 1))


def _comparison_rows(comparison: Comparison) -> Iterator[list[str]]:
    sides = comparison.sweeps
    yield ["points compared", *(str(side.points) for side in sides)]
    yield ["replicates", *(str(side.replicates) for side in sides)]
    yield ["points on its own front", *(str(side.on_front) for side in sides)]
    yield ["points on the joint front", *(str(side.on_joint_front) for side in sides)]
    yield ["hypervolume", *(_optional(side.hypervolume) for side in sides)]
    yield ["hypervolume of true means", *(str(side.hypervolume_interval) for side in sides)]
    yield ["hypervolume attained by half", *(_optional(side.attained) for side in sides)]
    for rival in sides:
        shares = (side.dominated.get(rival.sweep) for side in sides)
        cells = ("" if share is None else f"{share:.0%}" for share in shares)
        yield [f"front dominated by {rival.sweep}", *cells]


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
