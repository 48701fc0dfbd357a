"""Reports as tests read them."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from sweeps.report.contents import ReportContents
from sweeps.report.page import render_page


def render(sweep) -> str:
    """The page of one sweep."""
    return render_page([ReportContents(sweep)])


class ReportPage(HTMLParser):
    """Sections' texts, figures and data by name, and everything that could load or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.figures: dict[str, dict] = {}
        self.data: dict[str, dict] = {}
        self.tags: list[tuple[str, dict]] = []
        self._section = self._figure = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if tag == "section":
            self._section = found.get("id", "")
        self._figure = found["id"] if found.get("type") == "application/json" else ""

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = ""

    def handle_data(self, data):
        if self._figure and data.strip():
            parsed = self.figures if self._figure.endswith("-figure") else self.data
            parsed[self._figure.removesuffix("-figure")] = json.loads(data)
        elif self._section:
            self.sections[self._section] = self.sections.get(self._section, "") + data
