"""Inputs near to valid ones: a file of a corpus with a few edits."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

Strategy = st.SearchStrategy[bytes]

_ENDS = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00" * 8, b"\xff" * 8)
_LONGEST = 64


def edited_inputs(corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> Strategy:
    """One of the corpus with up to six edits.

    An edit puts a word, a few bytes or a part of another entry at a place, over what is there or
    between; takes a stretch away; doubles it; or ends the file.

    Args:
        corpus: Valid inputs, at least one.
        words: That mean something to the reader.
    """
    pieces = st.sampled_from([*words, *_ENDS]) | st.binary(max_size=_LONGEST)
    pieces |= st.tuples(st.sampled_from(corpus), _places(), _places()).map(_slice)
    edit = st.tuples(st.sampled_from(_KINDS), _places(), st.integers(0, _LONGEST), pieces)
    entry = st.sampled_from(corpus)
    return st.tuples(entry, st.lists(edit, max_size=6)).map(lambda drawn: _apply_edits(*drawn))


def _places() -> st.SearchStrategy[float]:
    """Positions in a file, as a share of its length."""
    return st.integers(0, 10_000).map(lambda share: share / 10_000)


def _slice(drawn: tuple[bytes, float, float]) -> bytes:
    content, first, second = drawn
    low, high = sorted((int(first * len(content)), int(second * len(content))))
    return content[low : min(high, low + 4 * _LONGEST)]


_KINDS = ("insert", "replace", "remove", "double", "cut")


def _apply_edits(content: bytes, edits: Sequence[tuple[str, float, int, bytes]]) -> bytes:
    for kind, place, length, piece in edits:
        start = int(place * len(content))
        head, stretch = content[:start], content[start : start + length]
        tail = content[start + length :]
        match kind:
            case "insert":
                content = head + piece + stretch + tail
            case "replace":
                content = head + piece + content[start + len(piece) :]
            case "remove":
                content = head + tail
            case "double":
                content = head + stretch * 2 + tail
            case _:
                content = head
    return content
