"""A sweep in MLflow's own pages, as a person meets it: grouped, and compared with none left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

import privnets
import tracking
from tracking.run_record import LOG10_OF_ZERO
from tracking.sweep_run import SweepUpdate, study_pages

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1800,1400", "--disable-3d-apis",  # drawing in software takes seconds
)  # fmt: skip
STUDY, SWEEP = "shown in the UI", "shown"
SIZES, DECAYS = (8, 32, 64, 256), (0.0, 1e-4, 1e-2, 1.0)
PRIVACY, UTILITY = "privacy/membership_advantage", "utility/test_mse"
WAIT = 240
T = TypeVar("T")
PASSING = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
ROWS = ".ag-pinned-left-cols-container .ag-row"
# Of MLflow now, and of 3.6.
OPEN_TAB = ":is([data-state=active], [aria-hidden=false])[role=tabpanel] "

pytestmark = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason=f"needs a browser: {CHROMIUM} and {DRIVER} (Debian's chromium and chromium-driver)",
)


@dataclass(frozen=True)
class Shown:
    """A recorded sweep: where its pages are, and the points that they must show."""

    uri: str
    experiment_id: str
    points: list[privnets.TradeoffPoint]

    def rows(self, *keys: str) -> list[tuple[Any, ...]]:
        """Each point's values of these fields and metrics, in order."""
        tables = [{**point.config, **point.metrics} for point in self.points]
        return sorted(tuple(table[key] for key in keys) for table in tables)


@pytest.fixture(scope="module")
def shown(server_uri: str) -> Shown:
    """More runs than the ten that the UI shows by default, some metrics of some undefined."""
    experiment = privnets.experiment("membership")
    configs = [
        experiment.Config(
            dataset="diabetes", model="linear", train_size=size, weight_decay=decay,
            draws=16, records=8,
        )
        for size in SIZES for decay in DECAYS
    ]  # fmt: skip
    points = [
        point for size in SIZES
        for point in experiment.run([c for c in configs if c.train_size == size])
    ]  # fmt: skip
    assert any(math.isnan(value) for point in points for value in point.metrics.values())
    recorder = tracking.Recorder(
        SWEEP, study=STUDY, tracking_uri=server_uri,
        log_scaled=frozenset({"weight_decay"}), name_fields=("train_size", "weight_decay"),
    )  # fmt: skip
    recorder.record(points)
    recorder.update_sweep(
        SweepUpdate(
            values=[("hypervolume", 0.5, 1.8e9, 1)], params={"replicates": "1"}, status="FINISHED"
        )
    )
    return Shown(server_uri, _experiment_id(server_uri), points)


def _experiment_id(uri: str) -> str:
    from mlflow import MlflowClient

    found = MlflowClient(uri).get_experiment_by_name(STUDY)
    assert found is not None
    return str(found.experiment_id)


@contextmanager
def new_browser(profile: Path) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    with Chrome(options=options, service=Service(str(DRIVER))) as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Loading MLflow's pages takes seconds in a new browser."""
    with new_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def test_every_point_of_a_sweep_can_be_compared(browser: Chrome, shown: Shown) -> None:
    """The whole walk: open the study, select its points, compare, read both plots and the table.

    The first in this browser, so that MLflow by itself would open another kind of work.
    """
    pages = study_pages(shown.uri, 1000)
    assert f"/experiments/{shown.experiment_id}/runs?" in pages[STUDY]
    browser.get(f"{shown.uri}/{pages[STUDY]}")
    (parent,) = _rows(browser, 1)
    assert parent.text.splitlines()[-2] == SWEEP
    assert "Runs\nModels" in browser.find_element(By.CSS_SELECTOR, "body").text
    _expand_parent(browser)
    names = {row.find_element(By.CSS_SELECTOR, "a").text for row in _rows(browser, 17)[1:]}
    assert names == {
        f"ts={size} wd={decay:g}"
        for size in SIZES for decay in DECAYS
    }  # fmt: skip
    _select(browser, _rows(browser, 17)[1:])
    _compare(browser)
    _await(browser, lambda: "Comparing 16 Runs" in browser.page_source)
    links = browser.find_elements(By.CSS_SELECTOR, "table a[href*='/runs/']")
    assert len({link.get_attribute("href") for link in links}) == 16

    _choose_axes(browser, ["log10_weight_decay", "train_size"], [PRIVACY, UTILITY])
    axes = _plot_data(browser, "log10_weight_decay", "train_size", PRIVACY, UTILITY)
    lines = sorted(zip(axes["train_size"], axes[PRIVACY], axes[UTILITY], strict=True))
    assert lines == shown.rows("train_size", PRIVACY, UTILITY)
    assert sorted(set(axes["log10_weight_decay"])) == [LOG10_OF_ZERO, -4, -2, 0]

    _click(browser, "[role=tab][id$=-scatter-plot]")
    _choose_one(browser, "#x-axis-selector", UTILITY)
    _choose_one(browser, "#y-axis-selector", PRIVACY)
    axes = _plot_data(browser, UTILITY, PRIVACY)
    assert sorted(zip(axes[UTILITY], axes[PRIVACY], strict=True)) == shown.rows(UTILITY, PRIVACY)


