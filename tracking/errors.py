"""What goes wrong between here and an MLflow store, told without giving away credentials."""

from __future__ import annotations

import re
from urllib.parse import unquote

_USERINFO = re.compile(r"://(?!/)\S*@")
_OPTION = re.compile(r"((?<=[?&;])[\w.%+~-]+|\bpassw(?:or)?d|\bpwd)=([^&\s]+)", re.IGNORECASE)
# `cluster.uris` refuses what these are the names of; it may not know this package.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|signature|credential|(^|[_.-])(sig|key|auth)$"
    r"|(api|access|account|private|shared)[_-]?key",
    re.IGNORECASE,
)
_USER = re.compile(r"user(name)?$", re.IGNORECASE)


class TrackingError(Exception):
    """The tracking store cannot be used, or does not hold what was asked for.

    A caller that publishes may try again later: nothing here is left half-done for good.

    Attributes:
        found: What is wrong, in words.
        remedy: What to do about it, in words; empty where that is part of the former.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        """Tell both in one sentence, credentials blotted out."""
        self.found, self.remedy = redacted(found), redacted(remedy)
        super().__init__(f"{self.found}; {self.remedy}." if remedy else self.found)


class CredentialsRefused(TrackingError):
    """A tracking server answers, and does not let this account in."""


class RecordRefused(TrackingError):
    """The tracking store answers, and finds what it was sent wrong; it would do so again."""


def redacted(text: str) -> str:
    """The text with the user and password of every URI in it, and secret options, made stars.

    Takes away rather too much than too little: an `@` later in a URI ends what is replaced.
    """
    return _OPTION.sub(_starred, _USERINFO.sub("://***@", text))


def without_credentials(uri: str) -> str:
    """A URI without user and password, wherever they stand in it; other options are kept.

    Takes away rather too much than too little: an `@` later in the URI ends what is left out.
    """
    if uri.startswith("sqlite"):
        return uri
    place, _, options = _USERINFO.sub("://", uri).partition("#")[0].partition("?")
    kept = "&".join(option for option in re.split("[&;]", options) if not _tells_who(option))
    return f"{place}?{kept}" if kept else place


def _starred(option: re.Match[str]) -> str:
    name, value = option.groups()
    if _is_secret(name, value):
        return f"{name}=***"
    return f"{name}={_OPTION.sub(_starred, value)}"  # as of a URI that an option is


def _is_secret(name: str, value: str) -> bool:
    """Whether an option is secret, or holds what is, as one that is a connection's whole text."""
    plain = unquote(value)
    return bool(_SECRET.search(unquote(name))) or (plain != value and redacted(plain) != plain)


def _tells_who(option: str) -> bool:
    name, _, value = option.partition("=")
    return bool(_USER.search(unquote(name))) or _is_secret(name, value)
