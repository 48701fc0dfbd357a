"""Runs a command of `sweeps` so that what it prints can be told from what else a job's log holds.

Run as `python -m cluster.answering MARK ARGUMENT...` on a cluster; see `cluster.jobs.ask`.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    """Print what the command prints between two lines that begin with the mark."""
    mark, *arguments = sys.argv[1:]
    command = [sys.executable, "-m", "sweeps", *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace", check=False)
    print(f"\n{mark} begin\n{ran.stdout}\n{mark} end {ran.returncode}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
