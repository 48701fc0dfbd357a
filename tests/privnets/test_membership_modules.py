"""Torch modules of users as target models, and the data sets of arrays that they train on."""

import io
import tarfile

import numpy as np
import pytest
import torch

import privnets
from privnets import data
from privnets.contract import InvalidConfigError
from privnets.data import cifar10
from privnets.membership.observations import Universe
from privnets.membership.user_models.module_training import ModuleJob, ModuleTrainer
from privnets.membership.user_models.module_trials import ModuleSource
from privnets.membership.user_models.output_training import OutputRequest
from privnets.references.data import ArraysReference
from privnets.references.user_files import set_folder
from tests.support import requires_data
from tests.traced_steps import TracedSteps

EXPERIMENT = privnets.experiment("membership")
OWN = """\
import torch
from torch import nn

def net(inputs, outputs, width=8):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))

def with_dropout(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Dropout(0.2), nn.Linear(8, outputs))

def image_net(inputs, outputs):
    channels, height, width = inputs
    parts = nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(4, outputs))

class Branching(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
    def forward(self, x):
        return self.layer(x) if x.sum() > 1e9 else self.layer(x)

class Counting(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.calls = 0
    def forward(self, x):
        self.calls += self.training
        return (1 if self.calls < 10 else 2) * super().forward(x)

def broken(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs + 1, outputs))

def flat(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Flatten(0))

class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x

def pair(inputs, outputs):
    return Pair(inputs, outputs)

def linear(inputs, outputs):
    return nn.Linear(inputs, outputs)

def make_dataset(records=80):
    x = torch.randn(records, 3, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """Folder of a study, with a module of the user and arrays."""
    (tmp_path / "own_modules.py").write_text(OWN)
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 3))
    np.savez(tmp_path / "t.npz", x=x, y=(x[:, 0] + random.standard_normal(120) > 0).astype(int))
    np.savez(tmp_path / "number.npz", x=x, y=x @ [1.0, 2.0, 3.0])
    images = random.integers(0, 256, (100, 2, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(100) % 3)
    set_folder(tmp_path)
    return tmp_path


def config(location, arrays="t.npz", params=None, training=None, **fields):
    recipe = {"steps": 20, "learning_rate": 0.05, **(training or {})}
    model = {"torch": f"own_modules:{location}", "params": params or {}, "training": recipe}
    values = {"dataset": {"arrays": arrays}, "model": model, "train_size": 20, "draws": 32}
    return EXPERIMENT.Config.model_validate({**values, "records": 8, **fields}, strict=True)


def fit_modules(own, models=range(4)):
    """Outputs of models of a configuration."""
    request = OutputRequest.draw(own, Universe.load(own, "cpu"))
    trainer = ModuleTrainer()
    about_truth = [truth for truth, _ in trainer.fit(request, models, "cpu")]
    return np.stack(about_truth), trainer.notes(request)


def test_memory_that_runs_out_is_not_a_failure_of_the_module(monkeypatch):
    def exhaust(job, models):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(ModuleJob, "run", exhaust)
    with pytest.raises(torch.OutOfMemoryError):
        fit_modules(config("net"))


@pytest.mark.parametrize(
    ("training", "fields"),
    [
        ({"batch_size": 7, "schedule": "cosine"}, {}),
        ({"optimizer": "sgd"}, {}),
        ({}, {"epsilon": 5.0, "sample_rate": 1.0, "clip": 1.0, "delta": 1e-4}),
    ],
)
def test_the_operations_of_one_step_repeat_as_the_following_steps(training, fields, monkeypatch):
    own = config("net", training=training, **fields)
    usual, _ = fit_modules(own)
    for user in ("membership.user_models.module_stacks", "differential_privacy.dp_sgd"):
        monkeypatch.setattr(f"privnets.{user}.StepRunner", TracedSteps)
    repeated, _ = fit_modules(own)
    np.testing.assert_allclose(repeated, usual, rtol=1e-4, atol=1e-5)


def test_steps_of_a_module_that_counts_its_calls_are_not_repeated(monkeypatch):
    own = config("Counting", training={"steps": 15})
    usual, note = fit_modules(own)
    assert note == "modules were stacked"
    monkeypatch.setattr("privnets.membership.user_models.module_stacks.StepRunner", TracedSteps)
    np.testing.assert_array_equal(fit_modules(own)[0], usual)


@pytest.mark.parametrize(
    ("location", "arrays", "training"),
    [
        ("net", "t.npz", {"batch_size": 7, "schedule": "cosine"}),
        ("net", "number.npz", {"optimizer": "sgd", "learning_rate": 0.01}),
        ("image_net", "images.npz", {"batch_size": 10, "weight_decay": 0.01}),
    ],
)
def test_a_stack_gives_the_same_models_as_training_one_by_one(
    location, arrays, training, monkeypatch
):
    own = config(location, arrays, training=training)
    stacked, note = fit_modules(own)
    assert note == "modules were stacked"
    monkeypatch.setattr(ModuleSource, "obstacle", lambda job: "by request")
    alone, note = fit_modules(own)
    assert note == "modules were trained one by one: by request"
    np.testing.assert_allclose(stacked, alone, rtol=1e-3, atol=1e-3)
    assert np.ptp(stacked[:, 0], axis=0).max() > 0.01  # models differ


@pytest.mark.parametrize(
    ("location", "reason"), [("with_dropout", "random"), ("Branching", "control flow")]
)
def test_modules_that_cannot_be_stacked_train_one_by_one_and_say_why(location, reason):
    own = config(location)
    outputs, note = fit_modules(own)
    assert "one by one" in note
    assert reason in note
    np.testing.assert_array_equal(outputs[1:3], fit_modules(own, range(1, 3))[0])


def test_full_batch_descent_equals_plain_torch():
    """Heavy-ball momentum and weight decay by the formula of `torch.optim.SGD`."""
    recipe = {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.1, "steps": 9}
    own = config("linear", "number.npz", training={**recipe, "learning_rate": 0.1})
    request = OutputRequest.draw(own, Universe.load(own, "cpu"))
    ours, _ = fit_modules(own, range(1))
    universe = request.universe
    index = torch.from_numpy(request.design.sets[0].astype(np.int64))
    x, y = universe.x.float()[index], universe.y.float()[index]
    module = ModuleJob.make(request, "cpu").source.module(0)
    optimiser = torch.optim.SGD(module.parameters(), 0.1, momentum=0.5, weight_decay=0.2)
    for _ in range(9):
        optimiser.zero_grad()
        (module(x)[:, 0] - y).square().mean().backward()
        optimiser.step()
    theirs = module(universe.x.float()[request.asked_records(0)])[:, 0].detach()
    np.testing.assert_allclose(ours[0, 0], theirs, rtol=1e-4, atol=1e-5)


def test_a_module_is_attacked_on_images_and_on_a_torch_data_set():
    tables = {"dataset": {"torch": "own_modules:make_dataset", "params": {"records": 90}}}
    for own in (config("image_net", "images.npz"), config("net", **tables)):
        (point,) = EXPERIMENT.run([own])
        (replicate,) = point.replicates
        assert replicate.failure is None
        assert np.isfinite(replicate.metrics["privacy/attack/lira_offline/auc"])
        assert 0 <= replicate.metrics["utility/test_accuracy"] <= 1
        assert replicate.notes["privacy/membership_advantage"] == "modules were stacked"
    assert data.info(own.dataset).records == 90


@pytest.mark.parametrize(
    ("location", "fields", "error"),
    [
        ("net", {"params": {"widht": 3}}, r"model.params.widht .*mean width\?\): width"),
        ("net", {"training": {"batch_size": 21}}, "batch_size must be at most train_size, 20"),
        ("broken", {}, "RuntimeError: mat1 and mat2"),
        ("flat", {}, r"'own_modules:flat', which must return \[records, 2\]; got \[8\] for 4"),
        ("pair", {}, r"must return \[records, 2\]; got a tuple"),
    ],
)
def test_settings_that_do_not_fit_are_invalid(location, fields, error):
    with pytest.raises(InvalidConfigError, match=error):
        EXPERIMENT.run([config(location, **fields)])


def test_images_keep_their_shape_and_are_scaled_by_channel():
    reference = ArraysReference(arrays="images.npz")
    assert data.info(reference).shape == (2, 6, 6)
    x = data.prepare(reference).x.reshape(100, 2, 36)
    np.testing.assert_allclose(x.mean(axis=(0, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=(0, 2)), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 2)), "y": np.arange(3)}, r"x of shape \[4, 2\] and y of shape \[3\]"),
        ({"x": np.full((4, 2), np.nan), "y": np.arange(4)}, "NaN"),
        ({"x": np.array([["a"]] * 4), "y": np.arange(4)}, "finite numbers"),
        ({"x": np.zeros((4, 2))}, "npz file with arrays x and y"),
        ({"x": np.zeros((2, 1)), "y": np.array([object(), None])}, "cannot be read"),
    ],
)
def test_arrays_of_no_use_are_refused(folder, arrays, message):
    np.savez(folder / "bad.npz", **arrays)
    with pytest.raises(data.UserFormError, match=message):
        data.load(ArraysReference(arrays="bad.npz"))


def test_the_fingerprint_follows_the_content(folder):
    reference = ArraysReference(arrays="t.npz")
    before = data.fingerprint(reference)
    np.savez(folder / "t.npz", x=np.zeros((4, 2)), y=np.arange(4))
    assert data.fingerprint(reference) != before


RESNET = {
    "torch": "privnets.networks.image_classifiers:resnet18",
    "params": {"width": 4},
    "training": {"steps": 2, "batch_size": 16},
}


@pytest.mark.parametrize(("model", "least"), [("cnn", 0.7), (RESNET, 0.05)])
def test_image_models_train_as_stacks(model, least):
    own = image_config(model)
    outputs, note = fit_modules(own, range(2))
    assert note == "modules were stacked"
    assert outputs[:, 1].mean() > least


@pytest.mark.parametrize("fields", [{"dataset": "adult"}, {"features": 3}])
def test_image_models_need_images(fields):
    own = image_config("resnet", **fields)
    assert [each.field for each in EXPERIMENT.invalid_fields(own)] == ["dataset"]


def image_config(model, **fields):
    values = {"dataset": "digits", "model": model, "train_size": 200, "steps": 40, "records": 20}
    return EXPERIMENT.Config.model_validate({**values, "draws": 32, **fields}, strict=True)


@requires_data("cifar10_jpeg")
def test_the_subset_of_cifar_has_its_published_classes():
    table = data.load("cifar10_jpeg")
    assert table.x.shape == (15_000, 3072)
    np.testing.assert_array_equal(np.bincount(table.y), 1_500)


def test_the_binary_form_of_cifar_is_parsed_and_anything_else_is_refused(monkeypatch):
    monkeypatch.setattr(cifar10, "_BATCH_RECORDS", 2)
    batch = bytes([3]) + bytes(range(256)) * 12 + bytes([7]) + bytes(3072)

    def archive(content):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w:gz") as files:
            for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = len(content)
                files.addfile(member, io.BytesIO(content))
        return sink.getvalue()

    x, y = cifar10.parse(archive(batch))
    np.testing.assert_array_equal(y, [3, 7] * 6)
    np.testing.assert_array_equal(x[0], np.arange(3072) % 256)
    with pytest.raises(data.DataError, match="another length"):
        cifar10.parse(archive(batch[:-1]))
