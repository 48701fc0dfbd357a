"""The device that a process has been given to train on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Of a GPU's free memory: what is left goes to CUDA itself and to fragments.
_USABLE = 0.9


class DeviceNotFoundError(RuntimeError):
    """A GPU was promised, and torch sees none."""


@dataclass
class PeakMemory:
    """The most memory that torch had in use at once.

    Attributes:
        bytes: Of the device; 0 on a CPU, where nobody counts.
    """

    bytes: int = 0


def select_device(gpus: float, cpus: float) -> str:
    """Set torch up for its part of a machine.

    Args:
        gpus: GPUs that this process was given; below 1 it may use that share of one's memory.
        cpus: Cores that it was given.

    Returns:
        The device, as torch names it.

    Raises:
        DeviceNotFoundError: If it was given a GPU and torch sees none.
    """
    import torch

    torch.set_num_threads(max(1, int(cpus)))
    if not gpus:
        return "cpu"
    if not torch.cuda.is_available():
        raise DeviceNotFoundError(
            f"Ray gave this process {gpus:g} GPUs and torch {torch.__version__} sees none: install "
            "a torch built for the machine's CUDA, or set resources.gpus to 0"
        )
    if gpus < 1:
        torch.cuda.set_per_process_memory_fraction(gpus)
    return "cuda"


def device_name(device: str) -> str:
    """The accelerator's name; empty without one."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else ""


def free_memory(gpus: float) -> int:
    """Bytes of GPU memory that a process given so many GPUs may count on."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(_USABLE * free * min(gpus, 1.0))


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that a GPU has no more memory."""
    import torch

    return isinstance(error, torch.OutOfMemoryError)


@contextmanager
def peak_memory(device: str) -> Iterator[PeakMemory]:
    """A block, and how much of the device's memory it took."""
    peak = PeakMemory()
    if device == "cpu":
        yield peak
        return
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield peak
    peak.bytes = torch.cuda.max_memory_allocated()
