"""Removal of credentials from URIs and messages, before they are shown or stored."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_USERINFO = (
    # A text that is a URI from its first letter on.
    re.compile(r"\A([a-z][\w+.-]*:|)//[^/?#]*@", re.IGNORECASE),
    # A password with white space; text after a port no longer belongs to the URI.
    re.compile(
        r"(:)//(?>[^/\s:@\[]*(?::|%3a)(?!\d*(?:[\s/?#'\",;)]|$)))(?:(?!//)[\s\S]){0,200}@",
        re.IGNORECASE,
    ),
    # A URI inside a text, without white space; then one without a scheme.
    re.compile(r"(?<!\S)((?:(?!://[^/])\S)*:)//(?!/)\S*@"),
    re.compile(r"(?<!\S)([^\s/]*[='\"(]|)//[^/\s:@]+:\S*@"),
)
_OPTION = re.compile(
    r"((?<=[?&;#])[\w.%+~-]+|\b\w*passw(?:or)?d|\bpwd|\b(?-i:[A-Z][A-Z0-9_]*))=([^&\s]+)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|signature|credential|bearer|authorization"
    r"|(^|[_.-])(sig|key|auth|jwt|pw)$|(api|access|account|private|shared)[_-]?key",
    re.IGNORECASE,
)
_USER = re.compile(r"user(name)?$", re.IGNORECASE)
# A user alone is a token for web servers; in other schemes, as abfs://CONTAINER@..., it is a name.
_PLAIN_USER = re.compile(r"(?<!http)(?<!https)://[^/\s:@%?#]+@", re.IGNORECASE)
_MAX_DEPTH: Final = 8  # options nested deeper than this count as secret


def redact(text: str) -> str:
    """Replaces credentials in every URI of a text, and the values of secret options, by `***`.

    Errs on the safe side: an `@` later in a URI extends the part that is replaced.
    """
    return _redact(text, 0)


def holds_secret(text: str) -> bool:
    """Whether a text contains a password, key, token or signature.

    An `@` after a port counts as the end of a password.
    """
    text = _PLAIN_USER.sub("://", text)
    return redact(text) != text


def strip_credentials(uri: str) -> str:
    """Removes user, password and secret options from a URI; other options stay.

    Errs on the safe side: an `@` later in the URI extends the part that is removed.
    """
    if uri.startswith("sqlite"):
        return uri
    bare = re.sub(r"\A((?>.*?://(?!/))).*@", r"\1", uri, flags=re.DOTALL)
    address, _, options = bare.partition("#")[0].partition("?")
    kept = []
    for option in re.split("[&;]", options):
        name, _, value = option.partition("=")
        if not _USER.search(unquote(name)) and not _is_secret(name, value):
            kept.append(option)
    return f"{address}?{'&'.join(kept)}" if any(kept) else address


def _redact(text: str, depth: int) -> str:
    for userinfo in _USERINFO:
        text = userinfo.sub(r"\1//***@", text)
    return _redact_options(text, depth)


def _redact_options(text: str, depth: int) -> str:

    def redact_option(option: re.Match[str]) -> str:
        name, value = option.groups()
        if depth > _MAX_DEPTH or _is_secret(name, value, depth):
            return f"{name}=***"
        return f"{name}={_redact_options(value, depth + 1)}"  # the value may be a URI with options

    return _OPTION.sub(redact_option, text)


def _is_secret(name: str, value: str, depth: int = 0) -> bool:
    """Checks an option's name, and its value where that is an escaped URI or connection string."""
    if _SECRET.search(unquote(name)):
        return True
    plain = unquote(value)
    return plain != value and _redact(plain, depth + 1) != plain
