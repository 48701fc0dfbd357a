"""Dependencies of the installed package with versions and licences.

Prints the table of DEPENDENCIES.md; with `--check` it fails where a licence cannot go along with
Apache-2.0, or where the table is not what is installed. Licences are what packages say of
themselves: the SPDX expression where they give one, else their classifiers, else their own words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "privnets-sweeps"
TABLE = Path(__file__).resolve().parents[1] / "DEPENDENCIES.md"

# These are neither changed nor copied, and each is loaded as a separate library, which the lesser
# licences allow.
_LESSER = r"LGPL|Lesser General Public|MPL|Mozilla"
_REFUSED = (
    r"\bA?GPL|Affero|GNU General Public|SSPL|Server Side Public|Commons Clause|BUSL|Business Source"
    r"|Non-?Commercial|\bNC\b|Proprietary|All rights reserved|EULA"
)
_PERMISSIVE = (
    r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|Python-2\.0|CNRI|HPND|Unlicense|Zlib|zlib"
    r"|0BSD|CC0|Public Domain|BSL-1\.0|Boost|Expat"
)
# Packages whose metadata lack a licence; it is in the licence file.
_KNOWN: Mapping[str, str] = {"huey": "MIT", "skops": "MIT"}

_HEAD = """# Dependencies

What `pip install .` brings, with the licences that packages state of themselves. Made by
`make licences`, which fails where one cannot go along with Apache-2.0; not to edit. Versions are
those of `constraints.txt` as installed on Linux for CPython {python}.

The pages of reports contain the basic bundle of plotly.js 4.1.1 (MIT); it lies with its licence in
`sweeps/report/templates`.

| package | version | licence |
|---|---|---|
"""


def closure(name: str = OURS) -> dict[str, Distribution]:
    """Every installed distribution that one needs, without its optional extras, by name."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name)
        try:
            found[key] = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another platform
        for extra in ("", *wanted.extras):
            if (key, extra) not in seen:
                seen.add((key, extra))
                waiting += _requirements(found[key], extra)
    return dict(sorted(found.items()))


def licence(of: Distribution) -> str:
    """Returns the licence of a distribution in few words; empty where it states none."""
    name = canonicalize_name(of.metadata["Name"])
    if name in _KNOWN:
        return _KNOWN[name]
    if expression := of.metadata.get("License-Expression"):
        return expression
    classifiers = of.metadata.get_all("Classifier") or []
    stated = [c.rpartition("::")[2].strip() for c in classifiers if c.startswith("License ::")]
    if stated and stated != ["OSI Approved"]:
        return "; ".join(sorted(set(stated)))
    words = of.metadata.get("License") or ""
    return " ".join(words.split())[:80]


def verdict(stated: str) -> str:
    """`permissive`, `lesser` or `refused`; what is not known is refused.

    Where there is a choice, as in `A OR B`, the best part counts; where there are several at once,
    the worst does.
    """
    if not stated:
        return "refused"
    ranks = ["permissive", "lesser", "refused"]
    choices = re.split(r"\s+OR\s+", stated)
    return min((_of_all(choice, ranks) for choice in choices), key=ranks.index)


def table() -> str:
    """DEPENDENCIES.md."""
    rows = [
        f"| {name} | {found.version} | {licence(found) or 'not stated'} |"
        for name, found in closure().items()
        if name != canonicalize_name(OURS)
    ]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _HEAD.format(python=python) + "\n".join(rows) + "\n"


def problems() -> Iterator[str]:
    """Returns the dependencies that prevent distribution under Apache-2.0."""
    for name, found in closure().items():
        if verdict(licence(found)) == "refused":
            yield f"{name} {found.version}: {licence(found) or 'states no licence'}"


def main() -> int:
    """Print the table, or check it."""
    if "--check" not in sys.argv:
        print(table(), end="")
        return 0
    found = list(problems())
    if not TABLE.exists() or TABLE.read_text() != table():
        found.append(f"{TABLE.name} differs from the installed packages: run `make licences`")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def _of_all(stated: str, ranks: list[str]) -> str:
    """The worst of licences that hold together."""
    parts = re.split(r"\s+AND\s+|;", stated)
    return max((_one(part) for part in parts), key=ranks.index)


def _one(stated: str) -> str:
    if re.search(_LESSER, stated):
        return "lesser"
    if re.search(_REFUSED, stated, re.IGNORECASE):
        return "refused"
    return "permissive" if re.search(_PERMISSIVE, stated) else "refused"


def _requirements(of: Distribution, extra: str) -> list[Requirement]:
    found = map(Requirement, of.requires or ())
    return [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]


if __name__ == "__main__":
    sys.exit(main())
