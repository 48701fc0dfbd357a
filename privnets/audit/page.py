"""Tables and one HTML page about an audit.

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
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from privnets.audit.success import AuditSuccess
from privnets.registry import package_version
from privnets.statistics.groups import GROUP_METRICS
from privnets.statistics.roc import METRICS

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


def describe_page(audit: AuditSuccess, model: str, data: str, words: Mapping[str, Any]) -> str:
    """HTML of the page about an audit; every text is escaped.

    Args:
        words: Further values of the template: title, sentences, and answers of limits.
    """
    grouped = audit.models.groups is not None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = resources.files("privnets.audit")
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    models, member = audit.models, audit.models.target_member
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
        f"{share:.0%} are members": audit.positive_predictive_value(share)["ppv"]
        for share in _PREVALENCES
    }
    text: str = template.render(
        label=_label,
        counts=counts,
        facts={
            "model": model or "not named",
            "data": data or "not named",
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
            "seed": str(audit.seed),
            "verdict about": f"family {audit.family}",
        },
        table=format_table(audit.table),
        note=TABLE_NOTE,
        predictive=pd.DataFrame(predictive).map("{:.3f}".format).reset_index(),
        image=base64.b64encode(_roc_png(audit)).decode(),
        groups=format_success(audit.groups, GROUP_METRICS) if grouped else None,
        disparity=format_success(audit.disparity, ["difference"]) if grouped else None,
        records=audit.records.loc[audit.records["member"] > 0].head(_SHOWN_RECORDS),
        definitions=DEFINITIONS,
        confidence=f"{audit.confidence:.0%}",
        style=Markup(page_style()),
        **words,
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


def _roc_png(audit: AuditSuccess) -> bytes:
    """ROC curve of each family's strongest attack on logarithmic axes, with bands."""
    # Matplotlib takes half a second to load, which an audit without a page need not wait for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), dpi=110, layout="constrained")
    axes, least = figure.subplots(), float(audit.roc["fpr"].min())
    axes.plot([least, 1], [least, 1], color="#888888", linestyle=":", label="guessing")
    for family, colour in zip(audit.families, _COLOURS, strict=False):
        name = str(audit.strongest_by("advantage", family).name).partition(" / ")[0]
        curve = audit.roc.loc[audit.roc["attack"] == name]
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
