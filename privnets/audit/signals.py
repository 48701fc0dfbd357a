"""Checks of saved signals: from arrays, tables and files to `ModelSignals`, or one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from privnets.attacks.view import Array, BoolArray
from privnets.audit.inputs import (
    SAVED,
    AuditError,
    align,
    as_groups,
    as_numbers,
    as_record_values,
    read_columns,
)
from privnets.audit.model_signals import (
    ModelSignals,
    choose_limit,
    derive_from_probabilities,
    logit_of_loss,
)
from privnets.config import did_you_mean

SCORES: Final[tuple[str, ...]] = ("loss", "confidence", "entropy", "logit", "score")
"""Signals with one number for each model and record."""
PROBABILITIES: Final[str] = "probabilities"
Signals = Mapping[str, ArrayLike] | pd.DataFrame | str | Path
"""Saved signals: arrays by name, a table, or the path of an npz, csv or parquet file."""

MIN_RECORDS: Final = 10
"""Least number of records that are members, and that are not, of an audited model."""

SUM_TOLERANCE: Final = 0.01
"""Largest distance of a sum of probabilities from 1; softmax in bfloat16 comes within 0.5%."""

ROUNDING: Final = 1e-6
"""Largest distance of a probability from [0, 1] that counts as rounding."""

_LABELS = ("labels", "label")
_PROBABILITY_COLUMN = "probability_"
_MEANINGS: Final = {
    "member": "1 for records of the training set and 0 for others",
    "labels": "the true class of each record",
    "groups": "the group of each record",
}
_HIGHER_FOR_OTHERS = ("loss", "entropy")
# exp(-loss) of larger losses is not a normal number, so they are not cross-entropies.
_MAX_CROSS_ENTROPY = 700.0


def load_signals(
    signals: Signals,
    member: ArrayLike | str,
    labels: ArrayLike | str | None,
    *,
    groups: ArrayLike | str | None = None,
    target: int | None = None,
    clip: float | None = None,
) -> ModelSignals:
    """Checks saved signals; see `privnets.audit_signals` for the arguments.

    Raises:
        AuditError: With the first mistake.
    """
    columns, records = _columns(signals, member, labels, groups)
    given = {name: _scores(name, columns[name]) for name in SCORES if name in columns}
    models = {name: np.atleast_2d(values) for name, values in given.items()}
    single = all(values.ndim == 1 for values in given.values())
    derived: dict[str, Array] = {}
    classes = stacked = None
    notes: tuple[str, ...] = columns.get("notes", ())
    if PROBABILITIES in columns:
        probabilities, note = _check_probabilities(columns[PROBABILITIES])
        notes += (note,) if note else ()
        single = single and probabilities.ndim == 2
        stacked = probabilities.reshape(-1, *probabilities.shape[-2:])
        if "labels" not in columns:
            raise AuditError(
                "labels are needed beside probabilities: the true class of each record"
            )
        numbers = _numbers("labels", columns["labels"], "numbers from 0, in the order of classes_")
        numbers = as_record_values("labels", numbers, stacked.shape[1])
        most = stacked.shape[2] - 1
        wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers > most)
        if wrong.any():
            hint = "; subtract 1" if (numbers.min(), numbers.max()) == (1, most + 1) else ""
            label = f"{numbers[wrong][0]:g}{hint}"
            raise AuditError(f"labels must be classes from 0 to {most}; got {label}")
        classes = numbers.astype(np.int64)
        derived = derive_from_probabilities(stacked, classes)
    elif "labels" in columns:
        records_given = next(iter(models.values())).shape[1]
        named = as_record_values("labels", columns["labels"], records_given)
        classes = pd.factorize(named, sort=True)[0].astype(np.int64)
    truth = check_member(columns.get("member"), single=single)
    oriented = {
        name: -values if name in _HIGHER_FOR_OTHERS else values for name, values in models.items()
    }
    shapes = {name: values.shape for name, values in oriented.items()}
    if stacked is not None:
        shapes = {PROBABILITIES: stacked.shape[:2], **shapes}
    for name, shape in shapes.items():
        if shape != truth.shape:
            got, expected = (" x ".join(map(str, each)) for each in (shape, truth.shape))
            raise AuditError(f"{name} has {got} (models x records), but member has {expected}")
    if derived and "confidence" in oriented:
        gap = float(np.abs(oriented["confidence"] - derived["confidence"]).max())
        if gap > SUM_TOLERANCE:
            raise AuditError(
                "confidence must be the probability of the true class; it differs from "
                f"probabilities and labels by {gap:.3g}"
            )
    check_counts(truth, target)
    signal, confidence, limit = _reference_signal(models, derived.pop("logit", None), clip)
    return ModelSignals(
        values={**derived, **oriented},
        signal=signal,
        confidence=confidence,
        member=truth,
        targets=np.arange(len(truth)) if target is None else np.array([target]),
        records=np.arange(truth.shape[1]).astype(object) if records is None else records,
        limit=limit,
        notes=notes,
        labels=classes,
        probabilities=stacked,
        groups=as_groups(columns["groups"], truth.shape[1]) if "groups" in columns else None,
        classes=columns.get("classes", ()),
    )


def _reference_signal(
    given: Mapping[str, Array], log_odds: Array | None, clip: float | None
) -> tuple[Array, Array | None, float]:
    """Signal and clipped confidence of attacks with references, and the limit of log-odds."""
    if log_odds is None and "logit" in given:
        log_odds = given["logit"]
    elif log_odds is None and "confidence" in given:
        with np.errstate(divide="ignore"):
            log_odds = logit(given["confidence"])
    elif log_odds is None and "loss" in given:
        loss = given["loss"]
        is_cross_entropy = loss.min() >= 0 and loss.max() <= _MAX_CROSS_ENTROPY
        log_odds = logit_of_loss(loss) if is_cross_entropy else None
    if log_odds is None:
        name = next(name for name in ("score", "loss", "entropy") if name in given)
        return (-given[name] if name in _HIGHER_FOR_OTHERS else given[name]), None, np.inf
    limit = choose_limit(log_odds) if clip is None else -float(logit(clip))
    signal = np.clip(log_odds, -limit, limit)
    return signal, expit(signal), limit


def _columns(
    signals: Signals,
    member: ArrayLike | str,
    labels: ArrayLike | str | None,
    groups: ArrayLike | str | None = None,
) -> tuple[dict[str, Any], NDArray[np.object_] | None]:
    """Arrays by name, with `member` and `labels`, and labels of records if a table has them."""
    if isinstance(signals, str | Path):
        signals = read_columns(Path(signals))
    table = signals if isinstance(signals, pd.DataFrame) else None
    if table is not None:
        columns, records = _table_columns(table)
    elif isinstance(signals, Mapping):
        columns, records = dict(signals), None
    else:
        raise AuditError(
            "signals must be arrays by name, a DataFrame, or the path of an npz, csv or parquet "
            f"file; got {type(signals).__name__}"
        )
    found = {name: columns[name] for name in (*SCORES, PROBABILITIES) if name in columns}
    if not found:
        names = ", ".join(map(repr, list(columns)[:5])) or "nothing"
        raise AuditError(
            f"signals must have at least one of {', '.join(SCORES)}, {PROBABILITIES} "
            f"(columns {_PROBABILITY_COLUMN}0, {_PROBABILITY_COLUMN}1, ...); got {names}"
        )
    if table is not None and "model" in table.columns:
        for name, value in (("member", member), ("labels", labels), ("groups", groups)):
            if value is not None and not isinstance(value, str):
                raise AuditError(
                    f"{name} must name a column of a table with the column 'model', whose rows "
                    "have no order of their own"
                )
    found["member"] = _find_column("member", member, columns)
    if labels is None:
        labels = next((name for name in _LABELS if name in columns), None)
    if SAVED in columns:
        groups = "groups" if groups is None and "groups" in columns else groups
        for name in ("notes", "classes"):
            found[name] = tuple(map(str, np.atleast_1d(columns.get(name, ()))))
    for name, value in (("labels", labels), ("groups", groups)):
        if value is not None:
            found[name] = _find_column(name, value, columns)
        if isinstance(value, str) and np.ndim(found[name]) == 2:
            rows = np.asarray(found[name])  # of every model, equal for all
            if (wrong := np.argwhere(rows != rows[0])).size:
                model, record = wrong[0]
                raise AuditError(
                    f"{value} must be the same for every model; got {rows[0, record]} and "
                    f"{rows[model, record]} at one record"
                )
            found[name] = rows[0]
    frame = found.get(PROBABILITIES)
    if isinstance(frame, pd.DataFrame) and set(range(frame.shape[1])) == {*frame.columns}:
        found[PROBABILITIES] = frame[sorted(frame.columns)]
    axes: dict[str, tuple[str, ...]] = {}
    for name, value in found.items():
        many = isinstance(value, pd.DataFrame) and value.shape[1] > 1 and name != PROBABILITIES
        axes[name] = ("model", "record") if many else ("record",)
    return align(found, axes), records


def _find_column(name: str, value: ArrayLike | str, columns: Mapping[str, Any]) -> Any:
    """Array that is given, or named as a column of the table or file."""
    if not isinstance(value, str):
        return value
    if value not in columns:
        known = ", ".join(map(repr, list(columns)[:8]))
        meaning = _MEANINGS[name]
        raise AuditError(
            f"{name} must name the column that has {meaning}; got {value!r}, which is absent. "
            f"Columns: {known}{did_you_mean(value, columns)}"
        )
    return columns[value]


def _table_columns(table: pd.DataFrame) -> tuple[dict[str, Any], NDArray[np.object_]]:
    """Columns of a table of one model, or of several in the columns `model` and `record`."""
    if table.empty:
        raise AuditError("the table is empty")
    if not table.columns.is_unique:
        repeated = table.columns[table.columns.duplicated()][0]
        raise AuditError(f"the table has several columns {repeated!r}; names must differ")
    shape: tuple[int, ...] = ()
    records = table.index.to_numpy(object)
    if "model" in table.columns:
        if "record" not in table.columns:
            raise AuditError("a table with the column 'model' also needs the column 'record'")
        table = table.sort_values(["model", "record"], kind="stable")
        counts = table.groupby("model", sort=True)["record"]
        records = counts.get_group(table["model"].iloc[0]).to_numpy(object)
        shape = (counts.ngroups, len(records))
        names = table["record"].to_numpy(object)
        is_full = len(table) == shape[0] * shape[1] and len(set(records)) == len(records)
        if not is_full or not (names.reshape(shape) == records).all():
            raise AuditError("every model must have one row for each record")
    elif "record" in table.columns:
        records = table["record"].to_numpy(object)
        if not table["record"].is_unique:
            twice = table["record"][table["record"].duplicated()].iloc[0]
            raise AuditError(
                f"a table of one model must have one row for each record; got {twice} twice"
            )
    columns: dict[str, Any] = {str(name): table[name] for name in table.columns}
    classes = [name for name in columns if name.startswith(_PROBABILITY_COLUMN)]
    if classes:
        expected = [f"{_PROBABILITY_COLUMN}{index}" for index in range(len(classes))]
        if set(classes) != set(expected):
            raise AuditError(f"columns of probabilities must be {', '.join(expected)}")
        columns[PROBABILITIES] = table[expected]
    if len(shape) == 2:
        columns = {
            name: column.to_numpy().reshape(*shape, *column.shape[1:])
            for name, column in columns.items()
        }
    return columns, records


def _numbers(name: str, value: Any, expected: str = "numbers") -> Array:
    """Finite numbers in float64."""
    numbers = as_numbers(name, value, expected)
    if not np.isfinite(numbers).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise AuditError(f"{name} must be finite; got {numbers[index]} at index {list(index)}")
    return numbers


def _scores(name: str, value: Any) -> Array:
    """One number for each record, or for each model and record, in the signal's range."""
    values = _numbers(name, value)
    if values.ndim not in (1, 2) or values.shape[-1] == 1:
        hint = ", which is one record" if values.ndim in (1, 2) else ""
        raise AuditError(
            f"{name} must have shape [records] or [models, records]; got {list(values.shape)}{hint}"
        )
    if name == "confidence":
        _check_fractions(name, values)
        return np.clip(values, 0.0, 1.0)
    if name == "entropy":
        if values.min() < -ROUNDING:
            raise AuditError(f"entropy must be at least 0 nats; got {values.min():.4g}")
        return np.maximum(values, 0.0)
    return values


