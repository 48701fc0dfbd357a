"""Access to figures for tests."""

from __future__ import annotations


def find_traces(figure: dict, start: str) -> list[dict]:
    """The traces of a figure whose name starts with a text."""
    return [trace for trace in figure["data"] if trace["name"].startswith(start)]


def axis_title(figure: dict, key: str) -> str:
    """Title of an axis, such as `xaxis2`."""
    return figure["layout"][key]["title"]["text"]
