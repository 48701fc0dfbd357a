"""What a sweep shows at its end: tables, the front as pictures, the report."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

from sweeps.analysis.results import Result
from sweeps.store.ledger import Ledger

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.report.figures.pictures import Picture

PICTURES = tuple(
    f"{name}.png" for name in ("tradeoff", "releases", "week", "information-plane", "scatter")
)
FILES = ("points.parquet", "front.parquet", "front.html", "front.png", "report.html", *PICTURES)
"""All that there may be; a sweep has the pictures that its points allow."""


def preload_plotting() -> Thread:
    """Begin to load what draws a summary, which takes a second, beside other work.

    Returns:
        What loads them; nobody need wait for it.
    """
    names = ("matplotlib.backends.backend_agg", "matplotlib.figure", "plotly.graph_objects")
    loading = Thread(target=lambda: [import_module(name) for name in names])
    loading.start()
    return loading


def write_summary(ledger: Ledger, result: Result) -> tuple[str, ...]:
    """Put a sweep's tables, figures and report into its directory.

    Returns:
        The names of the files; none while no point is complete.

    Raises:
        OSError: If they cannot be written.
    """
    if result.points.empty:
        return ()
    with TemporaryDirectory(prefix="sweeps-summary-") as folder:
        made = _make(result, Path(folder))
        for path in made:
            ledger.directory.write(path.name, path.read_bytes())
    return tuple(path.name for path in made)


def copy_summary_files(ledger: Ledger, folder: Path) -> dict[str, Path]:
    """Copies of a sweep's summary and spec, where they exist, by name.

    Args:
        ledger: The sweep.
        folder: Where to put the copies.
    """
    present = set(ledger.directory.files())
    found = {}
    for name in (*FILES, "spec.yaml"):
        if name in present:
            found[name] = folder / name
            found[name].write_bytes(ledger.directory.read(name))
    return found


def _make(result: Result, folder: Path) -> list[Path]:
    from sweeps.report import write_report
    from sweeps.report.figures.pictures import pictures

    result.points.to_parquet(folder / "points.parquet")
    drawn = pictures(result)
    write_report(result, folder / "report.html", drawn)
    made = [folder / "points.parquet", folder / "report.html", *_make_pictures(drawn, folder)]
    front = result.front()
    return made + (_make_front(result, front, folder) if len(front) else [])


def _make_pictures(drawn: Iterable[Picture], folder: Path) -> list[Path]:
    made = []
    for picture in drawn:
        still = picture.png
        if still is not None:
            made.append(folder / f"{picture.name}.png")
            made[-1].write_bytes(still)
    return made


def _make_front(result: Result, front: pd.DataFrame, folder: Path) -> list[Path]:
    from sweeps.report.figures.plots import front_figure, save_front_png, save_page

    table = folder / "front.parquet"
    front.to_parquet(table)
    page = save_page(front_figure(result.points, front, result.objectives), folder / "front.html")
    picture = save_front_png(result.points, front, result.objectives, folder / "front.png")
    return [table, page, picture]
