"""Names, numbers, settings and counts as short text for tables, figures and messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real

_MAX_LABEL_LENGTH = 32
_NAMES: Mapping[str, str] = {
    "baseline": "raw data",
    "attacker_auc": "attacker's AUC",
    "attacker_balanced_accuracy": "attacker's balanced accuracy",
    "rho_kl": "KL leakage",
    "rho_mi": "MI leakage",
    "alpha": "order alpha",
    "tradeoff": "tradeoff weight",
    "train_size": "training records",
}
_PLAIN_FAMILIES = ("", "privacy", "utility")
_IN_NATS = ("leakage", "alpha_leakage", "censored", "rho_kl", "rho_mi", "worst_record_rho_kl")


@dataclass(frozen=True, slots=True)
class Table:
    """Text table with headings, cells, and a note below."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def metric_label(metric: str) -> str:
    """A metric's name for people, with its unit: `MI leakage, nats`.

    The family is named unless it is `privacy` or `utility`, and so is the attack or attacker. Other
    families have metrics of the same last name.
    """
    family, *middle, last = metric.split("/") if "/" in metric else ("", metric)
    name, _, rate = last.partition("_at_fpr_")
    words = _NAMES.get(name, name.replace("_", " "))
    words = f"TPR at FPR {rate}" if rate and name == "tpr" else words
    prefix = "" if family in _PLAIN_FAMILIES else f"{_NAMES.get(family, family)}: "
    others = [part.replace("_", " ") for part in middle if part not in ("attack", "attacker")]
    unit = ", nats" if last in _IN_NATS else ""
    return f"{prefix}{words}{f' ({others[0]})' if others else ''}{unit}"


def metric_name(metric: str) -> str:
    """A metric's name for people, without its unit."""
    return metric_label(metric).partition(", ")[0]


def field_label(field: str) -> str:
    """A configuration field's name for people; dots reach into mappings."""
    return _NAMES.get(field, field.rsplit(".", 1)[-1].replace("_", " "))


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each id's first six letters, or as many as tell all of them apart."""
    full = list(dict.fromkeys(ids))
    longest = max(map(len, full), default=0)
    length = next((n for n in range(6, longest) if len({i[:n] for i in full}) == len(full)), None)
    return {each: each[:length] for each in full}


def format_count(number: float, noun: str) -> str:
    """A count with a noun whose plural ends in s: `1 pack`, `2 packs`, `0.5 GPUs`."""
    return f"{number:,.10g} {noun if number == 1 else noun + 's'}"


def format_number(value: float) -> str:
    """A number with four significant digits, or `undefined` for NaN."""
    return "undefined" if math.isnan(value) else f"{value:.4g}"


def format_setting(value: object) -> str:
    """A field's value as study files write it: `null` if missing, `.inf` for infinity."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", ".inf")
    return str(value).lower() if is_boolean(value) else str(value)


def label_setting(value: object) -> str:
    """A field's value for a figure: `∞` for infinity, long text shortened."""
    return "∞" if setting_as_number(value) == math.inf else shorten(format_setting(value))


def first_sentence(text: str) -> str:
    """The text up to its first full stop that is followed by a space, on one line."""
    first, stop, _ = " ".join(text.split()).partition(". ")
    return first + stop.rstrip()


def shorten(text: str) -> str:
    """A text of at most 32 characters, with an ellipsis if it was longer."""
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"


def setting_as_number(value: object) -> float:
    """A numeric setting as a float; NaN for text, booleans and missing values."""
    if is_boolean(value) or not isinstance(value, Real):
        return math.nan
    return float(value)


def is_boolean(value: object) -> bool:
    """Whether a value is a boolean of Python or NumPy."""
    return type(value).__name__ in ("bool", "bool_")
