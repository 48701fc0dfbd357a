"""Collections of faces, read from small files in the form of their authors."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from privnets import data
from privnets.adversarial.encodings import ImageEncoding
from privnets.data.catalog import DATASETS
from privnets.data.faces import UNKNOWN, read_table
from tests.support import requires_data

LISTS = {
    "list_attr_celeba.txt": (
        "3\nAttractive Male Smiling Young \n"
        "000001.jpg -1  1 -1  1\n000002.jpg  1 -1  1 -1\n000003.jpg -1 -1 -1  1\n"
    ),
    "identity_CelebA.txt": "000001.jpg 2880\n000002.jpg 12\n000003.jpg 2880\n",
    "list_eval_partition.txt": "000001.jpg 0\n000002.jpg 1\n000003.jpg 2\n",
}
IMAGE = "img_align_celeba/000001.jpg"


def face(colour: tuple[int, int, int], size: tuple[int, int] = (60, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


@pytest.fixture
def celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    folder = tmp_path / "celeba"
    (folder / IMAGE).parent.mkdir(parents=True)
    for file, text in LISTS.items():
        (folder / file).write_text(text)
    face((200, 100, 50)).save(folder / IMAGE)
    return folder


@pytest.mark.usefixtures("celeba")
def test_labels_are_those_of_the_lists():
    assert data.status("celeba") == "present"
    labels = DATASETS.get("celeba").labels()
    assert labels.identity.tolist() == [1, 0, 1]
    assert labels.male.tolist() == [1, 0, 0]
    assert labels.smiling.tolist() == [0, 1, 0]
    assert labels.is_test.tolist() == [False, False, True]


@pytest.mark.usefixtures("celeba")
def test_images_are_resized_to_squares_of_colour_first():
    levels = DATASETS.get("celeba").pixels(np.array([0, 0]), 16)
    assert levels.shape == (2, 3, 16, 16)
    assert np.abs(levels.astype(int) - np.array([200, 100, 50])[:, None, None]).max() <= 4


@pytest.mark.usefixtures("celeba")
def test_lists_are_looked_at_once_for_many_images(monkeypatch):
    source, calls = DATASETS.get("celeba"), []
    fingerprint = type(source).fingerprint
    monkeypatch.setattr(type(source), "fingerprint", lambda s: (calls.append(s), fingerprint(s))[1])
    source.pixels(np.zeros(20, dtype=int), 16)
    assert len(calls) == 1


def test_lists_without_their_images_are_not_enough(celeba):
    (celeba / IMAGE).unlink()
    assert data.status("celeba") == "absent"
    with pytest.raises(data.DataError, match=r"0001.*\.jpg absent"):
        data.fingerprint("celeba")


def test_the_square_in_the_middle_is_read(celeba):
    image = face((0, 0, 0))
    image.paste((255, 255, 255), (0, 10, 60, 70))
    path = celeba / IMAGE
    image.save(path, quality=95)
    levels = DATASETS.get("celeba").pixels(np.array([0]), 16)
    assert levels.min() > 230
    released = ImageEncoding(size=16).encode({path.name: path})
    np.testing.assert_array_equal(np.float32(levels / np.float32(255)), released)


def test_another_list_changes_the_fingerprint(celeba):
    before = data.fingerprint("celeba")
    assert before == data.fingerprint("celeba")
    with (celeba / "identity_CelebA.txt").open("a") as identities:
        identities.write("000004.jpg 5\n")
    assert data.fingerprint("celeba") != before


def test_an_absent_list_is_named_with_the_place_that_was_searched(celeba):
    (celeba / "identity_CelebA.txt").unlink()
    assert data.status("celeba") == "absent"
    with pytest.raises(data.DataError, match=r"identity_CelebA\.txt absent.*Looked in .*celeba"):
        data.fingerprint("celeba")


def test_a_list_without_an_image_of_another_list_is_refused(celeba):
    (celeba / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    with pytest.raises(data.DataError, match=r"lists in .*celeba cannot be read"):
        DATASETS.get("celeba").labels()


@pytest.mark.usefixtures("celeba")
def test_folders_of_images_are_not_fetched_but_asked_for():
    with pytest.raises(data.DataError, match=r"Ask https://mmlab.* and unpack it in .*celeba"):
        data.fetch("celeba")


def test_the_table_of_lfw_has_a_jpeg_file_and_labels_for_each_image(tmp_path):
    stream = io.BytesIO()
    face((9, 9, 9), (64, 64)).save(stream, "JPEG")
    row = {"identity": 3, "male": 1, "smiling": UNKNOWN, "jpeg": stream.getvalue()}
    path = tmp_path / "lfw.parquet"
    pd.DataFrame([row, row | {"male": 0}]).to_parquet(path)
    labels, read = read_table(path)
    assert labels.male.tolist() == [1, 0]
    assert labels.smiling.tolist() == [UNKNOWN, UNKNOWN]
    assert np.array_equal(np.asarray(read(0)), np.asarray(Image.open(stream)))
    pd.DataFrame([row | {"male": 2}]).to_parquet(path)
    with pytest.raises(data.DataError, match="labels 0, 1 or -1"):
        read_table(path)
    pd.DataFrame([{"identity": 3}]).to_parquet(path)
    with pytest.raises(data.DataError, match="parquet table with identity, male, smiling, jpeg"):
        read_table(path)


@requires_data("lfw")
def test_lfw_has_the_published_numbers_of_people_and_labels():
    labels = DATASETS.get("lfw").labels()
    assert len(np.unique(labels.identity)) == 5_749
    assert [np.count_nonzero(labels.male == each) for each in (1, 0)] == [10_263, 2_961]
    both = (labels.male != UNKNOWN) & (labels.smiling != UNKNOWN)
    assert np.count_nonzero(both) == 12_442
    assert DATASETS.get("lfw").pixels(np.array([5]), 64).shape == (1, 3, 64, 64)
