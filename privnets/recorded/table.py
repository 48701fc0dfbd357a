"""Table of recorded points, and a smooth model of each of its metrics."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privnets.data.files import UserFormError
from privnets.references.table_files import read_frame

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

_LOG_RATIO: Final = 100.0
_MAX_FITTED: Final = 400
_PREFIX: Final = "config/"


@dataclass(frozen=True)
class Recording:
    """Recorded points.

    Attributes:
        frame: One row per point or replicate.
        knobs: Columns of the swept fields.
        metrics: Columns of the metrics.
    """

    frame: pd.DataFrame
    knobs: tuple[str, ...]
    metrics: tuple[str, ...]

    def draw(
        self, knobs: Mapping[str, Any], smooth: bool, random: np.random.Generator
    ) -> dict[str, float] | None:
        """Draws the metrics of one training.

        Args:
            knobs: A value for each knob.
            smooth: Whether to add noise to the models' means, or to take one of the nearest rows.
            random: Generator of the draw.

        Returns:
            Metric to value; None if the nearest row is of a training that did not finish.
        """
        place = self._encode(knobs)
        distances = np.linalg.norm(self._places - place, axis=1)
        row = int(random.choice(np.flatnonzero(distances <= distances.min() + 1e-12)))
        if not self._is_finished[row]:
            return None
        if not smooth:
            return {key: float(self.frame[key].iloc[row]) for key in self.metrics}
        return {
            key: float(model.predict(place[None])[0] + noise * random.standard_normal())
            for key, (model, noise) in self._models.items()
        }

    @cached_property
    def _is_finished(self) -> NDArray[np.bool_]:
        status = self.frame.get("status", ["finished"] * len(self.frame))
        return np.array([each == "finished" for each in status])

    @cached_property
    def _places(self) -> Array:
        columns = [self.frame[name].tolist() for name in self.knobs]
        rows = [dict(zip(self.knobs, values, strict=True)) for values in zip(*columns, strict=True)]
        return np.array([self._encode(row) for row in rows])

    def _encode(self, knobs: Mapping[str, Any]) -> Array:
        """Coordinates: numbers in [0, 1] over the table's range, choices at a distance of 1."""
        parts: list[float] = []
        for name in self.knobs:
            column, value = self.frame[name], knobs[name]
            if column.dtype.kind not in "iuf":
                choices = sorted(set(column.astype(str)))
                parts += [0.5**0.5 * (str(value) == choice) for choice in choices]
                continue
            low, high = float(column.min()), float(column.max())
            if 0 < low * _LOG_RATIO <= high:
                low, high, value = np.log(low), np.log(high), np.log(value)
            parts.append((float(value) - low) / ((high - low) or 1.0))
        return np.array(parts)

    @cached_property
    def _models(self) -> dict[str, tuple[Any, float]]:
        """Gaussian process of each metric, and the standard deviation of its noise."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        models = {}
        for key in self.metrics:
            values = self.frame[key].to_numpy(dtype=np.float64)
            known = np.flatnonzero(np.isfinite(values) & self._is_finished)
            rows = known[np.unique(np.linspace(0, len(known) - 1, _MAX_FITTED).astype(int))]
            scales = Matern([0.5] * self._places.shape[1], (0.05, 20.0), nu=2.5)
            kernel = ConstantKernel() * scales + WhiteKernel(0.1, (1e-6, 1.0))
            model = GaussianProcessRegressor(kernel, normalize_y=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a parameter at its bound
                model.fit(self._places[rows], values[rows])
            noise = np.sqrt(model.kernel_.k2.noise_level) * values[rows].std()
            if f"{key}.std" in self.frame:  # a table of means over seeds
                noise = np.sqrt(np.nanmean(self.frame[f"{key}.std"] ** 2))
            models[key] = model, float(noise)
        return models


@lru_cache(maxsize=8)
def read_recording(
    path: Path, content: str, knobs: tuple[str, ...], metrics: tuple[str, ...]
) -> Recording:
    """Reads a table, once per process and content.

    Args:
        path: File; its columns of fields may have the prefix `config/`.
        content: Its digest.
        knobs: Columns that are swept.
        metrics: Columns that are metrics, as far as the table has them.

    Raises:
        UserFormError: If the file cannot be read, or lacks a knob or every metric.
    """
    frame = read_frame(path).rename(columns=lambda name: name.removeprefix(_PREFIX))
    columns = ", ".join(frame.columns[:20])
    for name in knobs:
        if name not in frame or frame[name].isna().any():
            raise UserFormError("knobs", repr(name), f"a full column of the table: {columns}")
    known = tuple(key for key in metrics if key in frame and np.isfinite(frame[key]).any())
    if not known:
        raise UserFormError("table", f"the columns {columns}", "a column of an objective")
    return Recording(frame, knobs, known)
