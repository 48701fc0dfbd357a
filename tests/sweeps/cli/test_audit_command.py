"""`sweeps audit`: table, verdict, gates, files and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeps.cli.main import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch, capsys):
    """Run `sweeps audit` in an empty directory: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sweeps", "audit", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return (stopped.value.code or 0, *capsys.readouterr())

    return command


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Scores of one model with a large leak: unit Gaussians, two standard deviations apart."""
    member = np.arange(400) % 2 == 0
    scores = np.random.default_rng(0).standard_normal(400) + 2 * member
    path = tmp_path / "saved.csv"
    pd.DataFrame({"score": scores, "member": member}).to_csv(path, index=False)
    return path


def test_the_table_and_the_verdict_are_printed(run, saved) -> None:
    code, shown, _ = run(str(saved))
    assert code == 0
    assert "tpr_at_fpr_0.001" in shown
    assert "the outputs reveal membership" in shown
    assert "Not run: " in shown


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        (["advantage=0.1"], 1),
        (["advantage=0.9"], 0),
        (["auc=0.99", "epsilon_lower_bound=20"], 0),
        (["auc=0.99", "tpr_at_fpr_0.1=0.1"], 1),
    ],
)
def test_a_gate_that_fails_gives_exit_code_1(run, saved, gates, expected) -> None:
    code, shown, _ = run(str(saved), *(word for gate in gates for word in ("--fail-above", gate)))
    assert code == expected
    assert ("FAILS" in shown) == bool(expected)


def test_a_gate_compares_the_measured_value_and_says_if_its_interval_holds_the_limit(
    run, saved
) -> None:
    _, shown, _ = run(str(saved), "--fail-above", "advantage=0.0")
    value = float(shown.rpartition("advantage ")[2].split()[0])
    just_above, just_below = (f"advantage={value + step}" for step in (0.002, -0.002))
    code, shown, _ = run(str(saved), "--fail-above", just_above)
    assert (code, "the interval holds the limit" in shown) == (0, True)
    assert run(str(saved), "--fail-above", just_below)[0] == 1


def test_the_report_and_the_records_are_written(run, saved, tmp_path) -> None:
    code, shown, _ = run(str(saved), "--report", "page.html", "--records", "records.csv")
    assert code == 0
    assert "page.html" in shown
    assert "<h1>Membership audit</h1>" in (tmp_path / "page.html").read_text()
    records = pd.read_csv(tmp_path / "records.csv")
    assert len(records) == 400
    assert records["exposed"].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "absent.csv is not a file"),
        (["saved.csv", "--member", "inside"], "member must name the column that has 1 for"),
        (["saved.csv", "--target", "3"], "target must be a model from 0 to 0; got 3"),
        (["saved.csv", "--family", "online"], "family must be one of threshold"),
        (["saved.csv", "--fail-above", "advantag=1"], "did you mean advantage?"),
        (["saved.csv", "--fail-above", "advantage"], "expected a number, as advantage=0.1"),
        (["saved.csv", "--fail-above", "advantage=nan"], "expected a number, as advantage=0.1"),
        (["saved.csv", "--report", "page.pdf"], "must end in .html"),
        (["saved.csv", "--report", "absent/page.html"], "there is no directory absent"),
        (["saved.csv", "--records", "records.txt"], "must end in .csv or .parquet"),
    ],
)
def test_bad_input_gets_one_error_and_exit_code_2(run, saved, arguments, message) -> None:
    code, shown, errors = run(*arguments)
    assert code == 2
    assert message in errors
    assert errors.count("Error") == 1
    assert not shown
