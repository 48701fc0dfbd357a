"""Privacy experiments: configurations in, trade-off points out; and audits of existing models.

Importing this package loads neither torch nor numpy: the module of a public name, and an
experiment, load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privnets.adversarial.release_check import ReleaseCheck as ReleaseCheck
    from privnets.adversarial.release_check import check_release as check_release
    from privnets.adversarial.trained_releaser import TrainedReleaser as TrainedReleaser
    from privnets.adversarial.trained_releaser import load_releaser as load_releaser
    from privnets.audit.evaluation import audit_model as audit_model
    from privnets.audit.evaluation import audit_signals as audit_signals
    from privnets.audit.inputs import AuditError as AuditError
    from privnets.audit.result import AuditResult as AuditResult
    from privnets.experiment_registry import experiment as experiment
    from privnets.experiment_registry import experiments as experiments
    from privnets.frames import points_frame as points_frame
    from privnets.frames import replicates_frame as replicates_frame
    from privnets.points import Curve as Curve
    from privnets.points import Replicate as Replicate
    from privnets.points import TradeoffPoint as TradeoffPoint
    from privnets.points import merge_replicates as merge_replicates

_DEFINED_IN = {
    "AuditError": "privnets.audit.inputs",
    "AuditResult": "privnets.audit.result",
    "Curve": "privnets.points",
    "ReleaseCheck": "privnets.adversarial.release_check",
    "Replicate": "privnets.points",
    "TradeoffPoint": "privnets.points",
    "TrainedReleaser": "privnets.adversarial.trained_releaser",
    "audit_model": "privnets.audit.evaluation",
    "audit_signals": "privnets.audit.evaluation",
    "check_release": "privnets.adversarial.release_check",
    "experiment": "privnets.experiment_registry",
    "experiments": "privnets.experiment_registry",
    "load_releaser": "privnets.adversarial.trained_releaser",
    "merge_replicates": "privnets.points",
    "points_frame": "privnets.frames",
    "replicates_frame": "privnets.frames",
}
__all__ = [*_DEFINED_IN]


def __getattr__(name: str) -> object:
    """Imports the module of a public name."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)
