"""What goes wrong between here and an MLflow store, told without giving away credentials."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"://[^\s'\"]*@")
_SECRET = re.compile(r"(password|passwd|token|secret)=[^&\s'\"]+", re.IGNORECASE)


class TrackingError(Exception):
    """The tracking store cannot be used, or does not hold what was asked for.

    A caller that publishes may try again later: nothing here is left half-done for good.
    """


def redacted(text: str) -> str:
    """The text with the user and password of every URI in it replaced by stars.

    Takes away rather too much than too little: an `@` later in a URI ends what is replaced.
    """
    return _SECRET.sub(r"\1=***", _USERINFO.sub("://***@", text))
