"""The user's own series as a problem: one reading per row, and a secret at each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import Array, RecordEncoding, require_numbers
from privnets.adversarial.problem import (
    SHARES,
    ProblemSpec,
    RecordArrays,
    Splits,
    SplitSizes,
    stratified_sizes,
    stratified_split,
    subsample,
)
from privnets.adversarial.problems.own import (
    MIN_RECORDS,
    OwnProblem,
    joint_classes,
)
from privnets.adversarial.released_columns import ColumnChange, NumberColumn
from privnets.data import UserFormError, raise_together
from privnets.references.columns import (
    describe_classes,
    is_number,
    text_remarks,
    unclear_columns,
)
from privnets.references.problems import SeriesProblemReference
from privnets.references.table_files import read_frame
from privnets.references.tables import category_texts, require_columns

_MISSING: Final = -1  # class of an unknown secret, and row of an absent reading
_GAP: Final = 1.5  # times the usual distance of readings
_LISTED_CLASSES: Final = 10  # in a message
_BLOCK: Final = 7  # windows of one id in a row that serve the same split, if there are few ids


class SeriesEncoding(RecordEncoding):
    """Windows of successive readings of each series, scaled; the last may lack readings.

    Columns are those of `SeriesProblemReference`; `classes` are those of the secret, as texts.
    """

    kind: Literal["series"] = "series"
    id: str
    time: str
    value: NumberColumn
    secrets: tuple[str, ...] = Field(min_length=1)
    classes: tuple[str, ...] = Field(min_length=2)
    window: int = Field(ge=2, le=1024)

    @property
    def shape(self) -> tuple[int, int]:
        """Readings in a window, and one number for each."""
        return self.window, 1

    def encode(self, records: pd.DataFrame) -> Array:
        """Scaled readings, 0 where a window has none; see `RecordEncoding.encode`."""
        require_columns(records, [self.value.name], "input")
        rows = window_rows(records, self.id, self.time, self.window)
        values = self.value.encode(records[self.value.name])[:, 0]
        x: Array = np.where(rows >= 0, values[rows], 0.0)[..., None].astype(np.float32)
        return x

    def reencode(self, z: Array) -> Array:
        """Rounds readings; see `RecordEncoding.reencode`."""
        return self.value.reencode(_readings(z)).reshape(z.shape).astype(np.float32)

    def secret_classes(self, records: pd.DataFrame) -> NDArray[np.int64]:
        """Secret at each reading, which the releaser sees; see `RecordEncoding`."""
        require_columns(records, self.secrets, "input")
        numbers = {name: number for number, name in enumerate(self.classes)}
        texts = secret_texts(records, self.secrets)
        codes = texts.map(numbers)
        if (other := texts[codes.isna() & texts.notna()]).size:
            listed = ", ".join(self.classes[:_LISTED_CLASSES])
            expected = f"a class that the releaser was trained on, or none: {listed}"
            raise UserFormError("secret", repr(other.iloc[0]), expected)
        known = codes.fillna(_MISSING).to_numpy(np.int64)
        rows = window_rows(records, self.id, self.time, self.window)
        classes: NDArray[np.int64] = np.where(rows >= 0, known[rows], _MISSING)
        return classes

    def decode(self, z: Array, records: pd.DataFrame) -> pd.DataFrame:
        """Id, time and released value of each reading, in the order of the records."""
        rows = window_rows(records, self.id, self.time, self.window)
        decoded = self.value.decode(_readings(z[rows >= 0]))
        values = np.empty_like(decoded)
        values[rows[rows >= 0]] = decoded
        return records[[self.id, self.time]].assign(**{self.value.name: values})

    def changes(
        self, records: pd.DataFrame, released: pd.DataFrame, z: Array
    ) -> tuple[ColumnChange, ...]:
        """Compares the readings with their release; see `RecordEncoding.changes`."""
        seen = z[window_rows(records, self.id, self.time, self.window) >= 0]
        name = self.value.name
        return (self.value.change(records[name], released[name], _readings(seen)),)


class SeriesProblem(OwnProblem):
    """Windows of the user's series; the secret is that of each reading.

    If there are 20 series or more, each serves one split as a whole. Otherwise each is cut into
    blocks of windows in a row, each of which serves one split. All series or blocks give equally
    many windows; so some windows of long series, and all of short ones, may be left out.
    """

    encoding: SeriesEncoding

    def __init__(
        self,
        reference: SeriesProblemReference,
        path: Path,
        digest: str,
        encoding: RecordEncoding | None,
    ) -> None:
        """Reads a file; without an encoding, it is measured on the file.

        Raises:
            UserFormError: If the file does not fit its description.
        """
        frame = read_frame(path, "series", reference.form)
        for field in ("id", "time", "value"):
            require_columns(frame, [getattr(reference, field)], field)
        require_columns(frame, reference.dates, "dates")
        own = encoding if isinstance(encoding, SeriesEncoding) else _measure(reference, frame)
        self.encoding, self.reference, self.digest = own, reference, digest
        rows = window_rows(frame, own.id, own.time, own.window)
        series = frame[own.id].to_numpy()[rows[:, 0]]
        self.remarks = _remarks(path.name, own, frame, rows)
        self._groups = _equal_groups(series)
        self._kept = self._groups.ravel()
        self._present = rows[self._kept] >= 0
        self.x = own.encode(frame)[self._kept]
        self._secret = own.secret_classes(frame)[self._kept]
        for array in (self.x, self._secret):
            array.setflags(write=False)
        self.spec = ProblemSpec(
            name=str(reference),
            secret_classes=len(own.classes),
            network="recurrent",
            attacker_width=32,
            releasers=("recurrent",),
            defaults=reference.defaults,
        )

    def encode_release(self, released: pd.DataFrame) -> Array:
        """Windows of a released file; see `OwnProblem.encode_release`."""
        return self.encoding.encode(released)[self._kept]

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Windows of 40, 35, 10 and 15% of the series or blocks."""
        groups, each = self._groups.shape
        sizes = (each * size for size in stratified_sizes(groups, SHARES))
        return SplitSizes.from_counts(sizes, self.encoding.shape)

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """All windows, and splits of whole groups, stratified by their most frequent secret."""
        groups, each = self._groups.shape
        records = RecordArrays(
            self.x,
            self._secret,
            present=self._present,
            group=np.repeat(np.arange(groups), each),
        )
        secrets = self._secret.reshape(groups, -1)
        counts = [(secrets == c).sum(axis=1) for c in range(self.spec.secret_classes)]
        splits = []
        for config in configs:
            parts = stratified_split(np.argmax(counts, axis=0), SHARES, config.seed)
            windows = ((part[:, None] * each + np.arange(each)).ravel() for part in parts)
            splits.append(Splits(*windows))
        return records, splits

    def original_units(self, config: AdversarialConfig) -> tuple[float, float]:
        """Mean and standard deviation of the readings."""
        return self.encoding.value.mean, self.encoding.value.std


