"""The check of a tracking server gives a remedy that fits the fault."""

from __future__ import annotations

import pytest
from mlflow_server import answering_server, free_port

from sweeps.remote.examination import check_tracking


@pytest.mark.parametrize("here", [True, False])
def test_refused_credentials_are_to_be_put_where_the_sweep_is_led_from(here: bool) -> None:
    with answering_server(401, b"see https://the.manual") as uri:
        check = check_tracking(uri, is_local=here)
    assert (check.state, check.found) == ("failed", f"{uri} rejects the credentials (401)")
    assert "~/.mlflow/credentials (chmod 600)" in check.remedy
    assert ("the cluster's head" in check.remedy) != here


def test_a_server_that_is_not_there_is_to_be_started() -> None:
    check = check_tracking(f"http://127.0.0.1:{free_port()}", is_local=False)
    assert (check.state, check.found[-20:]) == ("failed", "(Connection refused)")
    assert check.remedy.startswith("start it, or leave --tracking-uri out")
