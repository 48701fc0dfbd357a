"""Training curves against values computed step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import Minibatch
from privnets.adversarial.training.curves import TrainingCurves
from privnets.adversarial.training.inference_networks import accuracy, cross_entropy
from privnets.adversarial.training.losses import GameStep

_EVERY, _MEMBERS, _RECORDS = 4, 3, 6
_PROBLEM = PROBLEMS.get("gaussian-mixture")
_CONFIGS = [
    AdversarialConfig(problem="gaussian-mixture", releaser="linear", seed=s, noise_std=1 + s)
    for s in range(_MEMBERS)
]
_PRIOR = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]).log()


def _steps(count: int, reference: bool = True) -> list[tuple[GameStep, Tensor, Tensor]]:
    """Each step, its loss, and the filters after it."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(_MEMBERS, *shape, generator=random)

    def bits() -> Tensor:
        return torch.randint(2, (_MEMBERS, _RECORDS), generator=random)

    steps = []
    for _ in range(count):
        pair = (_RECORDS, 2)
        batch = Minibatch(normal(*pair), bits(), bits(), noise=normal(*pair))
        logits = [normal(*pair) for _ in range(3)]
        seen = GameStep(batch, normal(*pair), *(logits if reference else logits[:2]))
        steps.append((seen, normal(), normal(2, 2)))
    return steps


def _curves(every: int = _EVERY) -> TrainingCurves:
    return TrainingCurves(_PROBLEM, _PRIOR, every)


def _play(curves: TrainingCurves, steps: Sequence[tuple[GameStep, Tensor, Tensor]], first: int = 0):
    for i, (seen, loss, theta) in enumerate(steps, first + 1):
        curves.add_step(seen, loss, seen.distortion)
        curves.add_point(i, [theta])
    curves.settle(_CONFIGS)


def _values(seen: GameStep, loss: Tensor, s: int) -> dict[str, float]:
    """Expected values of one member at one step."""
    secret, label = seen.batch.secret[s][None], seen.batch.utility[s][None]
    adversary, utility = seen.adversary[s][None], seen.utility[s][None]
    found = {
        "loss/releaser": loss[s],
        "distortion": (seen.z[s] - seen.batch.x[s]).square().mean(),
        "loss/adversary": cross_entropy(adversary, secret),
        "accuracy/adversary": accuracy(adversary, secret),
        "information/leakage": -_PRIOR[s][secret].mean() - cross_entropy(adversary, secret),
        "loss/utility": cross_entropy(utility, label),
        "accuracy/utility": accuracy(utility, label),
    }
    if seen.reference is not None:
        known = cross_entropy(seen.reference[s][None], label)
        found["information/censored"] = found["loss/utility"] - known
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("reference", [False, True])
def test_a_point_is_the_mean_of_the_steps_before_it(reference):
    steps, curves = _steps(2 * _EVERY + 1, reference), _curves()
    _play(curves, steps)
    for s in range(_MEMBERS):
        found = curves.member(s)
        for point in range(2):
            own = [_values(*step[:2], s) for step in steps[point * _EVERY : (point + 1) * _EVERY]]
            for name in own[0]:
                mean = sum(values[name] for values in own) / _EVERY
                assert found[name].values[point] == pytest.approx(mean, rel=1e-5, abs=1e-6)
                assert found[name].steps == (4, 8)


def test_a_point_averages_more_steps_than_are_evaluated_together():
    steps, curves = _steps(50), _curves(50)
    for i, (seen, loss, theta) in enumerate(steps, 1):
        curves.add_step(seen, loss, seen.distortion)
        curves.add_point(i, [theta])
    curves.settle(_CONFIGS)
    for s in range(_MEMBERS):
        values = [_values(*step[:2], s) for step in steps]
        for name in values[0]:
            mean = sum(value[name] for value in values) / len(steps)
            assert curves.member(s)[name].values == (pytest.approx(mean, rel=1e-5, abs=1e-6),)


def test_exact_information_is_that_of_the_releasers_at_the_point():
    steps, curves = _steps(2 * _EVERY), _curves()
    _play(curves, steps)
    for point in range(2):
        exact = _PROBLEM.exact_curves(_CONFIGS, [steps[(point + 1) * _EVERY - 1][2]])
        for name, values in exact.items():
            for s in range(_MEMBERS):
                assert curves.member(s)[name].values[point] == pytest.approx(float(values[s]))


@pytest.mark.parametrize("pause", [1, 4, 6])
def test_curves_continued_from_a_state_end_the_same(pause):
    steps, whole, first, second = _steps(2 * _EVERY), _curves(), _curves(), _curves()
    _play(whole, steps)
    _play(first, steps[:pause])
    state = {name: tensor.clone() for name, tensor in first.state().items()}
    _play(first, steps[:3], pause)  # what it does afterwards must not reach into the state
    second.restore(state)
    _play(second, steps[pause:], pause)
    for s in range(_MEMBERS):
        assert second.member(s) == whole.member(s)


@pytest.mark.parametrize("pause", [2, 5])
def test_remaining_members_keep_their_curves(pause):
    steps, whole, fewer = _steps(2 * _EVERY), _curves(), _curves()
    stay = torch.tensor([0, 2])
    _play(whole, steps)
    _play(fewer, steps[:pause])
    fewer.keep(stay)
    for i, (seen, loss, theta) in enumerate(steps[pause:], pause + 1):
        fewer.add_step(kept := _select_members(seen, stay), loss[stay], kept.distortion)
        fewer.add_point(i, [theta[stay]])
    fewer.settle([_CONFIGS[i] for i in stay])
    for place, s in enumerate(stay):
        assert fewer.member(place).keys() == whole.member(s).keys()
        for name, curve in whole.member(s).items():
            assert fewer.member(place)[name].values == pytest.approx(curve.values)


def _select_members(value, members: Tensor):
    """Some members of a dataclass of tensors."""
    if isinstance(value, Tensor):
        return value[members]
    if not dataclasses.is_dataclass(value):
        return value
    fields = {
        f.name: _select_members(getattr(value, f.name), members) for f in dataclasses.fields(value)
    }
    return dataclasses.replace(value, **fields)
