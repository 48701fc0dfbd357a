"""What a cluster answers is not trusted to be well-formed."""

from __future__ import annotations

import pytest

from sweeps.doctor import Check
from sweeps.doctor.check import Report
from sweeps.engine.handing_over import answer
from sweeps.engine.status import Status
from sweeps.errors import InputError


@pytest.mark.parametrize("kind", [Report, Status])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', "\x1b[2J", "9" * 5000])
def test_an_answer_of_another_kind_is_refused(kind: type[Report | Status], text: str) -> None:
    with pytest.raises(InputError, match="none that this version understands"):
        answer(kind, text)


def test_a_report_comes_back_as_it_was_sent() -> None:
    sent = Report(checks=(Check("memory", "node", "warning", "little", "more"),), versions={})
    assert answer(Report, sent.model_dump_json()) == sent
