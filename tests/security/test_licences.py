"""Every dependency may be distributed with the package; licences are classified."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from licences import TABLE, closure, problems, verdict


def test_nothing_that_is_needed_has_a_licence_that_cannot_go_along() -> None:
    assert list(problems()) == []


def test_every_dependency_is_in_the_table() -> None:
    listed = TABLE.read_text()
    assert [n for n in closure() if f"| {n} |" not in listed] == ["privnets-sweeps"]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("MIT", "permissive"),
        ("Apache-2.0 AND BSD-3-Clause", "permissive"),
        ("BSD License; MIT License", "permissive"),
        ("MIT OR GPL-3.0-only", "permissive"),
        ("LGPL-2.1-or-later", "lesser"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "lesser"),
        ("GNU Lesser General Public License v3 (LGPLv3)", "lesser"),
        ("MIT AND GPL-2.0-only", "refused"),
        ("GNU Affero General Public License v3", "refused"),
        ("AGPL-3.0", "refused"),
        ("CC-BY-NC-4.0", "refused"),
        ("Other/Proprietary License", "refused"),
        ("something of their own", "refused"),
        ("", "refused"),
    ],
)
def test_licences_are_told_apart(stated: str, expected: str) -> None:
    assert verdict(stated) == expected
