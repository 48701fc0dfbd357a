"""The panel on releases whose best attacker is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

import privnets
from privnets.adversarial.attackers import PROFILES, PanelProfile
from privnets.adversarial.attackers.attacker import Posterior, ReleaseAttacker, ReleaseView
from privnets.adversarial.attackers.classical import (
    BoostedTrees,
    LogisticRegression,
    NearestNeighbours,
)
from privnets.adversarial.attackers.floors import fit_floors
from privnets.adversarial.attackers.panel import (
    Panel,
    PanelResult,
    build_panel,
    score_releases,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import MISSING
from privnets.networks.mlp import Perceptron

BEST = "privacy/attacker_balanced_accuracy"
NETWORKS = {"network": Perceptron((2, 16, 2)), "large_network": Perceptron((2, 32, 32, 2))}
ATTACKERS = (BoostedTrees(), NearestNeighbours(), LogisticRegression())
GENERAL = {attacker.name: attacker for attacker in ATTACKERS}
PANEL = Panel(NETWORKS, GENERAL, PROFILES["quick"])
SHIFT = 1.5
SIZES = (1200, 1200, 2400)

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
RELEASES: dict[str, Draw] = {
    "noise": lambda random, s: random.standard_normal((len(s), 2)),
    "gaussian": lambda random, s: random.standard_normal((len(s), 2)) + np.outer(s, [SHIFT, 0.0]),
    "secret": lambda random, s: np.stack([s, 1 - s], axis=1),
    "exclusive_or": lambda random, s: _exclusive_or(random, s),
}


def _exclusive_or(random: np.random.Generator, s: np.ndarray) -> np.ndarray:
    bit = random.integers(0, 2, len(s))
    corner = 2 * np.stack([bit, bit ^ s], axis=1) - 1
    return corner + 0.3 * random.standard_normal((len(s), 2))


def _evidence(draw: Draw, seed: int = 0, share: float = 0.5, utility: bool = False) -> Evidence:
    random = np.random.default_rng(seed)

    def exposure(count: int) -> AttackView:
        secret = (random.random(count) < share).astype(np.int64)
        z = torch.tensor(draw(random, secret), dtype=torch.float32)
        noisy = np.where(random.random(count) < 0.8, secret, 1 - secret)
        label = torch.tensor(2 * noisy) if utility else None
        return AttackView(z, torch.tensor(secret), label)

    return Evidence(*map(exposure, SIZES))


def _profile(steps: int) -> PanelProfile:
    return replace(PROFILES["quick"], steps=steps)


def _score(
    evidence: Sequence[Evidence],
    networks=NETWORKS,
    specific=(),
    alpha=1.0,
    steps=600,
    inferred=None,
):
    attackers = GENERAL | {attacker.name: attacker for attacker in specific}
    panel = Panel(networks, attackers, _profile(steps))
    configs = [_config(seed, alpha) for seed in range(len(evidence))]
    results_of_stack = score_releases(evidence, panel, configs, [inferred] * len(evidence))
    return [result for result in results_of_stack if result is not None]


def _config(seed: int, alpha: float = 1.0) -> AdversarialConfig:
    return AdversarialConfig(problem="digits", seed=seed, alpha=alpha)


@pytest.fixture(scope="module")
def results() -> dict[str, PanelResult]:
    results_of_stack = _score([_evidence(draw) for draw in RELEASES.values()])
    return dict(zip(RELEASES, results_of_stack, strict=True))


def _of(result: PanelResult, attacker: str) -> float:
    return result.metrics[f"privacy/attacker/{attacker}/balanced_accuracy"]


def test_a_release_of_noise_leaks_nothing(results):
    result = results["noise"]
    assert abs(result.metrics[BEST] - 0.5) < 3 * result.standard_errors[BEST]
    assert abs(result.metrics["privacy/leakage"]) < 0.005


def test_strongest_attacker_on_gaussians_is_the_bayes_decision(results):
    result, bayes = results["gaussian"], norm.cdf(SHIFT / 2)
    error = result.standard_errors[BEST]
    assert bayes - 3 * error - 0.01 < result.metrics[BEST] < bayes + 3 * error


def test_every_attacker_comes_near_the_bayes_decision(results):
    bayes, error = norm.cdf(SHIFT / 2), results["gaussian"].standard_errors[BEST]
    for name in PANEL.names:
        assert bayes - 0.06 < _of(results["gaussian"], name) < bayes + 3 * error, name


def test_leakage_of_gaussians_is_their_mutual_information(results):
    def density(x: float) -> float:
        p = (norm.pdf(x) + norm.pdf(x - SHIFT)) / 2
        return -p * math.log(p)

    truth = quad(density, -12, 12 + SHIFT)[0] - math.log(2 * math.pi * math.e) / 2
    found = results["gaussian"]
    error = found.standard_errors["privacy/leakage"]
    assert truth - 3 * error - 0.01 < found.metrics["privacy/leakage"] < truth + 3 * error


class _Guesser(ReleaseAttacker):
    """Reads a share of the bits that a release gives, by the number of records learned from."""

    name = "guesser"

    def __init__(self, sample: float, whole: float, *, is_honest: bool = True) -> None:
        self.shares, self.is_honest, self.seen = {500: sample, 1200: whole}, is_honest, []

    def fit(self, view, seed):
        size = len(view.evidence.attack.z)
        self.seen.append(size)
        random, tables = np.random.default_rng(0), view.tables
        beliefs = []
        for part in (tables.validation, tables.test):
            reads = random.random(len(part.x)) < self.shares[size]
            unread = 0.5 if self.is_honest else 1 - part.x[:, 0]
            p = np.where(reads, part.x[:, 0], unread).clip(0.01, 0.99)
            beliefs.append(np.log(np.stack([1 - p, p], axis=1)))
        return Posterior(self.name, *beliefs)


def _score_guessers(**attackers: _Guesser):
    for name, attacker in attackers.items():
        attacker.name = name
    profile = replace(PROFILES["quick"], records=500)
    evidence = [_evidence(RELEASES["secret"])]
    panel = Panel({}, attackers, profile)
    (result,) = filter(None, score_releases(evidence, panel, [_config(0)], [None]))
    return result


@pytest.mark.parametrize(("share", "seen"), [(1.0, [500, 1200]), (0.5, [500])])
def test_the_strongest_attacker_of_a_sample_learns_again_from_all_records(share, seen):
    strong = _Guesser(share, share)
    result = _score_guessers(strong=strong, other=_Guesser(0.9, 0.9))
    assert strong.seen == seen
    assert result.strongest == ("strong" if share == 1 else "other")


def test_the_attacker_with_the_highest_leakage_learns_again_from_all_records():
    # Right in 0.925 of all cases, and never sure of a wrong secret: log 2 of 0.85 leaks.
    honest = _Guesser(0.85, 0.88)
    # Right in 0.95, and as sure in the others: log 2 less the entropy of 0.05 leaks.
    accurate = _Guesser(0.95, 0.95, is_honest=False)
    result = _score_guessers(honest=honest, accurate=accurate)
    assert result.strongest == "accurate"
    assert honest.seen == [500, 1200]
    assert result.notes["privacy/leakage"].startswith("by honest")
    assert result.metrics["privacy/leakage"] == pytest.approx(0.88 * math.log(2), abs=0.03)


def test_a_fit_to_all_records_that_is_worse_on_validation_is_dropped():
    result = _score_guessers(only=_Guesser(1.0, 0.5))
    assert result.metrics[BEST] == 1


def test_area_under_curve_of_gaussians_has_its_closed_form(results):
    result, truth = results["gaussian"], norm.cdf(SHIFT / math.sqrt(2))
    error = result.standard_errors["privacy/attacker_auc"]
    assert result.metrics["privacy/attacker_auc"] == pytest.approx(truth, abs=3 * error + 0.01)


def test_a_release_of_the_secret_leaks_all_of_it(results):
    metrics = results["secret"].metrics
    assert metrics[BEST] == 1
    assert metrics["privacy/attacker_auc"] == 1
    assert metrics["privacy/leakage"] == pytest.approx(math.log(2), abs=0.01)


def test_nonlinear_attackers_solve_exclusive_or_and_linear_ones_do_not(results):
    result = results["exclusive_or"]
    assert _of(result, "logistic_regression") < 0.6
    for name in ("network", "large_network", "boosted_trees", "nearest_neighbours"):
        assert _of(result, name) > 0.98, name
    assert result.metrics[BEST] > 0.98


def test_balanced_accuracy_does_not_depend_on_class_frequencies():
    """Equal covariances: a threshold half-way is best for balanced accuracy, at any prior."""
    (result,) = _score([_evidence(RELEASES["gaussian"], share=0.1)], networks={})
    bayes, error = norm.cdf(SHIFT / 2), result.standard_errors[BEST]
    assert bayes - 3 * error - 0.02 < result.metrics[BEST] < bayes + 3 * error


@pytest.mark.parametrize("alpha", [0.0, 0.5, math.inf])
def test_leakage_of_every_order_is_bounded_by_the_entropy_of_its_order(alpha):
    (result,) = _score([_evidence(RELEASES["secret"])], networks={}, alpha=alpha)
    expected = 0 if alpha == 0 else math.log(2)
    assert result.metrics["privacy/alpha_leakage"] == pytest.approx(expected, abs=0.05)


def test_releases_are_scored_in_a_stack_as_alone():
    evidence = [_evidence(RELEASES[name], seed) for seed, name in enumerate(("gaussian", "noise"))]
    together = _score(evidence, {"network": NETWORKS["network"]}, steps=100)
    for seed, one in enumerate(evidence):
        panel = Panel({"network": NETWORKS["network"]}, GENERAL, _profile(100))
        (*_, alone) = score_releases([one], panel, [_config(seed)], [None])
        assert alone.metrics == pytest.approx(together[seed].metrics, abs=1e-3, nan_ok=True)


@pytest.mark.parametrize("spoiled", ["attack", "validation", "test"])
def test_a_release_that_is_not_finite_is_undefined_and_changes_no_other(spoiled):
    sound = _evidence(RELEASES["gaussian"])
    splits = {part: getattr(sound, part) for part in ("attack", "validation", "test")}
    bad = splits[spoiled]
    splits[spoiled] = AttackView(torch.full_like(bad.z, torch.nan), bad.secret)
    first, second = _score([Evidence(**splits), sound], networks={})
    assert math.isnan(first.metrics[BEST])
    assert first.strongest is None
    assert f"{spoiled} split is not finite" in first.notes[BEST]
    assert first.metrics.keys() == second.metrics.keys()
    assert second.metrics[BEST] > 0.7


def test_a_split_without_known_secrets_makes_the_result_undefined():
    given = _evidence(RELEASES["gaussian"])
    unknown = AttackView(given.test.z, torch.full_like(given.test.secret, MISSING))
    (result,) = _score([Evidence(given.attack, given.validation, unknown)], NETWORKS, steps=50)
    assert math.isnan(result.metrics[BEST])
    assert "test split knows 0 of the secret's 2 classes" in result.notes[BEST]


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_test_secrets_do_not_influence_attackers(attacker):
    given = _evidence(RELEASES["gaussian"])
    turned = AttackView(given.test.z, 1 - given.test.secret)
    blind = Evidence(given.attack, given.validation, turned)
    first, second = (attacker.fit(ReleaseView(one), 0) for one in (given, blind))
    np.testing.assert_array_equal(first.test, second.test)
    np.testing.assert_array_equal(first.validation, second.validation)


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_records_without_a_secret_do_not_influence_attackers(attacker):
    given = _evidence(RELEASES["gaussian"])
    secret = given.attack.secret.clone()
    secret[::4] = MISSING
    other = given.attack.z.clone()
    other[::4] += 100
    first, second = (
        attacker.fit(ReleaseView(Evidence(AttackView(z, secret), given.validation, given.test)), 0)
        for z in (given.attack.z, other)
    )
    np.testing.assert_array_equal(first.test, second.test)


class _Informed(ReleaseAttacker):
    """An attacker that is right on some splits, and in three of five cases on the others."""

    def __init__(
        self, name: str, *knows: str, confidence: float = 0.99, remaining_gain: float = 0.0
    ) -> None:
        self.name, self._knows = name, knows
        self._confidence, self._remaining_gain = confidence, remaining_gain

    def fit(self, view: ReleaseView, seed: int) -> Posterior:
        beliefs = []
        for split in ("validation", "test"):
            secret = getattr(view.evidence, split).secret.numpy()
            wrong = np.random.default_rng(0).random(len(secret)) < 0.4
            known = secret if split in self._knows else np.where(wrong, 1 - secret, secret)
            own, other = self._confidence, 1 - self._confidence
            beliefs.append(np.log(np.where(np.arange(2) == known[:, None], own, other)))
        return Posterior(self.name, *beliefs, remaining_gain=self._remaining_gain)


def test_the_strongest_attacker_is_chosen_on_validation_and_scored_on_test():
    specific = (_Informed("lucky", "test"), _Informed("chosen", "validation"))
    (result,) = _score([_evidence(RELEASES["noise"])], {}, specific)
    assert result.strongest == "chosen"
    assert result.metrics[BEST] == _of(result, "chosen") < 0.65
    assert "lucky is better on test" in result.notes[BEST]


@pytest.mark.parametrize("order", [1, -1])
def test_of_equally_accurate_attackers_the_one_with_less_loss_is_the_strongest(order):
    """Their calibration has a prior at the attacker's own confidence."""
    specific = [_Informed("sure", "validation"), _Informed("unsure", "validation", confidence=0.51)]
    panel = Panel({}, {one.name: one for one in specific[::order]}, _profile(1))
    (*_, result) = score_releases([_evidence(RELEASES["noise"])], panel, [_config(0)], [None])
    assert result.strongest == "sure"


