"""The page holds what was measured and why, runs nothing foreign, and loads nothing."""

from __future__ import annotations

import html
import json
import math
from dataclasses import replace
from urllib.parse import unquote

import pytest
from page_parser import ReportPage, render
from synthetic_sweep import (
    HOSTILE,
    OBJECTIVES,
    SyntheticSweep,
    fail_point,
    hostile_sweep,
    membership_points,
    membership_replicate,
    membership_study,
    stop_point,
)

from privnets.points import Replicate
from sweeps.analysis.pareto import pareto_front
from sweeps.report.contents import ReportContents
from sweeps.report.figures.traces import SEARCHED
from sweeps.report.page import write_report
from sweeps.report.tables import card_table, failures_table, notes_table
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import PAGE_FILE
from sweeps.store.reader import Note


@pytest.fixture(scope="module")
def page(membership_sweep) -> ReportPage:
    return ReportPage(render(membership_sweep))


def test_front_chart_and_table_agree_with_the_front(page, membership_sweep):
    front = pareto_front(membership_sweep.points, OBJECTIVES)
    marks = next(t for t in page.figures["front-chart"]["data"] if t["name"].startswith("Pareto"))
    assert len(marks["hovertext"]) == len(front)
    for _, row in front.iterrows():
        assert row["point_id"] in page.sections["front"]
    assert "Points left out of the front: 1 failed." in page.sections["front"]


def test_a_page_says_which_points_a_search_confirmed(membership_sweep):
    ids = membership_sweep.points["point_id"].tolist()
    text = render(replace(membership_sweep, confirmed=frozenset(ids[:3])))
    page = ReportPage(text)
    columns = {column["key"]: column for column in page.data["points-data"]["columns"]}
    assert columns["phase"]["texts"] == ["confirming"] * 3 + ["searching"] * (len(ids) - 3)
    assert set(columns["replicates"]["texts"]) == {"5", "6"}
    for ends in columns["utility/test_mse"]["ends"]:
        assert None not in ends[:3]
        assert {*ends[3:]} == {None}, "a filter keeps out points that were only searched"
    assert "Pareto front of the confirmed points" in text
    finished = (membership_sweep.points["status"].iloc[3:] == "finished").sum()
    assert f"{finished} searched but not confirmed" in page.sections["front"]


def test_points_that_a_search_did_not_confirm_are_kept_apart_in_every_figure(membership_sweep):
    ids = membership_sweep.points["point_id"].tolist()
    report = ReportContents(replace(membership_sweep, confirmed=frozenset(ids[-8:])))
    for name in ("front", "along-train-size"):
        tried, others = set(), set()
        for trace in report.figures[name].plot["data"]:
            rows = tried if trace["name"].startswith(SEARCHED) else others
            rows.update(trace.get("customdata", ()))
        assert tried.isdisjoint(others)
        assert {ids[place] for place in others} <= set(ids[-8:])
    rows = report.tables["effects"].rows
    assert rows
    assert not any("no interval" in row[3] for row in rows), "trends of points with one seed"


def test_points_link_to_their_runs_where_the_sweep_knows_its_page(page, membership_sweep, tmp_path):
    sweep = replace(membership_sweep, storage=str(tmp_path), sweep="linked")
    assert page.data["points-data"]["runs"] == ""
    pages = "https://mlflow.example/#/experiments/7/runs?workflowType=machine_learning"
    order = f"metrics.`Objective/{next(iter(sweep.objectives))}`"
    search = f"{pages}&orderByKey={order}&searchFilter=tags.sweep = 'linked' and tags.point_id = "
    for address, is_known in ((pages, True), ("javascript:alert(1)", False)):
        Ledger(str(tmp_path), "linked").directory.write(PAGE_FILE, address.encode())
        page = ReportPage(render(sweep))
        assert unquote(page.data["points-data"]["runs"]) == (search if is_known else "")
        assert (address in [found.get("href") for _, found in page.tags]) == is_known


def test_reference_values_are_explained_only_where_figures_have_them(membership_sweep):
    text = render(membership_sweep)
    assert "Blue diamonds" in text
    assert "Dotted: the floor" not in text


def test_a_sweep_of_flagged_points_alone_shows_them_and_says_so():
    def replicate(size: float, decay: float, seed: int) -> Replicate:
        made = membership_replicate(size, decay, seed)
        return replace(made, metrics={**made.metrics, "flag/attack_beats_bound": 1.0})

    points = membership_points(sizes=(30, 100), replicate=replicate)
    page = ReportPage(render(SyntheticSweep(study=membership_study(), tradeoff_points=points)))
    names = {trace["name"] for trace in page.figures["front-chart"]["data"] if trace.get("name")}
    assert any(name.startswith("flagged") for name in names)
    assert "--include-flagged keeps flagged points." in page.sections["front"]
    assert (
        f"Points left out of the front: {len(points)} with a raised flag."
        in (page.sections["front"])
    )


