import re
from functools import partial

import pytest
from support import requires_data, run_command

from privnets import data
from tests.privnets.test_registry import install_package

run = partial(run_command, "data")


def row(output: str, name: str) -> list[str]:
    (line,) = (line for line in output.splitlines() if line.startswith(f"{name} "))
    return re.split(r"\s{2,}", line.strip())


def test_list_says_where_data_come_from_and_that_absent_ones_are_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    found = run("list")
    assert found.exit_code == 0
    where = str(tmp_path / "adult")
    source = "https://archive.ics.uci.edu/dataset/2/adult"
    assert row(found.stdout, "adult")[:6] == [
        "adult", "48,842", "binary", source, "CC BY 4.0", "absent",
    ]  # fmt: skip
    assert where.startswith(row(found.stdout, "adult")[6])
    assert row(found.stdout, "digits")[5:] == ["present", "scikit-learn"]
    assert all(f"\n{name} " in found.stdout for name in data.names())
    assert not any(tmp_path.iterdir())


_STEPS = """
from privnets.data import DataSource, DatasetInfo

class Steps(DataSource):
    info = DatasetInfo(
        name="steps", title="Steps", records=60, attributes=2, task="regression", classes=0,
        source="", licence="", citation="",
    )
"""


def test_data_of_a_package_are_where_the_package_is(tmp_path, monkeypatch):
    install_package(tmp_path, "steps = my_steps:Steps", _STEPS, "my_steps", "privnets.datasets")
    monkeypatch.syspath_prepend(tmp_path)
    assert row(run("list").stdout, "steps")[-2:] == ["present", "my_steps"]
    assert run("fetch", "steps").stdout == "steps comes with my_steps; nothing to fetch.\n"


def test_list_says_that_an_altered_file_is_altered(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_bytes(b"39, State-gov")
    assert row(run("list").stdout, "adult")[5] == "altered"


@requires_data("adult")
def test_present_data_are_listed_so_and_not_fetched_again(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert row(run("list").stdout, "adult")[5] == "present"
    found = run("fetch", "adult")
    assert found.exit_code == 0
    folder = data.directory() / "adult"
    assert found.stdout.split() == [str(folder / "adult.data"), str(folder / "adult.test")]


def test_fetching_what_scikit_learn_ships_says_so():
    found = run("fetch", "digits")
    assert (found.exit_code, found.stdout) == (
        0,
        "digits comes with scikit-learn; nothing to fetch.\n",
    )


def test_fetching_an_unknown_name_is_bad_input():
    found = run("fetch", "adults")
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("Error: data set must be one of adult, ")


@pytest.mark.parametrize("name", ["adult", "location30"])
def test_fetching_without_a_network_is_one_message_and_nothing_written(tmp_path, monkeypatch, name):
    # A proxy at a closed loopback port is a machine without a network.
    for variable in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    found = run("fetch", name)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert "cannot download" in found.stderr
    assert f"copy the published file to {tmp_path / name}" in found.stderr
    assert not any(tmp_path.iterdir())


def test_fetching_into_a_directory_that_cannot_be_written_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path / "file" / "data"))
    found = run("fetch", "adult")
    assert found.exit_code == 2
    assert "cannot store data set" in found.stderr
