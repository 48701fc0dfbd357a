"""Attacks that ask about changed images or watch training, and private training of modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import privnets
from privnets.attacks.lira import LiraOffline, LiraOnline
from privnets.attacks.loss_trajectory import LossTrajectory, fit_log_odds
from privnets.attacks.view import AttackerView, References
from privnets.contract import InvalidConfigError
from privnets.membership.observations import Universe
from privnets.membership.trials import Trials, guess, why_unavailable
from privnets.membership.user_models.augmentation import augment, changed_copies, largest_shift
from privnets.membership.user_models.module_training import ModuleTrainer
from privnets.membership.user_models.module_trials import ModuleSource
from privnets.membership.user_models.output_training import OutputRequest
from privnets.references.user_files import set_folder

EXPERIMENT = privnets.experiment("membership")
IMAGES = {"dataset": "digits", "model": "cnn", "train_size": 60, "steps": 20, "records": 8}
VECTORS = """\
from torch import nn

def normalised(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

def residual(inputs, outputs):
    return Residual(inputs, outputs)

class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, inputs), nn.Linear(inputs, outputs)
    def forward(self, x):
        return self.last(x + self.first(x).tanh())

def rooted(inputs, outputs):
    return Rooted(inputs, outputs)

class Rooted(Residual):
    def forward(self, x):
        h = self.first(x)
        return self.last(x + (h * (h > 0)).sqrt())
