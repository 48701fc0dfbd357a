"""Problems on faces: labels, splits by person, and networks of raw images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

import privnets
from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.panel import build_panel
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import release_records, utility_accuracy
from privnets.adversarial.evidence import AttackerGuesses, KnownRows, Release
from privnets.adversarial.problem import ReleaseDetails
from privnets.adversarial.problems import faces
from privnets.adversarial.problems.face_problems import (
    GenderEmotionProblem,
    SubjectGenderProblem,
)
from privnets.adversarial.problems.faces import split_by_person
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import load_pool
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.game import Game
from privnets.data import DataError
from privnets.data.catalog import DATASETS
from privnets.data.faces import UNKNOWN, FaceLabels
from privnets.networks.convolution import ConvolutionalClassifier
from privnets.statistics import estimates
from tests.support import requires_data

PARTS = ("train", "attack", "validation", "test")
PEOPLE, EACH = 60, 6
SMILES = ("not_smiling", "smiling")
NAMES = ("gender-emotion", "subject-gender", "subject-within-subject")
ADVERSARIAL = privnets.experiment("adversarial")


@pytest.fixture
def celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images with the colours of their labels: red of men, green of smiles."""
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "cache"))
    folder, random = tmp_path / "celeba", np.random.default_rng(0)
    (folder / "img_align_celeba").mkdir(parents=True)
    lines = {"list_attr_celeba.txt": f"{PEOPLE * EACH}\nMale Smiling\n"}
    lines |= {"identity_CelebA.txt": "", "list_eval_partition.txt": ""}
    for image in range(PEOPLE * EACH):
        person = image // EACH
        male, smiling, file = person % 2, int(random.integers(2)), f"{image:06d}.jpg"
        shade = random.integers(0, 100, (18, 16, 3), dtype=np.uint8)
        shade[..., 0] += np.uint8(120 * male)
        shade[..., 1] += np.uint8(120 * smiling)
        Image.fromarray(shade).save(folder / "img_align_celeba" / file)
        lines["list_attr_celeba.txt"] += f"{file} {2 * male - 1} {2 * smiling - 1}\n"
        lines["identity_CelebA.txt"] += f"{file} {person}\n"
        lines["list_eval_partition.txt"] += f"{file} {2 if person >= PEOPLE - 12 else 0}\n"
    for name, text in lines.items():
        (folder / name).write_text(text)


def config(**fields: object) -> AdversarialConfig:
    problem = {"gender-emotion": {"collection": "celeba", "size": 16}}
    return AdversarialConfig.model_validate({"problem": problem, "panel": "quick", **fields})


