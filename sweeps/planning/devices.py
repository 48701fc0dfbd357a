"""Device that a worker trains on, and its memory.

Torch is imported inside the functions: the driver uses this module and never loads torch.
"""

from __future__ import annotations

# Fraction of a GPU's free memory that packs may take; the rest is for CUDA and fragmentation.
_USABLE_FRACTION = 0.9


class DeviceNotFoundError(RuntimeError):
    """Raised if Ray assigns a GPU that torch cannot see."""


def select_device(gpus: float, cpus: float) -> str:
    """Limits torch to the assigned share of a machine, and returns the torch device's name.

    Raises:
        DeviceNotFoundError: If a GPU is assigned and torch sees none.
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
    """Returns the name of the accelerator; empty without one."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else ""


def free_memory(gpus: float) -> int:
    """Returns the bytes of GPU memory that a process with this many GPUs may use."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(_USABLE_FRACTION * free * min(gpus, 1.0))


def reset_peak_memory(device: str) -> None:
    """Starts a measurement of peak memory, with an empty cache."""
    import torch

    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory(device: str) -> int:
    """Returns the maximum bytes that torch allocated since the reset; 0 on a CPU."""
    import torch

    return torch.cuda.max_memory_allocated() if device == "cuda" else 0
