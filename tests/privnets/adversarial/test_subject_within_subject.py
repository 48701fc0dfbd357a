"""Faces of users who consent among users who do not: labels, splits, and measures by group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import privnets
from privnets.adversarial.attackers.floors import fit_floors
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.evidence import AttackerGuesses, KnownRows
from privnets.adversarial.problems.face_problems import verification
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import MISSING, known_rows, load_pool, raw_evidence
from privnets.adversarial.training.game import Game

ADVERSARIAL = privnets.experiment("adversarial")
PEOPLE, EACH = 8, 20
OBSERVED, UNOBSERVED = (1, 5), (3, 7)
GROUPS = {"observed": (0, 1), "unobserved": (2, 3)}  # their secrets
FADER_BASELINE = {"releaser": "fader", "steps": 0, "noise_std": 0}


@pytest.fixture
def celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People with many images, each of another brightness; one more with few."""
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    folder, random = tmp_path / "celeba", np.random.default_rng(0)
    (folder / "img_align_celeba").mkdir(parents=True)
    person = np.repeat(np.arange(PEOPLE + 1), [*(EACH + PEOPLE - np.arange(PEOPLE)), 2])
    lines = {"list_attr_celeba.txt": f"{len(person)}\nMale Smiling\n"}
    lines |= {"identity_CelebA.txt": "", "list_eval_partition.txt": ""}
    for image, owner in enumerate(person):
        file = f"{image:06d}.jpg"
        shade = random.integers(0, 20, (16, 16, 3), dtype=np.uint8) + np.uint8(25 * owner)
        Image.fromarray(shade).save(folder / "img_align_celeba" / file)
        lines["list_attr_celeba.txt"] += f"{file} 1 1\n"
        lines["identity_CelebA.txt"] += f"{file} {owner}\n"
        lines["list_eval_partition.txt"] += f"{file} 0\n"
    for name, text in lines.items():
        (folder / name).write_text(text)


def config(**fields: object) -> AdversarialConfig:
    problem = {"subject-within-subject": {"collection": "celeba", "size": 16}}
    small = {"releaser_width": 2, "adversary_width": 4, "batch_size": 16}
    return AdversarialConfig.model_validate(
        {"problem": problem, "panel": "quick", **small, **fields}
    )


@pytest.mark.usefixtures("celeba")
def test_each_image_has_one_label_and_training_meets_no_unobserved_person():
    own = config(seed=3)
    problem = problem_of(own)
    records, (splits,) = problem.load_records([own])
    assert set(records.group) == set(range(PEOPLE))
    is_private = np.isin(records.group, [*OBSERVED, *UNOBSERVED])
    np.testing.assert_array_equal(records.secret != MISSING, is_private)
    np.testing.assert_array_equal(records.utility != MISSING, ~is_private)
    assert [set(records.secret[records.group == p]) for p in (1, 5, 3, 7)] == [{0}, {1}, {2}, {3}]
    sizes = problem.split_sizes(own)
    for name in ("train", "attack", "validation", "test"):
        part = getattr(splits, name)
        assert len(part) == getattr(sizes, name)
        absent = set(range(PEOPLE)) - set(records.group[part])
        assert absent == (set(UNOBSERVED) if name == "train" else set())
    parts = np.concatenate([splits.train, splits.attack, splits.validation, splits.test])
    assert len(np.unique(parts)) == len(parts) == len(records.group)


