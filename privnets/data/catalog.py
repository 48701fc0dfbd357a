"""The data sets there are: what each is, where it comes from and which bytes it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privnets.data.errors import DataError

Task = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One published file.

    Attributes:
        name: File name inside the data set's folder.
        url: Where the public source serves it.
        size: Bytes.
        sha256: Of its bytes, in hexadecimal digits.
    """

    name: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    Attributes:
        name: How configurations and commands call it; also its folder in the data directory.
        title: Its published name.
        records: Rows, N.
        attributes: Columns beside the target, d.
        task: `binary` has targets 0 and 1, `multiclass` 0 to `classes` - 1.
        classes: Number of classes; 0 for regression.
        source: Web page of its public source.
        licence: What the source states.
        citation: The original publication.
        files: Empty when scikit-learn ships it.
    """

    name: str
    title: str
    records: int
    attributes: int
    task: Task
    classes: int
    source: str
    licence: str
    citation: str
    files: tuple[DataFile, ...] = ()


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_LOCATION = (
    "https://raw.githubusercontent.com/privacytrustlab/datasets/"
    "169de9de00de049dd2e571cf7279e64698ac046a"
)

_CATALOG = (
    DatasetInfo(
        name="adult",
        title="Adult (Census Income)",
        records=48_842,
        attributes=14,
        task="binary",
        classes=2,
        source="https://archive.ics.uci.edu/dataset/2/adult",
        licence="CC BY 4.0",
        citation="R. Kohavi and B. Becker, UCI Machine Learning Repository, 1996",
        files=(
            DataFile(
                "adult.data",
                f"{_UCI}/adult/adult.data",
                3_974_305,
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            DataFile(
                "adult.test",
                f"{_UCI}/adult/adult.test",
                2_003_153,
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
    ),
    DatasetInfo(
        name="location30",
        title="Location-30 (Foursquare check-ins, Bangkok)",
        records=5_010,
        attributes=446,
        task="multiclass",
        classes=30,
        source="https://github.com/privacytrustlab/datasets",
        licence="none stated: research only, do not redistribute",
        citation=(
            "R. Shokri, M. Stronati, C. Song and V. Shmatikov, IEEE S&P, 2017; "
            "from D. Yang et al.'s check-ins"
        ),
        files=(
            DataFile(
                "dataset_location.tgz",
                f"{_LOCATION}/dataset_location.tgz",
                287_293,
                "927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
            ),
        ),
    ),
    DatasetInfo(
        name="digits",
        title="Optical recognition of handwritten digits, 8x8 (its test part)",
        records=1_797,
        attributes=64,
        task="multiclass",
        classes=10,
        source="https://archive.ics.uci.edu/dataset/80",
        licence="CC BY 4.0",
        citation="E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998",
    ),
    DatasetInfo(
        name="diabetes",
        title="Diabetes progression after one year",
        records=442,
        attributes=10,
        task="regression",
        classes=0,
        source="https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html",
        licence="none stated; shipped with scikit-learn",
        citation=(
            "B. Efron, T. Hastie, I. Johnstone and R. Tibshirani, "
            "Least Angle Regression, Annals of Statistics 32(2), 2004"
        ),
    ),
)


def names() -> tuple[str, ...]:
    """Every data set's name."""
    return tuple(dataset.name for dataset in _CATALOG)


def info(name: str) -> DatasetInfo:
    """What is known of a data set; reads no file.

    Raises:
        DataError: If there is none of that name.
    """
    for dataset in _CATALOG:
        if dataset.name == name:
            return dataset
    raise DataError(f"data set must be one of {', '.join(names())}; got {name!r}.")
