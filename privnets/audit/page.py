"""One HTML page about an audit; it loads nothing and runs no script."""

from __future__ import annotations

import base64
import io
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

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


@dataclass(frozen=True, eq=False)
class RocLine:
    """ROC curve with a band: columns fpr, tpr, ci_low and ci_high."""

    label: str
    curve: pd.DataFrame


def format_table(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Table of an audit as text: each metric with its interval.

    A rate that rests on fewer than ten expected false positives is marked with `*`.
    """
    shown: dict[str, list[str]] = {"attack": list(table.index), "family": list(table["family"])}
    for metric in metrics:
        columns = [metric, f"{metric}.ci_low", f"{metric}.ci_high"]
        expected = f"expected_false_positives_at_{metric.removeprefix('tpr_at_')}"
        counts = table[expected] if expected in table else [_MIN_FALSE_POSITIVES] * len(table)
        shown[metric] = [
            f"{value:.3f} ({low:.3f} to {high:.3f}){'*' * (count < _MIN_FALSE_POSITIVES)}"
            for (value, low, high), count in zip(table[columns].to_numpy(), counts, strict=True)
        ]
    shown["epsilon >="] = [f"{value:.2f}" for value in table["epsilon_lower_bound"]]
    return pd.DataFrame(shown)


def format_success(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Table of groups or differences as text: each metric with its interval; empty if unknown."""
    shown = frame.drop(columns=frame.columns[frame.columns.str.contains(".ci_", regex=False)])
    for metric in metrics:
        shown = shown.drop(columns=metric, errors="ignore")
        columns = frame.reindex(columns=[metric, f"{metric}.ci_low", f"{metric}.ci_high"])
        shown[metric] = [
            "" if math.isnan(value) else f"{value:.3f} ({low:.3f} to {high:.3f})"
            for value, low, high in columns.to_numpy(float)
        ]
    return shown.reset_index()


def render_page(lines: Sequence[RocLine], **content: Any) -> str:
    """The page's HTML; every text is escaped.

    Args:
        lines: ROC curves.
        content: Values of the template, `page.html`.
    """
    folder = resources.files("privnets.audit")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    text: str = template.render(
        image=base64.b64encode(_roc_png(lines)).decode(),
        style=Markup(page_style()),
        definitions=DEFINITIONS,
        note=TABLE_NOTE,
        **content,
    )
    return text


def page_style() -> str:
    """Style sheet of pages, which reports of sweeps share."""
    return (resources.files("privnets.audit") / "page.css").read_text(encoding="utf-8")


def describe_versions() -> str:
    """Versions that the numbers depend on."""
    packages = ("privnets-sweeps", "numpy", "scipy", "scikit-learn")
    parts = [f"{package} {version(package)}" for package in packages]
    return ", ".join([*parts, f"Python {platform.python_version()}"])


def _roc_png(lines: Sequence[RocLine]) -> bytes:
    """ROC curves on logarithmic axes, with their bands and the line of guessing."""
    # Matplotlib takes half a second to load, which an audit without a page need not wait for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), dpi=110, layout="constrained")
    axes = figure.subplots()
    least = min(float(line.curve["fpr"].min()) for line in lines)
    axes.plot([least, 1], [least, 1], color="#888888", linestyle=":", label="guessing")
    for line, colour in zip(lines, _COLOURS, strict=False):
        curve = line.curve
        axes.fill_between(curve["fpr"], curve["ci_low"], curve["ci_high"], color=colour, alpha=0.15)
        axes.plot(curve["fpr"], curve["tpr"], color=colour, label=line.label.replace("$", r"\$"))
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.05))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    axes.grid(alpha=0.3)
    axes.legend()
    sink = io.BytesIO()
    figure.savefig(sink, format="png")
    return sink.getvalue()
