"""Privacy experiments: configurations in, trade-off points out.

Importing this package loads neither torch nor anything else that is slow; an experiment's module
loads when it is first asked for.
"""

from __future__ import annotations

from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates
from privnets.registry import experiment, experiments

__all__ = ["Curve", "Replicate", "TradeoffPoint", "experiment", "experiments", "merge_replicates"]