"""


def config(**fields):
    return EXPERIMENT.Config.model_validate({**IMAGES, "draws": 32, **fields}, strict=True)


def fit_modules(own, models=range(2)):
    """Outputs of models of a configuration, and the request."""
    request = OutputRequest.draw(own, Universe.load(own, "cpu"))
    answers = ModuleTrainer().fit(request, models, "cpu")
    return np.stack([about_truth for about_truth, _ in answers]), request


def crop(image, row, column):
    """Image moved by whole pixels, by slices of the reflected image."""
    most = largest_shift(min(image.shape[-2:]))
    padded = np.pad(image, ((0, 0), (most, most), (most, most)), mode="reflect")
    height, width = image.shape[-2:]
    top, left = most - row, most - column
    return padded[:, top : top + height, left : left + width]


def test_changed_copies_are_mirrored_and_shifted_images():
    images = np.random.default_rng(0).standard_normal((3, 2, 16, 17))
    copies = changed_copies(torch.from_numpy(images), "flip_and_shift", 18)
    assert len(copies) == 17
    np.testing.assert_array_equal(copies[0], images[..., ::-1])
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    for number, (row, column) in enumerate(steps):
        for image, plain, mirrored in zip(images, *copies[1 + 2 * number :][:2], strict=True):
            np.testing.assert_array_equal(plain, crop(image, 2 * row, 2 * column))
            np.testing.assert_array_equal(mirrored, crop(image[..., ::-1], 2 * row, 2 * column))
    assert len(changed_copies(torch.from_numpy(images), "shift", 9)) == 8
    assert changed_copies(torch.from_numpy(images), "none", 1) == []


def test_random_changes_are_uniform_shifts_and_fair_flips():
    image = np.arange(64.0).reshape(1, 8, 8)
    images = torch.from_numpy(image).expand(4000, 1, 8, 8)
    changed = augment(images[None], "flip_and_shift", [np.random.default_rng(0)])[0].numpy()
    forms = {
        crop(own, i, j).tobytes(): (flip, i, j)
        for flip, own in enumerate((image, image[..., ::-1]))
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
    }
    counts = {form: 0 for form in forms.values()}
    for each in changed:
        counts[forms[np.ascontiguousarray(each).tobytes()]] += 1
    # Standard error of each of 18 equal shares: 3.6 counts of 222.
    np.testing.assert_allclose(list(counts.values()), 4000 / 18, atol=75)
    assert augment(images, "none", [np.random.default_rng(0)]) is images


def _trials(queries=None, trajectory=None, models=40):
    random = np.random.default_rng(1)
    member = torch.from_numpy(random.random((6, models)) < 0.5)
    signal = torch.from_numpy(random.standard_normal((6, models))) + member.double()
    return Trials(
        member=member,
        fold=(torch.arange(models) >= models // 2).long(),
        signal=signal,
        error=torch.sigmoid(-signal),
        loss=-torch.nn.functional.logsigmoid(signal),
        train_loss=torch.zeros(6, models),
        two_sided=False,
        queries=queries,
        trajectory=trajectory,
    )


def test_lira_averages_the_scores_of_the_record_and_its_copies():
    copies = torch.from_numpy(np.random.default_rng(2).standard_normal((2, 6, 40)))
    trials = _trials(copies)
    online, offline = (guess(attack, trials).score for attack in (LiraOnline(), LiraOffline()))
    for target in (0, 1):
        shadows, targets = trials.fold != target, trials.fold == target
        side, expected = trials.member[:, shadows].T.numpy(), np.zeros((2, 6, 20))
        for signal in (trials.signal, *copies):
            known = signal[:, shadows].T.numpy()
            own = signal[:, targets].T.numpy()
            compared = AttackerView(own, known, own, known, References(side))
            expected[0] += LiraOnline().score(compared).T / 3
            expected[1] += LiraOffline().score(compared).T / 3
        np.testing.assert_allclose(online[:, targets], expected[0], rtol=1e-9)
        np.testing.assert_allclose(offline[:, targets], expected[1], rtol=1e-9)


def test_coefficients_of_trajectories_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    x = random.standard_normal((500, 4))
    member = random.random(500) < 1 / (1 + np.exp(1 - x[:, 0] + 2 * x[:, 2]))
    found = fit_log_odds(x, member)
    # The penalty 0.001 |theta|^2 / 2 of a mean over 500 records, as C of a sum.
    model = LogisticRegression(C=1 / (0.001 * 500), class_weight="balanced", tol=1e-10)
    np.testing.assert_allclose(found, model.fit(x, member).coef_[0], rtol=1e-4, atol=1e-5)


def test_the_course_of_losses_tells_more_than_the_last_loss():
    """Equal last losses, but members' losses fell faster."""
    member = _trials().member.double()
    noise = torch.from_numpy(np.random.default_rng(3).standard_normal((3, 6, 40)))
    slope = torch.tensor([1.0, 0.5, 0.0])[:, None, None]
    trials = _trials(trajectory=torch.exp(0.3 * noise - 2 * slope * member))
    score = guess(LossTrajectory(), trials).score
    inside, outside = score[trials.member], score[~trials.member]
    area = (inside[:, None] > outside).double().mean()
    assert area > 0.99
    last = -trials.trajectory[-1]
    assert (last[trials.member][:, None] > last[~trials.member]).double().mean() < 0.65
    assert "no losses during training" in why_unavailable(LossTrajectory(), _trials())


def test_outputs_hold_copies_and_checkpoints_of_the_attacked_records():
    own = config(augmentation="shift", queries=3, checkpoints=4, paired=True)
    outputs, request = fit_modules(own)
    plain, _ = fit_modules(config(augmentation="shift", paired=True))
    shared = plain.shape[-1]
    np.testing.assert_allclose(outputs[..., :shared], plain, rtol=1e-4, atol=1e-4)
    extra = outputs[:, 0, shared:].reshape(2, 6, 8)
    attacked = np.searchsorted(request.shared, request.design.records)
    # The last checkpoint follows the last step; the first comes before most of training.
    np.testing.assert_allclose(extra[:, 5], outputs[:, 0, attacked], rtol=1e-4, atol=1e-4)
    assert np.abs(extra[:, 2] - extra[:, 5]).max() > 0.1
    assert np.abs(extra[:, 0] - outputs[:, 0, attacked]).max() > 0.01


def test_augmented_training_does_not_depend_on_the_stack():
    own = config(augmentation="flip_and_shift", paired=True)
    stacked, alone = fit_modules(own, range(2))[0], fit_modules(own, range(1, 2))[0]
    np.testing.assert_allclose(stacked[1:], alone, rtol=1e-3, atol=1e-3)
    assert np.abs(stacked - fit_modules(config(paired=True))[0]).max() > 0.1


