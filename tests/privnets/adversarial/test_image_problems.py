"""The problems on images of digits: splits, labels, networks and examples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, mutual_info_score
from support import requires_data

from privnets.adversarial.attackers.floors import fit_floors
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import (
    Problem,
    Splits,
    stratified_sizes,
    stratified_split,
    subsample,
)
from privnets.adversarial.problems import amnist
from privnets.adversarial.problems.amnist import AmnistProblem
from privnets.adversarial.problems.digits import DigitsProblem
from privnets.adversarial.records import load_pool, raw_evidence, select_exposure
from privnets.data import mnist
from tests.privnets.adversarial.releases import make_release

PROBLEMS = [
    pytest.param(DigitsProblem(), id="digits"),
    pytest.param(AmnistProblem(), id="amnist", marks=requires_data("mnist")),
]
PARTS = ("train", "attack", "validation", "test")
TRAIN_IMAGES = 28_568  # of AMNIST
RULES = ("consistent", "published")


def make_config(problem: Problem, **fields: object) -> AdversarialConfig:
    return AdversarialConfig(problem=problem.name, **fields)


def labelled(problem: Problem, labels: str) -> AdversarialConfig:
    return AdversarialConfig(problem={problem.name: {"labels": labels}})


def parts(splits: Splits) -> list[np.ndarray]:
    return [getattr(splits, part) for part in PARTS]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_image_is_in_exactly_one_split(problem):
    pool, (splits,) = load_pool(problem, [make_config(problem, seed=3)], "cpu")
    others = [] if splits.other_test is None else [splits.other_test]
    together = np.concatenate([*parts(splits), *others])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(pool.x)))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_splits_have_the_predicted_sizes(problem):
    for sizes in ({}, {"train_size": 100, "panel": "quick"}):
        config = make_config(problem, **sizes)
        told = problem.split_sizes(config)
        pool, (splits,) = load_pool(problem, [config], "cpu")
        assert [len(part) for part in parts(splits)] == [getattr(told, p) for p in PARTS]
        assert tuple(pool.x.shape[1:]) == told.record_shape
        assert not problem.invalid_fields(config)
    if problem.name == "amnist":
        tests = [problem.split_sizes(labelled(problem, labels)).test for labels in RULES]
        assert tests == [4_747, 4_681]
    else:
        whole = problem.split_sizes(make_config(problem))
        shares = np.array([getattr(whole, p) for p in PARTS]) / 1_797
        np.testing.assert_allclose(shares, [0.40, 0.35, 0.10, 0.15], atol=0.005)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_splits_depend_on_the_seed_alone_and_not_on_the_stack(problem):
    configs = [make_config(problem, seed=seed, alpha=1 + seed) for seed in range(3)]
    _, together = load_pool(problem, configs, "cpu")
    _, reordered = load_pool(problem, configs[::-1], "cpu")
    _, (alone,) = load_pool(problem, [make_config(problem, seed=1)], "cpu")
    for part in PARTS:
        np.testing.assert_array_equal(getattr(together[1], part), getattr(alone, part))
        np.testing.assert_array_equal(getattr(reordered[1], part), getattr(alone, part))
    assert set(together[0].train) != set(together[1].train)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_splits_have_the_label_shares_of_the_whole(problem):
    config = make_config(problem, train_size=320, panel="quick")
    pool, (splits,) = load_pool(problem, [config], "cpu")
    cells = (2 * pool.utility + pool.secret).numpy()
    whole = np.concatenate(parts(splits)[:3])
    share = np.bincount(cells[whole], minlength=20) / len(whole)
    for part in parts(splits)[:3]:
        found = np.bincount(cells[part], minlength=20)
        assert np.abs(found - share * len(part)).max() < 2.5


@requires_data("mnist")
def test_test_labels_do_not_influence_the_other_splits(monkeypatch):
    """Altering images and labels of test does not change the other three parts."""
    problem = AmnistProblem()
    config = make_config(problem, seed=2)
    pool, (splits,) = load_pool(problem, [config], "cpu")
    read = amnist.read_amnist()
    x, digit, thickness = read.x.copy(), read.digit.copy(), read.thickness.copy()
    x[TRAIN_IMAGES:] = 255 - x[TRAIN_IMAGES:]
    digit[TRAIN_IMAGES:] = 9 - digit[TRAIN_IMAGES:]
    thickness[TRAIN_IMAGES:] = 1 - thickness[TRAIN_IMAGES:]
    altered = replace(read, x=x, digit=digit, thickness=thickness)
    monkeypatch.setattr(amnist, "read_amnist", lambda: altered)
    other, (again,) = load_pool(problem, [config], "cpu")
    for part in PARTS[:3]:
        rows = getattr(splits, part)
        np.testing.assert_array_equal(rows, getattr(again, part))
        assert torch.equal(pool.x[rows], other.x[rows])
        assert torch.equal(pool.secret[rows], other.secret[rows])
        assert torch.equal(pool.utility[rows], other.utility[rows])
    assert not torch.equal(pool.secret[splits.test], other.secret[splits.test])


@requires_data("mnist")
@pytest.mark.parametrize(("labels", "other"), [RULES, RULES[::-1]])
def test_amnist_labels_test_images_by_the_rule_that_is_asked_for_and_others_beside(labels, other):
    """The rule is applied here to MNIST's own test images, with thresholds of either part."""
    problem, images = AmnistProblem(), mnist.read()
    config = labelled(problem, labels)
    pool, (splits,) = load_pool(problem, [config], "cpu")
    assert problem.other_labels(config) == other
    rules = {
        "consistent": (images.train_x, images.train_y),
        "published": (images.test_x, images.test_y),
    }
    for rule, rows in ((labels, splits.test), (other, splits.other_test)):
        counts = amnist.scan_line_counts(*rules[rule])
        thresholds = amnist.digit_thresholds(counts, rules[rule][1])
        own = amnist.scan_line_counts(images.test_x, images.test_y)
        thickness = amnist.classify_thickness(own, images.test_y, thresholds)
        kept = thickness != amnist.NORMAL
        levels = (pool.x[rows, 0] * 255).round().to(torch.uint8).numpy()
        np.testing.assert_array_equal(levels, images.test_x[kept])
        np.testing.assert_array_equal(pool.secret[rows].numpy(), thickness[kept])
        np.testing.assert_array_equal(pool.utility[rows].numpy(), images.test_y[kept])
    assert pool.x.dtype == torch.float32
    assert (pool.x.min(), pool.x.max()) == (0, 1)


