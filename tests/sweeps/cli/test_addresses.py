"""`RAY_ADDRESS` stands for `--address`, in the form that a command takes."""

from __future__ import annotations

import pytest

from sweeps.cli.main import main

NO_RAY, NO_SERVER = "127.0.0.1:1", "http://127.0.0.1:1"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def command(address: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr("sys.argv", ["sweeps", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, capsys.readouterr().err

    return command


@pytest.mark.parametrize("command", [("run", "quickstart"), ("data", "list")])
def test_commands_that_join_a_ray_take_its_address(run, command) -> None:
    code, error = run(NO_RAY, *command)
    assert code == 2
    assert NO_RAY in error


@pytest.mark.parametrize("command", ["points", "pareto", "report", "compare"])
def test_commands_that_read_results_take_the_address_of_a_job_server(run, command) -> None:
    code, error = run(NO_SERVER, command, "first")
    assert code == 2
    assert NO_SERVER in error


@pytest.mark.parametrize("address", [NO_RAY, NO_SERVER])
def test_a_place_that_is_named_comes_first(run, address) -> None:
    code, error = run(address, "points", "first", "--storage", "here")
    assert code == 2
    assert "sweep 'first' does not exist" in error


def test_results_are_read_here_if_the_address_is_that_of_a_ray(run) -> None:
    code, error = run(NO_RAY, "pareto", "first")
    assert code == 2
    assert "sweep 'first' does not exist" in error
