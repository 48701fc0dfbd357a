"""Clipped gradients of torch modules against a loop over models and examples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privnets.differential_privacy.module_gradients import clipped_gradients
from privnets.membership.user_models.module_stacks import record_losses
from privnets.networks.image_classifiers import cnn, resnet18
from privnets.networks.module_stacks import ModuleStack, stack_states

_MODELS, _BATCH = 2, 5


class _Residual(nn.Module):
    """Network that is not a sequence of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x + self.first(self.norm(x)).tanh())


CASES = {
    "perceptron": ((6,), lambda: nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3)), ""),
    "without bias": ((6,), lambda: nn.Linear(6, 3, bias=False), ""),
    "small network": ((2, 8, 8), lambda: cnn((2, 8, 8), 3, width=3), ""),
    "strides": (
        (1, 9, 9),
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 5, stride=2, padding=2), nn.ELU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(8, 3),
        ),
        "",
    ),
    "residual": ((6,), _Residual, "_Residual has no form"),
    "other padding": (
        (1, 6, 6),
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3)),
        "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1)) has no form",
    ),
    "group norm": (
        (2, 4, 4),
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)
        ),
        "GroupNorm has no form",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("clip", [0.2, 1e6])
def test_sums_of_clipped_gradients_equal_those_of_a_loop_over_examples(name, clip):
    shape, make, reason = CASES[name]
    torch.manual_seed(0)
    modules = [make() for _ in range(_MODELS)]
    parameters, _ = stack_states(modules, "cpu")
    x, y = torch.randn(_MODELS, _BATCH, *shape), torch.randint(0, 3, (_MODELS, _BATCH))
    bounds, counted = clip * torch.tensor([1.0, 3.0]), torch.ones(_MODELS, _BATCH)
    counted[1, 3:] = 0
    clipped, why = clipped_gradients(ModuleStack(modules[0]), shape, record_losses)
    assert why.startswith(reason)
    assert bool(why) == bool(reason)
    found = clipped(parameters, x, y, bounds, counted)
    for model, module in enumerate(modules):
        own = list(module.parameters())
        expected = [torch.zeros_like(p) for p in own]
        for example in range(_BATCH):
            loss = nn.functional.cross_entropy(
                module(x[model, example, None]), y[model, example, None]
            )
            gradients = torch.autograd.grad(loss, own)
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            scale = min(1.0, float(bounds[model] / norm)) * counted[model, example]
            for total, gradient in zip(expected, gradients, strict=True):
                total += scale * gradient
        for sums, total in zip(found, expected, strict=True):
            torch.testing.assert_close(sums[model], total, rtol=1e-4, atol=1e-5)


def test_batch_normalisation_and_shared_parameters_are_refused():
    layer = nn.Linear(6, 6)
    shared = ModuleStack(nn.Sequential(layer, nn.Tanh(), layer))
    with pytest.raises(ValueError, match="share no parameters"):
        clipped_gradients(shared, (6,), record_losses)
    with pytest.raises(ValueError, match=r"layer 0.1 is a BatchNorm2d, which mixes the records"):
        clipped_gradients(ModuleStack(resnet18((3, 8, 8), 2, width=2)), (3, 8, 8), record_losses)