@pytest.mark.parametrize(
    ("name", "gain", "is_flagged"),
    [("weak", 0.02, False), ("weak", 0.7, True), ("strong", 0.006, True), ("strong", 0.0, False)],
)
def test_attackers_without_steps_are_flagged_if_they_could_overtake(name, gain, is_flagged):
    """The strong attacker has 0.69 nats on validation, the weak one 0.02."""
    gains = {"weak": 0.0, "strong": 0.0} | {name: gain}
    attackers = {
        "strong": _Informed("strong", "validation", "test", remaining_gain=gains["strong"]),
        "weak": _Informed("weak", remaining_gain=gains["weak"]),
    }
    panel = Panel({}, attackers, _profile(1))
    (*_, result) = score_releases([_evidence(RELEASES["noise"])], panel, [_config(0)], [None])
    assert result.strongest == "strong"
    assert result.metrics["flag/attacker_not_converged"] == is_flagged
    if is_flagged:
        note = result.notes["flag/attacker_not_converged"]
        assert note == f"steps ran out before they could overtake: {name}"


def test_attackers_are_scored_under_other_labels_as_on_a_test_split_of_their_own():
    evidence = _evidence(RELEASES["gaussian"], utility=True)
    other = _evidence(RELEASES["gaussian"], seed=1, share=0.3, utility=True).test
    panel = Panel({"network": NETWORKS["network"]}, GENERAL, _profile(100), "published")
    both, apart = (
        [*score_releases([one], panel, [_config(0)], [None])][-1]
        for one in (replace(evidence, other_test=other), replace(evidence, test=other))
    )
    plain = [*score_releases([evidence], replace(panel, other_labels=None), [_config(0)], [None])]
    shared = plain[-1].metrics.items()
    assert {key: both.metrics[key] for key, _ in shared} == pytest.approx(dict(shared), nan_ok=True)
    names = [f"attacker/{name}/balanced_accuracy" for name in panel.names]
    for key in (f"privacy/{name}" for name in (*names, "attacker_balanced_accuracy")):
        assert both.metrics[f"{key}_published_labels"] == pytest.approx(apart.metrics[key])
        assert both.standard_errors[f"{key}_published_labels"] == pytest.approx(
            apart.standard_errors[key]
        )
    floor = "floor/utility_label"
    assert both.metrics[f"{floor}_published_labels"] == pytest.approx(apart.metrics[floor])


