"""Contents of a report: figures and tables of a sweep, prepared once for pages and files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from matplotlib.figure import Figure

from privnets.points import TradeoffPoint
from sweeps.analysis.claims import ClaimFinding, judge_claim
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.remarks import FLAGGED, UNDEFINED, count_exclusions
from sweeps.analysis.results import Result
from sweeps.analysis.tables import (
    OBFUSCATION,
    STRENGTH,
    best_first,
    evenly_spaced,
    front_table,
    varying_fields,
)
from sweeps.analysis.text import Table, field_label, metric_label
from sweeps.report import tables
from sweeps.report.figures.curves import CurveSet, group_curves, label_point
from sweeps.report.figures.metrics import field_figure, front_figure
from sweeps.report.figures.plane import information_plane
from sweeps.report.figures.png import ImageKind, draw_figure, figure_file
from sweeps.report.figures.recorded import convergence_figure, roc_figure, training_figure
from sweeps.report.figures.releases import (
    IMAGES_FILE,
    WEEK_FILE,
    choose_points,
    draw_images,
    read_images,
    read_week,
    week_figure,
)
from sweeps.report.figures.traces import BASELINE, BOUND, FLOOR, TRIVIAL, Description
from sweeps.report.figures.tradeoff import tradeoff_figure, tradeoff_pairs
from sweeps.report.headline import headline_sentences, knob_effects
from sweeps.study.search_space import axis_roots, is_shared

_SAMPLE_POINTS = 4
_HIDDEN = "unfinished, searched but not confirmed, or a metric is undefined"
_READINGS: Mapping[str, str] = {
    "agrees": "rises",
    "disagrees": "falls",
    "not posed": "too little data",
}


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """Figure of a report: a figure of Plotly, or images.

    Attributes:
        name: Name of the figure, and of its files without the suffix.
        label: Content in words.
        plot: The figure of Plotly, if any.
        image: Drawn images in its place.
        missing: Sentences about data that could not be shown.
    """

    name: str
    label: str
    plot: Description | None = None
    image: Figure | None = None
    missing: Sequence[str] = ()

    @cached_property
    def drawn(self) -> Figure | None:
        """The figure as Matplotlib draws it; None if nothing could be shown."""
        return self.image if self.plot is None else draw_figure(self.plot)

    def file(self, kind: ImageKind) -> bytes | None:
        """Content of an image file; None if nothing could be shown."""
        return None if self.drawn is None else figure_file(self.drawn, kind)


@dataclass(frozen=True, eq=False)
class ReportContents:
    """Everything that a report of a sweep shows; each part is computed once."""

    result: Result

    @cached_property
    def front(self) -> pd.DataFrame:
        """The Pareto front on the study's objectives."""
        return self.result.front(all=True)

    @cached_property
    def points(self) -> pd.DataFrame:
        """All complete points."""
        return self.result.points

    @cached_property
    def fields(self) -> list[str]:
        """Fields in which points differ."""
        return varying_fields(self.points)

    @cached_property
    def curves(self) -> CurveSet:
        """Finished points by curve."""
        return group_curves(self.result)

    @cached_property
    def headline(self) -> list[str]:
        """The result in sentences, the most important one first."""
        return headline_sentences(self.result, self.front, self.effects)

    @cached_property
    def flagged(self) -> list[str]:
        """Ids of points with a raised flag."""
        return self.points.loc[is_flagged(self.points), "point_id"].tolist()

    @cached_property
    def findings(self) -> list[ClaimFinding]:
        """Verdicts on the study's claims."""
        result = self.result
        return [
            judge_claim(claim, result.replicates, self.flagged, result.pending)
            for claim in result.study.claims
        ]

    @cached_property
    def attackers(self) -> tables.AttackerReport | None:
        """Attackers of the adversarial experiment."""
        return tables.attacker_report(self.curves)

    @cached_property
    def effects(self) -> list[ClaimFinding]:
        """Effect of each knob on each objective, where it can be measured."""
        return knob_effects(self.result)

    @cached_property
    def figures(self) -> dict[str, ReportFigure]:
        """Every figure that the sweep's data allow, by name, in the order of the report."""
        figures = (*self._front_figures(), *self._curve_figures())
        return {each.name: each for each in figures if each.plot or each.image or each.missing}

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table, by name; empty ones have no rows."""
        result = self.result
        rows = [
            (
                field_label(effect.claim.axis or ""),
                metric_label(effect.claim.metric),
                _READINGS.get(effect.verdict, effect.verdict),
                str(effect.measured),
                effect.why,
            )
            for effect in self.effects
        ]
        columns = ("knob", "metric", "trend", "correlation", "reason and change")
        shown = {
            "front": Table((), ())
            if self.front.empty
            else front_table(self.front, result.objectives, self.fields),
            "effects": Table(columns, tuple(rows)),
            "notes": tables.notes_table(result.notes, self.points, self.fields),
            "failures": tables.failures_table(result, self.fields),
            "stopped": tables.stopped_table(result, self.fields),
            "facts": tables.facts_table(result),
            "card": tables.card_table(result),
        }
        return shown | ({"attackers": self.attackers.table} if self.attackers else {})

    @property
    def references(self) -> set[str]:
        """Names of the reference values that figures show: floors, baseline and bound."""
        plots = [figure.plot for figure in self.figures.values() if figure.plot]
        names = {trace["name"] for plot in plots for trace in plot["data"]}
        return {r for r in (FLOOR, TRIVIAL, BASELINE, BOUND) if any(n.startswith(r) for n in names)}

    @property
    def exclusions(self) -> Iterator[str]:
        """Causes that kept points off the front, with their numbers."""
        if not {*self.result.objectives} <= {*self.points}:  # no point has finished
            return
        points = self.points
        gaps = points.loc[points["status"] == "finished", list(self.result.objectives)].isna().sum()
        undefined = ", ".join(f"{metric} at {count}" for metric, count in gaps.items() if count)
        for cause, count in count_exclusions(self.result).items():
            if count:
                yield f"{count} {cause}" + (f" ({undefined})" if cause == UNDEFINED else "")

    def sample(self, ids: Collection[str] = ()) -> tuple[list[TradeoffPoint], dict[str, str]]:
        """Points by their ids, or a few of the front; and their settings in words by id."""
        chosen = self.points.loc[self.points["point_id"].isin(ids)]
        if not ids and len(self.front):
            ordered = best_first(self.front, self.result.objectives)
            chosen = ordered.iloc[evenly_spaced(len(ordered), _SAMPLE_POINTS)]
        rows = chosen.to_dict("records")
        titles = {row["point_id"]: label_point(row, self.fields) for row in rows}
        return list(self.result.select_points(titles).values()), titles

    def _front_figures(self) -> Iterator[ReportFigure]:
        """The front, metrics along each swept field, and recorded curves of the front's points."""
        result = self.result
        if len(self.front) or count_exclusions(result)[FLAGGED]:
            front = front_figure(self.points, self.front, result.objectives)
            yield ReportFigure("front", "Pareto front with 95% intervals", front)
        for field, plot in self._field_figures():
            name = "".join(c if c.isalnum() and c.isascii() else "-" for c in field)
            yield ReportFigure(f"along-{name}", f"Metrics along {field_label(field)}", plot)
        chosen = self.sample() if len(self.front) else ([], {})
        for name, label, draw in (
            ("roc", "ROC curves of attacks with 95% intervals", roc_figure),
            ("training", "Recorded curves of training", training_figure),
            ("convergence", "Validation loss of attackers in training", convergence_figure),
        ):
            yield ReportFigure(name, label, draw(*chosen))

    def _field_figures(self) -> Iterator[tuple[str, Description]]:
        """Each swept field in which finished points differ, with its figure.

        Fields whose values accompany those of another have none: they vary as one.
        """
        result = self.result
        roots = axis_roots(result.study.space)
        finished = self.points.loc[self.points["status"] == "finished"]
        swept = [field for field in varying_fields(finished) if field in result.study.space]
        swept = [f for f in swept if f"config/{f}" != OBFUSCATION and roots[f] == f]
        trivial = is_obfuscated(finished)
        defined = set(finished.columns[finished.notna().any()])
        for field in swept:
            claimed = [claim.metric for claim in result.study.claims if claim.axis == field]
            metrics = [m for m in dict.fromkeys([*result.objectives, *claimed]) if m in defined]
            if metrics:
                is_strength = trivial.any() and field == STRENGTH
                own = finished.loc[trivial == is_strength]
                shared = ["obfuscation", *filter(is_shared, swept)]
                others = shared if is_strength else [f for f in swept if f != STRENGTH]
                fields = [field, *(other for other in others if other != field)]
                log = field in result.log_fields
                yield field, field_figure(own, fields, metrics, result.objectives, log=log)

    def _curve_figures(self) -> Iterator[ReportFigure]:
        """Figures of trade-off curves and of stored releases."""
        result, curves, total = self.result, self.curves, len(self.points)
        pairs = tradeoff_pairs(curves, result.objectives)
        hidden = total - len(pairs[0][2]) if pairs else 0
        images, bad_images = choose_points(result, curves, IMAGES_FILE, read_images, 4)
        weeks, bad_weeks = choose_points(result, curves, WEEK_FILE, read_week, 3)
        label = "The strongest attacker against utility, with 95% intervals, floor and raw data"
        plot = tradeoff_figure(curves, pairs, result.objectives)
        reason = f"{hidden} of {total} points are not shown: {_HIDDEN}."
        yield ReportFigure("tradeoff", label, plot, missing=[reason] if hidden else [])
        drawn = draw_images(images) if images else None
        yield ReportFigure("releases", "Original and released images", None, drawn, bad_images)
        label = "Power before and after its release, with occupancy"
        yield ReportFigure("week", label, week_figure(weeks), missing=bad_weeks)
        label = "Leakage against censored information: training, estimates, bound and optimum"
        yield ReportFigure("information-plane", label, information_plane(result, curves))
