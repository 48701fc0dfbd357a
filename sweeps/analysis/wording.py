"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: float, thing: str) -> str:
    """So many of a thing, whose plural ends in s: `1 pack`, `2 packs`, `0.5 GPUs`."""
    return f"{number:,.10g} {thing if number == 1 else thing + 's'}"
