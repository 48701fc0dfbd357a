"""Memory that is kept is not asked for again: otherwise every layer's pages fault anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
import torch
from privnets.networks.memory import keep_freed_memory

def layers():
    return [torch.ones(2**17) for _ in range(16)]

kept = sys.argv[1] == "keep" and keep_freed_memory()
for _ in range(5):  # the allocator's own habits settle
    layers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    layers()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(int(kept), after - before)
"""
_PAGES = 16 * 2**19 // 4096  # of all layers


def _faults(what: str) -> tuple[bool, int]:
    command = [sys.executable, "-c", _FAULTS, what]
    environment = {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    kept, faults = run.stdout.split()
    return kept == "1", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_layers_come_without_faults_once_memory_is_kept():
    kept, faults = _faults("keep")
    assert kept
    assert faults < _PAGES
    left, anew = _faults("leave")
    assert not left
    assert anew > 10 * _PAGES
