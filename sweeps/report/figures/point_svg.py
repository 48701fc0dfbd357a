"""Picture of one point for its MLflow run: metrics from 0 to 1, with 95% intervals, as SVG.

It is written as text: the publisher draws thousands of them beside training, without a plotting
library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from privnets.points import TradeoffPoint
from sweeps.analysis.tables import INTERVAL_SUFFIXES

PICTURE_FILE = "metrics.svg"

_FAMILIES = ("privacy", "utility", "bound", "floor", "baseline")
_MAX_ROWS = 24
_LABEL, _PLOT, _VALUE, _ROW, _MARGIN = 300, 320, 200, 22, 12


def point_svg(point: TradeoffPoint, objectives: Sequence[str]) -> bytes | None:
    """Returns the picture of a point; None if no metric of it is from 0 to 1.

    Args:
        point: A finished point.
        objectives: Metrics to show first, in bold.
    """
    metrics = point.metrics
    names = [*objectives, *(name for name in sorted(metrics) if name not in objectives)]
    rows = [name for name in names if _is_shown(name, metrics)][:_MAX_ROWS]
    if not rows:
        return None
    height = _MARGIN + _ROW * (len(rows) + 1)
    width = _LABEL + _PLOT + _VALUE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _x(tick)
        parts.append(f'<path d="M{x} {_MARGIN}V{height - _ROW}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{height - 7}" text-anchor="middle">{tick:g}</text>')
    for index, name in enumerate(rows):
        parts += _row(name, metrics, _MARGIN + _ROW * index + _ROW / 2, name in objectives)
    return "\n".join([*parts, "</svg>\n"]).encode()


def _row(name: str, metrics: Mapping[str, float], y: float, is_objective: bool) -> list[str]:
    weight = ' font-weight="bold"' if is_objective else ""
    mean = metrics[name]
    low, high = (metrics.get(name + suffix, math.nan) for suffix in INTERVAL_SUFFIXES)
    text, interval = f"{mean:.4g}", []
    if math.isfinite(low) and math.isfinite(high):
        left, right = _x(min(max(low, 0.0), 1.0)), _x(min(max(high, 0.0), 1.0))
        interval = [f'<path d="M{left} {y}H{right}" stroke="#1f77b4" stroke-width="3"/>']
        text += f" [{low:.3g}, {high:.3g}]"
    label = f'<text x="{_LABEL - 8}" y="{y + 4}" text-anchor="end"{weight}>{escape(name)}</text>'
    value = f'<text x="{_LABEL + _PLOT + 12}" y="{y + 4}"{weight}>{text}</text>'
    return [label, *interval, f'<circle cx="{_x(mean)}" cy="{y}" r="4" fill="#1f77b4"/>', value]


def _is_shown(name: str, metrics: Mapping[str, float]) -> bool:
    is_headline = name.count("/") == 1 and name.partition("/")[0] in _FAMILIES
    is_mean = is_headline and f"{name}{INTERVAL_SUFFIXES[0]}" in metrics
    return is_mean and 0 <= metrics[name] <= 1


def _x(value: float) -> float:
    """Horizontal place of a value from 0 to 1, in pixels."""
    return round(_LABEL + _PLOT * value, 1)
