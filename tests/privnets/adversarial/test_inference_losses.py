"""Losses of stacks against PyTorch's, and their closed-form gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from privnets.adversarial.records import MISSING
from privnets.adversarial.training.inference_networks import (
    accuracy,
    cross_entropy,
    log_softmax_over_classes,
)

_CASES = pytest.mark.parametrize(
    ("shape", "missing"),
    [((2, 7), 0), ((2, 7), 3), ((2, 5, 4), 0), ((2, 5, 4), 9)],
)


def _draw(shape: tuple[int, ...], missing: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, classes, generator=random, dtype=torch.float64)
    label = torch.randint(classes, shape, generator=random)
    for member in label.flatten(1):
        member[torch.randperm(len(member), generator=random)[:missing]] = MISSING
    return logits.requires_grad_(), label


@_CASES
def test_cross_entropy_and_its_gradient_equal_pytorchs_for_each_member(shape, missing):
    logits, label = _draw(shape, missing)
    found = cross_entropy(logits, label)
    expected = torch.stack(
        [
            functional.cross_entropy(one.flatten(0, -2), own.flatten(), ignore_index=MISSING)
            for one, own in zip(logits, label, strict=True)
        ]
    )
    torch.testing.assert_close(found, expected)
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    pulls = [torch.autograd.grad((weights * loss).sum(), logits)[0] for loss in (found, expected)]
    torch.testing.assert_close(*pulls)


@_CASES
def test_the_gradient_of_cross_entropy_equals_finite_differences(shape, missing):
    logits, label = _draw(shape, missing)
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, label), logits)


def test_a_member_without_known_labels_has_no_loss_and_no_gradient():
    logits, label = _draw((2, 7), 0)
    label[1] = MISSING
    loss = cross_entropy(logits, label)
    assert loss[1] == 0
    assert not torch.autograd.grad(loss.sum(), logits)[0][1].any()
    assert accuracy(logits, label)[1] == 0


@_CASES
def test_log_softmax_over_classes_is_independent_of_memory_layout(shape, missing):
    logits, _ = _draw(shape, missing)
    expected = logits.log_softmax(-1)
    torch.testing.assert_close(log_softmax_over_classes(logits), expected)
    turned = logits.transpose(1, -1).contiguous().transpose(1, -1)
    torch.testing.assert_close(log_softmax_over_classes(turned), expected)


def test_accuracy_counts_known_labels_only():
    logits = torch.eye(3).expand(1, 3, 3)
    assert accuracy(logits, torch.tensor([[0, 2, MISSING]])) == 0.5
