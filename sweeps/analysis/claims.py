"""Tests of published statements against measured values.

Replicates of different points may share the random numbers of their seed, so every quantity is
measured per seed, and a verdict rests on its interval over seeds. The quantity of a trend is
Spearman's correlation with a swept field; see `sweeps.analysis.trends`. That of a value is the
metric's mean over points; that of an order is the mean difference of two metrics. Intervals hold
the error of a test set that replicates share; see `privnets.statistics.replicates`. Errors within a
replicate count as equal at all points, which makes the intervals of values and orders rather wide.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.frames import ERROR_SUFFIX
from privnets.statistics.bootstrap import build_samples
from privnets.statistics.intervals import LEVEL, Array, Interval
from privnets.statistics.replicates import Summary
from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.tables import describe_config, varying_fields
from sweeps.analysis.text import (
    field_label,
    format_count,
    format_number,
    format_setting,
    metric_label,
)
from sweeps.analysis.trends import (
    ONE_REPLICATE,
    Effect,
    Verdict,
    describe_ends,
    describe_extent,
    group_points,
    judge_constancy,
    judge_trend,
    limit_trend,
    mean_change,
    mean_trend,
    measure_effect,
)
from sweeps.study.spec import Bounds, Claim

_MAX_LISTED = 6
_MAX_REPLICATES = 1_000_000  # larger numbers are not named
_ROUNDING = 1e-9  # of a squared error
_TEST_SET = ["test_set", "test_size", "test_overlap"]


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """Outcome of testing a claim on a sweep.

    Attributes:
        claim: The claim.
        verdict: `cannot tell` where intervals leave it open, or nothing can be measured;
            `not posed` where this design could not decide, whatever the results.
        quantity: Measured quantity in words.
        measured: Its value with the 95% interval; None without a value.
        why: Reasons for the verdict, as sentences.
        effect: Size of the effect that a trend is about; None if points at its ends differ in
            other fields, too.
    """

    claim: Claim
    verdict: Verdict
    quantity: str
    measured: Interval | None
    why: str
    effect: Effect | None = None


_Judgement = tuple[Verdict, Interval, str]
"""Verdict, measured value, and reasons."""


class _UnmeasurableError(Exception):
    """Raised with the reason why a sweep has no value to judge a claim by."""


@dataclass(frozen=True, eq=False)
class _Sample:
    """A quantity at the points where every seed has a value.

    Attributes:
        points: Configuration of every point that the claim is about, by its id.
        values: Values, a row per seed and a column per measured point.
        errors: Standard errors within replicates, NaN without one, of the same shape.
        test_sets: Test set of each seed.
        undefined: Ids of points that finished without a value.
    """

    points: pd.DataFrame
    values: pd.DataFrame
    errors: pd.DataFrame
    test_sets: pd.DataFrame
    undefined: list[str]

    @property
    def missing(self) -> int:
        """Number of points that failed, are unfinished or were left out."""
        return len(self.points.index.difference([*self.values.columns, *self.undefined]))


def judge_claim(
    claim: Claim, replicates: pd.DataFrame, flagged: Collection[str] = (), unfinished: int = 0
) -> ClaimFinding:
    """Tests a claim on a sweep.

    A value or an order agrees if its interval lies within the claimed range, and disagrees if it
    lies beyond. With `given`, the claim agrees if one point lies within all ranges, by intervals
    corrected for the number of points. It disagrees if every point lies beyond one of them, and
    none is flagged or without a value. Of a sweep with unfinished points, values and orders are not
    judged, and claims with `given` can only agree.

    With `every`, the range is that of each point, by intervals corrected for their number.

    `decreasing` and `increasing` agree or disagree if the interval of the trend lies on one side of
    0; they are not posed with fewer than five values or four replicates. No claim is posed of
    settings that the sweep does not have, nor where `comparison` is set. `constant` agrees if every
    point's interval lies within 10% of its group's mean. It disagrees if the interval of some
    point, corrected for their number, lies beyond.

    Args:
        claim: The claim.
        replicates: A row per point and replicate. Trivial obfuscations count only where the claim
            names them.
        flagged: Ids of points with a raised flag. They are left out of claims about `privacy/*`,
            unless the claim is about a bound, which flags presume. If only they can be measured,
            the sweep cannot tell.
        unfinished: Number of points of the sweep that are not in the table.
    """
    if "obfuscation" not in claim.where:
        replicates = replicates.loc[~is_obfuscated(replicates)]
    for places in (claim.where, {**claim.where, **claim.elsewhere}):
        if not unfinished and not _meets_conditions(replicates, places).any():
            absent = " and ".join(
                f"{field_label(k)} = {format_setting(v)}" for k, v in places.items()
            )
            why = f"The sweep has no point with {absent or 'a learned release'}."
            return ClaimFinding(claim, "not posed", _describe_quantity(claim), None, why)
    finding = _judge_unflagged(claim, replicates, flagged)
    if claim.comparison:
        why = "The figure is of other records, so that the measured value only stands beside it."
        return replace(finding, verdict="not posed", why=why)
    is_final = claim.axis is not None or (claim.given and finding.verdict == "agrees")
    if not unfinished or is_final or finding.verdict == "cannot tell":
        return finding
    why = f"Points are unfinished: {unfinished}. {finding.why}"
    return replace(finding, verdict="cannot tell", why=why)


def _judge_unflagged(
    claim: Claim, replicates: pd.DataFrame, flagged: Collection[str]
) -> ClaimFinding:
    """Tests a claim on the points that may count for it; see `judge_claim`."""
    names = claim.metrics.values()
    rests_on_attacks = any(name.startswith("privacy/") for name in names)
    if not rests_on_attacks or any(name.startswith("bound/") for name in names):
        return _judge(claim, replicates)
    is_flagged = replicates["point_id"].isin(list(flagged))
    count = replicates.loc[is_flagged, "point_id"].nunique()
    finding = _judge(claim, replicates.loc[~is_flagged])
    if not count:
        return finding
    hides_point = (is_flagged & _meets_conditions(replicates, claim.where)).any()
    if claim.given and finding.verdict == "disagrees" and hides_point:
        why = (
            f"A flagged point may be the one; converged attackers there would decide. {finding.why}"
        )
        finding = replace(finding, verdict="cannot tell", why=why)
    if finding.measured is not None:
        return replace(finding, why=f"{finding.why} Flagged points left out: {count}.")
    finding = _judge(claim, replicates)
    why = f"Only flagged points can be measured; converged attackers would decide. {finding.why}"
    return replace(finding, verdict="cannot tell", why=why)


def _judge(claim: Claim, replicates: pd.DataFrame) -> ClaimFinding:
    """Tests a claim on all points of a table."""
    quantity, effect = _describe_quantity(claim), None
    try:
        if claim.axis is not None:
            (verdict, measured, why), effect = _judge_trend(claim, claim.axis, replicates)
        elif claim.given:
            verdict, measured, why = _judge_some_point(claim, replicates)
        else:
            judge = _judge_every_point if claim.every else _judge_mean
            verdict, measured, why = judge(claim, replicates)
    except _UnmeasurableError as reason:
        return ClaimFinding(claim, "cannot tell", quantity, None, f"Nothing measured: {reason}.")
    return ClaimFinding(claim, verdict, quantity, measured, why, effect)


def _describe_quantity(claim: Claim) -> str:
    metric = metric_label(claim.metric)
    if claim.axis is not None:
        return f"Spearman's correlation of {metric} with {field_label(claim.axis)}"
    if claim.above is None:
        return metric
    other = "its value" if claim.above == claim.metric else metric_label(claim.above)
    places = [
        f"{field_label(name)} = {format_setting(value)}" for name, value in claim.elsewhere.items()
    ]
    return f"{metric} minus {other}" + (f" at {', '.join(places)}" if places else "")


def _judge_mean(claim: Claim, replicates: pd.DataFrame) -> _Judgement:
    """Judges the mean over points of a metric, or of a difference."""
    sample, bounds = _claimed_sample(claim, replicates), _claimed_range(claim)
    values, errors = (frame.mean(axis=1).to_frame() for frame in (sample.values, sample.errors))
    summary = _summarize({_range_key(claim): (values, errors)}, sample.test_sets)
    measured = _interval(summary, 0, 0)
    points = format_count(sample.values.shape[1], "point")
    extent = f"mean over {points} and {_replicates(sample)}"
    verdict: Verdict = "cannot tell"
    low, high = bounds.ends
    if len(values) < 2:
        reason = ONE_REPLICATE
    elif measured.low >= low and measured.high <= high:
        verdict, reason = "agrees", f"The interval is {_describe_range(bounds)}"
    elif measured.high < low or measured.low > high:
        verdict, reason = "disagrees", f"The interval is not {_describe_range(bounds)}"
    else:
        reason = f"The interval is only in part {_describe_range(bounds)}"
    why = f"{reason} ({extent})."
    if verdict == "cannot tell":
        why += _describe_need(summary, LEVEL, 0, np.array([low]), np.array([high]), sample)
    return verdict, measured, why + _remarks(sample)


def _judge_every_point(claim: Claim, replicates: pd.DataFrame) -> _Judgement:
    """Judges each point by an interval that holds for all points at once (Bonferroni)."""
    sample, bounds = _claimed_sample(claim, replicates), _claimed_range(claim)
    summary = _summarize({_range_key(claim): (sample.values, sample.errors)}, sample.test_sets)
    points, (low, high) = len(summary.mean), np.array([bounds.ends]).T
    level = 1 - (1 - LEVEL) / points
    lows, highs = summary.interval(level)
    place = int(_margins(summary, low, high).argmin())
    worst = Interval(*(float(ends[place, 0]) for ends in (summary.mean, lows, highs)))
    count = format_count(points, "point")
    verdict: Verdict = "cannot tell"
    if len(sample.values) < 2:
        reason = ONE_REPLICATE
    elif ((highs < low) | (lows > high)).any():
        verdict, reason = "disagrees", f"A point is not {_describe_range(bounds)}"
    elif ((lows >= low) & (highs <= high)).all():
        verdict, reason = "agrees", f"Every point is {_describe_range(bounds)}"
    else:
        reason = f"The intervals leave open whether every point is {_describe_range(bounds)}"
    fields = varying_fields(sample.points)
    (row,) = sample.points.loc[[sample.values.columns[place]]].to_dict("records")
    why = f"{reason}, by intervals for {count} at once ({_replicates(sample)})."
    why += f" Worst is {describe_config(row, fields)}."
    if verdict == "cannot tell":
        why += _describe_need(summary, level, place, low, high, sample)
    return verdict, worst, why + _remarks(sample)


def _margins(summary: Summary, low: Array, high: Array) -> Array:
    """Standard errors by which the worst metric of each point lies within its range, [points]."""
    margin = np.minimum(summary.mean - low, high - summary.mean)
    scale = np.where(summary.error > 0, summary.error, np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        return np.asarray((margin / scale).min(axis=1))


def _judge_some_point(claim: Claim, replicates: pd.DataFrame) -> _Judgement:
    """Judges whether some point lies within the claimed range and those that are given."""
    sample, key = _claimed_sample(claim, replicates), _range_key(claim)
    samples = {name: _read_metric(replicates, name, claim.where) for name in claim.given}
    common = [*map(set, (each.values.columns for each in samples.values()))]
    ids = [i for i in sample.values.columns if all(i in known for known in common)]
    if not ids:
        raise _UnmeasurableError("no point has values of all metrics")
    columns = {
        name: (each.values[ids], each.errors[ids])
        for name, each in {key: sample, **samples}.items()
    }
    summary = _summarize(columns, sample.test_sets)
    ranges = [_claimed_range(claim), *claim.given.values()]
    low, high = np.array([each.ends for each in ranges]).T
    (strict_low, strict_high), (wide_low, wide_high) = (
        summary.interval(1 - (1 - LEVEL) / count) for count in (len(ids), len(ranges))
    )
    is_within = ((strict_low >= low) & (strict_high <= high)).all(axis=1)
    is_beyond = ((wide_high < low) | (wide_low > high)).any(axis=1)
    described = "; ".join(
        f"{name} {_describe_range(each)}"
        for name, each in zip(
            [_describe_quantity(claim), *map(metric_label, claim.given)], ranges, strict=True
        )
    )
    verdict: Verdict = "cannot tell"
    if len(sample.values) < 2:
        reason = f"{ONE_REPLICATE}; claimed is {described}"
    elif is_within.any():
        verdict, reason = "agrees", f"A point has, by intervals for {len(ids)} points, {described}"
    elif is_beyond.all() and len(ids) < len(sample.points):
        reason = f"No measured point has {described}, but one without all values may"
    elif is_beyond.all():
        verdict, reason = "disagrees", f"No point has {described}"
    else:
        reason = f"The intervals leave open whether a point has {described}"
    place = int(_margins(summary, low, high).argmax())
    fields = varying_fields(sample.points)
    (nearest,) = sample.points.loc[[ids[place]]].to_dict("records")
    why = f"{reason}. Nearest to it is {describe_config(nearest, fields)} ({_replicates(sample)})."
    if verdict == "cannot tell":
        level = 1 - (1 - LEVEL) / len(ids)
        why += _describe_need(summary, level, place, low, high, sample)
    why += _remarks(sample)
    return verdict, _interval(summary, place, 0), why


def _describe_need(
    summary: Summary, level: float, place: int, low: Array, high: Array, sample: _Sample
) -> str:
    """Sentence on what would settle which side of its ranges a point lies on, if its means stay."""
    seeds, sets = len(sample.values), sample.test_sets["test_set"]
    if seeds < 2:
        return ""
    fixed = np.zeros_like(summary.error)  # variance of test records which all replicates share
    if sets.notna().all() and sets.nunique() == 1:
        fixed = summary.error**2 - summary.std**2 / seeds
        fixed = np.where(fixed > _ROUNDING * summary.error**2, fixed, 0.0)

    def is_decided(count: int) -> bool:
        ends = _with_replicates(summary, seeds, fixed, count).interval(level)
        lows, highs = ends[0][place], ends[1][place]
        is_within = ((lows >= low) & (highs <= high)).all()
        return bool(is_within or ((highs < low) | (lows > high)).any())

    counts = range(seeds, _MAX_REPLICATES)
    needed = bisect_left(counts, True, key=is_decided)
    if 0 < needed < len(counts):
        return f" About {counts[needed]:,} replicates would decide it, if the means stay."
    if needed and (fixed[place] > 0).any():
        return " More test records would decide it, if the means stay, not more replicates."
    return ""


def _with_replicates(summary: Summary, seeds: int, fixed: Array, count: int) -> Summary:
    """Expected summary of `count` replicates instead of `seeds`, if means and spreads stay.

    Args:
        fixed: Part of the squared errors that replicates do not shrink.
    """
    before = summary.error**2
    after = (before - fixed) * seeds / count + fixed
    ratio = np.divide(after, before, out=np.ones_like(before), where=before > 0)
    # Satterthwaite's, as in `summarize_columns`; without a fixed part they grow like count - 1.
    freedom = summary.freedom * (count - 1) / (seeds - 1) * (ratio * count / seeds) ** 2
    return replace(summary, error=np.sqrt(after), freedom=freedom)


def _judge_trend(
    claim: Claim, axis: str, replicates: pd.DataFrame
) -> tuple[_Judgement, Effect | None]:
    """Judges the trend of a metric along a swept field, and measures its effect."""
    column, name = f"config/{axis}", field_label(axis)
    if column not in replicates.columns:
        raise _UnmeasurableError(f"no replicate has {column}")
    sample = _read_metric(replicates, claim.metric, claim.where)
    position = pd.to_numeric(sample.points[column], errors="coerce").astype("float64")
    if position.isna().all():
        raise _UnmeasurableError(f"the values of {name} have no order")
    measured = sample.values.columns[position[sample.values.columns].notna()]
    sample = replace(sample, values=sample.values[measured], errors=sample.errors[measured])
    values, undefined = sorted(position[sample.undefined].dropna().unique()), ""
    if values:  # the values of the axis at which the metric is undefined somewhere
        listed = ", ".join(map(format_number, values[:_MAX_LISTED]))
        listed += ", ..." if len(values) > _MAX_LISTED else ""
        share = f"{len(values)} of the {position.nunique()} values of {name}"
        undefined = f"undefined at {share} ({listed})"
    groups, pooled = group_points(sample.points, sample.values, sample.errors, position, column)
    if not groups:
        gap = f"; it is {undefined}" if undefined else ""
        reason = f"{metric_label(claim.metric)} is known at fewer than two values of {name}{gap}"
        raise _UnmeasurableError(reason)
    trend = limit_trend(_mean_over_seeds(mean_trend(groups), sample), groups)
    change = _mean_over_seeds(mean_change(groups), sample)
    parts = zip(*(group.departures() for group in groups), strict=True)
    departed, errors = (pd.DataFrame(np.hstack(part), sample.values.index) for part in parts)
    departures = _summarize({"": (departed, errors)}, sample.test_sets)
    if claim.trend == "constant" and len(sample.values) > 1:
        verdict, reason = judge_constancy(departures)
    else:
        verdict, reason = judge_trend(claim.trend or "", groups, trend)
    effect = measure_effect(groups, change, departures)
    why = (
        f"{reason} (mean over {_replicates(sample)}; {describe_extent(groups, pooled)}). "
        f"The metric changes by {change} {describe_ends(name, effect)}."
    )
    return (verdict, trend, why + _remarks(sample, undefined)), None if pooled else effect


def _claimed_sample(claim: Claim, replicates: pd.DataFrame) -> _Sample:
    """Values of a claim's metric, or of its excess over the other metric."""
    sample = _read_metric(replicates, claim.metric, claim.where)
    if claim.above is not None:
        other = _read_metric(replicates, claim.above, {**claim.where, **claim.elsewhere})
        if claim.elsewhere:
            other = _match_points(other, sample, claim.elsewhere)
        # Differences at common points and seeds; errors count as independent.
        points = sample.values.columns.intersection(other.values.columns)
        seeds = sample.values.index.intersection(other.values.index)
        errors = (each.errors.loc[seeds, points] ** 2 for each in (sample, other))
        undefined = {*other.undefined} & {*sample.values.columns}
        sample = replace(
            sample,
            values=sample.values.loc[seeds, points] - other.values.loc[seeds, points],
            errors=sum(errors) ** 0.5,
            test_sets=sample.test_sets.loc[seeds],
            undefined=sorted({*sample.undefined} | undefined),
        )
    if sample.values.empty:
        raise _UnmeasurableError("no point has a value in every replicate")
    return sample


