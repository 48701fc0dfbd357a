"""Privacy experiments: configurations in, trade-off points out.

Importing this package does not import torch; an experiment is imported on first use.
"""

from __future__ import annotations

from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates
from privnets.registry import experiment, experiments

__all__ = ["Curve", "Replicate", "TradeoffPoint", "experiment", "experiments", "merge_replicates"]