def test_a_point_reports_the_trajectory_attack_where_it_has_checkpoints():
    own = config(augmentation="shift", queries=2, checkpoints=2)
    with_curves, without = (EXPERIMENT.run([c])[0].replicates[0] for c in (own, config()))
    key = "privacy/attack/loss_trajectory/auc"
    assert 0 <= with_curves.metrics[key] <= 1
    assert np.isnan(without.metrics[key])
    assert "checkpoints" in without.notes[key]


@pytest.fixture
def folder(tmp_path):
    """Folder of a study with modules of the user."""
    (tmp_path / "own_nets.py").write_text(VECTORS)
    set_folder(tmp_path)


def private(**fields):
    return config(epsilon=2.0, sample_rate=0.2, learning_rate=0.02, **fields)


@pytest.mark.parametrize("model", ["cnn", "residual"])
def test_private_modules_train_the_same_in_a_stack_and_one_by_one(model, folder, monkeypatch):
    fields = {"features": 5, "model": {"torch": "own_nets:residual", "training": {"steps": 20}}}
    own = private(**(fields if model == "residual" else {}))
    stacked, request = fit_modules(own)
    note = ModuleTrainer().notes(request)
    assert note == "modules were stacked"
    monkeypatch.setattr(ModuleSource, "obstacle", lambda job: "by request")
    np.testing.assert_allclose(stacked, fit_modules(own)[0], rtol=1e-3, atol=1e-3)
    assert np.ptp(stacked[:, 0], axis=0).max() > 0.01


def test_a_record_whose_gradient_is_not_finite_fails_the_point(folder):
    model = {"torch": "own_nets:rooted", "training": {"steps": 2}}
    own = private(features=5, model=model)
    replicate = EXPERIMENT.run([own])[0].replicates[0]
    assert "a record's gradient is not a finite number" in str(replicate.failure)


def test_a_private_network_reports_epsilon_and_loses_accuracy_with_noise():
    low, high = (
        p.replicates[0]
        for p in EXPERIMENT.run([private(), private().model_copy(update={"epsilon": 50.0})])
    )
    assert low.metrics["privacy/epsilon"] == pytest.approx(2.0, rel=0.01)
    assert low.metrics["privacy/epsilon_lower_bound"] <= 2.0
    assert low.metrics["flag/attack_beats_bound"] == 0
    assert high.metrics["utility/test_accuracy"] > low.metrics["utility/test_accuracy"]
    assert "Poisson samples of rate 0.2" in low.notes["privacy/epsilon"]


def test_private_steps_of_a_module_are_those_of_its_recipe(folder):
    model = {"torch": "own_nets:residual", "training": {"steps": 7}}
    own = private(features=5, model=model)
    assert own.target_model.steps(own) == 7
    assert {"steps", "learning_rate"} <= own.redundant_fields()
    more = private(features=5, model={**model, "training": {"steps": 70}})
    notes = [p.replicates[0].metrics["bound/advantage"] for p in EXPERIMENT.run([own])]
    assert 0 < notes[0] < 1
    assert more.structure() != own.structure()


def test_batch_normalisation_is_refused_before_private_training(folder):
    model = {"torch": "own_nets:normalised", "training": {"steps": 3}}
    with pytest.raises(InvalidConfigError, match="BatchNorm1d, which mixes the records of a batch"):
        EXPERIMENT.run([private(features=5, model=model)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": 2}, "queries must be at most 1 with augmentation none"),
        ({"queries": 10, "augmentation": "shift"}, "queries must be at most 9"),
        ({"checkpoints": 21}, "checkpoints must be at most the steps of training, 20"),
        ({"model": "mlp", "checkpoints": 2}, "checkpoints must be 0 with mlp"),
        ({"model": "resnet", "epsilon": 1.0}, "model must be"),
        ({"augmentation": "shift", "epsilon": 1.0}, "augmentation must be none with epsilon"),
    ],
)
def test_settings_without_effect_are_refused(change, message):
    with pytest.raises(InvalidConfigError, match=message):
        EXPERIMENT.run([config(**change)])