def window_rows(frame: pd.DataFrame, series: str, time: str, window: int) -> NDArray[np.int64]:
    """Rows of the readings of each window, shape [n, T]; -1 after the end of a series.

    Windows of a series follow each other without a gap or an overlap.

    Raises:
        UserFormError: If a column is absent or has missing values, times have no order, or a series
            has two readings at one time.
    """
    require_columns(frame, [series, time], "input")
    ids = frame[series]
    texts = ids if is_number(ids) else ids.astype(str).where(ids.notna())
    keys = frame[[series, time]].assign(**{series: texts, time: ordered_times(frame[time])})
    if keys.isna().any(axis=None):
        raise UserFormError("time", "missing values", f"values of {series} and {time} in each row")
    if keys.duplicated().any():
        row = keys[keys.duplicated()].iloc[0]
        given = f"two readings of {series} {row[series]} at {row[time]}"
        raise UserFormError("time", given, "one reading at a time")
    order = keys.reset_index(drop=True).sort_values([series, time]).index.to_numpy(np.int64)
    names = keys[series].to_numpy()[order]
    starts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])
    windows = []
    for own in np.split(order, starts[1:]):
        padded = np.full(-(-len(own) // window) * window, _MISSING, dtype=np.int64)
        padded[: len(own)] = own
        windows.append(padded.reshape(-1, window))
    return np.concatenate(windows)


def ordered_times(column: pd.Series[Any]) -> pd.Series[Any]:
    """Times as numbers or instants, which have an order; texts without a zone count as UTC.

    Raises:
        UserFormError: If they are other texts than ISO 8601, or of another type.
    """
    if is_number(column):
        return column
    try:
        return pd.to_datetime(column, format="ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        given = f"{column.name!r} with values such as {column.iloc[0]!r}"
        expected = "numbers, or dates and times as 2026-01-31T08:00"
        raise UserFormError("time", given, expected) from error


def secret_texts(frame: pd.DataFrame, names: Sequence[str]) -> pd.Series[Any]:
    """Secret of each reading as a text; missing if a column is."""
    texts = [category_texts(frame[name]).where(frame[name].notna()) for name in names]
    if len(names) == 1:
        return texts[0]
    joined = texts[0].radd(f"{names[0]}=")
    for name, text in zip(names[1:], texts[1:], strict=True):
        joined = joined + f", {name}=" + text
    return joined


def _measure(reference: SeriesProblemReference, frame: pd.DataFrame) -> SeriesEncoding:
    """Measures scale and classes on a table."""
    require_columns(frame, reference.secrets, "secret")
    column = frame[reference.value]
    raise_together(unclear_columns(column.to_frame(), reference.form, "value", "another column"))
    if not is_number(column):
        raise UserFormError("value", f"{reference.value!r} with texts", "a column of numbers")
    require_numbers(reference.ranges, [reference.value])
    if column.isna().any():
        raise UserFormError("value", f"{reference.value!r} with missing values", "numbers")
    texts = secret_texts(frame, reference.secrets).rename("secret")
    labels = joint_classes(texts.dropna().to_frame(), ["secret"], "secret")
    return SeriesEncoding(
        id=reference.id,
        time=reference.time,
        value=NumberColumn.fit(
            reference.value, column, fills=False, declared=reference.ranges.get(reference.value)
        ),
        secrets=reference.secrets,
        classes=labels.classes,
        window=reference.window,
        form=reference.form,
    )


def _readings(z: Array) -> NDArray[np.float64]:
    """Encoded readings as a column, shape [n, 1]."""
    return z.reshape(-1, 1).astype(np.float64)


def _remarks(
    name: str, encoding: SeriesEncoding, frame: pd.DataFrame, rows: NDArray[np.int64]
) -> tuple[str, ...]:
    """Sentences on the classes of the secret, and on windows that run across gaps."""
    secrets = secret_texts(frame, encoding.secrets).dropna()
    counts = {str(name): int(count) for name, count in secrets.value_counts().items()}
    about = [describe_classes(f"{name}: secret of {len(secrets):,} readings", counts)]
    times = ordered_times(frame[encoding.time])
    instants = times.to_numpy(np.float64 if is_number(times) else "datetime64[ns]")
    steps = np.diff(instants[rows], axis=1).astype(np.float64)
    steps[rows[:, 1:] < 0] = 0.0
    gaps = steps > _GAP * np.median(steps[steps > 0])
    if gaps.any():
        window, place = np.argwhere(gaps)[0]
        before = frame.iloc[rows[window, place]]
        about.append(
            f"{name}: {gaps.any(axis=1).sum():,} of {len(rows):,} windows run across gaps in "
            f"{encoding.time}, as {encoding.id} {before[encoding.id]} after "
            f"{before[encoding.time]}; give the readings after a gap another {encoding.id}."
        )
    return (*about, *text_remarks(frame[[encoding.id, *encoding.secrets]]))


def _equal_groups(series: NDArray[Any]) -> NDArray[np.int64]:
    """Windows by series or block, equally many of each, shape [groups, windows].

    Args:
        series: Id of each window, shape [n], sorted.

    Raises:
        UserFormError: If there are fewer than 20 groups.
    """
    starts = np.flatnonzero(np.r_[True, series[1:] != series[:-1]])
    groups = np.split(np.arange(len(series)), starts[1:])
    if len(groups) < MIN_RECORDS:
        block = max(1, min(_BLOCK, len(series) // MIN_RECORDS))
        groups = [b for own in groups for b in np.split(own, range(block, len(own), block))]
    counts = np.array([len(group) for group in groups])
    each = max(range(1, counts.max() + 1), key=lambda size: size * int((counts >= size).sum()))
    whole = [subsample(group, each) for group in groups if len(group) >= each]
    if len(whole) < MIN_RECORDS:
        given = f"{len(series)} windows"
        raise UserFormError(
            "window", given, f"at least {MIN_RECORDS}: more readings, or fewer each"
        )
    return np.stack(whole)
