"""Writes the tables of `benchmarks.md` from the rows in `benchmarks/results`.

A table follows a comment that describes it in YAML, and ends at the next empty line:

    <!-- table
    file: stacks                  # name of a file of results
    where: games == 32            # rows to take, as a pandas query; all without it
    sort: [games]                 # columns to sort the rows by; optional
    row: "{game}"                 # first cell, with columns of the file in braces
    across: contestant            # a column whose values become columns of the table; optional
    cells: {"steps per second": "{config_steps_per_second:,.0f}"}
    combine: {config_steps_per_second: mean} # one value of all rows of a cell (pandas); optional
    names: {"toy, *": toy}        # plainer words for a first cell or a value of `across`; optional
    figure: {value: times_ours, title: times as long, file: x.svg} # also draw bars; optional
    -->

Only rows of the newest commit and machine count, those of the last row in the file. Without
`combine`, a cell shows its newest row. Keys of `names` are shell patterns; the first that matches
counts, and rows of equal names share a cell.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib import rc_context
from matplotlib.figure import Figure

_PAGE = Path(__file__).with_name("benchmarks.md")
_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
_TABLE = re.compile(r"(<!-- table\n(?P<description>.*?)\n-->\n)(?:\|[^\n]*\n)*", re.DOTALL)
_MISSING = re.compile(r"\bnan\b")


def main() -> int:
    """Writes the page; with `--check` only says whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is outdated")
    options = parser.parse_args()
    before = _PAGE.read_text(encoding="utf-8")
    after = update(before, draws=not options.check)
    if options.check:
        return int(after != before)
    _PAGE.write_text(after, encoding="utf-8")
    return 0


def update(page: str, *, draws: bool) -> str:
    """Returns a page with every described table made again; also writes figures if it `draws`."""
    return _TABLE.sub(
        lambda match: match[1] + _table(yaml.safe_load(match["description"]), draws=draws), page
    )


def _table(description: Mapping[str, Any], *, draws: bool) -> str:
    """Returns a table in Markdown.

    Raises:
        ValueError: If no row fits the description.
    """
    rows = pd.read_csv(_RESULTS / f"{description['file']}.csv", dtype={"commit": "str"})
    if "where" in description:
        rows = rows.query(description["where"], engine="python")
    if rows.empty:
        raise ValueError(f"no row fits {dict(description)}")
    source = rows[["commit", "machine"]].fillna("unknown")
    rows, commit = rows.loc[(source == source.iloc[-1]).all(axis=1)], source["commit"].iloc[-1]
    names, across = description.get("names", {}), description.get("across")
    rows = rows.assign(
        label=[_name(description["row"].format_map(r), names) for r in rows.to_dict("records")],
        group=[_name(str(value), names) for value in rows[across]] if across else "",
    )
    if "combine" not in description:
        rows = rows.drop_duplicates(["label", "group"], keep="last")
    if draws and "figure" in description:
        _draw(rows, **description["figure"])
    if "sort" in description:
        rows = rows.sort_values(description["sort"], kind="stable")
    if "combine" in description:
        groups = rows.groupby(["label", "group"], sort=False)
        rows = groups.agg(description["combine"]).reset_index()
    cells: dict[str, dict[str, str]] = {}
    for values in rows.to_dict("records"):
        line = cells.setdefault(values["label"], {})
        for header, form in description["cells"].items():
            text = form.format_map(values)
            line[f"{values['group']} {header}".strip()] = "" if _MISSING.search(text) else text
    headers = list(dict.fromkeys(title for line in cells.values() for title in line))
    lines = [[f"commit {commit}", *headers], ["---"] * (1 + len(headers))]
    lines += [[label, *(line.get(h, "") for h in headers)] for label, line in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _draw(rows: pd.DataFrame, value: str, title: str, file: str) -> None:
    """Draws a column as horizontal bars, legible on light and dark pages."""
    inks = ("axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    with rc_context({**dict.fromkeys(inks, "#7a848e"), "svg.hashsalt": file}):
        figure = Figure(figsize=(8, 0.6 + 0.4 * len(rows)), layout="constrained")
        axes = figure.subplots()
        labels = [textwrap.fill(label.replace("`", ""), 48) for label in rows["label"]]
        axes.bar_label(axes.barh(labels, rows[value], color="#e8590c"), fmt="%.1f", padding=3)
        axes.invert_yaxis()
        axes.set_xlabel(title)
        axes.spines[:].set_visible(False)
        figure.savefig(_PAGE.parent / "figures" / file, transparent=True, metadata={"Date": None})


def _name(value: str, names: Mapping[str, str]) -> str:
    """Returns the plainer words for a value, or the value itself."""
    return next((words for old, words in names.items() if fnmatchcase(value, old)), value)


if __name__ == "__main__":
    sys.exit(main())
