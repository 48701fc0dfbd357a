"""Training of stacked classifiers: its inputs, its convergence, and the parameters it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from privnets.adversarial.attackers.convergence import (
    FittedClassifiers,
    LabelledStack,
    TrainingTask,
    cross_entropy,
    log_probabilities,
    stack_records,
    train_until_converged,
)
from privnets.adversarial.attackers.neural import fit_network
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.records import MISSING
from privnets.networks.mlp import Perceptron
from tests.support import finish
from tests.traced_steps import TracedSteps

SMALL = Perceptron((2, 8, 2))


def _records(count: int, seed: int, shift: float = 1.5) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, count)
    x = random.standard_normal((count, 2)) + shift * label[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(label)


def _task(members: int, **settings) -> TrainingTask:
    parts = [[_records(200, 10 * i + part) for i in range(members)] for part in range(2)]
    return TrainingTask(SMALL, *map(stack_records, parts), range(members), "test", **settings)


def _train(task: TrainingTask, steps: int) -> FittedClassifiers:
    return finish(train_until_converged(task, steps))


def _single_member(task: TrainingTask, member: int) -> TrainingTask:
    parts = (
        LabelledStack(part.x, part.label, part.rows[member : member + 1])
        for part in (task.training, task.validation)
    )
    return TrainingTask(task.architecture, *parts, [task.seeds[member]], task.purpose)


def test_members_of_a_stack_train_as_they_would_alone():
    task = _task(3)
    together = _train(task, 100)
    for member in range(3):
        alone = _train(_single_member(task, member), 100)
        for one, all_of_them in zip(alone.parameters, together.parameters, strict=True):
            torch.testing.assert_close(one[0], all_of_them[member], atol=1e-4, rtol=1e-3)
        assert alone.curves[0].steps == together.curves[member].steps
        assert alone.curves[0].values == pytest.approx(together.curves[member].values, rel=1e-3)


def test_curves_show_how_the_loss_falls_to_its_final_value():
    trained = _train(_task(2), 2_100)
    for curve, loss in zip(trained.curves, trained.validation_loss.tolist(), strict=True):
        assert (curve.steps[0], curve.steps[-1]) == (50, 2100)
        assert list(curve.values) == sorted(curve.values, reverse=True)
        assert curve.values[0] > curve.values[-1] == loss


def test_a_member_that_is_not_finite_changes_no_other():
    task = _task(2)
    poisoned = task.training.x.clone()
    poisoned[task.training.rows[1]] = torch.nan
    spoiled = TrainingTask(
        SMALL,
        LabelledStack(poisoned, task.training.label, task.training.rows),
        task.validation,
        task.seeds,
        task.purpose,
    )
    clean, dirty = (
        _train(task, 100),
        _train(spoiled, 100),
    )
    assert all(
        torch.equal(a[0], b[0]) for a, b in zip(clean.parameters, dirty.parameters, strict=True)
    )


def test_shared_records_train_like_copies_of_them():
    (x, label), (vx, vlabel) = _records(200, 0), _records(200, 1)
    rows = torch.arange(200).repeat(2, 1)
    shared = TrainingTask(
        SMALL, LabelledStack(x, label, rows), LabelledStack(vx, vlabel, rows), [0, 1], "test"
    )
    own = TrainingTask(
        SMALL, stack_records([(x, label)] * 2), stack_records([(vx, vlabel)] * 2), [0, 1], "test"
    )
    first, second = (_train(task, 60).validation_loss for task in (shared, own))
    assert torch.equal(first, second)


def test_the_operations_of_one_step_repeat_as_the_following_steps(monkeypatch):
    usual = _train(_task(2), 100)
    monkeypatch.setattr("privnets.adversarial.attackers.convergence.StepRunner", TracedSteps)
    repeated = _train(_task(2), 100)
    torch.testing.assert_close(usual.parameters, repeated.parameters)


def test_the_best_parameters_on_validation_are_kept():
    trained = _train(task := _task(2), 400)
    rows = task.validation.rows
    found = log_probabilities(SMALL, trained.parameters, task.validation.x, rows)
    loss = cross_entropy(found, task.validation.label[rows])
    torch.testing.assert_close(loss, trained.validation_loss)


def test_records_without_a_label_change_nothing():
    x, label = _records(300, 0)
    label[::3] = MISSING
    garbage = x.clone()
    garbage[::3] = torch.nan
    parts = [stack_records([(inputs, label)]) for inputs in (x, garbage)]
    first, second = (_train(TrainingTask(SMALL, p, p, [0], "test"), 60) for p in parts)
    assert torch.equal(first.validation_loss, second.validation_loss)


def test_training_that_runs_out_of_steps_is_reported_as_not_converged():
    task = _task(1)
    stopped = _train(task, 100)
    (gain,) = stopped.remaining_gains
    # Half of the steps ended at the first of two evaluations, whose loss the curve shows.
    assert gain == pytest.approx(stopped.curves[0].values[0] - stopped.curves[0].values[-1])
    assert gain > 0.005
    assert _train(task, 1500).remaining_gains == (0,)


def test_without_an_earlier_evaluation_the_whole_loss_may_be_gained():
    stopped = _train(_task(1), 20)
    assert stopped.remaining_gains == pytest.approx(stopped.validation_loss.tolist())


def test_a_member_is_trained_on_fresh_inputs_in_every_pass():
    """Inputs that a redraw exchanges for others decide what a classifier learns."""
    (x, label), (vx, vlabel) = _records(200, 0), _records(200, 1)

    def train(redraw) -> FittedClassifiers:
        parts = (stack_records([(x.clone(), label)]), stack_records([(vx, vlabel)]))
        return _train(TrainingTask(SMALL, *parts, [0], "test", redraw, [0] if redraw else []), 400)

    streams: list[str] = []
    usual, same = train(None), train(lambda _, stream: x[None])
    turned = train(lambda _, stream: streams.append(stream) or -x[None])
    assert torch.equal(usual.validation_loss, same.validation_loss)
    assert (usual.draws, same.draws, turned.draws) == ((1,), (1,), (2,))
    assert len(set(streams)) == len(streams) > 10
    assert turned.validation_loss > usual.validation_loss + 0.1


class _Watched(Perceptron):
    """Records how many classifiers each step trains."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__(widths)
        self.trained: list[int] = []

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.trained.append(len(x))
        return super().forward(parameters, x)


