"""A proxy that lets every request wait, as a server far away or under load does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host"}


@contextmanager
def slow_proxy(uri: str, seconds: float) -> Iterator[str]:
    """Serve what a server on this machine serves, every request so much later.

    Args:
        uri: The server's.
        seconds: How long each request waits before it is passed on.

    Yields:
        The URI to use instead.
    """
    # A separate process, so that measured processor times do not include it.
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), uri, str(seconds)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.communicate()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    upstream = ("127.0.0.1", 80)
    seconds = 0.0


class _Handler(BaseHTTPRequestHandler):
    """Passes the requests of a kept connection on, each over one of its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        time.sleep(self.server.seconds)
        with closing(HTTPConnection(*self.server.upstream)) as upstream:
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP | {"date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Serve until killed; the first line of standard output is the address."""
    uri, seconds = sys.argv[1:]
    parts = urlsplit(uri)
    with _Proxy(("127.0.0.1", 0), _Handler) as proxy:
        proxy.upstream = (str(parts.hostname), int(parts.port or 80))
        proxy.seconds = float(seconds)
        print(f"http://127.0.0.1:{proxy.server_port}", flush=True)
        proxy.serve_forever()


if __name__ == "__main__":
    main()
