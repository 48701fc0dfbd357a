"""The stacked optimiser against PyTorch's, restored, and with models taken out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from privnets.networks.module_stacks import stack_states
from privnets.networks.training import FusedAdam, StackedAdam

_RATES = torch.tensor([1e-3, 1e-2, 0.1])


def _parameters(seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) for shape in ((3, 4, 2), (3, 2), (3, 1, 5))]


def _descend(
    adam: StackedAdam, parameters: list[Tensor], steps: int, only: slice = slice(None)
) -> None:
    """Towards targets that differ by model and parameter; `only` says which models these are."""
    targets = [t[only] for t in _parameters(seed=1)]
    for _ in range(steps):
        adam.step([(p - t) ** 3 for p, t in zip(parameters, targets, strict=True)])


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9)])
def test_each_model_moves_as_under_torch_adam_with_its_own_rate(betas):
    parameters, targets = _parameters(), _parameters(seed=1)
    for s, rate in enumerate(_RATES.tolist()):
        alone = [p[s].clone() for p in parameters]
        expected = torch.optim.Adam(alone, lr=rate, betas=betas)
        for _ in range(20):
            for p, t in zip(alone, targets, strict=True):
                p.grad = (p - t[s]) ** 3
            expected.step()
        stack = _parameters()
        _descend(StackedAdam(stack, _RATES, betas), stack, 20)
        for found, other in zip(stack, alone, strict=True):
            torch.testing.assert_close(found[s], other, rtol=1e-5, atol=1e-6)


def test_fused_steps_are_those_of_torch_adam_also_with_transposed_gradients():
    found, alone = _parameters(), _parameters()
    adam, expected = FusedAdam(found, 0.01), torch.optim.Adam(alone, lr=0.01)
    for scale in (1.0, 0.5, 0.1):
        gradients = [p**3 for p in alone]
        adam.step([g.mT.contiguous().mT if g.ndim > 2 else g for g in gradients], scale)
        for p, g in zip(alone, gradients, strict=True):
            p.grad = g
        expected.param_groups[0]["lr"] = 0.01 * scale
        expected.step()
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_modules_in_channels_last_memory_train_as_others():
    module = torch.nn.Conv2d(3, 4, 3)
    alone = [p.detach().clone() for p in module.parameters()]
    found, _ = stack_states([module.to(memory_format=torch.channels_last)] * 2, "cpu")
    adam, expected = FusedAdam(found, 0.01), torch.optim.Adam(alone, lr=0.01)
    for _ in range(3):
        adam.step([torch.stack([p**3] * 2) for p in alone])
        for p in alone:
            p.grad = p**3
        expected.step()
    for stacked, other in zip(found, alone, strict=True):
        torch.testing.assert_close(stacked, torch.stack([other] * 2), rtol=1e-5, atol=1e-6)


def test_a_restored_optimiser_continues_bit_for_bit():
    parameters = _parameters()
    adam = StackedAdam(parameters, _RATES)
    _descend(adam, parameters, 7)
    state, copies = adam.state(), [p.clone() for p in parameters]
    _descend(adam, parameters, 5)
    other = StackedAdam(copies, _RATES)
    other.restore(state)
    _descend(other, copies, 5)
    for found, expected in zip(copies, parameters, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("networks", [3, 16])  # with and without padding
def test_gradients_may_have_any_strides(networks):
    parameters, copies = ([torch.ones(networks, 1)] for _ in range(2))
    rates = torch.full((networks,), 0.1)
    columns = torch.arange(3.0 * networks).view(networks, 3)
    gradient = columns[:, 1:2]
    StackedAdam(parameters, rates).step([gradient])
    StackedAdam(copies, rates).step([gradient.contiguous()])
    assert torch.equal(parameters[0], copies[0])
    StackedAdam(parameters, rates).step([torch.tensor(2.0).expand(networks, 1)])
    StackedAdam(copies, rates).step([torch.full((networks, 1), 2.0)])
    assert torch.equal(parameters[0], copies[0])


def test_a_restored_optimiser_forgets_a_gradient_that_is_not_finite():
    parameters = [torch.ones(2, 3)]
    adam = StackedAdam(parameters, _RATES[:2])
    state = adam.state()
    adam.step([torch.full((2, 3), torch.nan)])
    adam.restore(state)
    adam.step([torch.ones(2, 3)])
    # The first step has the length of the learning rate.
    torch.testing.assert_close(parameters[0], 1 - _RATES[:2, None].expand(2, 3))


def test_state_of_another_shape_is_refused():
    adam = StackedAdam(_parameters(), _RATES)
    other = StackedAdam([p[:1] for p in _parameters()], _RATES[:1])
    with pytest.raises(ValueError, match=r"parameter\.0 must have shape"):
        adam.restore(other.state())


def test_kept_models_do_not_depend_on_dropped_ones():
    parameters = _parameters()
    adam = StackedAdam(parameters, _RATES)
    _descend(adam, parameters, 7)
    adam.keep(torch.tensor([0, 2]))
    kept = adam.parameters
    _descend(adam, kept, 5, only=slice(None, None, 2))
    whole = _parameters()
    _descend(StackedAdam(whole, _RATES), whole, 12)
    for found, expected in zip(kept, whole, strict=True):
        torch.testing.assert_close(found, expected[[0, 2]], rtol=1e-6, atol=1e-7)