@pytest.mark.slow
def test_model_training_once_chosen_opens_every_study_with_its_runs(
    shown: Shown, tmp_path: Path
) -> None:
    """MLflow takes the kind of work from the browser, never from the experiment."""
    study = f"{shown.uri}/#/experiments/{shown.experiment_id}"
    with new_browser(tmp_path) as browser:
        browser.get(study)
        # The overview's tour covers the page until it is sent away.
        _click(browser, "[role=dialog] button")
        _click_text(browser, "Model training")
        _rows(browser, 1)
        browser.get("about:blank")
        browser.get(study)
        (parent,) = _rows(browser, 1)
        assert parent.text.splitlines()[-2] == SWEEP
        assert "/runs?" in browser.current_url


def _rows(browser: Chrome, count: int) -> list[WebElement]:
    """The rows of the runs table, when there are many."""

    def rows() -> list[WebElement]:
        found = browser.find_elements(By.CSS_SELECTOR, ROWS)
        return found if len(found) == count else []

    return _await(browser, rows)


def _expand_parent(browser: Chrome) -> None:
    _click(browser, f"{ROWS} [col-id*='Run Name'] button")


def _select(browser: Chrome, rows: list[WebElement]) -> None:
    first, last = (rows[i].find_element(By.CSS_SELECTOR, ".ag-checkbox-input") for i in (0, -1))
    first.click()
    ActionChains(browser).key_down(Keys.SHIFT).click(last).key_up(Keys.SHIFT).perform()
    chosen = f"{ROWS}.ag-row-selected"
    _await(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, chosen)) == len(rows))


def _compare(browser: Chrome) -> None:
    def clicked() -> bool:
        # MLflow 3.6 asks, over the button, whether it has guessed the kind of work.
        for answer in browser.find_elements(By.XPATH, "//button[normalize-space()='Confirm']"):
            answer.click()
        browser.find_element(By.CSS_SELECTOR, "[data-testid=runs-compare-button]").click()
        return True

    _await(browser, clicked)


def _choose_axes(browser: Chrome, parameters: list[str], metrics: list[str]) -> None:
    _click(browser, "[data-testid=clear-button]")
    for place, keys in enumerate((parameters, metrics)):
        box = browser.find_elements(By.CSS_SELECTOR, f"{OPEN_TAB}[role=combobox]")[place]
        box.click()
        for key in keys:
            _list_option(browser, key).click()
        box.send_keys(Keys.ESCAPE)


def _list_option(browser: Chrome, title: str) -> WebElement:
    """The open list's option of that title; only options in sight exist, so scroll to it."""
    option = f".du-bois-light-select-item-option[title='{title}']"

    def found() -> WebElement | None:
        for element in browser.find_elements(By.CSS_SELECTOR, option):
            if element.is_displayed():
                return element
        browser.execute_script(
            "for (const list of document.querySelectorAll('.rc-virtual-list-holder'))"
            " list.scrollTop += 100"
        )
        return None

    return _await(browser, found)


def _choose_one(browser: Chrome, box: str, title: str) -> None:
    _click(browser, box)
    # In MLflow 3.6 the option that is seen has a title, and its role is on one that is not seen.
    wanted = f"//*[@role='option' or @title='{title}'][normalize-space()='{title}']"

    def chosen() -> bool:
        shown = [o for o in browser.find_elements(By.XPATH, wanted) if o.is_displayed()]
        if shown:
            shown[-1].click()
        return bool(shown)

    _await(browser, chosen)


def _plot(browser: Chrome) -> dict[str, Any]:
    """Returns the data of Plotly's first trace on the open tab, by axis."""
    return browser.execute_script(
        """const plot = document.querySelector(arguments[0]);
        if (!plot || !plot.data) return {};
        const {type, x, y, dimensions} = plot.data[0];
        if (type === "parcoords")
            return Object.fromEntries(dimensions.map(axis => [axis.label, [...axis.values]]));
        const {xaxis, yaxis} = plot.layout;
        return {[xaxis.title.text]: [...x], [yaxis.title.text]: [...y]};""",
        f"{OPEN_TAB}.js-plotly-plot",
    )


def _plot_data(browser: Chrome, *axes: str) -> dict[str, list[float]]:
    """`_plot`, once it shows these axes and no others."""
    _await(browser, lambda: set(_plot(browser)) == set(axes))
    return _plot(browser)


def _click(browser: Chrome, selector: str) -> None:
    def clicked() -> bool:
        browser.find_element(By.CSS_SELECTOR, selector).click()
        return True

    _await(browser, clicked)


def _click_text(browser: Chrome, text: str) -> None:
    def clicked() -> bool:
        browser.find_element(By.XPATH, f"//*[normalize-space(text())='{text}']").click()
        return True

    _await(browser, clicked)


def _await(browser: Chrome, condition: Callable[[], T | None]) -> T:
    # Pages are drawn in several passes, each of which may replace or cover an element.
    waiting = WebDriverWait(browser, WAIT, poll_frequency=0.1, ignored_exceptions=PASSING)
    found: T = waiting.until(lambda _: condition())
    return found
