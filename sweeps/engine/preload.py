"""Module that idle workers of a local Ray load before all others, for its effect."""

from __future__ import annotations

from sweeps.garbage import collect_rarely

collect_rarely()
