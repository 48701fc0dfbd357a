"""Secrets in URIs, and in whatever else is handed over: others would see them.

What is submitted to a cluster can be read by all who may see the cluster, and a command line by all
users of its machine. Messages have `tracking.errors.redacted`, which goes by the same names.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

# A password after a user, whatever is in it; of a web server also a user alone, which may be a
# token. Elsewhere that is no secret: abfs:// names a container so.
_USERINFO = re.compile(r"://[^/\s:@]*(:|%3a)\S*@|https?://[^/\s]*@", re.IGNORECASE)
_OPTION = re.compile(r"((?<=[?&;])[\w.%+~-]+|\bpassw(?:or)?d|\bpwd)=([^&\s]+)", re.IGNORECASE)
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|signature|credential|(^|[_.-])(sig|key|auth)$"
    r"|(api|access|account|private|shared)[_-]?key",
    re.IGNORECASE,
)


def holds_secret(text: str) -> bool:
    """Whether a URI, or any text with URIs in it, holds a password, key, token or signature.

    In doubt it does: so says an `@` after a port.
    """
    options = _OPTION.findall(text)
    return bool(_USERINFO.search(text)) or any(_is_secret(*option) for option in options)


def names_secret(option: str) -> bool:
    """Whether an option of a URI is one whose value is secret, to go by its name."""
    return bool(_SECRET.search(unquote(option)))


def _is_secret(name: str, value: str) -> bool:
    """Whether an option is secret, or holds what is, as one that is a connection's whole text."""
    return names_secret(name) or holds_secret(unquote(value))
