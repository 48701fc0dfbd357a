"""Time until a report shows its first figure, and all of them, in headless Chromium.

Reports of 25 and 10,000 points with 15 metrics. Seconds of the page are counted from the start of
its navigation to the paint after the figure; those of the processor are of the whole browser.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import psutil
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.large_ledger import SWEEP, large_plan, write_large
from sweeps.analysis.results import open_result
from sweeps.report.page import write_report

_METRICS, _ROWS = 15, 800
_WATCH = """
const seen = new Set();
window.painted = [];
new MutationObserver(() => {
  for (const figure of document.querySelectorAll("[data-figure]")) {
    if (seen.has(figure) || !figure.querySelector(".main-svg")) continue;
    seen.add(figure);
    requestAnimationFrame(() => setTimeout(() => painted.push(performance.now() / 1000), 0));
  }
}).observe(document, { childList: true, subtree: true });
"""
_IS_PAINTED = "return painted.length === document.querySelectorAll('[data-figure]').length"


def _seconds_to_figures(page: Path) -> tuple[float, float, float]:
    """Seconds to the first figure, to the last, and the browser's processor seconds to the last."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "window-size=1400,900"):
        options.add_argument(f"--{flag}")
    with Chrome(options=options, service=Service(shutil.which("chromedriver") or "")) as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        browser.get("about:blank")
        before = _processor_seconds(browser)
        browser.get(page.as_uri())
        WebDriverWait(browser, 300).until(lambda opened: opened.execute_script(_IS_PAINTED))
        painted = browser.execute_script("return painted")
        return min(painted), max(painted), _processor_seconds(browser) - before


def _processor_seconds(browser: Chrome) -> float:
    driver = psutil.Process(browser.service.process.pid)
    times = [process.cpu_times() for process in driver.children(recursive=True)]
    return sum(each.user + each.system for each in times)


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds, rows = parser.parse_args().rounds, []
    for points in (25, 10_000):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            write_large(folder, large_plan(points), _METRICS, _ROWS)
            page = write_report([open_result(SWEEP, folder)], Path(folder, "report.html"))
            timings = [_seconds_to_figures(page) for _ in range(rounds)]
            first, last, used = map(statistics.median, zip(*timings, strict=True))
            rows.append(
                {
                    "contestant": f"report of {points:,} points",
                    "rounds": rounds,
                    "first_figure_seconds": round(first, 2),
                    "all_figures_seconds": round(last, 2),
                    "processor_seconds": round(used, 2),
                    "megabytes": round(page.stat().st_size / 1e6, 2),
                }
            )
    publish("report_page", rows)


if __name__ == "__main__":
    run(main)