@pytest.mark.parametrize("sizes", [(40, 30, 10, 15), (1, 2, 90, 2)])
def test_a_split_by_person_has_the_sizes_asked_for_and_divides_no_person(sizes):
    random = np.random.default_rng(1)
    person = np.repeat(np.arange(40), random.integers(1, 6, 40))
    parts = split_by_person(person, sizes, seed=3)
    assert [len(part) for part in parts] == list(sizes)
    assert len(np.unique(np.concatenate(parts))) == sum(sizes)
    owners = [set(person[part]) for part in parts]
    assert sum(map(len, owners)) == len(set.union(*owners))
    again, other = (split_by_person(person, sizes, seed=s) for s in (3, 4))
    assert all(np.array_equal(*pair) for pair in zip(parts, again, strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(parts, other, strict=True))


@pytest.mark.usefixtures("celeba")
def test_splits_share_no_person_and_test_on_the_published_images():
    own = config(seed=5, train_size=50)
    problem = problem_of(own)
    records, _ = problem.load_records([own])
    _, (splits,) = load_pool(problem, [own], "cpu")
    parts = [getattr(splits, part) for part in PARTS]
    sizes = problem.split_sizes(own)
    assert [len(part) for part in parts] == [getattr(sizes, part) for part in PARTS]
    assert sizes.test == 12 * EACH
    owners = [set(records.group[part]) for part in parts]
    assert owners[-1] == set(range(PEOPLE - 12, PEOPLE))
    assert sum(map(len, owners)) == len(set.union(*owners))
    red, green = (records.x[:, channel].mean((1, 2)) > 0.45 for channel in (0, 1))
    np.testing.assert_array_equal(records.utility, red)
    np.testing.assert_array_equal(records.secret, green)
    assert records.x.shape[1:] == sizes.record_shape == (3, 16, 16)


def played(own: AdversarialConfig) -> tuple[Release, ReleaseDetails]:
    """The release of a finished game, and the problem's measures of it."""
    problem = problem_of(own)
    pool, (splits,) = load_pool(problem, [own], "cpu")
    game = Game(problem, [own], pool, [splits])
    game.advance(own.pretrain_steps + own.steps)
    release = release_records(game, 0, pool, splits)
    return release, problem.release_details(release)


TINY = {"releaser_width": 2, "adversary_width": 4, "batch_size": 16, "steps": 2}


@pytest.mark.usefixtures("celeba")
def test_a_network_of_raw_images_is_scored_on_raw_and_on_released_ones():
    fields = {"pretrain_steps": 60, "adversary_learning_rate": 0.01, "scenario": "fixed-both"}
    own = config(**TINY, **fields)
    release, details = played(own)
    metrics = details.metrics
    of_attackers = {key for key in problem_of(own).spec.extra_metrics if "/attacker_" in key}
    assert metrics.keys() == {*problem_of(own).spec.extra_metrics} - of_attackers
    assert metrics["baseline/raw_network_accuracy"] > 0.9  # the colour shows the gender
    classes = [metrics[f"baseline/raw_network_accuracy_{c}"] for c in ("men", "women")]
    assert metrics["baseline/raw_network_accuracy"] == pytest.approx(np.mean(classes))
    assert metrics["baseline/raw_network_balanced_accuracy"] == pytest.approx(np.mean(classes))
    # This scenario holds fixed the network by which utility is measured.
    fixed = utility_accuracy(release.utility, release.released.test).value
    assert metrics["utility/raw_network_accuracy"] == pytest.approx(fixed)
    assert not details.artifacts
    person = release.original.test.group.numpy()
    right = (release.raw_utility[0].argmax(1) == release.original.test.utility).double().numpy()
    error = estimates.mean(right, person).error
    assert details.errors["baseline/raw_network_accuracy"] == pytest.approx(error)


@pytest.mark.usefixtures("celeba")
def test_a_trained_releaser_keeps_size_and_format_of_new_images():
    own = config(**TINY, pretrain_steps=1)
    release, _ = played(own)
    released = load_releaser(save_releaser(problem_of(own), own, release.parameters))
    (image,) = released({"new.png": Image.new("RGB", (16, 16), (120, 30, 30))}, seed=0).values()
    assert (image.size, image.mode) == ((16, 16), "RGB")


@pytest.mark.usefixtures("celeba")
def test_examples_of_faces_are_stored_only_if_asked_for():
    problem = {"gender-emotion": {"collection": "celeba", "size": 16, "examples": True}}
    fields = {"pretrain_steps": 1, "objective": "alpha", "scenario": "joint"}
    _, details = played(config(problem=problem, **fields, **TINY))
    arrays = load(details.artifacts["release.safetensors"])
    assert arrays["released"].shape == arrays["original"].shape == (24, 3, 16, 16)
    note = details.notes["utility/raw_network_accuracy"]
    assert "no utility network on raw images" in note


def test_people_with_many_images_and_a_known_gender_are_the_classes_of_identity():
    problem = problem_of(AdversarialConfig(problem="subject-gender"))
    identity = np.repeat([0, 1, 2, 3], [25, 19, 20, 30])
    male = np.where(identity == 3, UNKNOWN, identity % 2)
    records = problem.select(FaceLabels(identity, male, np.full(94, UNKNOWN)))
    assert records.rows.tolist() == [*range(25), *range(44, 64)]
    assert np.bincount(records.utility).tolist() == [25, 20]
    np.testing.assert_array_equal(records.secret, male[records.rows])


def test_the_first_five_guesses_count_for_the_accuracy_of_five():
    log_p = np.log(np.array([[8, 7, 6, 5, 4, 3], [3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 5, 6]]) / 33)
    found = SubjectGenderProblem.measure(log_p, np.array([0, 0, 5]), np.full(6, 1 / 6))
    shares = {name: right.sum() / count.sum() for name, (right, count) in found.items()}
    assert shares == {"accuracy": 1 / 3, "top5_accuracy": 2 / 3}


@pytest.mark.parametrize("number", [-np.log(6), np.nan])
def test_ties_and_undefined_numbers_are_no_right_guesses(number):
    found = SubjectGenderProblem.measure(np.full((4, 6), number), np.arange(4), np.full(6, 1 / 6))
    assert {name: right.sum() for name, (right, _) in found.items()} == {
        "accuracy": 0,
        "top5_accuracy": 0,
    }


@pytest.mark.usefixtures("celeba")
def test_images_that_need_too_much_memory_are_refused(monkeypatch):
    monkeypatch.setattr(faces, "_MAX_NUMBERS", 270_000)
    problem_of(config()).fingerprint(config())
    larger = {"gender-emotion": {"collection": "celeba", "size": 32}}
    with pytest.raises(DataError, match=r"got 32 for 351 images; expected at most 16, to fit"):
        problem_of(config(problem=larger)).fingerprint(config())


@pytest.mark.parametrize("name", NAMES)
def test_attackers_are_at_least_as_wide_as_the_adversary_of_the_game(name):
    spec = problem_of(AdversarialConfig(problem=name)).spec
    assert PROFILES["quick"].width(spec.attacker_width) >= spec.defaults["adversary_width"]
    assert PROFILES["full"].width(spec.attacker_width) >= 64


@pytest.mark.usefixtures("celeba")
def test_quick_panel_reads_faces_by_plain_convolutions():
    """Separable ones take several times as long and read no more of 32 pixels."""
    quick = config(panel="quick")
    panel = build_panel(problem_of(quick), quick)
    assert {type(network) for network in panel.networks.values()} == {ConvolutionalClassifier}
    full = config(panel="full")
    kinds = {type(network) for network in build_panel(problem_of(full), full).networks.values()}
    assert ConvolutionalClassifier not in kinds


@requires_data("lfw")
@pytest.mark.parametrize("name", NAMES)
def test_the_images_of_lfw_are_as_many_as_planned(name):
    asked = AdversarialConfig(problem=name)
    problem, labels = problem_of(asked), DATASETS.get("lfw").labels()
    records = problem.select(labels)
    assert len(records.rows) == problem.lfw_records
    assert problem.spec.utility_classes == records.utility.max() + 1
    parts = problem._split(asked.seed)
    sizes = problem.split_sizes(asked)
    assert [len(part) for part in parts] == [getattr(sizes, part) for part in PARTS]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    for part in parts[1:]:
        assert np.isin(np.arange(problem.spec.secret_classes), records.secret[part]).all()


def test_recognition_of_each_class_is_its_recall_and_its_mean_probability():
    log_p = np.log(np.array([[0.9, 0.1], [0.3, 0.7], [0.4, 0.6], [0.8, 0.2]]))
    rows = KnownRows(np.array([0, 0, 1, 1]), np.arange(4), np.zeros(4, dtype=int), np.arange(4))
    guesses = AttackerGuesses(np.array([0, 0, 1, 0]), log_p)
    found = GenderEmotionProblem().attacker_details(guesses, rows, np.full(2, 0.5))
    assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(
        {
            "attacker_recall/not_smiling": 1.0,
            "attacker_probability/not_smiling": 0.6,
            "attacker_recall/smiling": 0.5,
            "attacker_probability/smiling": 0.4,
        }
    )


@requires_data("lfw")
def test_the_network_of_the_gender_is_compared_with_the_share_of_men():
    problem = {"subject-gender": {"size": 16}}
    fields = {"pretrain_steps": 5, "scenario": "fixed-both", "train_size": 300}
    release, details = played(config(problem=problem, **fields, **TINY))
    metrics = details.metrics
    assert 0.5 < metrics["diagnostic/man_probability_prior"] < 1
    men, women = (metrics[f"diagnostic/man_probability_{c}"] for c in ("men", "women"))
    assert 0 < min(men, women) <= max(men, women) < 1
    gap = abs(women - metrics["diagnostic/man_probability_prior"])
    assert metrics["diagnostic/man_probability_gap_of_women"] == pytest.approx(gap)
    assert details.errors.keys() == metrics.keys()
    assert release.original.test.group is not None
    for kind in ("baseline", "utility"):
        first, five = (metrics[f"{kind}/raw_network_{m}"] for m in ("accuracy", "top5_accuracy"))
        assert first <= five


@pytest.mark.usefixtures("celeba", "narrow_panel")
@pytest.mark.parametrize(
    "scenario", ["fixed-utility", pytest.param("joint", marks=pytest.mark.slow)]
)
def test_fresh_attackers_are_fitted_to_released_faces(scenario):
    own = config(**TINY, pretrain_steps=5, scenario=scenario)
    (point,) = ADVERSARIAL.run([own])
    (replicate,) = point.replicates
    assert replicate.failure is None
    assert tuple(sorted(replicate.metrics)) == ADVERSARIAL.metric_keys(own)
    undefined = [key for key, value in replicate.metrics.items() if np.isnan(value)]
    assert all(replicate.notes[key] for key in undefined)
    assert replicate.metrics["privacy/attacker_balanced_accuracy"] > 0.7  # green shows smiles
    for kind in ("privacy", "baseline"):
        recalls = [replicate.metrics[f"{kind}/attacker_recall/{c}"] for c in SMILES]
        balanced = replicate.metrics[f"{kind}/attacker_balanced_accuracy"]
        assert np.mean(recalls) == pytest.approx(balanced)
