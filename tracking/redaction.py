"""Passwords, keys and tokens in text: find them, or replace them by stars.

Made for URIs, options, environment variables and messages that contain them. In doubt, text counts
as secret.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_USERINFO = (
    # Of what is a URI from the first letter on.
    re.compile(r"\A([a-z][\w+.-]*:|)//[^/?#]*@", re.IGNORECASE),
    # With white space in the password; what follows a port is not of the URI any more.
    re.compile(
        r"(:)//(?>[^/\s:@\[]*(?::|%3a)(?!\d*(?:[\s/?#'\",;)]|$)))(?:(?!//)[\s\S]){0,200}@",
        re.IGNORECASE,
    ),
    # Whatever is in it, but for white space; and of no scheme.
    re.compile(r"(?<!\S)((?:(?!://[^/])\S)*:)//(?!/)\S*@"),
    re.compile(r"(?<!\S)([^\s/]*[='\"(]|)//[^/\s:@]+:\S*@"),
)
# `cluster.uris` refuses what these are the names of; it may not know this package.
_OPTION = re.compile(
    r"((?<=[?&;#])[\w.%+~-]+|\b\w*passw(?:or)?d|\bpwd|\b(?-i:[A-Z][A-Z0-9_]*))=([^&\s]+)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|signature|credential|bearer|authorization"
    r"|(^|[_.-])(sig|key|auth|jwt|pw)$|(api|access|account|private|shared)[_-]?key",
    re.IGNORECASE,
)
_DEEPEST: Final = 8
"""That options are in options; what is deeper counts as a secret."""
# A user alone is a token for web servers; in other schemes, as abfs://CONTAINER@..., it is a name.
_PLAIN_USER = re.compile(r"(?<!http)(?<!https)://[^/\s:@%?#]+@", re.IGNORECASE)
_USER = re.compile(r"user(name)?$", re.IGNORECASE)


def redact(text: str) -> str:
    """The text with the user and password of every URI in it, and secret options, made stars.

    Takes away rather too much than too little: an `@` later in a URI ends what is replaced.
    """
    return _redacted(text, 0)


def holds_secret(text: str) -> bool:
    """Returns whether a URI, or a text with URIs in it, holds a password, key, token or signature.

    An `@` after a port counts as the end of a password.
    """
    text = _PLAIN_USER.sub("://", text)
    return redact(text) != text


def strip_credentials(uri: str) -> str:
    """A URI without user and password, wherever they stand in it; other options are kept.

    Takes away rather too much than too little: an `@` later in the URI ends what is left out.
    """
    if uri.startswith("sqlite"):
        return uri
    bare = re.sub(r"\A((?>.*?://(?!/))).*@", r"\1", uri, flags=re.DOTALL)
    place, _, options = bare.partition("#")[0].partition("?")
    kept = "&".join(option for option in re.split("[&;]", options) if not _tells_who(option))
    return f"{place}?{kept}" if kept else place


def _redacted(text: str, depth: int) -> str:
    for userinfo in _USERINFO:
        text = userinfo.sub(r"\1//***@", text)
    return _starred_options(text, depth)


def _starred_options(text: str, depth: int) -> str:
    return _OPTION.sub(lambda option: _starred(option, depth), text)


def _starred(option: re.Match[str], depth: int) -> str:
    name, value = option.groups()
    if depth > _DEEPEST or _is_secret(name, value, depth):
        return f"{name}=***"
    return f"{name}={_starred_options(value, depth + 1)}"  # as of a URI that an option is


def _is_secret(name: str, value: str, depth: int = 0) -> bool:
    """Whether an option is secret, or holds what is, as one that is a connection's whole text."""
    if _SECRET.search(unquote(name)):
        return True
    plain = unquote(value)
    return plain != value and _redacted(plain, depth + 1) != plain


def _tells_who(option: str) -> bool:
    name, _, value = option.partition("=")
    return bool(_USER.search(unquote(name))) or _is_secret(name, value)