def _read_metric(replicates: pd.DataFrame, metric: str, where: Mapping[str, object]) -> _Sample:
    """Values of a metric at the points that meet conditions; infinite ones are undefined."""
    if metric not in replicates.columns:
        raise _UnmeasurableError(f"no replicate has {metric}")
    rows = replicates.loc[_meets_conditions(replicates, where)]
    if rows.empty:
        raise _UnmeasurableError("no point meets the claim's conditions")
    values = rows[metric].astype("float64")
    error = metric + ERROR_SUFFIX
    known = {metric: values.where(np.isfinite(values)), error: rows.get(error, math.nan)}
    rows = rows.assign(**known)
    finished = rows.loc[rows["status"] == "finished"]
    table, errors = (
        finished.pivot(index="seed", columns="point_id", values=name) for name in (metric, error)
    )
    measured = table.columns[table.notna().all()]
    test_sets = finished.drop_duplicates("seed").set_index("seed")[_TEST_SET].loc[table.index]
    is_scored = metric.startswith(("privacy/", "utility/"))
    is_shared = test_sets["test_set"].dropna().duplicated().any()
    if is_scored and is_shared and errors[measured].isna().any(axis=None):
        raise _UnmeasurableError(
            f"replicates share test records, whose error in {metric_label(metric)} is unknown"
        )
    return _Sample(
        rows.drop_duplicates("point_id").set_index("point_id"),
        table[measured],
        errors[measured].astype("float64"),
        test_sets,
        finished.loc[finished[metric].isna(), "point_id"].unique().tolist(),
    )


