"""Sentences, tables and one HTML page about an audit.

The page loads nothing and runs no script.
"""

from __future__ import annotations

import base64
import io
import math
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from scipy.special import expit

from privnets.attacks.base import Family
from privnets.audit.selection import EXPECTED
from privnets.references.columns import describe_classes
from privnets.registry import package_version
from privnets.statistics.groups import GROUP_METRICS
from privnets.statistics.roc import METRICS

if TYPE_CHECKING:
    from privnets.audit.result import AuditResult

EXPOSED_RATE: Final = 0.01
"""A member counts as exposed if the attack finds it at this false-positive rate or below."""

EXPOSURE: Final = f"tpr_at_fpr_{EXPOSED_RATE:g}"
_BEGINNINGS: Final[Mapping[Family, str]] = {
    "threshold": "By thresholds alone",
    "learned": "Without reference models",
    "offline": "With reference models trained without the record",
    "online": "With reference models trained with and without the record",
}
TABLE_NOTE: Final = (
    "Each value stands with its interval. Rates marked * rest on fewer than ten expected false "
    "positives."
)
DEFINITIONS: Final = {
    "member": "A record of the model's training set; the others come from the same distribution.",
    "advantage": "True-positive rate minus false-positive rate of decisions whose threshold other "
    "records chose; 0 is guessing, 1 is certainty.",
    "auc": "Probability that a member scores above another record; 0.5 is guessing.",
    "tpr_at_fpr_r": "Share of the members that score above a threshold that at most a share r of "
    "the others exceeds.",
    "epsilon >=": "Training that is (epsilon, delta)-private has at least this epsilon.",
    "exposed": "A member that the attack finds at a false-positive rate of 1% or less.",
    "threshold": "Family of attacks that see one output of the model for each record.",
    "learned": "Family of attacks that are fitted to the outputs of half of the records, whose "
    "membership is known, and judge the other half.",
    "offline": "Family of attacks that have models trained without the record.",
    "online": "Family of attacks that also have models trained with the record.",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_MIN_FALSE_POSITIVES = 10
_SHOWN_RECORDS = 20
_PREVALENCES = (0.5, 0.1, 0.01)


def verdict(result: AuditResult) -> str:
    """Leakage by the strongest attack, its interval, exposed records, difference of groups."""
    row, members = result.strongest, int(result.records["member"].gt(0).sum())
    low, high = row["advantage.ci_low"], row["advantage.ci_high"]
    leaks = (
        "the outputs reveal membership"
        if low > 0
        else "this audit cannot tell the leakage from zero"
    )
    is_single = len(result.models.targets) == 1
    sure = result.strongest_by(EXPOSURE)
    by = "it" if sure.name == row.name else f"the best attack there ({sure.name})"
    exposing = math.floor(EXPOSED_RATE * (row["non_members"] + 1) + 1e-9)
    by_chance = members * exposing / (row["non_members"] + 1)
    # Of medians over many models the number is unknown.
    chance = f"; chance alone exposes about {by_chance:.3g}" if is_single else ""
    between = ""
    if result.models.groups is not None and not result.disparity.empty:
        found, values = result.disparity.astype(object).loc["advantage"], result.groups["advantage"]
        between = (
            f"Between groups the advantage differs by up to {found['difference']:.3f} "
            f"({found['difference.ci_low']:.3f} to {found['difference.ci_high']:.3f}): "
            f"{values[found['highest']]:.3f} for {found['highest']}, "
            f"{values[found['lowest']]:.3f} for {found['lowest']}. "
        )
    return (
        f"{_BEGINNINGS[result.family]}, the strongest attack ({row.name}) reaches an advantage of "
        f"{row['advantage']:.3f} ({result.confidence:.0%} interval {low:.3f} to {high:.3f}): "
        f"{leaks}. At a false-positive rate of 1% {by} finds {sure[EXPOSURE]:.1%} of the members "
        f"({sure[f'{EXPOSURE}.ci_low']:.1%} to {sure[f'{EXPOSURE}.ci_high']:.1%}; "
        f"{row[EXPECTED.format(EXPOSED_RATE)]:.3g} false positives expected). "
        f"Of the {len(result.records)} records, {members} were members"
        f"{'' if is_single else ' of at least one model'}; {int(result.records['exposed'].sum())} "
        f"of these are exposed at that rate{chance}. {between}"
        "A better attack may find more."
    )


def basis(result: AuditResult) -> str:
    """Models, records, clipping and bounds that the numbers rest on."""
    models, limit, audited = result.models, result.models.limit, len(result.models.targets)
    clipped = ""
    if models.references and limit < np.inf:
        clip = expit(-limit)
        clipped = (
            f"Log-odds are clipped to [-{limit:.4g}, {limit:.4g}], probabilities to "
            f"[{clip:.3g}, 1 - {clip:.3g}], for attacks with references. "
        )
    classes = ""
    if models.labels is not None:
        counts = np.bincount(models.labels, minlength=len(models.classes)).tolist()
        names = models.classes or map(str, range(len(counts)))
        classes = describe_classes("The target", dict(zip(names, counts, strict=True))) + " "
    trials = "if trials are independent"
    if audited == 1:
        trials = "as if trials were independent; they are not certified bounds"
    return (
        f"{audited} audited model{'s' * (audited > 1)}, {models.references} reference models "
        f"each, {len(models.records)} records. {classes}"
        f"{''.join(f'{note} ' for note in models.notes)}{clipped}"
        f"Lower bounds on epsilon hold at delta {result.delta:g} with "
        f"{result.confidence:.0%} confidence {trials}. Families of attacks differ in knowledge; do "
        "not compare across them."
    )


def blind_spot(result: AuditResult) -> str:
    """Limits of the attackers of this audit."""
    knowledge = {
        "online": "have reference models trained with and without each record",
        "offline": "have reference models trained without the record",
    }.get(result.families[-1], "have no reference models, with which attacks are stronger")
    return (
        f"Not seen: these attackers {knowledge}, see outputs alone and average over the records of "
        "this audit; access to parameters, single exposed records and better attacks may reveal "
        "more."
    )


def describe_page(result: AuditResult, title: str, model: str, data: str) -> str:
    """HTML of the page about an audit; every text is escaped."""
    headline, _, rest = result.verdict.partition(". ")
    grouped = result.models.groups is not None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = resources.files("privnets.audit")
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    models, member = result.models, result.models.target_member
    counts = {
        "records": f"{member.shape[1]:,}",
        "members": f"{member.sum(1).mean():,.0f}",
        "reference models": str(models.references),
    }
    if "correctness" in models.values:
        correct = models.values["correctness"][models.targets]
        counts["accuracy on members"] = f"{correct[member].mean():.3f}"
        counts["accuracy on others"] = f"{correct[~member].mean():.3f}"
    packages = ("privnets-sweeps", "numpy", "scipy", "scikit-learn")
    versions = [f"{package} {package_version(package)}" for package in packages]
    predictive = {
        f"{share:.0%} are members": result.positive_predictive_value(share)["ppv"]
        for share in _PREVALENCES
    }
    text: str = template.render(
        title=title,
        label=_label,
        headline=f"{headline}.",
        verdict=rest,
        counts=counts,
        facts={
            "model": model or "not named",
            "data": data or "not named",
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
            "seed": str(result.seed),
            "verdict about": f"family {result.family}",
        },
        basis=result.basis,
        answers=result.answers,
        table=format_table(result.table),
        note=TABLE_NOTE,
        not_run=result.not_run,
        predictive=pd.DataFrame(predictive).map("{:.3f}".format).reset_index(),
        image=base64.b64encode(_roc_png(result)).decode(),
        groups=format_success(result.groups, GROUP_METRICS) if grouped else None,
        disparity=format_success(result.disparity, ["difference"]) if grouped else None,
        records=result.records.loc[result.records["member"] > 0].head(_SHOWN_RECORDS),
        definitions=DEFINITIONS,
        confidence=f"{result.confidence:.0%}",
        style=Markup(page_style()),
    )
    return text


def _label(text: str) -> str:
    """A text with the names of columns and metrics as people write them."""
    text = re.sub(r"tpr_at_fpr_([0-9.]+|r\b)", r"TPR at FPR \1", text)
    text = re.sub(r"\bauc\b", "AUC", text)
    return text if " " in text else text.replace("_", " ")  # sentences may have names of users


def format_table(table: pd.DataFrame) -> pd.DataFrame:
    """Table of an audit as text: each metric with its interval.

    A rate that rests on fewer than ten expected false positives is marked with `*`.
    """
    shown: dict[str, list[str]] = {"attack": list(table.index), "family": list(table["family"])}
    for metric in METRICS:
        expected = f"expected_false_positives_at_{metric.removeprefix('tpr_at_')}"
        counts = table[expected] if expected in table else [_MIN_FALSE_POSITIVES] * len(table)
        shown[metric] = [
            text + "*" * (count < _MIN_FALSE_POSITIVES)
            for text, count in zip(_format_intervals(table, metric), counts, strict=True)
        ]
    shown["epsilon >="] = [f"{value:.2f}" for value in table["epsilon_lower_bound"]]
    return pd.DataFrame(shown)


def format_success(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Table of groups or differences as text: each metric with its interval; empty if unknown."""
    shown = frame[[name for name in frame if ".ci_" not in str(name)]]
    for metric in metrics:
        shown = shown.drop(columns=metric, errors="ignore")
        shown[metric] = _format_intervals(frame, metric)
    return shown.reset_index()


def _format_intervals(frame: pd.DataFrame, metric: str) -> list[str]:
    columns = frame.reindex(columns=[metric, f"{metric}.ci_low", f"{metric}.ci_high"])
    return [
        "" if math.isnan(value) else f"{value:.3f} ({low:.3f} to {high:.3f})"
        for value, low, high in columns.to_numpy(float)
    ]


def page_style() -> str:
    """Style sheet of pages, which reports of sweeps share."""
    return (resources.files("privnets.audit") / "page.css").read_text(encoding="utf-8")


def _roc_png(result: AuditResult) -> bytes:
    """ROC curve of each family's strongest attack on logarithmic axes, with bands."""
    # Matplotlib takes half a second to load, which an audit without a page need not wait for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), dpi=110, layout="constrained")
    axes, least = figure.subplots(), float(result.roc["fpr"].min())
    axes.plot([least, 1], [least, 1], color="#888888", linestyle=":", label="guessing")
    for family, colour in zip(result.families, _COLOURS, strict=False):
        name = str(result.strongest_by("advantage", family).name).partition(" / ")[0]
        curve = result.roc.loc[result.roc["attack"] == name]
        axes.fill_between(curve["fpr"], curve["ci_low"], curve["ci_high"], color=colour, alpha=0.15)
        label = f"{name} ({family})".replace("$", r"\$")
        axes.plot(curve["fpr"], curve["tpr"], color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.05))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    axes.grid(alpha=0.3)
    axes.legend()
    sink = io.BytesIO()
    figure.savefig(sink, format="png")
    return sink.getvalue()
