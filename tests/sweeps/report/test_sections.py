"""A sweep gets the pictures that its points allow: in its page, and as files beside it."""

from __future__ import annotations

import base64
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread
from page_parser import ReportPage, render
from plotly.graph_objects import Figure
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait
from synthetic_releases import image_sweep, power_sweep, toy_sweep, with_artifact, with_metrics
from synthetic_sweep import HOSTILE, SyntheticSweep, hostile_sweep

from sweeps.report.contents import ReportContents
from sweeps.report.figures import FIGURE_FILES
from sweeps.report.figures.traces import figure_json
from sweeps.report.page import write_report
from sweeps.report.summary import copy_summary_files, write_summary
from sweeps.store.ledger import Ledger

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
KINDS = {
    "images": (image_sweep, ["tradeoff", "releases"]),
    "power": (power_sweep, ["tradeoff", "week"]),
    "toy": (toy_sweep, ["information-plane"]),
}


def own_figures(sweep) -> list[str]:
    """Figures of an experiment's own, for which the sweep's folder has files."""
    return [name for name in ReportContents(sweep).figures if f"{name}.png" in FIGURE_FILES]


@pytest.mark.parametrize("kind", list(KINDS))
def test_figures_follow_columns_and_files(kind):
    make, names = KINDS[kind]
    assert own_figures(make()) == names


def test_membership_sweeps_have_no_figures_of_their_own(membership_sweep):
    assert own_figures(membership_sweep) == []
    page = render(membership_sweep)
    assert 'id="attackers"' not in page
    assert "<img" not in page


@pytest.mark.parametrize("kind", list(KINDS))
def test_png_files_and_a_small_page_with_every_figure_are_written_and_copied(kind, tmp_path: Path):
    make, names = KINDS[kind]
    ledger = Ledger(str(tmp_path / "storage"), "made")
    written = write_summary(ledger, make())
    files = {f"{name}.png" for name in names}
    assert files == set(written) & set(FIGURE_FILES)
    stored = copy_summary_files(ledger, tmp_path)
    assert files | {"report.html"} <= set(stored)
    for name in files:
        assert min(imread(stored[name]).shape[:2]) > 200
    text = Path(stored["report.html"]).read_text()
    assert len(text) < 12e6
    page = ReportPage(text)
    assert set(names) <= set(page.sections)
    stills = [found for tag, found in page.tags if tag == "img"]
    assert len(stills) == ("releases" in names)
    for still in stills:
        kind, _, content = still["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert imread(io.BytesIO(base64.b64decode(content))).ndim == 3
    charts = set(names) - {"releases"}
    assert {f"{name}-chart" for name in charts} <= set(page.figures)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_page_holds_figures_as_plotly_itself_writes_them(kind):
    make, _ = KINDS[kind]
    plots = [figure.plot for figure in ReportContents(make()).figures.values() if figure.plot]
    assert plots
    for plot in plots:
        assert json.loads(figure_json(plot)) == json.loads(Figure(plot).to_json())


def test_only_images_have_a_source():
    page = ReportPage(render(image_sweep(alphas=(1.0,))))
    assert [tag for tag, found in page.tags if "src" in found] == ["img"]
    policy = next(found["content"] for _, found in page.tags if "http-equiv" in found)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "img-src data: blob:" in policy


@pytest.mark.parametrize("kind", ["power", "toy"])
def test_excluded_points_are_counted(kind):
    sweep = KINDS[kind][0]()
    metric = list(sweep.objectives)[1].replace("/", "__")
    points = [
        with_metrics(sweep.tradeoff_points[0], **{metric: math.nan}),
        *sweep.tradeoff_points[1:],
    ]
    page = render(replace(sweep, tradeoff_points=points))
    if kind == "toy":
        assert "an undefined objective" in page
    else:
        assert f"1 of {len(points)} points are not shown" in page


def test_undefined_metrics_leave_no_figure():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    undefined = {metric.replace("/", "__"): math.nan for metric in sweep.objectives}
    points = [with_metrics(p, **undefined) for p in sweep.tradeoff_points]
    assert own_figures(replace(sweep, tradeoff_points=points)) == []


def hostile() -> SyntheticSweep:
    sweep = image_sweep(alphas=(1.0, 2.0), gradients=(HOSTILE, "label"), weights=(0.0, 1.0, 30.0))
    attacker = {f"privacy/attacker/{HOSTILE}/balanced_accuracy": 0.99, f"flag/{HOSTILE}": 1.0}
    points = [with_metrics(p, **attacker) for p in sweep.tradeoff_points]
    points[-1] = with_artifact(points[-1], "release.safetensors", HOSTILE.encode())
    return replace(sweep, tradeoff_points=points)


def test_settings_attackers_and_flags_are_escaped():
    page = render(hostile())
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>")
    assert [found["class"] for tag, found in ReportPage(page).tags if tag == "img"] == ["still"]


@pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver: the page is not opened"
)
def test_a_browser_draws_every_figure_and_runs_no_foreign_script(tmp_path: Path):
    """The console reports whatever a policy refuses and a script throws."""
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    quiet = "--headless=new --no-sandbox --disable-gpu --no-first-run"
    for flag in (*quiet.split(), f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    with Chrome(options=options, service=Service(str(DRIVER))) as browser:
        toy = toy_sweep((0.1, 0.8), (0.4,))
        for sweep in (hostile_sweep(), hostile(), power_sweep(alphas=(1.0,)), toy):
            browser.get(write_report([sweep], tmp_path / "report.html").as_uri())
            WebDriverWait(browser, 240).until(
                lambda page: page.execute_script(
                    "const charts = [...document.querySelectorAll('[data-figure]')];"
                    "return charts.length >= 4"
                    " && charts.every(chart => chart.querySelector('.main-svg'))"
                )
            )
            assert browser.title != "taken"
            widths = browser.execute_script(
                "return [...document.querySelectorAll('.still')].map(image => image.naturalWidth)"
            )
            assert all(width > 600 for width in widths)
            assert json.dumps(browser.get_log("browser")) == "[]"
