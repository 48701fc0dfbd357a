"""Device of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sweeps.planning.devices import DeviceNotFoundError, select_device, usable_gpus


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("cpus", "expected"), [(2, 2), (1, 1), (0.5, 1), (0, 1)])
def test_torch_uses_the_assigned_cores(cpus: float, expected: int) -> None:
    assert select_device(0, cpus) == "cpu"
    assert torch.get_num_threads() == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
@pytest.mark.parametrize("gpus", [0.3, 1])
def test_a_gpu_that_torch_does_not_see_is_refused_with_what_to_do(gpus: float) -> None:
    with pytest.raises(
        DeviceNotFoundError, match=rf"{gpus:g} GPUs and torch .* sees none: install .* to 0"
    ):
        select_device(gpus, 1)


def test_every_gpu_that_torch_sees_can_compute() -> None:
    assert len(usable_gpus(60.0)) == torch.cuda.device_count()
    with pytest.raises(RuntimeError, match="torch does not answer within"):
        usable_gpus(0.001)


@pytest.mark.gpu
def test_a_fraction_of_a_gpu_limits_its_memory() -> None:
    """Runs last: torch keeps the limit for the process."""
    whole = torch.cuda.mem_get_info()[1]
    assert all(0 < gpu.memory <= 0.9 * whole for gpu in usable_gpus(60.0))
    assert select_device(0.25, 1) == "cuda"
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(whole // 2, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
