import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import requires_data

from privnets import cache, data
from privnets.data.preparation import principal_components, z_scores

SMALL = 10**7  # numbers
TABLES = [n for n in data.names("table") if data.info(n).records * data.info(n).attributes < SMALL]
SETS = [pytest.param(name, marks=requires_data(name)) for name in TABLES]


def standardise(name: str) -> np.ndarray:
    """Columns by two passes of the definition; a constant one is zero."""
    x = data.load(name).x
    centred = x - x.sum(axis=0) / len(x)
    deviation = np.sqrt((centred**2).sum(axis=0) / len(x))
    varies = np.array([len(np.unique(column)) > 1 for column in x.T])
    return np.where(varies, centred / np.where(varies, deviation, 1), 0)


@pytest.mark.parametrize("name", SETS)
def test_components_are_uncorrelated_centred_and_ordered_by_variance(name):
    prepared = data.prepare(name)
    n, attributes = prepared.x.shape
    assert (n, attributes) == (data.info(name).records, data.info(name).attributes)
    assert prepared.x.flags.c_contiguous
    assert prepared.x.dtype == np.float64
    np.testing.assert_allclose(prepared.x.mean(axis=0), 0, atol=1e-12)
    covariance = prepared.x.T @ prepared.x / n
    np.testing.assert_allclose(covariance, np.diag(prepared.explained_variance), atol=1e-10)
    assert (np.diff(prepared.explained_variance) <= 0).all()


@pytest.mark.parametrize("name", SETS)
def test_variances_are_the_correlation_matrix_eigenvalues(name):
    z = standardise(name)
    eigenvalues = np.linalg.eigvalsh(z.T @ z / len(z))[::-1]
    variance = data.prepare(name).explained_variance
    np.testing.assert_allclose(variance, eigenvalues, rtol=1e-9, atol=1e-11)
    assert variance.sum() == pytest.approx(z.any(axis=0).sum(), rel=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_each_components_largest_loading_is_positive(name):
    prepared = data.prepare(name)
    live = prepared.explained_variance > 0
    loadings = standardise(name).T @ prepared.x[:, live]
    largest = np.abs(loadings).argmax(axis=0)
    assert (loadings[largest, np.arange(live.sum())] > 0).all()


@pytest.mark.parametrize("name", SETS)
def test_fewer_features_are_the_leading_components_of_all(name):
    whole, part = data.prepare(name), data.prepare(name, 5)
    np.testing.assert_array_equal(part.x, whole.x[:, :5])
    np.testing.assert_array_equal(part.explained_variance, whole.explained_variance[:5])
    assert part.x.flags.c_contiguous
    assert part.y is whole.y
    assert part.fingerprint == whole.fingerprint == data.fingerprint(name)


@pytest.mark.parametrize("name", SETS)
def test_targets_suit_the_task(name):
    info, loaded, prepared = data.info(name), data.load(name), data.prepare(name)
    assert (prepared.task, prepared.classes) == (info.task, info.classes)
    if info.task == "regression":
        assert prepared.y.mean() == pytest.approx(0, abs=1e-12)
        assert (prepared.y**2).mean() == pytest.approx(1, rel=1e-12)
        assert np.corrcoef(prepared.y, loaded.y)[0, 1] == pytest.approx(1, rel=1e-12)
    else:
        np.testing.assert_array_equal(prepared.y, loaded.y)
        assert prepared.y.dtype == (np.float64 if info.task == "binary" else np.int64)


def test_components_beyond_the_rank_are_exactly_zero():
    # Three pixels of the digits are blank in every image.
    prepared = data.prepare("digits")
    assert (prepared.explained_variance == 0).sum() == 3
    assert not prepared.x[:, -3:].any()


def test_prepared_arrays_are_shared_and_cannot_be_changed():
    prepared = data.prepare("digits", 7)
    assert data.prepare("digits", 7) is prepared
    for array in (prepared.x, prepared.y, prepared.explained_variance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("features", [0, -1, 65, 10_000])
def test_a_feature_count_out_of_range_is_refused_with_the_range(features):
    with pytest.raises(ValueError, match=rf"in \[1, 64\] for data set 'digits'; got {features}\."):
        data.prepare("digits", features)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e15 + 0.1, -7.0])
def test_a_constant_column_becomes_zeros_whatever_its_value(value):
    x = np.column_stack([np.full(97, value), np.arange(97.0)])
    z = z_scores(x)
    assert not z[:, 0].any()
    assert z[:, 1].std() == pytest.approx(1, rel=1e-12)


@given(arrays(np.float64, (12, 4), elements=st.integers(-9, 9).map(float)))
def test_principal_components_keep_every_inner_product(x):
    z = z_scores(x)
    scores, variance = principal_components(z)
    np.testing.assert_allclose(scores @ scores.T, z @ z.T, atol=1e-9)
    np.testing.assert_allclose((scores**2).mean(axis=0), variance, atol=1e-9)


PREPARE = """
import hashlib, json, sys
from privnets import data
prepared = data.prepare("digits", 9)
print(json.dumps({
    "digest": hashlib.sha256(prepared.x.tobytes() + prepared.y.tobytes()).hexdigest(),
    "variance": prepared.explained_variance.sum(),
    "computed": "sklearn" in sys.modules,
}))
"""


def prepared_elsewhere(folder) -> dict[str, object]:
    """Prepares data in another process with this cache; returns whether it computed them."""
    environment = {**os.environ, "PRIVNETS_CACHE": str(folder)}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREPARE],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stderr == ""
    return json.loads(found.stdout)


def test_prepared_arrays_outlive_the_process_and_damage_to_them_is_repaired(tmp_path):
    first = prepared_elsewhere(tmp_path)
    assert first["computed"]
    assert prepared_elsewhere(tmp_path) == {**first, "computed": False}
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert prepared_elsewhere(tmp_path) == first
    assert file.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [file]


def test_a_cache_that_is_not_writable_is_ignored(tmp_path):
    (tmp_path / "file").touch()
    expected = data.prepare("digits", 9).explained_variance.sum()
    assert prepared_elsewhere(tmp_path / "file" / "cache")["variance"] == expected


@pytest.fixture
def cache_file(tmp_path):
    path = tmp_path / "sub" / "some.prepared"
    cache.write(path, {"x": np.arange(12.0).reshape(3, 4), "y": np.array([1, 2, 3])})
    return path


def test_the_cache_returns_equal_arrays(cache_file):
    found = cache.read(cache_file)
    assert found is not None
    np.testing.assert_array_equal(found["x"], np.arange(12.0).reshape(3, 4))
    assert found["y"].dtype == np.int64
    assert list(cache_file.parent.iterdir()) == [cache_file]


def test_a_truncated_cache_file_is_a_miss(cache_file):
    whole = cache_file.read_bytes()
    for length in range(len(whole)):
        cache_file.write_bytes(whole[:length])
        assert cache.read(cache_file) is None


def test_an_altered_cache_file_is_a_miss(cache_file):
    whole = cache_file.read_bytes()
    for place in range(len(whole)):
        cache_file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.read(cache_file) is None


def test_the_cache_directory_is_the_configured_one_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    assert cache.directory() == tmp_path
    monkeypatch.delenv("PRIVNETS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / "home" in cache.directory().parents
