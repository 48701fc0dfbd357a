"""MNIST's files, and the thickness labels of AMNIST."""

import gzip
import os
import shutil

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, mutual_info_score
from support import requires_data

from privnets import data
from privnets.adversarial.problems import amnist
from privnets.data import mnist


def idx(*shape: int, magic: bytes = b"\0\0\x08") -> bytes:
    header = magic + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(range(int(np.prod(shape))))


def test_an_idx_file_is_read_row_by_row():
    found = mnist.parse(gzip.compress(idx(2, 3, 4)), "small", (2, 3, 4))
    np.testing.assert_array_equal(found, np.arange(24).reshape(2, 3, 4))
    assert found.dtype == np.uint8
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(idx(2, 3))[:-9], "small is not a complete gzip file"),
        (b"no gzip at all", "small is not a complete gzip file"),
        (gzip.compress(idx(2, 3)[:-1]), "unpacks to 17 bytes, expected 18"),
        (gzip.compress(idx(2, 3) + bytes(10**6)), "unpacks to more than 18 bytes"),
        (gzip.compress(idx(3, 2)), "header is 000008020000000300000002, expected 0000080200000002"),
        (gzip.compress(idx(2, 3, magic=b"\0\0\x0d")), "header is 00000d02"),
    ],
    ids=["truncated", "not-gzip", "short", "long", "other-shape", "floats"],
)
def test_an_invalid_idx_file_is_refused_with_advice(content, message):
    with pytest.raises(data.DataError, match=message) as caught:
        mnist.parse(content, "small", (2, 3))
    assert "`sweeps data fetch mnist`" in str(caught.value)


@requires_data("mnist")
def test_mnist_loads_as_a_table_of_pixels():
    table, images = data.load("mnist"), mnist.read()
    assert data.info("mnist").shape == (1, 28, 28)
    np.testing.assert_array_equal(table.x[60_000].reshape(28, 28), images.test_x[0])
    np.testing.assert_array_equal(table.y[:60_000], images.train_y)


@requires_data("mnist")
def test_mnist_has_its_published_counts_and_is_parsed_once():
    images = mnist.read()
    assert mnist.read() is images
    assert images.fingerprint == data.fingerprint("mnist")
    assert (images.train_x.shape, images.test_x.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    # Digits per class as LeCun et al. list them.
    assert np.bincount(images.train_y).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert np.bincount(images.test_y).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    # The mean grey level of the training images that everybody normalises with, 0.1307 x 255.
    assert images.train_x.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    with pytest.raises(ValueError, match="read-only"):
        images.train_x[0] = 1


@requires_data("mnist")
def test_a_truncated_file_is_named(tmp_path, monkeypatch):
    shutil.copytree(data.directory() / "mnist", tmp_path / "mnist", copy_function=shutil.copyfile)
    os.chmod(tmp_path / "mnist", 0o755)
    os.truncate(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", 4_000)
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    with pytest.raises(data.DataError, match=r"t10k-labels-idx1-ubyte.gz is truncated \(4,000"):
        mnist.read()


@requires_data("mnist")
def test_amnist_has_exactly_the_papers_images_and_those_of_consistent_labels():
    images = amnist.read_amnist()
    assert np.bincount(images.thickness[:28_568]).tolist() == [9_557, 19_011]
    assert np.bincount(images.thickness[28_568:-4_681]).tolist() == [1_484, 3_263]
    assert np.bincount(images.thickness[-4_681:]).tolist() == [1_725, 2_956]
    assert len(images.x) == len(images.digit) == 28_568 + 4_747 + 4_681


@requires_data("mnist")
def test_the_label_rule_shifts_between_the_parts():
    images = mnist.read()
    counts = [
        amnist.scan_line_counts(x, y)
        for x, y in ((images.train_x, images.train_y), (images.test_x, images.test_y))
    ]
    of_train = amnist.digit_thresholds(counts[0], images.train_y)
    of_test = amnist.digit_thresholds(counts[1], images.test_y)
    assert np.flatnonzero(of_train != of_test).tolist() == [4, 6]
    under_train = amnist.classify_thickness(counts[1], images.test_y, of_train)
    under_test = amnist.classify_thickness(counts[1], images.test_y, of_test)
    assert (under_train != under_test).sum() == 548


@requires_data("mnist")
def test_the_digit_alone_predicts_thickness():
    images = amnist.read_amnist()
    digit, test_digit = images.digit[:28_568], images.digit[-4_681:]
    thickness, test_thickness = images.thickness[:28_568], images.thickness[-4_681:]
    told = mutual_info_score(digit, thickness)
    assert told == pytest.approx(0.065, abs=5e-4)
    shares = np.array([thickness[digit == d].mean() for d in range(10)])
    guesses = shares[test_digit] > thickness.mean()
    found = balanced_accuracy_score(test_thickness, guesses)
    assert found == pytest.approx(0.56, abs=0.02)


def obvious(image: np.ndarray, digit: int, m: int) -> int:
    """The rule as the paper states it, one image at a time."""
    row, width = [
        (14, 2), (20, 1), (11, 2), (18, 2), (10, 2), (20, 6), (7, 2), (22, 0), (10, 2), (22, 0),
    ][digit]  # fmt: skip
    count = sum(1 for pixel in image[row] if pixel != 0)
    if count < int(m - width / 2):
        return 0
    return 1 if count > int(m + width / 2) else -1


def test_the_rule_is_the_obvious_one_on_any_8_bit_images():
    random = np.random.default_rng(0)
    images = (random.random((400, 28, 28)) < random.random((400, 1, 1))).astype(np.uint8) * 255
    digits = random.integers(0, 10, 400)
    counts = amnist.scan_line_counts(images, digits)
    m = amnist.digit_thresholds(counts, digits)
    for digit in range(10):
        assert m[digit] == int(sum(counts[digits == digit]) / sum(digits == digit))
    found = amnist.classify_thickness(counts, digits, m)
    expected = [obvious(*case) for case in zip(images, digits, m[digits], strict=True)]
    assert found.tolist() == expected
    assert set(expected) == {amnist.THIN, amnist.THICK, amnist.NORMAL}


def test_a_digit_without_images_gets_the_threshold_of_all():
    counts, digits = np.array([2, 4, 9]), np.array([0, 0, 1])
    assert amnist.digit_thresholds(counts, digits).tolist() == [3, 9, *[5] * 8]
