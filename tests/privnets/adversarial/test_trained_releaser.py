"""Stored releasers: equal to the trained ones, on new records, and safe to read."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import Minibatch
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.releasers import RELEASERS, build_releaser
from privnets.data import DataError, UserFormError
from privnets.randomness import generator, stream_key
from privnets.references.user_files import set_folder

RECORDS = 80


@pytest.fixture
def people(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "height": random.normal(170, 10, RECORDS),
            "town": random.choice(["Bonn", "Aachen"], RECORDS),
            "sex": ["F", "M"] * (RECORDS // 2),
        }
    )
    frame.to_csv(tmp_path / "people.csv", index=False)
    set_folder(tmp_path)
    return frame


def config_of(problem, **changes) -> AdversarialConfig:
    return AdversarialConfig.model_validate({"problem": problem, **changes})


def store_untrained(config) -> bytes:
    """An untrained releaser, as a point stores it."""
    problem = problem_of(config)
    network = build_releaser(problem, config)
    return save_releaser(problem, config, network.initial(generator(0, "releaser")))


@pytest.fixture
def table(people) -> bytes:
    return store_untrained(config_of({"table": "people.csv", "secret": "sex"}, noise_std=0.5))


def test_a_table_is_released_in_its_own_form(people, table, tmp_path) -> None:
    (tmp_path / "releaser.safetensors").write_bytes(table)
    releaser = load_releaser(tmp_path / "releaser.safetensors")
    new = people.sample(20, random_state=1)[["town", "sex", "height"]]
    released = releaser(new, seed=1)
    assert released.columns.tolist() == ["height", "town"]
    assert released.index.equals(new.index)
    assert set(released["town"]) <= {"Bonn", "Aachen"}
    pd.testing.assert_frame_equal(releaser(new, seed=1), released)
    for other in (releaser(new, seed=2), releaser(new)):
        assert (other["height"] != released["height"]).all()


@pytest.mark.parametrize(
    "config",
    [
        config_of("gaussian-mixture", releaser="linear", noise_std=0.7),
        config_of("digits", releaser="mlp", noise_std=0.7),
        config_of("digits", releaser="convolutional", noise_std=0.7),
    ],
    ids=lambda config: config.releaser,
)
def test_a_stored_network_computes_what_the_trained_one_does(config) -> None:
    network, releaser = (
        build_releaser(problem_of(config), config),
        load_releaser(store_untrained(config)),
    )
    assert releaser.network == network
    shape = problem_of(config).split_sizes(config).record_shape
    x = torch.rand(5, *shape)
    key = stream_key(3, "release")
    (noise,) = network.record_noise([key], torch.tensor([0.7]), x.shape)
    parameters = [p[None] for p in network.initial(generator(0, "releaser"))]
    batch = Minibatch(x[None], torch.zeros(1, 5, dtype=torch.int64), noise=noise)
    expected = network.release(parameters, batch)[0]
    torch.testing.assert_close(torch.from_numpy(releaser(x.numpy(), seed=3)), expected)


def test_a_releaser_of_a_problem_without_new_records_is_refused() -> None:
    config = config_of("eco")
    network = build_releaser(problem_of(config), config)
    content = save_releaser(problem_of(config), config, network.initial(generator(0, "x")))
    with pytest.raises(DataError, match="no releaser that can be applied to new records"):
        load_releaser(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": "tall"}, "height: got 'tall'"),
        ({"height": np.inf}, "height: got missing or infinite numbers"),
        ({"town": "Celle"}, "town: got 'Celle'; expected a category that"),
        ({"town": None}, "town: got 'missing'"),
    ],
)
def test_records_of_another_form_are_refused(people, table, change, message) -> None:
    with pytest.raises(UserFormError, match=message):
        load_releaser(table)(people.assign(**change))


def test_an_absent_column_is_refused(people, table) -> None:
    with pytest.raises(UserFormError, match="got 'height'; expected columns of the table"):
        load_releaser(table)(people.drop(columns="height"))


def _redescribe(content: bytes, **changes) -> bytes:
    """A file with a changed description."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    description = json.loads(header["__metadata__"]["releaser"]) | changes
    return save(load(content), {"releaser": json.dumps(description)})


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda content: b"\x80\x04" + content,
        lambda content: save(load(content), {"releaser": "{"}),
        lambda content: save({"0": torch.zeros(2)}, {"releaser": "[]"}),
        lambda content: _redescribe(content, format=1),
        lambda content: _redescribe(content, network="os:system"),
        lambda content: _redescribe(content, noise_std=-1.0),
        lambda content: _redescribe(content, problem={"torch": "os:system"}),
        lambda content: _redescribe(content, network="linear", settings={"dimensions": 3}),
        lambda content: _redescribe(content, encoding={"kind": "array", "record_shape": [4]}),
        lambda content: _redescribe(content, encoding={"kind": "array", "record_shape": [10**9]}),
        lambda content: _redescribe(
            content, settings={"record_shape": [3], "width": 64, "noise": 10**9}
        ),
        lambda content: _redescribe(content, settings={"record_shape": [3]}),
    ],
)
def test_a_malformed_file_is_refused(table, damage) -> None:
    with pytest.raises(DataError):
        load_releaser(damage(table))


def _images(network: str, **settings) -> bytes:
    """A small releaser of images of 8 pixels with other settings than its parameters have."""
    own = {"side": 8, "width": 2, "channels": 3}
    parameters = RELEASERS[network](**own).initial(generator(0, "releaser"))
    description = {
        "network": network,
        "settings": own | settings,
        "noise_std": 0.1,
        "encoding": {"kind": "images", "size": 8},
        "problem": {"images": "faces", "attributes": "faces.csv", "secret": "smile"},
    }
    tensors = {str(i): p for i, p in enumerate(parameters)}
    return save(tensors, {"releaser": json.dumps(description)})


def test_the_settings_of_a_small_file_allocate_no_memory() -> None:
    for network in ("unet", "fader", "convolutional"):
        shape = load_releaser(_images(network)).description.encoding.shape
        x = np.zeros((2, *shape), dtype=np.float32)
        assert load_releaser(_images(network)).release(x)[0].shape == shape
        with pytest.raises(DataError, match="is not a valid releaser"):
            load_releaser(_images(network, width=2**18))
        with pytest.raises(DataError, match="differ in size"):
            load_releaser(_images(network, side=16))
    load_releaser(_images("unet", classes=2**40))  # a release does not use them


def test_parameters_that_are_not_finite_are_refused(table) -> None:
    size = int.from_bytes(table[:8], "little")
    metadata = json.loads(table[8 : 8 + size])["__metadata__"]
    tensors = load(table)
    tensors["0"][0] = torch.nan
    with pytest.raises(DataError, match="parameters must be finite"):
        load_releaser(save(tensors, metadata))
