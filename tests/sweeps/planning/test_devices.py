"""The device that a process is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sweeps.planning.devices import DeviceNotFoundError, free_memory, peak_memory, select_device


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("cpus", "expected"), [(2, 2), (1, 1), (0.5, 1), (0, 1)])
def test_torch_uses_the_cores_that_were_given(cpus: float, expected: int) -> None:
    assert select_device(0, cpus) == "cpu"
    assert torch.get_num_threads() == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
@pytest.mark.parametrize("gpus", [0.3, 1])
def test_a_gpu_that_torch_does_not_see_is_refused_with_what_to_do(gpus: float) -> None:
    with pytest.raises(
        DeviceNotFoundError, match=rf"{gpus:g} GPUs and torch .* sees none: install .* to 0"
    ):
        select_device(gpus, 1)


def test_nobody_counts_the_memory_of_a_cpu() -> None:
    with peak_memory("cpu") as peak:
        torch.zeros(1000)
    assert peak.bytes == 0


@pytest.mark.gpu
def test_a_part_of_a_gpu_is_a_part_of_its_memory() -> None:
    """Last of its process: torch forgets no such limit."""
    whole = torch.cuda.mem_get_info()[1]
    assert free_memory(0.25) <= whole / 4
    assert select_device(0.25, 1) == "cuda"
    with peak_memory("cuda") as peak:
        torch.zeros(2**20, dtype=torch.uint8, device="cuda")
    assert 2**20 <= peak.bytes < 2**22
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(whole // 2, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
