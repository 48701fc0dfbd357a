"""What may be handed to a cluster's job server, where all who may see the cluster can read it.

And what comes back.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from cluster.uris import holds_secret
from sweeps.errors import InputError

M = TypeVar("M", bound=BaseModel)


def is_job_server(address: str) -> bool:
    """Whether an address is that of a job server, and not of a Ray to join."""
    return address.startswith(("http://", "https://"))


def check_public(option: str, value: str | None, remedy: str) -> None:
    """Refuse a value that holds credentials.

    Args:
        option: Whose value it is.
        value: As given; None if it was not.
        remedy: Where to put them instead.

    Raises:
        InputError: If it does.
    """
    if value is not None and holds_secret(value):
        raise InputError(
            f"{option} holds credentials, which everybody who may see the cluster could read; "
            f"{remedy}"
        )


def check_place(option: str, value: str | None) -> None:
    """Refuse a path that means something else on the cluster.

    Args:
        option: Whose value it is.
        value: As given; None if it was not.

    Raises:
        InputError: If it does.
    """
    if value is not None and "://" not in value and not value.startswith("/"):
        raise InputError(
            f"{option} must be a path from the root, or a URI, as the cluster's nodes see it; "
            f"got {value!r}"
        )


def answer(kind: type[M], text: str) -> M:
    """What a cluster printed as JSON, which is not trusted to be well-formed.

    Args:
        kind: What it should be.
        text: As printed.

    Raises:
        InputError: If it is nothing of that kind.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            "the cluster's answer is none that this version understands "
            f"({error.error_count()} problems, the first: {error.errors()[0]['msg']}); are both of "
            "one version?"
        ) from error