def _meets_conditions(replicates: pd.DataFrame, where: Mapping[str, object]) -> NDArray[np.bool_]:
    """Whether each row has the given values of fields."""
    matches = np.ones(len(replicates), dtype=bool)
    for name, value in where.items():
        column = replicates.get(f"config/{name}", pd.Series(index=replicates.index, dtype=object))
        matches &= (column.isna() if value is None else column == value).to_numpy(dtype=bool)
    return matches


def _match_points(other: _Sample, sample: _Sample, elsewhere: Mapping[str, object]) -> _Sample:
    """Names the points of one sample like those of another that agree in all other fields."""
    points = pd.concat([sample.points, other.points])
    fields = [f"config/{name}" for name in varying_fields(points) if name not in elsewhere]
    own, others = (
        {str([str(row[name]) for name in fields]): place for place, row in each.iterrows()}
        for each in (sample.points[fields], other.points[fields])
    )
    names = {place: own[key] for key, place in others.items() if key in own}
    kept = [place for place in other.values.columns if place in names]
    values, errors = (t[kept].rename(columns=names) for t in (other.values, other.errors))
    return replace(other, values=values, errors=errors)


def _summarize(
    columns: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], test_sets: pd.DataFrame
) -> Summary:
    """Means over seeds of values [seeds, points] with their errors; shape [points, columns]."""
    seeds, points = next(iter(columns.values()))[0].shape
    table = pd.concat([test_sets.reset_index()] * points, ignore_index=True)
    table["point_id"] = np.repeat(np.arange(points), seeds)
    for name, (values, errors) in columns.items():
        table[name] = values.to_numpy().T.ravel()
        table[name + ERROR_SUFFIX] = errors.to_numpy().T.ravel()
    return build_samples(table.assign(status="finished"), list(columns)).summary