def _check_fractions(name: str, values: Array) -> None:
    if values.min() < -ROUNDING:
        raise AuditError(f"{name} must not be negative; got {values.min():.4g}")
    if values.max() > 1 + ROUNDING:
        hint = "; divide percentages by 100" if 2 < values.max() <= 101 else ""
        raise AuditError(f"{name} must be fractions in [0, 1]; got {values.max():.4g}{hint}")


def _check_probabilities(value: Any) -> tuple[Array, str]:
    """Probabilities whose rows sum to 1, and a sentence if their sums were changed."""
    values = _numbers(PROBABILITIES, value)
    if values.ndim not in (2, 3) or values.shape[-1] < 2:
        raise AuditError(
            f"{PROBABILITIES} must have shape [records, classes] or [models, records, classes]; "
            f"got {list(values.shape)}; one number for each record belongs in 'confidence'"
        )
    _check_fractions(PROBABILITIES, values)
    values = np.clip(values, 0.0, 1.0)
    sums = values.sum(-1)
    worst = int(np.argmax(np.abs(sums - 1)))
    error = abs(float(sums.flat[worst]) - 1)
    if error > SUM_TOLERANCE:
        row = worst % sums.shape[-1]
        raise AuditError(
            f"{PROBABILITIES} must sum to 1 for each record; record {row} sums to "
            f"{sums.flat[worst]:.4g}"
        )
    if error <= ROUNDING:
        return values, ""
    note = f"Probabilities of a record sum to 1 within {error:.2g}, and are divided by their sum."
    return values / sums[..., None], note