def test_a_sweep_of_own_files_is_continued_by_its_study_and_not_by_resume():
    study = membership_study(fixed={"dataset": {"file": "own.csv"}, "model": "linear"})
    sweep = SyntheticSweep(study, membership_points(), pending=1)
    command = f"sweeps run STUDY --name {sweep.sweep}"
    shown = ReportPage(render(sweep)).sections["failures"]
    assert f"1 point unfinished; continue with {command}" in shown


def test_every_swept_field_has_a_chart_of_every_objective(page):
    labels = {"train-size": "training records", "weight-decay": "weight decay"}
    for name, label in labels.items():
        layout = page.figures[f"along-{name}-chart"]["layout"]
        titles = json.dumps(layout)
        assert layout["xaxis"]["title"]["text"] == label
        assert layout["xaxis"]["type"] == "log"
        assert all(metric in titles for metric in ("membership advantage", "test mse"))
    titles = json.dumps(page.figures["along-train-size-chart"]["layout"])
    assert "KL leakage, nats" in titles, "a claim's metric"


def test_claims_are_judged_with_their_intervals_and_caveats(page):
    text = page.sections["claims"]
    assert "agrees — Membership advantage falls" in text
    assert "disagrees — KL leakage rises" in text
    assert "95% interval" in text
    assert "Theorem 2 is a limit" in text
    assert "undefined at 1 of the 5 values of training records (10)" in text


def test_claim_about_all_points_is_left_open_while_points_are_unfinished():
    claim = {"statement": "small", "metric": "privacy/membership_advantage", "at_most": 1.0}
    points = membership_points(sizes=(30, 100))
    verdicts = []
    for pending in (0, 1):
        sweep = SyntheticSweep(membership_study(claims=[claim]), points, pending=pending)
        verdicts.append(ReportPage(render(sweep)).sections["claims"])
    assert "cannot tell — small" not in verdicts[0]
    assert "cannot tell — small" in verdicts[1]
    assert "Points are unfinished: 1." in verdicts[1]


def test_notes_failures_and_versions_are_on_the_page(page):
    assert "the covariance is singular: 10 records" in page.sections["notes"]
    assert "diverged: the loss became NaN at step 12" in page.sections["failures"]
    assert "training records = 10, weight decay = 1" in page.sections["failures"]
    assert "2.13.0" in page.sections["run"]
    assert "2023-11-14 22:13:20 UTC" in page.sections["run"]
    assert "sweeps run adult-train-size" in page.sections["run"]
    assert "trained with 6 seeds" in page.sections["run"]
    assert "@software{privnets_sweeps" in page.sections["run"]


def test_a_card_has_data_model_accuracies_seeds_versions_and_date(page, membership_sweep):
    card = dict(card_table(membership_sweep).rows)
    points = membership_sweep.points
    errors = points.loc[points["status"] == "finished", "utility/test_mse"]
    assert card == {
        "data": "adult",
        "model": "linear",
        "training records": "10 to 1000",
        "test mse": f"{errors.min():.4g} to {errors.max():.4g}",
        "seeds": "0 to 5",
        "versions": "torch 2.13.0",
        "date": "2023-11-14",
    }
    assert "training records" in page.sections["about"]


def test_the_figure_names_the_axes_of_an_own_experiment():
    objectives = {"cost/seconds": "min", "quality/accuracy": "max"}
    points = membership_points(
        replicate=lambda size, decay, seed: Replicate(
            seed, {"cost/seconds": size + seed, "quality/accuracy": size}, finished_at=1.7e9
        )
    )
    sweep = SyntheticSweep(membership_study(claims=[]), points, objectives=objectives)
    layout = ReportPage(render(sweep)).figures["front-chart"]["layout"]
    titles = [layout[key]["title"]["text"] for key in ("xaxis", "yaxis")]
    assert titles == [
        "cost: seconds<br>(smaller is better)",
        "quality: accuracy<br>(larger is better)",
    ]


def test_stopped_points_are_separate_from_failed_ones():
    points = membership_points()
    points[0] = fail_point(points[0], "diverged")
    points[1] = stop_point(points[1], "dominated at 25% of training by point ab12")
    page = ReportPage(render(SyntheticSweep(study=membership_study(), tradeoff_points=points)))
    assert "Points left out of the front: 1 failed; 1 stopped early." in page.sections["front"]
    assert "dominated at 25% of training by point ab12" in page.sections["stopped"]
    assert "dominated" not in page.sections["failures"]


