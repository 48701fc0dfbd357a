import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from support import add_data_set

from privnets import data
from privnets.data import DataError
from privnets.data.files import DataFile, DatasetInfo

CONTENTS = {"a.csv": bytes(range(256)) * 1_000, "b.csv": b"second\n" * 10}
SMALL = DatasetInfo(
    "small", "Small", 9, 1, "regression", 0, "here", "CC0", "nobody",
    tuple(
        DataFile(name, None, len(body), hashlib.sha256(body).hexdigest())
        for name, body in CONTENTS.items()
    ),
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data directory, without the data set."""
    add_data_set(monkeypatch, SMALL, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, body in CONTENTS.items():
        (folder / name).write_bytes(body)
    return folder


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_files_come_from_a_directory_or_a_uri(source, root, form):
    paths = data.copy("small", form.format(source))
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert [path.name for path in root.iterdir()] == ["small"]


def test_the_source_may_be_a_whole_data_directory(source, root, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    source.rename(whole / "small")
    paths = data.copy("small", str(whole))
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"second\n" * 9 + b"secone\n", r"b.csv is altered \(sha256"),
        (b"second\n" * 9, r"b.csv is truncated \(63 bytes, expected 70\)"),
        (b"second\n" * 10**6, r"b.csv is altered \(more than 70 bytes\)"),
    ],
)
def test_a_file_other_than_the_published_one_is_not_stored(source, root, body, message):
    (source / "b.csv").write_bytes(body)
    with pytest.raises(DataError, match=message) as caught:
        data.copy("small", str(source))
    assert f"{source}/b.csv is not the published file" in str(caught.value)
    assert not any(root.iterdir())


def test_a_source_without_a_file_is_refused(source, root):
    (source / "b.csv").unlink()
    with pytest.raises(DataError, match=rf"cannot copy b.csv from {source}: .*No such file"):
        data.copy("small", str(source))
    assert not any(root.iterdir())


def test_an_invalid_uri_is_refused_without_showing_its_secrets(root):
    with pytest.raises(DataError, match="got an invalid nosuch: URI") as caught:
        data.copy("small", "nosuch://user:secret@host/path")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_importing_data_loads_no_pyarrow():
    code = "import sys, privnets.data; print('pyarrow' in sys.modules, 'filelock' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout == "False False\n"
