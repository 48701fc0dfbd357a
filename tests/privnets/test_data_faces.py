"""Collections of faces, read from small files in the form of their authors."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from privnets import data
from privnets.adversarial.config import AdversarialConfig, problem_of
from privnets.adversarial.encodings import ImageEncoding
from privnets.adversarial.problems.faces import FaceProblemReference
from privnets.data.catalog import DATASETS
from privnets.data.faces.collection import UNKNOWN
from privnets.data.faces.lfw import read_table
from tests.support import requires_data

LISTS = {
    "celeba": {
        "list_attr_celeba.txt": (
            "3\nAttractive Male Smiling Young \n"
            "000001.jpg -1  1 -1  1\n000002.jpg  1 -1  1 -1\n000003.jpg -1 -1 -1  1\n"
        ),
        "identity_CelebA.txt": "000001.jpg 2880\n000002.jpg 12\n000003.jpg 2880\n",
        "list_eval_partition.txt": "000001.jpg 0\n000002.jpg 1\n000003.jpg 2\n",
    },
    "facescrub": {
        "facescrub_actors.txt": (
            "name\timage_id\tface_id\turl\tbbox\tsha256\n"
            "Zed\t1\t7\thttp://a\t10,20,40,60\tff\nZed\t2\t8\thttp://b\t0,0,9,9\tff\n"
        ),
        "facescrub_actresses.txt": (
            "name\timage_id\tface_id\turl\tbbox\tsha256\nAnn Lee\t1\t3\thttp://c\t0,0,50,50\tff\n"
        ),
    },
    "vggface2": {
        "identity_meta.csv": (
            "Class_ID, Name, Sample_Num, Flag, Gender\n"
            'n000001, "14th_Dalai_Lama", 1, 0, m\nn000002, "A, Fine_Frenzy", 2, 1, f\n'
        ),
        "train_list.txt": "n000002/0001_01.jpg\nn000002/0002_01.jpg\n",
        "test_list.txt": "n000001/0001_01.jpg\n",
    },
}
IMAGES = {
    "celeba": ["img_align_celeba/000001.jpg"],
    "facescrub": ["Zed/Zed_7.jpeg", "Ann Lee/Ann Lee_3.png", "Zed/notes.txt"],
    "vggface2": ["train/n000002/0001_01.jpg"],
}
FACESCRUB = FaceProblemReference(faces="subject-gender", collection="facescrub")
EXPECTED = {  # identity, male, smiling and is_test of each image
    "celeba": [[1, 0, 1], [1, 0, 0], [0, 1, 0], [False, False, True]],
    "facescrub": [[1, 0], [1, 0], [UNKNOWN, UNKNOWN], None],
    "vggface2": [[1, 1, 0], [0, 0, 1], [UNKNOWN] * 3, [False, False, True]],
}


def face(colour: tuple[int, int, int], size: tuple[int, int] = (60, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


@pytest.fixture
def collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    for name, lists in LISTS.items():
        for file, text in lists.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_text(text)
        for file in IMAGES[name]:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".txt":
                face((200, 100, 50)).save(path)
    list_checksums(tmp_path)
    return tmp_path


def list_checksums(folder: Path) -> None:
    """Writes the checksums of the images that are there to the lists of FaceScrub."""
    for path in (folder / "facescrub").glob("*.txt"):
        frame = pd.read_csv(path, sep="\t", dtype=str)
        for row, image in (frame["name"] + "_" + frame["face_id"]).items():
            for file in (folder / "facescrub").rglob(f"{image}.*"):
                frame.loc[row, "sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        frame.to_csv(path, sep="\t", index=False)


@pytest.mark.parametrize("name", LISTS)
def test_labels_are_those_of_the_lists(name, collections):
    source = DATASETS.get(name)
    assert data.status(name) == "present"
    labels = source.labels()
    found = [labels.identity, labels.male, labels.smiling, labels.is_test]
    assert [each if each is None else each.tolist() for each in found] == EXPECTED[name]


@pytest.mark.parametrize("name", LISTS)
def test_images_are_resized_to_squares_of_colour_first(name, collections):
    levels = DATASETS.get(name).pixels(np.array([0, 0]), 16)
    assert levels.shape == (2, 3, 16, 16)
    assert np.abs(levels.astype(int) - np.array([200, 100, 50])[:, None, None]).max() <= 4


def test_a_face_of_facescrub_is_cropped_to_its_box(collections):
    image = face((0, 0, 0))
    image.paste((255, 255, 255), (10, 20, 40, 60))
    image.save(collections / "facescrub/Zed/Zed_7.jpeg", quality=95)
    list_checksums(collections)
    assert DATASETS.get("facescrub").reader()(0).size == (30, 40)
    assert DATASETS.get("facescrub").pixels(np.array([0]), 16).min() > 230


@pytest.mark.parametrize("name", LISTS)
def test_a_folder_is_searched_once_for_many_images(name, collections, monkeypatch):
    source, calls = DATASETS.get(name), []
    content = type(source).content
    monkeypatch.setattr(type(source), "content", lambda s: (calls.append(s), content(s))[1])
    source.pixels(np.zeros(20, dtype=int), 16)
    assert len(calls) == 1


def test_images_with_another_checksum_than_listed_are_left_out_and_counted(collections):
    source = DATASETS.get("facescrub")
    before = source.fingerprint()
    assert source.remarks() == ()
    face((1, 1, 1), (200, 100)).save(collections / "facescrub/Zed/Zed_7.jpeg")
    assert source.labels().male.tolist() == [0]
    assert source.fingerprint() != before
    (remark,) = problem_of(AdversarialConfig(problem=FACESCRUB)).remarks
    assert remark.startswith("1 images of ")
    face((1, 1, 1), (100, 200)).save(collections / "facescrub/Ann Lee/Ann Lee_3.png")
    with pytest.raises(data.DataError, match="2 have another one"):
        source.labels()


@pytest.mark.parametrize("name", ["celeba", "vggface2"])
def test_lists_without_their_images_are_not_enough(name, collections):
    (collections / name / IMAGES[name][0]).unlink()
    assert data.status(name) == "absent"
    with pytest.raises(data.DataError, match=r"0001.*\.jpg absent"):
        data.fingerprint(name)


def test_the_square_in_the_middle_is_read(collections):
    image = face((0, 0, 0))
    image.paste((255, 255, 255), (0, 10, 60, 70))
    path = collections / "celeba/img_align_celeba/000001.jpg"
    image.save(path, quality=95)
    levels = DATASETS.get("celeba").pixels(np.array([0]), 16)
    assert levels.min() > 230
    released = ImageEncoding(size=16).encode({path.name: path})
    np.testing.assert_array_equal(np.float32(levels / np.float32(255)), released)


def test_another_list_or_another_downloaded_image_changes_the_fingerprint(collections):
    before = {name: data.fingerprint(name) for name in LISTS}
    assert before == {name: data.fingerprint(name) for name in LISTS}
    face((1, 2, 3)).save(collections / "facescrub/Zed/Zed_8.jpg")
    list_checksums(collections)
    with (collections / "celeba/identity_CelebA.txt").open("a") as identities:
        identities.write("000004.jpg 5\n")
    changed = {name for name in LISTS if data.fingerprint(name) != before[name]}
    assert changed == {"facescrub", "celeba"}
    assert DATASETS.get("facescrub").labels().identity.tolist() == [1, 1, 0]


def test_an_absent_list_is_named_with_the_place_that_was_searched(collections):
    (collections / "vggface2/test_list.txt").unlink()
    assert data.status("vggface2") == "absent"
    with pytest.raises(data.DataError, match=r"test_list\.txt absent.*Looked in .*vggface2"):
        data.fingerprint("vggface2")


def test_a_list_without_an_image_of_another_list_is_refused(collections):
    (collections / "celeba/identity_CelebA.txt").write_text("000001.jpg 2880\n")
    with pytest.raises(data.DataError, match=r"lists in .*celeba cannot be read"):
        DATASETS.get("celeba").labels()


def test_folders_of_images_are_not_fetched_but_asked_for(collections):
    with pytest.raises(data.DataError, match=r"Ask https://mmlab.* and unpack it in .*celeba"):
        data.fetch("celeba")


def test_the_table_of_lfw_has_a_jpeg_file_and_labels_for_each_image(tmp_path):
    stream = io.BytesIO()
    face((9, 9, 9), (64, 64)).save(stream, "JPEG")
    row = {"identity": 3, "male": 1, "smiling": UNKNOWN, "jpeg": stream.getvalue()}
    path = tmp_path / "lfw.parquet"
    pd.DataFrame([row, row | {"male": 0}]).to_parquet(path)
    table = read_table(path)
    assert table.labels.male.tolist() == [1, 0]
    assert table.labels.smiling.tolist() == [UNKNOWN, UNKNOWN]
    assert table.files[0] == stream.getvalue()
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
