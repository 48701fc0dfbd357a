"""The table of all points follows filters and figures; pages fit narrow screens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from sweeps.report.page import write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = os.environ.get("AXE_CORE", "")
"""Path of axe.min.js, of the npm package axe-core; it is not shipped."""

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver: the page is not opened"
)


@pytest.fixture(scope="module")
def browser(membership_sweep, tmp_path_factory) -> Iterator[Chrome]:
    folder = tmp_path_factory.mktemp("page")
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = "--headless=new --no-sandbox --disable-gpu --no-first-run"
    for flag in (*quiet.split(), f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    with Chrome(options=options, service=Service(str(DRIVER))) as opened:
        opened.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        opened.get(write_report([membership_sweep], Path(folder, "report.html")).as_uri())
        WebDriverWait(opened, 120).until(
            lambda page: page.execute_script(
                "return [...document.querySelectorAll('[data-figure]')]"
                ".every(chart => chart.querySelector('.main-svg'))"
            )
        )
        yield opened


def test_the_lowest_leakage_under_a_constraint_is_found_by_filter_and_sort(
    browser, membership_sweep
):
    points = membership_sweep.points
    allowed = points[points["utility/test_mse.ci_high"] <= 0.14]
    allowed = allowed.sort_values("privacy/membership_advantage")
    first = browser.execute_script(
        """
        const section = document.querySelector("[data-points]");
        const input = section.querySelector("[aria-label='Filter test mse']");
        input.value = "<= 0.14";
        input.dispatchEvent(new Event("input"));
        section.querySelector("th button").click();
        const rows = [...section.querySelectorAll("tbody tr")];
        return [section.querySelector("[role=status]").textContent, rows[0].lastChild.textContent];
        """
    )
    assert first == [f"{len(allowed)} of 20 points, page 1 of 1", allowed["point_id"].iloc[0]]
    marked = (
        "return document.getElementById('front-chart').data"
        ".flatMap(trace => (trace.selectedpoints ?? []).map(i => trace.customdata[i]))"
    )
    WebDriverWait(browser, 60).until(
        lambda page: sorted(page.execute_script(marked)) == sorted(allowed.index)
    )


def test_points_selected_in_a_figure_are_listed(browser, membership_sweep):
    listed = browser.execute_script(
        """
        const section = document.querySelector("[data-points]");
        [...section.querySelectorAll("button")].find(b => b.textContent === "Show all").click();
        const points = [{ customdata: 5 }, { customdata: 7 }, { customdata: null }];
        document.getElementById("front-chart").emit("plotly_selected", { points });
        const rows = [...section.querySelectorAll("tbody tr")];
        return rows.map(row => row.lastChild.textContent);
        """
    )
    assert listed == membership_sweep.points["point_id"].iloc[[5, 7]].tolist()


@pytest.mark.parametrize("width", [390, 800])
def test_a_narrow_page_does_not_scroll_sideways(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = browser.execute_script(
        "return [...document.querySelectorAll('.chart')]"
        ".filter(chart => chart.scrollWidth > chart.clientWidth + 1).map(chart => chart.id)"
    )
    assert cut == []


@pytest.mark.skipif(not AXE, reason="AXE_CORE does not name axe.min.js of the package axe-core")
def test_axe_has_no_serious_finding(browser):
    browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
    browser.set_script_timeout(120)
    found = browser.execute_async_script(
        "axe.run(document).then(result => arguments[0](result.violations"
        ".filter(each => ['serious', 'critical'].includes(each.impact)).map(each => each.id)))"
    )
    assert found == []
