"""Memory that is kept is not asked for again: otherwise every layer's pages fault again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Each block is larger than any before, which is what glibc never keeps by itself.
_FAULTS = """
import resource, sys
import torch
from privnets.networks.memory import keep_freed_memory

kept = sys.argv[1] == "keep" and keep_freed_memory()
torch.ones(2**18)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in range(2, 32):
    torch.ones(size * 2**17)
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(int(kept), after - before)
"""
_PAGES = 31 * 2**19 // 4096  # of the largest


def _faults(what: str) -> tuple[bool, int]:
    command = [sys.executable, "-c", _FAULTS, what]
    environment = {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    kept, faults = run.stdout.split()
    return kept == "1", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_layers_cause_no_page_faults_once_memory_is_kept():
    kept, faults = _faults("keep")
    assert kept
    assert faults < 4 * _PAGES  # few that a smaller block has had, where alignment wastes some
    left, anew = _faults("leave")
    assert not left
    assert anew > 12 * _PAGES  # every page of nearly every block
