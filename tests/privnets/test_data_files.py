import hashlib
import os
import time

import pytest
from support import add_data_set

from privnets import data
from privnets.data.files import DataFile, DatasetInfo

CONTENTS = {"first.csv": b"1,2,3\n" * 50, "second.csv": b"4,5,6\n" * 70}


@pytest.fixture
def entry():
    """A data set of two small files, described as the catalog describes its own."""
    files = tuple(
        DataFile(name, f"http://127.0.0.1/{name}", len(body), hashlib.sha256(body).hexdigest())
        for name, body in CONTENTS.items()
    )
    return DatasetInfo("small", "Small", 120, 3, "regression", 0, "here", "CC0", "nobody", files)


@pytest.fixture
def root(tmp_path, entry, monkeypatch):
    add_data_set(monkeypatch, entry, tmp_path)
    folder = tmp_path / entry.name
    folder.mkdir()
    for name, body in CONTENTS.items():
        (folder / name).write_bytes(body)
    return tmp_path


@pytest.mark.usefixtures("root")
def test_published_files_pass():
    data.fingerprint("small")
    assert data.status("small") == "present"


def remove(path):
    path.unlink()


def truncate(path):
    os.truncate(path, 100)


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"7,8,9\n")


def alter(path):
    path.write_bytes(path.read_bytes().replace(b"1", b"7", 1))


def make_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "fault", "state"),
    [
        (remove, "first.csv is absent", "absent"),
        (truncate, r"first.csv is truncated \(100 bytes, expected 300\)", "altered"),
        (lengthen, r"first.csv is altered \(306 bytes, expected 300\)", "altered"),
        (alter, r"first.csv is altered \(sha256 [0-9a-f]{64}, expected [0-9a-f]{64}\)", "altered"),
        (make_folder, "first.csv is not a file", "altered"),
    ],
)
def test_the_message_names_the_file_the_directory_and_the_command(root, harm, fault, state):
    data.fingerprint("small")  # what is remembered of the good file must not hide the harm
    harm(root / "small" / "first.csv")
    with pytest.raises(data.DataError, match=fault) as caught:
        data.fingerprint("small")
    message = str(caught.value)
    assert f"Looked in {root / 'small'}." in message
    assert "`sweeps data fetch small`" in message
    assert "PRIVNETS_DATA" in message
    assert "small/first.csv and small/second.csv" in message
    assert "\n" not in message
    assert data.status("small") == state


def test_all_faults_are_in_one_message(root):
    truncate(root / "small" / "first.csv")
    remove(root / "small" / "second.csv")
    with pytest.raises(data.DataError, match=r"first.csv is truncated .*; second.csv is absent\."):
        data.fingerprint("small")
    assert data.status("small") == "altered"


def test_an_absent_directory_is_absent_data(entry, tmp_path, monkeypatch):
    add_data_set(monkeypatch, entry, tmp_path / "nowhere")
    assert data.status("small") == "absent"
    with pytest.raises(data.DataError, match=r"first.csv is absent; second.csv is absent"):
        data.fingerprint("small")


def test_a_change_with_an_old_time_stamp_is_noticed(root):
    path = root / "small" / "first.csv"
    data.fingerprint("small")
    before = path.stat()
    time.sleep(0.02)
    alter(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(data.DataError, match=r"first\.csv is altered"):
        data.fingerprint("small")


def test_fingerprints_differ_between_data_sets_and_are_cached():
    found = {name: data.fingerprint(name) for name in ("digits", "diabetes")}
    assert len(set(found.values())) == 2
    assert all(len(value) == 32 and int(value, 16) >= 0 for value in found.values())
    start = time.process_time()
    again = [data.fingerprint("digits") for _ in range(200)]
    assert set(again) == {found["digits"]}
    assert (time.process_time() - start) / 200 < 1e-3
