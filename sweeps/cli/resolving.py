"""What a study says, for another program: run as `python -m sweeps.cli.resolving STUDY`.

Prints the resolved study as JSON, without looking at its data; exits with 2 and one message if it
is wrong.
"""

from __future__ import annotations

import json
import sys

from sweeps.errors import StudyError
from sweeps.study.loader import load


def main() -> int:
    """Resolve the study named on the command line."""
    (study,) = sys.argv[1:]
    try:
        print(json.dumps(load(study).to_dict()))
    except StudyError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
