"""Proposals and fronts of `FrontierSampler`."""

import math
from collections.abc import Sequence

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from sweeps import FrontierSampler

SPACE = {"noise": FloatDistribution(0.01, 10.0, log=True), "weight": FloatDistribution(0.0, 1.0)}
Values = Sequence[float]


def tradeoff(params: dict[str, float]) -> tuple[float, float]:
    """Leakage, to minimise, and utility, to maximise; best at a weight that depends on noise."""
    x = math.log10(params["noise"] / 0.01) / 3
    loss = (params["weight"] - 0.3 - 0.4 * x) ** 2
    return 1 - x + loss, 1 - x**2 - loss


def make_study(seed: int = 0, directions: Sequence[str] = ("minimize", "maximize")) -> optuna.Study:
    return optuna.create_study(directions=directions, sampler=FrontierSampler(seed))


def ask_pack(study: optuna.Study, size: int = 4, space=SPACE) -> list[Trial]:
    return [study.ask(space) for _ in range(size)]


def tell_pack(study: optuna.Study, pack: Sequence[Trial], noise: float = 0.0) -> None:
    for trial in pack:
        random = np.random.default_rng(trial.number)
        values = np.array(tradeoff(trial.params)) + noise * random.standard_normal(2)
        study.tell(trial, values.tolist())


def finished_study(packs: int, noise: float = 0.0, seed: int = 0) -> optuna.Study:
    study = make_study(seed)
    for _ in range(packs):
        tell_pack(study, ask_pack(study, 8), noise)
    return study


def rebuild(trials: Sequence[FrozenTrial], seed: int = 0) -> optuna.Study:
    study = make_study(seed)
    study.add_trials(trials)
    return study


def test_a_rebuilt_study_continues_a_pack_with_the_same_proposals():
    study = finished_study(3)
    outstanding = ask_pack(study, 3)
    pack = ask_pack(study, 6)
    last = outstanding[-1].number + 3
    again = rebuild(study.get_trials(deepcopy=False)[:last])
    assert [t.params for t in ask_pack(again, 4)] == [t.params for t in pack[2:]]


def test_the_order_in_which_packs_end_does_not_matter():
    studies = [finished_study(2), finished_study(2)]
    packs = [[ask_pack(study), ask_pack(study)] for study in studies]
    tell_pack(studies[0], packs[0][0]), tell_pack(studies[0], packs[0][1])
    tell_pack(studies[1], packs[1][1]), tell_pack(studies[1], packs[1][0])
    assert ask_pack(studies[0])[0].params == ask_pack(studies[1])[0].params


def test_other_seeds_propose_other_points():
    first, second = (ask_pack(make_study(seed))[0].params for seed in (0, 1))
    assert first != second


def test_proposals_of_a_pack_differ_and_avoid_running_trials():
    study = finished_study(3)
    params = [tuple(t.params.values()) for t in ask_pack(study, 16)]
    assert len(set(params)) == 16


def test_a_quarter_of_a_pack_repeats_trials_of_the_front_where_noise_is_large():
    study = finished_study(4, noise=0.15)
    earlier = {tuple(t.params.values()) for t in study.trials}
    pack = ask_pack(study, 8)
    repeats = [t for t in pack if tuple(t.params.values()) in earlier]
    assert len(repeats) == 2
    assert len({tuple(t.params.values()) for t in pack}) == 8


def test_the_estimated_front_is_near_the_true_one_despite_noise():
    study = finished_study(8, noise=0.1)
    chosen = study.sampler.estimated_front(study, size=6)
    assert chosen == sorted(chosen)
    assert len(chosen) == 6
    losses = [
        (p["weight"] - 0.3 - 0.4 * math.log10(p["noise"] / 0.01) / 3) ** 2
        for p in (study.trials[n].params for n in chosen)
    ]
    assert np.median(losses) < 0.01
    assert set(chosen) <= set(study.sampler.estimated_front(study))


def test_failed_trials_are_avoided():
    study = make_study()
    failed = []
    for _ in range(5):
        for trial in ask_pack(study, 8):
            failed.append(trial.params["weight"] > 0.5)
            if failed[-1]:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, list(tradeoff(trial.params)))
    assert np.mean(failed[:8]) == 0.5
    assert np.mean(failed[-16:]) < 0.25


def test_the_front_keeps_constraints():
    study = make_study()
    for _ in range(4):
        for trial in ask_pack(study, 8):
            leakage, utility = tradeoff(trial.params)
            trial.set_constraint("utility", 0.5 - utility)
            study.tell(trial, [leakage, utility])
    front = [study.trials[n] for n in study.sampler.estimated_front(study)]
    assert min(t.values[1] for t in front) > 0.45
    assert np.mean([t.values[1] > 0.5 for t in study.trials[-16:]]) > 0.6


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
def test_extreme_values_are_no_error(value):
    study = finished_study(2)
    study.tell(study.ask(SPACE), [value, 1.0])
    assert ask_pack(study)[0].params.keys() == SPACE.keys()


def test_parameters_that_another_one_switches_off_are_left_out():
    study = make_study()

    def suggest(trial: Trial) -> Values:
        model = trial.suggest_categorical("model", ["linear", "mlp"])
        width = trial.suggest_int("width", 1, 64) if model == "mlp" else 8
        decay = trial.suggest_float("decay", 1e-4, 1.0, log=True)
        return math.log(decay) ** 2 + width, math.log(width) - decay

    study.optimize(suggest, n_trials=24)
    proposed = [
        study.sampler.sample_relative(study, t, study.sampler.infer_relative_search_space(study, t))
        for t in (study.ask()._cached_frozen_trial for _ in range(6))
    ]
    assert all(("width" in params) == (params["model"] == "mlp") for params in proposed)


@pytest.mark.parametrize("count", [1, 3])
def test_other_numbers_of_objectives_are_searched(count: int):
    study = make_study(directions=["minimize"] * count)
    targets = np.linspace(0.2, 0.8, count)
    for _ in range(28):
        trial = study.ask(SPACE)
        study.tell(trial, [(trial.params["weight"] - target) ** 2 for target in targets])
    late = [t.params["weight"] for t in study.trials[-12:]]
    assert np.mean([0.1 < w < 0.9 for w in late]) > 0.7
    assert study.sampler.estimated_front(study)


def test_a_small_space_is_searched_until_it_is_exhausted_and_beyond():
    space = {"a": IntDistribution(1, 3), "b": CategoricalDistribution(["x", "y"])}
    study = make_study()
    for _ in range(24):
        trial = study.ask(space)
        study.tell(trial, [trial.params["a"], trial.params["a"] * (trial.params["b"] == "x")])
    assert len({tuple(t.params.values()) for t in study.trials}) == 6


def test_free_places_of_a_confirmation_go_to_trials_near_the_front():
    study = finished_study(3, noise=0.3)
    sampler, trials = study.sampler, study.get_trials(deepcopy=False)
    assert isinstance(sampler, FrontierSampler)
    front = sampler.estimated_front(study)
    more = sampler.trials_to_confirm(study, len(front) + 3)
    assert len(more) == len(front) + 3
    assert set(front) < set(more)
    assert len({tuple(trials[number].params.values()) for number in more}) == len(more)
    assert sampler.trials_to_confirm(study, 2) == sampler.estimated_front(study, 2)
