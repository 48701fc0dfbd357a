"""Where a server is to listen: who can reach it there, and whether the place is free."""

from __future__ import annotations

import ipaddress
import socket

from cluster.errors import ServingRefused


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_port(host: str, port: int) -> None:
    """Refuse a place where another server is: its pages would be taken for ours.

    Raises:
        ServingRefused: If it cannot be listened on.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ServingRefused(f"host {host}: {error.strerror}; give another with --host") from error
    with socket.socket(family, kind, protocol) as probe:
        # As the server does: connections that were closed just now are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServingRefused(
                f"{host}, port {port}: {reason}; give another with --host or --port"
            ) from error
