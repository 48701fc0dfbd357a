"""Help names every command, and bad input gets one message."""

import pytest
from rich.text import Text
from support import run_command

from sweeps.cli.terminal import print_rows

COMMANDS = (
    "list", "show", "fields", "run", "resume", "points", "pareto", "report", "compare", "sync",
    "verify", "ui", "data", "audit",
)  # fmt: skip


def test_help_names_the_commands():
    lines = run_command("--help").stdout.splitlines()
    assert all(any(f" {command} " in line for line in lines) for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "quikstart"), "(did you mean quickstart?)"),
        (("show", "quickstart", "--set", "replicates=0"), "--set replicates: got 0; expected at"),
        (("show", "quickstart", "--num-points", "0"), "value for '--num-points'"),
        (("shwo", "quickstart"), "Did you mean 'show'?"),
        (("run",), "Missing argument 'study'"),
        (("run", "quickstart", "--nmae", "a"), "No such option: --nmae"),
        (("data", "fetsh"), "Did you mean 'fetch'?"),
    ],
)
def test_bad_input_is_told_on_the_error_stream_with_exit_code_2(arguments, message, tmp_path):
    found = run_command(*arguments)
    assert found.exit_code == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert not found.stdout


def test_a_package_s_names_are_those_of_the_modules_that_define_them():
    import sweeps
    from sweeps.analysis import pareto
    from sweeps.study import loader as loading

    assert sweeps.load is loading.load
    assert sweeps.pareto_front is pareto.pareto_front
    assert sweeps.hypervolume is pareto.hypervolume
    assert sweeps.attainment is pareto.attainment
    assert set(dir(sweeps)) == set(sweeps.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sweeps.nothing


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_on_a_terminal_breaks_no_word_and_cuts_no_cell(width, monkeypatch, capsys):
    for name, value in {"COLUMNS": str(width), "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    columns = (
        "privacy/membership_advantage",
        "utility/test_accuracy",
        "train_size",
        "status",
        "point",
    )
    row = ("0.249 ± 0.030", "0.5890 ± 0.0066", "50", "finished", "56c4620c8eaa5b5f06ee")
    print_rows(columns, [row])
    words = Text.from_ansi(capsys.readouterr().out).plain.split()
    assert set(" ".join(row).split()) <= set(words)
    for part in ("privacy/", "membership_", "advantage", "utility/", "test_", "accuracy"):
        assert any(part in word for word in words)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            40,
            "hypervolume -0.138|[-0.167,|-0.109]|privacy/membership_advantage 0.572|± 0.021",
        ),
        (
            28,
            "hypervolume -0.138|[-0.167,|-0.109]|privacy/ 0.572|membership_ ± 0.021|advantage",
        ),
    ],
)
def test_cells_are_broken_within_names_of_metrics_and_before_intervals(
    width, lines, monkeypatch, capsys
):
    for name, value in {"COLUMNS": str(width), "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    rows = [
        ("hypervolume", "-0.138 [-0.167, -0.109]"),
        ("privacy/membership_advantage", "0.572 ± 0.021"),
    ]
    print_rows(("quantity", "difference"), rows)
    shown = Text.from_ansi(capsys.readouterr().out).plain.splitlines()[1:]
    assert [" ".join(line.split()) for line in shown] == lines.split("|")


def test_a_table_that_is_too_wide_for_a_terminal_becomes_a_block_per_row(monkeypatch, capsys):
    for name, value in {"COLUMNS": "80", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    columns = [f"{'x' * 20}{i}" for i in range(6)]
    print_rows(columns, [[f"value{i}" for i in range(6)]])
    lines = Text.from_ansi(capsys.readouterr().out).plain.split("\n")
    assert [line.split() for line in lines[:6]] == [[n, f"value{i}"] for i, n in enumerate(columns)]
