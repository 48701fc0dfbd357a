"""Injects faults into real sweeps.

`python -m campaigns.chaos --faults N --seed S [--only KIND,...]`

Exit code 0 if nothing was lost, duplicated, retrained or left over; 1 otherwise; 2 if the
command line is wrong or network namespaces are not available.
"""

from __future__ import annotations

import sys

from campaigns.chaos import world
from campaigns.chaos.options import parse_options


def main() -> int:
    """Checks the command line, then runs the campaign in namespaces of its own."""
    parse_options(sys.argv[1:])
    if reason := world.missing_support():
        print(f"a chaos run needs namespaces of Linux: {reason}", file=sys.stderr)
        return 2
    return world.run_inside("campaigns.chaos.campaign", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