def test_converged_members_leave_the_stack_and_change_no_other():
    task = _task(4)
    task = replace(task, architecture=_Watched(SMALL.widths))
    together, sizes = _train(task, 1500), task.architecture.trained
    assert sizes[0] == 4
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 4
    for member in range(4):
        alone = _train(_single_member(task, member), 1500)
        torch.testing.assert_close(
            alone.validation_loss[0], together.validation_loss[member], atol=1e-3, rtol=0
        )


def test_training_ends_early_when_all_members_have_converged():
    *_, share = train_until_converged(_task(1), 2_000)
    assert share < 0.9


def _evidence(seed: int, scale: float = 1.0, offset: float = 0.0) -> Evidence:
    parts = [_records(400, 100 * seed + i) for i in range(3)]
    return Evidence(*(AttackView(offset + scale * x, label) for x, label in parts))


def test_the_scale_of_a_release_hides_nothing_from_a_network():
    evidence = [_evidence(0), _evidence(0, scale=1e-4, offset=3.0)]
    near, far = _fit(evidence)
    assert np.abs(near.test - far.test).max() < 0.1


def test_test_secrets_do_not_reach_a_network():
    given = _evidence(0)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    shuffled = Evidence(
        given.attack, given.validation, AttackView(given.test.z, given.test.secret[order])
    )
    (first,), (second,) = _fit([given]), _fit([shuffled])
    np.testing.assert_array_equal(first.test, second.test)
    np.testing.assert_array_equal(first.validation, second.validation)


def _fit(evidence):
    return finish(fit_network("network", SMALL, evidence, [0] * len(evidence), 100))
