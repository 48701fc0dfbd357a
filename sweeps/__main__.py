"""`python -m sweeps`: the command line where its script is not installed, as in a cluster's job."""

from __future__ import annotations

from sweeps.cli.main import main

if __name__ == "__main__":
    main()
