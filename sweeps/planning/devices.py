"""Device that a worker trains on, and its memory.

Torch is imported inside the functions: the driver uses this module and never loads torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

# Fraction of a GPU's free memory that packs may take; the rest is for CUDA and fragmentation.
_USABLE_FRACTION = 0.9
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# Computes on each GPU: a driver or architecture that torch does not support shows only then.
_GPU_PROGRAM = """
import torch
for index in range(torch.cuda.device_count()):
    ones = torch.ones(8, 8, device=f"cuda:{index}")
    assert float((ones @ ones).sum()) == 512
    print(torch.cuda.mem_get_info(index)[0], torch.cuda.get_device_name(index))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPU on which torch can compute, with the bytes of its memory that packs may take."""

    name: str
    memory: int


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


def usable_gpus(seconds: float) -> list[Gpu]:
    """Returns this machine's GPUs, after a computation of torch on each.

    Raises:
        RuntimeError: If torch fails, or does not answer within the seconds.
    """
    # Ray hides GPUs from a task that reserved none.
    environment = {k: v for k, v in os.environ.items() if k not in _GPU_VARIABLES}
    try:
        process = subprocess.run(
            [sys.executable, "-c", _GPU_PROGRAM],
            env=environment, capture_output=True, text=True, timeout=seconds, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"torch does not answer within {seconds:g} s") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["?"])[-1][:300]
        raise RuntimeError(f"torch fails: {reason}") from error
    lines = [line.split(" ", 1) for line in process.stdout.splitlines()]
    return [Gpu(name, int(_USABLE_FRACTION * int(free))) for free, name in lines]
