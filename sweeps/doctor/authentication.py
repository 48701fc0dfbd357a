"""Whether a cluster lets in nobody without its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.doctor.check import Check

if TYPE_CHECKING:
    from cluster.probe import ProbeResult

SUBJECT = "authentication"
_REMEDY = (
    "start every node with RAY_AUTH_MODE=token and the same token: `ray get-auth-token --generate` "
    "makes one, to be copied to ~/.ray/auth_token on each with mode 0600"
)
_TLS_REMEDY = (
    "put TLS before the head (https://), or reach it through an SSH tunnel or a private network"
)


def judge(reaction: ProbeResult, loopback: bool) -> Check:
    """What it means how the head reacts to a call without a token.

    Args:
        reaction: Its.
        loopback: Whether nobody beyond this machine could call.
    """
    if reaction == "rejected":
        return Check(SUBJECT, "", "ok", "a call without the token is refused")
    if reaction != "accepted":
        found = "the head neither answers nor refuses a call without a token"
        return Check(
            SUBJECT, "", "warning", found, "try again; if it lasts, look at the head's log"
        )
    if loopback:
        found = "off: every user of this machine can run code on this Ray"
        return Check(SUBJECT, "", "warning", found, _REMEDY)
    found = "off: whoever reaches the head can run code on every node"
    return Check(SUBJECT, "", "failed", found, _REMEDY)


def judge_server(address: str, answers: bool, loopback: bool) -> list[Check]:
    """What it means how the job server reacts to a call without a token.

    Args:
        address: `http://HEAD:8265`, or `https://`.
        answers: Whether it answers.
        loopback: Whether nobody beyond this machine could call.
    """
    checks = [judge("accepted", loopback)] if answers else []
    if address.startswith("http://") and not loopback:
        found = f"{address} has no TLS: whoever sees the network sees the token"
        checks.append(Check(SUBJECT, "", "warning", found, _TLS_REMEDY))
    return checks