@requires_data("mnist")
def test_the_digit_tells_more_of_consistent_than_of_published_labels():
    """Balanced accuracy and nats of an attacker that knows the digit, and thickness by digit."""
    problem = AmnistProblem()
    config = make_config(problem)
    pool, (splits,) = load_pool(problem, [config], "cpu")
    evidence = raw_evidence(pool, splits)
    found = fit_floors(evidence, 2, 0, None)
    digit, thick = (getattr(pool, name)[splits.attack].numpy() for name in ("utility", "secret"))
    shares = np.array([thick[digit == d].mean() for d in range(10)])
    expected = {}
    for name, rows in (("consistent", splits.test), ("published", splits.other_test)):
        guesses = shares[pool.utility[rows].numpy()] > thick.mean()
        expected[name] = balanced_accuracy_score(pool.secret[rows].numpy(), guesses)
    own, other = found.estimates["floor/utility_label"], found.other_label
    assert own.value == pytest.approx(expected["consistent"])
    assert other.value == pytest.approx(expected["published"])
    assert own.value == pytest.approx(0.631, abs=0.003)
    assert other.value == pytest.approx(0.563, abs=0.003)
    assert found.validation["floor/utility_label"] == pytest.approx(0.644, abs=0.02)
    test = splits.test
    share = shares[pool.utility[test].numpy()]
    truth = pool.secret[test].numpy() == 1
    nats = np.log(np.where(truth, share, 1 - share))
    nats -= np.log(np.where(truth, thick.mean(), 1 - thick.mean()))
    assert found.label_leakage.value == pytest.approx(nats.mean(), abs=2e-4)
    assert found.label_leakage.value == pytest.approx(0.062, abs=0.003)


def test_thick_digits_have_more_ink_than_the_median_of_their_digit():
    pool, _ = load_pool(DigitsProblem(), [make_config(DigitsProblem())], "cpu")
    shipped = load_digits()
    ink = shipped.images.sum(axis=(1, 2))
    torch.testing.assert_close(pool.x[:, 0], torch.tensor(shipped.images / 16).float())
    for digit in range(10):
        rows = shipped.target == digit
        assert (pool.utility.numpy() == digit).tolist() == rows.tolist()
        ordered = np.sort(ink[rows])
        median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        np.testing.assert_array_equal(pool.secret.numpy()[rows], ink[rows] > median)


def test_the_digit_has_almost_no_information_about_ink():
    pool, _ = load_pool(DigitsProblem(), [make_config(DigitsProblem())], "cpu")
    told = mutual_info_score(pool.utility, pool.secret)
    assert told < 1e-4


@pytest.mark.parametrize("problem", [DigitsProblem(), AmnistProblem()], ids=["digits", "amnist"])
def test_unsupported_fields_and_sizes_of_images_are_reported(problem):
    config = make_config(problem, releaser="recurrent", train_size=10**6)
    assert {p.field for p in problem.invalid_fields(config)} == {"releaser", "train_size"}
    assert not problem.invalid_fields(make_config(problem))


def test_example_images_show_every_digit_thin_and_thick():
    config = make_config(DigitsProblem())
    pool, (splits,) = load_pool(DigitsProblem(), [config], "cpu")
    original = select_exposure(pool, splits.test)
    released = replace(original, z=1 - original.z)
    found = DigitsProblem().release_details(make_release(config, [], original, released))
    tensors = load(found.artifacts["release.safetensors"])
    shown = list(zip(tensors["utility"].tolist(), tensors["secret"].tolist(), strict=True))
    assert shown == [(digit, thick) for digit in range(10) for thick in range(2)]
    assert tensors["original"].shape == (20, 1, 8, 8)
    torch.testing.assert_close(tensors["released"], 1 - tensors["original"])
    assert {t.dtype for t in tensors.values()} == {torch.float32, torch.int64}


@given(
    strata=st.lists(st.integers(0, 6), min_size=1, max_size=200),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_a_stratified_split_puts_every_record_in_one_part_of_predicted_size(strata, shares, seed):
    array = np.array(strata)
    found = stratified_split(array, shares, seed)
    assert sorted(np.concatenate(found)) == list(range(len(strata)))
    assert [len(part) for part in found] == stratified_sizes(len(strata), shares)
    for part in found:
        assert np.diff(array[part]).min(initial=0) >= 0
        for size in {1, len(part) // 2, len(part)} - {0}:
            few = subsample(part, size) if size <= len(part) else part
            assert len(set(few)) == len(few)
            assert set(few) <= set(part)
