"""GPUs that Ray counts and torch does not see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_sweeps import study_file

_DRIVER = """
import ray, sys
from sweeps.engine.executor import execute
from sweeps.errors import InputError
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error")
for name in ("auto", "0.3"):
    plan = make_plan(load(sys.argv[1], [f"resources.gpus={name}"]))
    try:
        outcome = execute(plan, sweep=name, storage=sys.argv[2], tracking_uri=sys.argv[3])
        print(name, "finished", outcome.result.counts["finished"], *outcome.problems)
    except InputError as error:
        print(name, "refused", error)
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_gpus_that_torch_does_not_see_are_left_out_or_refused_before_training(
    tracking_uri: str, tmp_path: Path
) -> None:
    """Ray believes its configuration; torch looks at the hardware."""
    study = study_file(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(study), str(tmp_path / "sweeps"), tracking_uri],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},  # its Ray is of this process alone
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "auto finished 4 GPUs of this machine were not used: torch sees none" in done.stdout
    assert "0.3 refused resources.gpus: GPUs of this machine were not used" in done.stdout
    assert not list((tmp_path / "sweeps" / "0.3" / "ledger").glob("*"))