def test_a_release_of_the_label_alone_leaks_what_the_label_does():
    """Their difference has the error of attackers alone, as both err at the same records."""
    evidence = _evidence(RELEASES["noise"], utility=True)
    splits = (replace(s, z=s.utility[:, None] + 0.0 * s.z) for s in evidence.splits)
    (result,) = _score([Evidence(*splits)], networks={})
    entropy = -0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    told = result.label_leakage
    assert told.value == pytest.approx(math.log(2) - entropy, abs=3 * told.error)
    beyond = result.leakage - told
    assert abs(beyond.value) < 0.003
    assert beyond.error < told.error / 3


def test_metric_keys_name_every_attacker(results):
    parts = ("balanced_accuracy", "auc", "leakage")
    expected = {f"privacy/attacker/{name}/{part}" for name in PANEL.names for part in parts}
    metrics = results["gaussian"].metrics
    assert {key for key in metrics if key.startswith("privacy/attacker/")} == expected
    assert all(value == 0 for key, value in metrics.items() if key.startswith("flag/"))


def test_a_panel_has_four_families_of_attackers_and_those_of_the_problem():
    general = ("network", "large_network", *(attacker.name for attacker in ATTACKERS))
    digits, eco, amnist = (
        tuple(PROBLEMS.get(name).spec.attackers) for name in ("digits", "eco", "amnist")
    )
    assert digits == general
    assert eco == (*general, *(f"{name}_side" for name in general))
    rules = ("thickness_learned", "thickness_random", "thickness_thin", "thickness_thick")
    assert amnist == (*general, *rules)


