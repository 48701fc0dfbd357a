"""Files that summarise a sweep: tables, PNG figures and the report.

Importing this module loads no plotting library; the publisher runs without them.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.analysis.results import Result
from sweeps.report.display import load_plots
from sweeps.report.figures import FIGURE_FILES, FRONT_PICTURE
from sweeps.store.ledger import Ledger

SUMMARY_FILES = ("points.parquet", "front.parquet", FRONT_PICTURE, "report.html", *FIGURE_FILES)
"""Names of all files of a summary; a sweep has the figures that its data allow."""


def write_summary(ledger: Ledger, result: Result) -> tuple[str, ...]:
    """Writes a sweep's tables, figures and report into its directory; returns the file names.

    Nothing is written while no point is complete.

    Raises:
        OSError: If they cannot be written.
    """
    if result.points.empty:
        return ()
    with TemporaryDirectory(prefix="sweeps-summary-") as name:
        folder = Path(name)
        result.points.to_parquet(folder / "points.parquet")
        load_plots().write_report_files(result, folder)
        paths = sorted(folder.iterdir())
        for path in paths:
            ledger.directory.write(path.name, path.read_bytes())
    return tuple(path.name for path in paths)


def copy_summary_files(ledger: Ledger, folder: Path) -> dict[str, Path]:
    """Copies those files of a sweep's summary that exist, and its spec; returns them by name."""
    present = set(ledger.directory.files())
    copies = {n: folder / n for n in (*SUMMARY_FILES, "spec.yaml") if n in present}
    for name, copy in copies.items():
        copy.write_bytes(ledger.directory.read(name))
    return copies
