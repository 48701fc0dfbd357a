"""The user's own images as a problem: pixels, labels, releases of folders, and clear errors."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import ImageEncoding
from privnets.adversarial.evaluation.attacked import evaluate_by_attackers
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import is_finite, load_pool
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.game import Game
from privnets.adversarial.training.releasers import build_releaser
from privnets.data import UserFormError
from privnets.randomness import generator
from privnets.references.user_files import set_folder
from tests.privnets.adversarial.releases import split_parts

RECORDS, SIZE = 120, 8
FORM = {
    "images": "photos",
    "attributes": "attributes.csv",
    "secret": "colour",
    "utility": "bright",
    "size": SIZE,
}


@pytest.fixture
def photos(tmp_path):
    """Writes images of 24x16 pixels: red or blue, with a bright upper or lower half."""
    random = np.random.default_rng(0)
    colour, bright = random.integers(0, 2, RECORDS), random.integers(0, 2, RECORDS)
    names = [f"{i % 3}/{i:03}.{'png' if i % 2 else 'jpg'}" for i in range(RECORDS)]
    for name, red, half in zip(names, colour, bright, strict=True):
        pixels = random.integers(0, 40, (16, 24, 3))
        pixels[:, :, 0 if red else 2] += 120
        pixels[8 * half : 8 * half + 8] += 90
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=95)
    frame = pd.DataFrame({"file": names, "colour": colour, "bright": bright})
    frame.to_csv(tmp_path / "attributes.csv", index=False)
    set_folder(tmp_path)
    return frame


def config_of(problem=None, **changes) -> AdversarialConfig:
    return AdversarialConfig.model_validate({"problem": {**FORM, **(problem or {})}, **changes})


def test_the_centre_of_each_image_is_resized(photos, tmp_path) -> None:
    pixels = np.zeros((16, 24, 3), dtype=np.uint8)
    pixels[:, 4:20] = [255, 51, 0]  # the centre
    Image.fromarray(pixels).save(tmp_path / "own.png")
    encoding = ImageEncoding(size=8)
    (encoded,) = encoding.encode({"own.png": tmp_path / "own.png"})
    assert encoded.shape == (3, 8, 8)
    np.testing.assert_allclose(encoded.mean((1, 2)), [1.0, 0.2, 0.0], atol=1e-6)
    decoded = encoding.decode(encoded[None], {"own.png": tmp_path / "own.png"})
    assert decoded["own.png"].size == (8, 8)
    assert decoded["own.png"].getpixel((3, 3)) == (255, 51, 0)


def test_attackers_of_a_release_redraw_exactly_what_a_file_holds(tmp_path) -> None:
    encoding = ImageEncoding(size=8)
    z = np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    records = {name: Image.new("RGB", (24, 16)) for name in ("a/0.jpg", "a/1.png")}
    encoding.write(encoding.decode(z, records), tmp_path)
    np.testing.assert_array_equal(encoding.encode(encoding.read(tmp_path)), encoding.reencode(z))


def test_labels_belong_to_their_images(photos) -> None:
    problem = problem_of(config_of())
    records, (splits,) = problem.load_records([config_of()])
    assert records.x.shape == (RECORDS, 3, SIZE, SIZE)
    assert records.x.min() >= 0
    assert records.x.max() <= 1
    is_red = records.x[:, 0].mean((1, 2)) > records.x[:, 2].mean((1, 2))
    np.testing.assert_array_equal(records.secret, is_red)
    lower = records.x[:, :, 4:].mean((1, 2, 3)) > records.x[:, :, :4].mean((1, 2, 3))
    np.testing.assert_array_equal(records.utility, lower)
    assert [len(part) for part in split_parts(splits)] == [48, 42, 12, 18]


def test_a_changed_image_is_another_problem_in_the_same_process(photos, tmp_path) -> None:
    config, folder = config_of(), tmp_path / "photos"
    before = problem_of(config)
    assert problem_of(config) is before
    pixels = before.x  # read at first use
    image = next(folder.rglob("*.*"))
    Image.new("RGB", (9, 9), "green").save(image)
    after = problem_of(config)
    assert after.fingerprint(config) != before.fingerprint(config)
    assert not np.array_equal(after.x, pixels)


@pytest.fixture
def trained_release(photos):
    """The problem, and the release of a short game."""
    config = config_of(steps=3, noise_std=0.01, releaser_width=8, panel="quick")
    problem = problem_of(config)
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    game.advance(3)
    return problem, release_records(game, 0, pool, splits[0])


def test_a_game_releases_colours(trained_release) -> None:
    _, release = trained_release
    assert is_finite(release)
    assert release.released.test.z.shape == (18, 3, SIZE, SIZE)


@pytest.mark.slow
def test_attackers_recognise_the_colours_of_raw_images(trained_release) -> None:
    problem, release = trained_release
    (replicate,) = filter(None, evaluate_by_attackers(problem, [release]))
    assert replicate.metrics["baseline/attacker_balanced_accuracy"] == 1.0
    assert load_releaser(replicate.artifacts["releaser.safetensors"]).network.channels == 3


def test_a_folder_is_released_as_png_files_of_one_size(photos, tmp_path) -> None:
    config = config_of(noise_std=0.05)
    problem = problem_of(config)
    weights = build_releaser(problem, config).initial(generator(0, "releaser"))
    releaser = load_releaser(save_releaser(problem, config, weights))
    count = releaser.release_files(tmp_path / "photos", tmp_path / "out", seed=1)
    assert count == (RECORDS, 0, ())
    for place in (tmp_path / "photos", tmp_path / "photos" / "0", tmp_path):
        with pytest.raises(UserFormError, match="a place apart from the records"):
            releaser.release_files(tmp_path / "photos", place)
    for name in photos["file"]:
        with Image.open(tmp_path / "out" / name.replace("jpg", "png")) as image:
            assert image.size == (SIZE, SIZE)
            assert image.format == "PNG"
            assert not image.getexif()
    read = releaser.description.encoding.read
    assert len(problem.encode_release(read(tmp_path / "out"))) == RECORDS
    (tmp_path / "out" / "0" / "000.png").unlink()
    with pytest.raises(UserFormError, match=r"no release 0/000\.png"):
        problem.encode_release(read(tmp_path / "out"))
    with pytest.raises(UserFormError, match="holds no such file"):
        releaser.release_files(tmp_path / "empty", tmp_path / "other")


@pytest.mark.parametrize(
    ("problem", "field", "words"),
    [
        ({"images": "none"}, "images", "which is not a folder"),
        ({"attributes": "none.csv"}, "attributes", "cannot be read"),
        ({"file": "path"}, "file", "columns of the table"),
        ({"secret": "color"}, "secret", "did you mean colour"),
    ],
)
def test_a_mistake_is_named_with_its_entry(photos, problem, field, words) -> None:
    with pytest.raises(UserFormError, match=words) as raised:
        problem_of(config_of(problem))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("../attributes.csv", "file", "paths in the folder"),
        ("/etc/passwd", "file", "paths in the folder"),
        ("0/000.jpg", "file", "0/000.jpg twice"),
        ("./0/000.jpg", "file", "0/000.jpg twice"),
        ("0/000.png", "file", "0/000.png twice as the name of a release"),
        ("picture", "file", "names that end in .jpeg, .jpg"),
        ("absent.png", "images", "absent.png, which cannot be read"),
        ("text.png", "images", "a JPEG or PNG file"),
    ],
)
def test_a_listed_file_that_is_no_image_of_the_folder_is_refused(
    photos, tmp_path, name, field, words
) -> None:
    (tmp_path / "photos" / "text.png").write_text("no image")
    shutil.copy(tmp_path / "photos" / "0/000.jpg", tmp_path / "photos" / "0/000.png")
    photos.loc[RECORDS - 1, "file"] = name
    photos.to_csv(tmp_path / "attributes.csv", index=False)
    with pytest.raises(UserFormError, match=words) as raised:
        problem_of(config_of())
    assert raised.value.field == field


def test_a_damaged_image_is_named(photos, tmp_path) -> None:
    path = tmp_path / "photos" / photos["file"][1]
    path.write_bytes(path.read_bytes()[:200])
    problem = problem_of(config_of())
    with pytest.raises(UserFormError, match=r"001\.png, which cannot be read"):
        problem.load_records([config_of()])


@pytest.mark.parametrize(
    ("mode", "levels"),
    [
        ("L", np.uint8([0, 128, 255])),
        ("I;16", np.uint16([0, 32896, 65535])),
        ("P", np.uint8([0, 128, 255])),
        ("RGBA", np.uint8([0, 128, 255])),
    ],
)
def test_images_of_every_depth_keep_their_range(tmp_path, mode, levels) -> None:
    image = Image.fromarray(np.repeat(levels, 3)[None].repeat(9, axis=0))
    image = image if image.mode == mode else image.convert(mode)
    image.crop((0, 0, 9, 9)).save(tmp_path / "own.png")
    with Image.open(tmp_path / "own.png") as saved:
        assert saved.mode == mode
    x = ImageEncoding(size=9).encode({"own.png": tmp_path / "own.png"})
    np.testing.assert_allclose(x[0, :, 4, [1, 4, 7]].T, [[0, 128 / 255, 1]] * 3, atol=1e-6)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.new("RGBA", (8, 8), (10, 20, 30, 254)), "transparent pixels"),
        (Image.new("F", (8, 8), 0.5), "floating-point"),
        (Image.new("I", (8, 8), 70_000), "8 or 16 bits"),
    ],
)
def test_pixels_without_a_known_meaning_are_refused(image, words) -> None:
    with pytest.raises(UserFormError, match=words):
        ImageEncoding(size=8).encode({"own": image})


def test_transparent_files_are_refused_and_unlabelled_images_counted(photos, tmp_path) -> None:
    photos.loc[3, "colour"] = np.nan
    photos.to_csv(tmp_path / "attributes.csv", index=False)
    remarks = problem_of(config_of()).remarks
    assert "attributes.csv: 1 of 120 images without a name or label are left out." in remarks
    Image.new("RGBA", (8, 8), (10, 20, 30, 100)).save(tmp_path / "photos" / photos["file"][1])
    with pytest.raises(UserFormError, match="transparent"):
        problem_of(config_of())