def test_without_labels_the_floor_is_the_prior(results):
    result = results["gaussian"]
    assert result.metrics["floor/prior"] == result.metrics["floor/attacker_balanced_accuracy"]
    assert result.metrics["floor/prior"] == 0.5
    assert result.standard_errors["floor/prior"] == 0
    for key in ("floor/utility_label", "floor/inferred_utility_label", "floor/side_information"):
        assert math.isnan(result.metrics[key])
        assert result.notes[key].startswith("the problem has no")


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_floor_of_a_label_is_the_accuracy_of_guessing_by_it(share):
    floor = fit_floors(_evidence(RELEASES["noise"], share=share, utility=True), 2, 0, None)
    estimate = floor.estimates["floor/utility_label"]
    assert estimate.value == pytest.approx(0.8, abs=3 * estimate.error)
    assert floor.highest == "floor/utility_label"


def test_an_attacker_below_the_floor_is_flagged_with_the_difference():
    (result,) = _score([_evidence(RELEASES["noise"], utility=True)], networks={})
    flag = "flag/attacker_below_floor"
    assert result.metrics[flag] == 1
    assert "more than 2 standard errors" in result.notes[flag]
    assert result.notes["floor/attacker_balanced_accuracy"] == "of floor/utility_label"


def test_the_attainable_floor_uses_the_utility_label_inferred_from_the_release():
    """The true label predicts the secret in four of five cases; the inferred label does not."""
    evidence = _evidence(RELEASES["noise"], utility=True)
    guessed = np.random.default_rng(1).permutation(evidence.test.utility.numpy())
    floor = fit_floors(evidence, 2, 0, guessed)
    assert floor.highest == "floor/utility_label"
    assert floor.attainable.value == pytest.approx(0.5, abs=3 * floor.attainable.error)
    told = fit_floors(evidence, 2, 0, evidence.test.utility.numpy())
    assert told.attainable.value == floor.estimates["floor/utility_label"].value