def _interval(summary: Summary, point: int, column: int) -> Interval:
    low, high = summary.interval()
    ends = (float(values[point, column]) for values in (summary.mean, low, high))
    return Interval(*ends)


def _mean_over_seeds(measured: tuple[Array, Array], sample: _Sample) -> Interval:
    """Mean over seeds of values and their errors within replicates, each of shape [seeds]."""
    values, errors = (pd.DataFrame({"": each}, sample.values.index) for each in measured)
    # One replicate has no spread, so the errors of its records would not suffice.
    errors = errors if len(values) > 1 else errors * math.nan
    return _interval(_summarize({"": (values, errors)}, sample.test_sets), 0, 0)


def _range_key(claim: Claim) -> str:
    """Name whose range bounds the intervals; differences have none."""
    return claim.metric if claim.above is None else "difference"


def _claimed_range(claim: Claim) -> Bounds:
    return claim if claim.above is None else Bounds(at_least=claim.by)


def _describe_range(bounds: Bounds) -> str:
    ends = {"at least": bounds.at_least, "at most": bounds.at_most}
    return " and ".join(f"{name} {end:g}" for name, end in ends.items() if end is not None)


def _replicates(sample: _Sample) -> str:
    return format_count(len(sample.values), "replicate")


def _remarks(sample: _Sample, undefined: str | None = None) -> str:
    """Sentences about points without a value, whose number is told if `undefined` does not."""
    if undefined is None and sample.undefined:
        undefined = f"undefined at {len(sample.undefined)} of {len(sample.points)} points"
    remarks = f" It is {undefined}." if undefined else ""
    if sample.missing:
        remarks += f" Points left out (failed, unfinished or not comparable): {sample.missing}."
    return remarks