@pytest.mark.usefixtures("celeba")
@pytest.mark.parametrize("scenario", ["joint", "fixed-utility"])
def test_the_network_of_raw_images_verifies_people_of_each_group(scenario):
    own = config(steps=2, pretrain_steps=2, scenario=scenario)
    problem = problem_of(own)
    pool, (splits,) = load_pool(problem, [own], "cpu")
    game = Game(problem, [own], pool, [splits])
    game.advance(own.pretrain_steps + own.steps)
    release = release_records(game, 0, pool, splits)
    details = problem.release_details(release)
    keys = {key for key in problem.spec.extra_metrics if "/attacker_" not in key}
    assert details.metrics.keys() == details.errors.keys() == keys
    raw, released = (log_p.double().numpy() for log_p in release.raw_utility)
    person = pool.group.numpy()[splits.test]
    for group, people in {"observed": OBSERVED, "unobserved": UNOBSERVED}.items():
        own = np.isin(person, people)
        expected = verification(released[own], raw[own], person[own])
        key = f"privacy/raw_network_verification/{group}"
        assert details.metrics[key] == pytest.approx(expected.value)
        assert np.isnan(details.errors[key])  # of two people
    test = release.original.test
    strangers = replace(test, group=torch.arange(len(test.z)))
    details = problem.release_details(
        replace(release, original=replace(release.original, test=strangers))
    )
    verifications = {key for key in keys if "verification" in key}
    assert details.metrics.keys() == keys - verifications
    assert details.notes.keys() == verifications


@pytest.mark.usefixtures("celeba")
def test_attackers_are_scored_apart_for_observed_and_unobserved_people():
    own = config()
    problem = problem_of(own)
    pool, (splits,) = load_pool(problem, [own], "cpu")
    rows = known_rows(raw_evidence(pool, splits).test)
    log_p = np.log(np.full((len(rows.secret), 4), 0.1))
    is_observed = rows.secret < len(OBSERVED)
    log_p[is_observed, rows.secret[is_observed]] = np.log(0.7)
    log_p[~is_observed, 0] = np.log(0.7)
    prior = np.full(4, 1 / 4)
    found = problem.attacker_details(AttackerGuesses(log_p.argmax(1), log_p), rows, prior)
    shares = {name: estimate.value for name, estimate in found.items()}
    assert shares["attacker_accuracy/observed"] == shares["attacker_top5_accuracy/observed"] == 1
    assert shares["attacker_accuracy/unobserved"] == 0


@pytest.mark.usefixtures("celeba")
def test_numbers_of_images_help_to_find_no_person_without_the_release():
    """A guess that barely prefers one person finds only that person."""
    problem = problem_of(config())
    images = np.array([40, 10, 20, 30])
    secret, prior = np.repeat(np.arange(4), images), images / images.sum()
    rows = KnownRows(secret, np.arange(100), np.zeros(100, dtype=np.int64), secret)
    for preferred in range(4):
        log_p = np.tile(np.log(prior), (100, 1))
        log_p[:, preferred] += 1e-3
        found = problem.attacker_details(AttackerGuesses(log_p.argmax(1), log_p), rows, prior)
        shares = {group: found[f"attacker_accuracy/{group}"].value for group in GROUPS}
        assert shares == {group: (preferred in GROUPS[group]) / 2 for group in GROUPS}
        scores = problem.measure(log_p, secret, prior)
        assert np.divide(*(part.sum() for part in scores["accuracy"])) == pytest.approx(1 / 4)


@pytest.mark.usefixtures("celeba")
def test_a_missing_utility_label_gives_no_floor_above_the_prior():
    own = config()
    pool, (splits,) = load_pool(problem_of(own), [own], "cpu")
    evidence = raw_evidence(pool, splits)
    # A label that an unmasked -1 would name, for the secret of most images; another one elsewhere.
    secret, last = evidence.test.secret.numpy(), int(evidence.attack.utility.max())
    known = evidence.attack.secret.numpy()
    inferred = np.where(secret == np.bincount(known[known != MISSING]).argmax(), last, 0)
    floors = fit_floors(evidence, 4, 0, inferred)
    assert floors.estimates["floor/utility_label"].value == pytest.approx(1 / 4)
    assert floors.inferred_label.value == pytest.approx(1 / 4)


