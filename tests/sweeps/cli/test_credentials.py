"""Keys in the URI of a storage are never shown or written."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from small_sweeps import small_plan
from support import run_command

from sweeps.analysis.results import Result
from sweeps.cli.run import _resume_command
from sweeps.cli.terminal import command_line
from sweeps.engine.executor import prepare_manifest
from sweeps.errors import InputError
from sweeps.store.filesystem import open_directory
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest

SECRET = "hunter2/hunter2+x"
STORAGE = f"s3://AKIA1:{SECRET}@bucket/path"


@pytest.mark.parametrize("uri", [f"s3://AKIA1:{SECRET}@", f"nosuch://AKIA1:{SECRET}@bucket/path"])
def test_a_storage_that_cannot_be_opened_is_reported_without_its_keys(uri: str) -> None:
    with pytest.raises(InputError, match="cannot be opened") as caught:
        open_directory(uri)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_the_error_of_a_command_does_not_show_the_keys_of_its_storage() -> None:
    ended = run_command("points", "some-sweep", "--storage", f"nosuch://AKIA1:{SECRET}@bucket")
    assert ended.exit_code == 2
    assert "bucket" in ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout


def test_a_displayed_result_does_not_show_the_keys_of_its_storage(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    manifest = prepare_manifest(ledger, small_plan(tmp_path), command="", tracking_uri="http://a")
    write_manifest(ledger, manifest)
    found = Result.read(ledger)
    ledger.storage = STORAGE
    assert "hunter2" not in repr(found)
    assert "bucket/path" in repr(found)


def test_commands_to_repeat_do_not_show_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri = f"http://ann:{SECRET}@host"
    words = ["run", "quickstart", "--storage", STORAGE, f"--tracking-uri={uri}", "--name", "it's"]
    monkeypatch.setattr("sys.argv", ["sweeps", *words])
    resume = _resume_command(small_plan(tmp_path), "sweep", STORAGE, uri, None)
    for said in (command_line(), resume):
        assert "hunter2" not in said
        assert "bucket/path" in said
        assert "host" in said
