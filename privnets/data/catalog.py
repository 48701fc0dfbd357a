"""The data sets there are: what each is, where it comes from and which bytes it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class DataError(Exception):
    """Raised when a data set is unknown, absent, truncated or altered, or cannot be fetched.

    The message names the file, the directory searched, and how to obtain the file.
    """


Task = Literal["regression", "binary", "multiclass"]
Kind = Literal["table", "images", "series"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One published file.

    Attributes:
        name: File name inside the data set's folder.
        url: Where the public source serves it; None when nobody serves it as one file.
        size: Bytes.
        sha256: Of its bytes, in hexadecimal digits.
    """

    name: str
    url: str | None
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
        kind: A `table` is read with `load`, `images` and `series` with the module of their name.
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
    kind: Kind = "table"


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
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
    DatasetInfo(
        name="mnist",
        title="MNIST handwritten digits, 28x28 (60,000 to train, 10,000 to test)",
        records=70_000,
        attributes=784,
        task="multiclass",
        classes=10,
        source="http://yann.lecun.com/exdb/mnist/",
        licence="commonly given as CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database, 1998",
        files=(
            DataFile(
                "train-images-idx3-ubyte.gz",
                f"{_MNIST}/train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            DataFile(
                "train-labels-idx1-ubyte.gz",
                f"{_MNIST}/train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            DataFile(
                "t10k-images-idx3-ubyte.gz",
                f"{_MNIST}/t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            DataFile(
                "t10k-labels-idx1-ubyte.gz",
                f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        kind="images",
    ),
    DatasetInfo(
        name="eco",
        title="ECO (Electricity Consumption and Occupancy), household 2 by quarter-hours",
        records=5_208,
        attributes=1,
        task="binary",
        classes=2,
        source="https://doi.org/10.5905/ethz-1007-35",
        licence="CC BY 4.0",
        citation=(
            "C. Beckel, W. Kleiminger, R. Cicchetti, T. Staake and S. Santini, BuildSys, 2014; "
            "W. Kleiminger, C. Beckel and S. Santini, UbiComp, 2015"
        ),
        files=(
            DataFile(
                "eco_h2_15min.csv.gz",
                None,
                119_573,
                "73e90bc994cd5a4c9012dc94d6d957242dc25d94253395ba52837e80ff53031f",
            ),
        ),
        kind="series",
    ),
)


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Every data set's name, or those of one kind."""
    return tuple(dataset.name for dataset in _CATALOG if kind in (None, dataset.kind))


def info(name: str) -> DatasetInfo:
    """What is known of a data set; reads no file.

    Raises:
        DataError: If there is none of that name.
    """
    for dataset in _CATALOG:
        if dataset.name == name:
            return dataset
    raise DataError(f"data set must be one of {', '.join(names())}; got {name!r}.")