@pytest.mark.usefixtures("celeba")
@pytest.mark.parametrize("releaser", ["unet", "fader"])
def test_a_stack_of_games_on_faces_trains_as_its_games_do_alone(releaser):
    fields = {"releaser": releaser, "steps": 2, "pretrain_steps": 2, "scenario": "fixed-utility"}
    configs = [config(seed=s, tradeoff=t, **fields) for s, t in ((0, 0.2), (1, 0.9))]
    problem = problem_of(configs[0])

    def parameters(members: list[AdversarialConfig]) -> list[list[torch.Tensor]]:
        pool, splits = load_pool(problem, members, "cpu")
        game = Game(problem, members, pool, splits)
        game.advance(4)
        return [game.parameters(i) for i in range(len(members))]

    together, alone = parameters(configs), [parameters([each])[0] for each in configs]
    for one, other in zip(together, alone, strict=True):
        for found, expected in zip(one, other, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(alone[0][0], alone[1][0], atol=1e-3)


@pytest.mark.usefixtures("celeba")
@pytest.mark.parametrize("releaser", ["unet", "fader"])
def test_the_first_step_of_the_game_moves_no_weight_by_more_than_the_learning_rate(releaser):
    """The first step of Adam without earlier gradients is at most the rate, also after a resume."""
    own = config(releaser=releaser, pretrain_steps=20, steps=2, tradeoff=0.9)
    problem = problem_of(own)
    pool, splits = load_pool(problem, [own], "cpu")
    copying, resumed = (Game(problem, [own], pool, splits) for _ in range(2))
    copying.advance(own.pretrain_steps)
    before = copying.parameters(0)
    resumed.restore(copying.state())
    for game in (copying, resumed):
        game.advance(1)
        pairs = zip(before, game.parameters(0), strict=True)
        moved = max((a - b).abs().max().item() for a, b in pairs)
        assert moved == pytest.approx(own.learning_rate, rel=0.01)


@pytest.mark.usefixtures("celeba", "narrow_panel")
@pytest.mark.parametrize(
    "fields", [{"steps": 2}, {"releaser": "fader", "steps": 0, "noise_std": 0}]
)
def test_fresh_attackers_know_private_people_only(fields):
    own = config(pretrain_steps=2, **fields)
    (point,) = ADVERSARIAL.run([own])
    (replicate,) = point.replicates
    assert replicate.failure is None
    assert tuple(sorted(replicate.metrics)) == ADVERSARIAL.metric_keys(own)
    undefined = {key for key, value in replicate.metrics.items() if np.isnan(value)}
    assert all(replicate.notes[key] for key in undefined)
    assert not any(key.split("/")[0] in ("privacy", "utility", "baseline") for key in undefined)
    assert replicate.metrics["floor/attainable"] == pytest.approx(1 / 4)
    # Brightness shows the person.
    assert replicate.metrics["baseline/attacker_accuracy/unobserved"] > 0.7


def test_verification_orders_pairs_of_one_person_above_those_of_two():
    person = np.repeat([0, 1, 2], 3)
    own = np.log(np.eye(3)[person] * 0.9 + 0.05)
    assert verification(own, own, person).value == 1
    # A probe that looks like person 0 is closer to all images of 0, and to 1 as to 2.
    assert verification(own[[0] * 9], own, person).value == pytest.approx((2 * 1 + 2 * 0.5) / 6)


def test_verification_by_the_same_release_of_all_people_is_a_guess():
    random, person = np.random.default_rng(0), np.repeat([0, 1, 2, 3], [2, 9, 4, 1])
    gallery = np.log(random.dirichlet(np.ones(5), 16))
    probe = np.tile(gallery[3], (16, 1))
    assert verification(probe, gallery, person).value == pytest.approx(1 / 2, abs=1e-12)
    # The fourth person has one image, and a single person cannot be distinguished from others.
    rest = person < 3
    assert verification(probe[rest], gallery[rest], person[rest]).value == pytest.approx(1 / 2)
    assert verification(probe[~rest], gallery[~rest], person[~rest]) is None
    assert verification(probe[:2], gallery[:2], person[:2]) is None


def test_the_error_of_verification_is_the_jackknifes_over_people():
    random, person = np.random.default_rng(1), np.repeat(np.arange(5), [2, 6, 3, 4, 5])
    gallery = np.log(random.dirichlet(np.ones(4), 20))
    left_out = [
        verification(*(part[person != p] for part in (gallery, gallery, person))).value
        for p in range(5)
    ]
    expected = np.sqrt(4 / 5 * np.square(left_out - np.mean(left_out)).sum())
    assert verification(gallery, gallery, person).error == pytest.approx(expected)
