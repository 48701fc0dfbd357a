"""Data sets that installed packages add."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import privnets
from privnets import data
from privnets.testing import check_table
from tests.privnets.test_registry import install_package
from tests.support import requires_data

SMALL = 10**7  # numbers
TABLES = [n for n in data.names("table") if data.info(n).records * data.info(n).attributes < SMALL]
_CODE = """
import numpy as np
from privnets.data import DataSource, DatasetInfo

class Ramp(DataSource):
    info = DatasetInfo(
        name="ramp", title="Ramp", records=60, attributes=2, task="regression", classes=0,
        source="", licence="", citation="",
    )

    def read(self, paths):
        x = np.arange(120.0).reshape(60, 2) % 7
        return x, x @ [1.0, 2.0], ("a", "b")
"""


@pytest.fixture
def ramp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    install_package(folder, "ramp = ramp_data:Ramp", _CODE, "ramp_data", "privnets.datasets")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("ramp")
def test_a_package_adds_a_table_that_every_experiment_on_tables_can_use() -> None:
    assert "ramp" in data.names("table")
    check_table("ramp")
    experiment = privnets.experiment("membership")
    fields = {"dataset": "ramp", "model": "linear", "train_size": 20, "records": 8, "draws": 32}
    (point,) = experiment.run([experiment.Config.model_validate(fields)])
    assert point.status == "finished"
    assert np.isfinite(point.metrics["privacy/membership_advantage"])


@pytest.mark.parametrize("name", [pytest.param(name, marks=requires_data(name)) for name in TABLES])
def test_every_table_is_as_described(name: str) -> None:
    check_table(name)


def test_an_unknown_data_set_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(data.DataError, match=r"data set must be one of adult, .*; got 'none'"):
        data.info("none")
    config = privnets.experiment("membership").Config
    names = ", ".join(map(repr, data.names("table")))
    with pytest.raises(ValueError, match=f"{names}, a mapping with the key table"):
        config.model_validate({"dataset": "eco", "model": "linear", "train_size": 20})
    enum = config.model_json_schema()["properties"]["dataset"]["anyOf"][0]["enum"]
    assert enum == list(data.names("table"))
    assert "eco" not in enum
