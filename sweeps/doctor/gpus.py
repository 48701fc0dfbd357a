"""Whether torch sees the GPUs that Ray promises, and can compute on them."""

from __future__ import annotations

import os
import subprocess
import sys

from sweeps.doctor.check import Check, State

SUBJECT = "GPUs"
# Each computes something: a driver or an architecture that torch lacks shows only then.
_CODE = """
import torch
for place in range(torch.cuda.device_count()):
    ones = torch.ones(8, 8, device=f"cuda:{place}")
    assert float((ones @ ones).sum()) == 512
    print(torch.cuda.get_device_name(place))
"""
# Ray hides GPUs from work that was given none by these.
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LONGEST = 300


def look(promised: float, wanted: bool, seconds: float) -> list[Check]:
    """Look at this machine.

    Args:
        promised: GPUs that Ray counts here.
        wanted: Whether the work is to be given GPUs, so that it cannot do without.
        seconds: That torch has to start and to compute.
    """
    if not promised:
        return [Check(SUBJECT, "", "ok", "none, and Ray promises none")]
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _CODE],
            env={k: v for k, v in os.environ.items() if k not in _HIDING},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [_lacking(promised, f"torch does not answer within {seconds:g} s", wanted)]
    kinds = asked.stdout.split("\n")[:-1]
    if asked.returncode:
        return [_lacking(promised, f"torch fails: {_end(asked.stderr)}", wanted)]
    if len(kinds) < promised:
        return [_lacking(promised, f"torch sees {len(kinds)}", wanted)]
    return [Check(SUBJECT, "", "ok", ", ".join(kinds))]


def _lacking(promised: float, found: str, wanted: bool) -> Check:
    remedy = (
        "install a torch built for the machine's CUDA driver (nvidia-smi names its version), or "
        "start Ray there with --num-gpus 0"
    )
    state: State = "failed" if wanted else "warning"
    return Check(SUBJECT, "", state, f"Ray promises {promised:g}, and {found}", remedy)


def _end(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else "no reason was given"
