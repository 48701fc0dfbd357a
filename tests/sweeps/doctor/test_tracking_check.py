"""The check of a tracking server gives a remedy that fits the fault."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from mlflow_server import free_port

from sweeps.doctor.examination import check_tracking


@pytest.fixture
def rejecting_server() -> Iterator[str]:
    """A server that rejects every account."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b"see https://the.manual")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("here", [True, False])
def test_refused_credentials_are_to_be_put_where_the_sweep_is_led_from(
    rejecting_server: str, here: bool
) -> None:
    check = check_tracking(rejecting_server, is_local=here)
    assert (check.state, check.found) == (
        "failed",
        f"{rejecting_server} rejects the credentials (401)",
    )
    assert "~/.mlflow/credentials (chmod 600)" in check.remedy
    assert ("the cluster's head" in check.remedy) != here


def test_a_server_that_is_not_there_is_to_be_started() -> None:
    check = check_tracking(f"http://127.0.0.1:{free_port()}", is_local=False)
    assert (check.state, check.found[-20:]) == ("failed", "(connection refused)")
    assert check.remedy.startswith("start it, or leave --tracking-uri out")
