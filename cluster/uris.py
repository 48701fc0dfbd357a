"""Secrets in URIs, and in whatever else is handed over: others would see them.

What is submitted to a cluster can be read by all who may see the cluster, and a command line by all
users of its machine. Messages have `tracking.errors.redact`, which goes by the same names.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

# A password after a user, whatever is in it; of a web server also a user alone, which may be a
# token. Elsewhere that is no secret: abfs:// names a container so. What follows a port in a text is
# not of the URI any more. Atomic groups keep the time in proportion to the text, and miss nothing:
# the first start in a word has the most of it ahead, a user's last separator is nearest to an `@`.
_USERINFO = re.compile(
    r"(?<!\S)(?>\S*?(?:://[^/\s:@]*(?::|%3a)|(?<![^\s'\"=(])//[^/\s:@]+:))\S*@"
    r"|https?://[^/\s]*@"
    r"|://(?>[^/\s:@\[]*(?::|%3a)(?!\d*(?:[\s/?#'\",;)]|$)))(?:(?!//)[\s\S]){0,200}@",
    re.IGNORECASE,
)
# Of a URI, of a database's connection, or of an environment.
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


def holds_secret(text: str) -> bool:
    """Whether a URI, or any text with URIs in it, holds a password, key, token or signature.

    In doubt it does: so says an `@` after a port.
    """
    return _holds_secret(text, 0)


def names_secret(option: str) -> bool:
    """Whether an option of a URI is one whose value is secret, to go by its name."""
    return bool(_SECRET.search(unquote(option)))


def _holds_secret(text: str, depth: int) -> bool:
    if depth > _DEEPEST or _USERINFO.search(text) or _has_user(text):
        return True
    # An option's value may be a URI, or a connection's whole text.
    return any(
        names_secret(name) or _holds_secret(unquote(value), depth + 1)
        for name, value in _OPTION.findall(text)
    )


def _has_user(uri: str) -> bool:
    """Whether a text that is one URI and nothing else has a user who is a secret, or a password."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # a bracket that does not close
        return False
    user = parts.username if parts.scheme in ("http", "https") else None
    return user is not None or parts.password is not None
