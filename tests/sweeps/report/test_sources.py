"""Files of a storage that is not trusted are shown when they are what they should be."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save
from synthetic_releases import image_sweep, power_sweep, with_artifact

from privnets.points import TradeoffPoint
from sweeps.report.contents import ReportContents
from sweeps.report.figures.releases import (
    UnusableError,
    read_images,
    read_tensors,
    read_week,
)

IMAGE = "release.safetensors"
SWEEPS = {
    IMAGE: (image_sweep(alphas=(1.0,), gradients=("label",), weights=(1.0,)), read_images),
    "week.safetensors": (power_sweep(alphas=(1.0,), weights=(1.0,)), read_week),
}


def point_with(name: str, content: bytes | None) -> TradeoffPoint:
    return with_artifact(SWEEPS[name][0].tradeoff_points[0], name, content)


def change_tensors(name: str, **tensors: np.ndarray | None) -> bytes:
    found = {**load(SWEEPS[name][0].tradeoff_points[0].artifacts[name]), **tensors}
    return save({key: np.ascontiguousarray(t) for key, t in found.items() if t is not None})


@pytest.mark.parametrize("name", list(SWEEPS))
@pytest.mark.parametrize("content", [None, b"", b"junk", b"\xff" * 64], ids=repr)
def test_missing_and_damaged_files_are_unusable(name, content):
    with pytest.raises(UnusableError, match=name):
        SWEEPS[name][1](point_with(name, content))


@given(st.binary(max_size=300))
def test_random_bytes_are_unusable(content):
    with pytest.raises(UnusableError):
        read_images(point_with(IMAGE, content))


@given(st.data())
def test_a_modified_file_is_read_or_unusable(data):
    content = bytearray(change_tensors(IMAGE))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    with suppress(UnusableError):
        images = read_images(point_with(IMAGE, bytes(content)))
        assert images.original.shape == images.released.shape


@pytest.mark.parametrize(
    ("name", "tensors", "message"),
    [
        (IMAGE, {"secret": None}, "lacks the tensor secret"),
        (IMAGE, {"released": np.zeros((20, 8, 8), np.float32)}, "must be of shape"),
        (IMAGE, {"released": np.zeros((20, 3, 8, 8), np.float32)}, r"\[m, 1, h, w\]"),
        (IMAGE, {"released": np.zeros((20, 1, 8, 9), np.float32)}, "must be of shape"),
        (IMAGE, {"utility": np.zeros(3, np.int64)}, "utility must be of shape"),
        (IMAGE, {"released": np.full((20, 1, 8, 8), np.nan, np.float32)}, "finite"),
        (
            IMAGE,
            {k: np.zeros((20, 1, 300, 300), np.float32) for k in ("original", "released")},
            "256 pixels",
        ),
        (IMAGE, {"released": np.zeros((0, 1, 8, 8), np.float32)}, "must be of shape"),
        ("week.safetensors", {"day": np.zeros(7, np.int64)}, "different days"),
        ("week.safetensors", {"day": np.arange(7) + 10**15}, "different days"),
        ("week.safetensors", {"present": np.ones((7, 23), np.uint8)}, "must be of shape"),
    ],
)
def test_tensors_of_other_shapes_or_values_are_unusable(name, tensors, message):
    with pytest.raises(UnusableError, match=message):
        SWEEPS[name][1](point_with(name, change_tensors(name, **tensors)))


def test_more_than_seven_days_are_unusable():
    table = {k: np.zeros((8, 24), np.float32) for k in ("original", "released")}
    flags = {k: np.zeros((8, 24), np.int64) for k in ("secret", "present")}
    content = change_tensors("week.safetensors", **table, **flags, day=np.arange(15000, 15008))
    with pytest.raises(UnusableError, match="at most 7 days"):
        read_week(point_with("week.safetensors", content))


def test_a_file_over_32_mib_is_unusable():
    with pytest.raises(UnusableError, match="32 MiB"):
        read_tensors(point_with(IMAGE, bytes(33 * 2**20)), IMAGE, {"original": ("m",)})


def test_an_unreadable_file_is_unusable():
    class Lost(dict[str, bytes]):
        def __getitem__(self, name: str) -> bytes:
            raise FileNotFoundError(name)

    point = point_with(IMAGE, None)
    first = replace(point.replicates[0], artifacts=Lost({IMAGE: b""}))
    with pytest.raises(UnusableError, match="cannot be read"):
        read_images(replace(point, replicates=(first,)))


def test_unusable_files_are_named_beside_usable_ones():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    broken = [
        with_artifact(p, IMAGE, b"junk") if p.config["privacy_weight"] == 30 else p
        for p in sweep.tradeoff_points
    ]
    found = ReportContents(replace(sweep, tradeoff_points=broken)).figures
    (told,) = found["releases"].missing
    assert told.startswith("privacy weight = 30 is not shown: release.safetensors is not a valid")
    assert found["releases"].file("png") is not None
    junk = [with_artifact(p, IMAGE, b"junk") for p in sweep.tradeoff_points]
    found = ReportContents(replace(sweep, tradeoff_points=junk)).figures
    assert len(found["releases"].missing) == 2
    assert found["releases"].file("png") is None
    none = [with_artifact(p, IMAGE, None) for p in sweep.tradeoff_points]
    assert "releases" not in ReportContents(replace(sweep, tradeoff_points=none)).figures
