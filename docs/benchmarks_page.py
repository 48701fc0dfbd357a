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
    -->

Without `combine`, a cell shows its newest row, which is the last in the file. `row` and `across`
may hold `commit`, so that two commits stand side by side. Keys of `names` are shell patterns; the
first that matches counts, and rows of equal names share a cell.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

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
    after = update(before)
    if options.check:
        return int(after != before)
    _PAGE.write_text(after, encoding="utf-8")
    return 0


def update(page: str) -> str:
    """Returns a page with every described table made again."""
    return _TABLE.sub(lambda match: match[1] + _table(yaml.safe_load(match["description"])), page)


def _table(description: Mapping[str, Any]) -> str:
    """Returns a table in Markdown.

    Raises:
        ValueError: If no row fits the description.
    """
    rows = pd.read_csv(_RESULTS / f"{description['file']}.csv", dtype={"commit": "str"})
    if "where" in description:
        rows = rows.query(description["where"], engine="python")
    if rows.empty:
        raise ValueError(f"no row fits {dict(description)}")
    names, across = description.get("names", {}), description.get("across")
    rows = rows.assign(
        label=[_name(description["row"].format_map(r), names) for r in rows.to_dict("records")],
        group=[_name(str(value), names) for value in rows[across]] if across else "",
    )
    if "combine" not in description:
        rows = rows.drop_duplicates(["label", "group"], keep="last")
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
    lines = [["", *headers], ["---"] * (1 + len(headers))]
    lines += [[label, *(line.get(h, "") for h in headers)] for label, line in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _name(value: str, names: Mapping[str, str]) -> str:
    """Returns the plainer words for a value, or the value itself."""
    return next((words for old, words in names.items() if fnmatchcase(value, old)), value)


if __name__ == "__main__":
    sys.exit(main())
