"""What goes wrong between here and an MLflow store, told without giving away credentials."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_USERINFO = re.compile(r"://[^\s'\"]*@")
_NAMES = r"(?:password|passwd|pwd|token|secret|_key|\bsig|signature)"
_SECRET = re.compile(rf"({_NAMES})=[^&\s'\"]+", re.IGNORECASE)
_USER = re.compile(rf"\w*{_NAMES}=|user(name)?=", re.IGNORECASE)


class TrackingError(Exception):
    """The tracking store cannot be used, or does not hold what was asked for.

    A caller that publishes may try again later: nothing here is left half-done for good.
    """


def redacted(text: str) -> str:
    """The text with the user and password of every URI in it replaced by stars.

    Takes away rather too much than too little: an `@` later in a URI ends what is replaced.
    """
    return _SECRET.sub(r"\1=***", _USERINFO.sub("://***@", text))


def without_credentials(uri: str) -> str:
    """A URI without user and password, wherever they stand in it; other options are kept.

    Takes away rather too much than too little: an `@` later in the URI ends what is left out.
    """
    if uri.startswith("sqlite"):
        return uri
    parts = urlsplit(_USERINFO.sub("://", uri))
    kept = (option for option in parts.query.split("&") if not _USER.match(option))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "&".join(kept), ""))