def check_member(value: Any, *, single: bool) -> BoolArray:
    """Membership [M, R] from booleans of shape [R] if `single`, otherwise [M, R]."""
    numbers = _numbers("member", value, "booleans, or 0 and 1")
    if not np.isin(numbers, (0, 1)).all():
        wrong = numbers[~np.isin(numbers, (0, 1))][0]
        raise AuditError(f"member must be booleans, or 0 and 1; got {wrong:g}")
    if numbers.ndim != (1 if single else 2):
        shape = "[records]" if single else "[models, records]"
        raise AuditError(
            f"member must have shape {shape}, as the signals have; got {list(numbers.shape)}"
        )
    return np.atleast_2d(numbers.astype(bool))


def check_counts(member: BoolArray, target: int | None) -> None:
    """Checks the audited model's number, and the numbers of its members and non-members."""
    if target is not None and (
        isinstance(target, bool)
        or not isinstance(target, int | np.integer)
        or not 0 <= target < len(member)
    ):
        raise AuditError(f"target must be a model from 0 to {len(member) - 1}; got {target}")
    audited = member if target is None else member[target]
    rows = np.atleast_2d(audited)
    inside, outside = int(rows.any(0).sum()), int((~rows).any(0).sum())
    if not inside or not outside:
        absent = "members" if not inside else "non-members"
        raise AuditError(f"member must hold both classes; the audited records have no {absent}")
    if min(inside, outside) < MIN_RECORDS:
        models, records = member.shape
        shape = f" of {records} records and {models} models" if models > records else ""
        raise AuditError(
            f"too few records: an audit needs at least {MIN_RECORDS} members and {MIN_RECORDS} "
            f"non-members; got {inside} and {outside}{shape}"
        )