def test_a_private_release_is_judged_by_the_attainable_floor():
    """The true label determines the secret, and the release shows neither."""
    evidence = _evidence(RELEASES["noise"], utility=True)
    splits = (replace(split, utility=split.secret) for split in evidence.splits)
    guessed = np.random.default_rng(1).permutation(evidence.test.secret.numpy())
    (result,) = _score([Evidence(*splits)], networks={}, inferred=guessed)
    assert result.metrics["floor/attacker_balanced_accuracy"] == 1
    assert result.metrics["floor/attainable"] == pytest.approx(0.5, abs=0.05)
    assert result.standard_errors["floor/attainable"] > 0


def test_networks_that_ran_out_of_steps_are_flagged_by_name():
    networks = {"network": NETWORKS["network"]}
    (result,) = _score([_evidence(RELEASES["exclusive_or"])], networks, steps=50)
    assert result.metrics["flag/attacker_not_converged"] == 1
    assert "network" in result.notes["flag/attacker_not_converged"]


SWEPT = {
    "adversary_width": 7,
    "adversary_steps": 1,
    "adversary_learning_rate": 0.5,
    "releaser_width": 5,
    "train_size": 100,
    "batch_size": 8,
    "steps": 3,
    "noise_std": 0.25,
    "privacy_weight": 9.0,
    "alpha": 3.0,
    "gradient": "posterior",
    "pretrain_steps": 9,
    "precision": "bf16",
}


@pytest.mark.parametrize("problem", ["gaussian-mixture", "digits", "amnist", "eco"])
@pytest.mark.parametrize("field", SWEPT)
def test_no_field_of_the_game_changes_the_panel(problem, field):
    source = PROBLEMS.get(problem)
    usual = AdversarialConfig(problem=problem)
    swept = AdversarialConfig.model_validate({"problem": problem, field: SWEPT[field]})
    one, other = (build_panel(source, config) for config in (usual, swept))
    assert one.networks == other.networks
    assert one.attackers == other.attackers
    assert one.profile == other.profile
    sizes = [source.split_sizes(config) for config in (usual, swept)]
    assert [(s.attack, s.validation, s.test) for s in sizes] == [
        (sizes[0].attack, sizes[0].validation, sizes[0].test)
    ] * 2


def test_panels_do_not_share_a_stack_or_a_point():
    quick, full = (AdversarialConfig(problem="digits", panel=name) for name in ("quick", "full"))
    assert quick.structure() != full.structure()
    experiment = privnets.experiment("adversarial")
    assert experiment.point_id(quick) != experiment.point_id(full)