def test_roc_curves_of_the_strongest_points(page, membership_sweep):
    figure = page.figures["roc-chart"]
    front = pareto_front(membership_sweep.points, OBJECTIVES)
    attacks = [trace["name"] for trace in figure["data"] if not trace.get("fill")]
    assert attacks.count("lira online") == attacks.count("threshold gaussian") == len(front)
    bands = [trace for trace in figure["data"] if trace.get("fill")]
    assert len(bands) == 2 * len(front)


def test_the_page_loads_nothing(page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img", "object")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    policy = next(a["content"] for _, a in page.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_names_and_reasons_are_escaped():
    text = render(hostile_sweep())
    assert HOSTILE not in text
    assert "<img" not in text
    assert text.count("<script") == text.count("</script>")
    found = ReportPage(text)
    assert HOSTILE in html.unescape(found.sections["failures"])
    names = [t.get("name") or "" for figure in found.figures.values() for t in figure["data"]]
    assert not any("<" in name for name in names)


def test_sweep_without_a_finished_point_still_reports():
    points = [fail_point(p, "diverged") for p in membership_points(seeds=1)]
    found = ReportPage(render(SyntheticSweep(membership_study(), points)))
    assert "No front: no point has finished." in found.sections["front"]
    assert "diverged" in found.sections["failures"]
    assert found.sections["claims"].count("cannot tell —") == 2


def test_failed_packs_and_damaged_files_are_listed():
    sweep = SyntheticSweep(
        membership_study(), [], failures={"p1": "worker died"}, unreadable={"f1": "torn"}
    )
    text = ReportPage(render(sweep)).sections["failures"]
    assert all(word in text for word in ("p1", "worker died", "damaged file", "f1", "torn"))


def test_empty_sweep_still_reports():
    sweep = SyntheticSweep(membership_study(), [], pending=20)
    found = ReportPage(render(sweep))
    command = f"sweeps resume {sweep.sweep}"
    assert f"20 points unfinished; continue with {command}" in found.sections["failures"]


def test_objective_undefined_everywhere_leaves_no_front():
    def replicate(size: float, decay: float, seed: int) -> Replicate:
        made = membership_replicate(size, decay, seed)
        return replace(made, metrics={**made.metrics, "utility/test_mse": math.nan})

    found = ReportPage(
        render(SyntheticSweep(membership_study(), membership_points(replicate=replicate)))
    )
    assert "No front: none of 20 finished points reports every" in found.sections["front"]


def test_a_report_replaces_an_older_one(membership_sweep, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("an older report")
    assert write_report([membership_sweep], path) == path
    assert ReportPage(path.read_text(encoding="utf-8")).sections.keys() >= {"front", "run"}
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_large_sweep_stays_small():
    """2,000 points are drawn without intervals, their notes cut, in a page below 5 MB."""

    def replicate(size: float, decay: float, seed: int) -> Replicate:
        words = f"{size} {decay}".translate(str.maketrans("0123456789", "abcdefghij"))
        return replace(membership_replicate(size, decay, seed), notes={"flag": words})

    sizes, decays = [10 * i for i in range(1, 51)], [0.025 * i for i in range(40)]
    points = membership_points(sizes, decays, seeds=1, replicate=replicate)
    study = membership_study(
        space={"train_size": {"grid": sizes}, "weight_decay": {"grid": decays}}, replicates=1
    )
    text = render(SyntheticSweep(study, points))
    found = ReportPage(text)
    assert len(text) < 5e6
    assert "1,950 more are not shown" in found.sections["notes"]
    drawn = found.figures["front-chart"]["data"]
    assert not [t for t in drawn if t.get("name", "").startswith("dominated") and "error_x" in t]
    assert len(found.data["points-data"]["ids"]) == 2000


def test_equal_reasons_are_one_row_with_a_count():
    points = membership_points()
    for place in (0, 1, 3):
        points[place] = fail_point(points[place], "diverged: the loss became NaN at step 12")
    sweep = SyntheticSweep(study=membership_study(), tradeoff_points=points)
    found = failures_table(sweep, ["train_size"])
    assert [row[2] for row in found.rows] == ["3"]
    assert found.rows[0][3] == points[0].point_id


def test_reasons_that_differ_only_in_numbers_are_one_row_after_flags():
    sweep = SyntheticSweep(study=membership_study(), tradeoff_points=membership_points())
    ids = list(sweep.points["point_id"][:3])
    notes = [Note(i, "privacy/x", f"the best of {n} (0.{n}1)") for n, i in enumerate(ids)]
    notes.append(Note(ids[2], "flag/weak", "too weak"))
    rows = notes_table(notes, sweep.points, []).rows
    assert [row[:4] for row in rows] == [
        ("flag", "too weak", "1", "flag: weak"),
        ("note", "the best of 0 (0.01)", "3", "x"),
    ]
