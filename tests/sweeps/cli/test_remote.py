"""Replies of a cluster are not trusted to be well-formed."""

from __future__ import annotations

import pytest

from sweeps.errors import InputError
from sweeps.remote.commands import parse_reply
from sweeps.remote.doctor import Check, Report
from sweeps.remote.status import SweepOverview


@pytest.mark.parametrize("kind", [Report, SweepOverview])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', "\x1b[2J", "9" * 5000])
def test_a_malformed_reply_is_bad_input(kind: type[Report | SweepOverview], text: str) -> None:
    with pytest.raises(InputError, match="check that both sides run the same version"):
        parse_reply(kind, text)


def test_a_report_survives_the_way_through_json() -> None:
    sent = Report(checks=(Check("memory", "warning", "little", "more", "node"),), versions={})
    assert parse_reply(Report, sent.model_dump_json()) == sent
