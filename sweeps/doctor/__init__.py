"""Whether a sweep would run where it is to run: each thing that it needs, tried for real.

Importing this package loads neither Ray nor torch nor MLflow.
"""

from __future__ import annotations

from sweeps.doctor.check import Check, Report, State

__all__ = ["Check", "Report", "State"]
