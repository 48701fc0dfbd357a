"""One HTML page about an audit; it loads nothing and runs no script."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import pandas as pd
from jinja2 import Environment, StrictUndefined

TABLE_NOTE: Final = (
    "Each value stands with its interval. Rates marked * rest on fewer than ten expected false "
    "positives."
)
_COLOURS = ("#0072b2", "#d55e00", "#009e73")
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


def render_page(
    verdict: str,
    basis: str,
    table: pd.DataFrame,
    records: pd.DataFrame,
    lines: Sequence[RocLine],
    not_run: str,
) -> str:
    """The page's HTML; every text is escaped.

    Args:
        table: Table of `format_table`.
        records: Records with the highest risk.
        not_run: Sentence about attacks that could not be run; may be empty.
    """
    source = (resources.files("privnets.audit") / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text: str = environment.from_string(source).render(
        verdict=verdict,
        basis=basis,
        table=table,
        records=records,
        image=base64.b64encode(_roc_png(lines)).decode(),
        note=TABLE_NOTE,
        not_run=not_run,
    )
    return text


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
