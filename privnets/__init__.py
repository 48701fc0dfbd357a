"""Privacy experiments: configurations in, trade-off points out; and audits of existing models.

Importing this package does not import torch; an experiment is imported on first use, and so is
the module of an audit function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates
from privnets.registry import experiment, experiments

if TYPE_CHECKING:
    from privnets.audit.evaluation import audit_signals as audit_signals
    from privnets.audit.files import AuditError as AuditError
    from privnets.audit.references import audit_model as audit_model
    from privnets.audit.result import AuditResult as AuditResult

_DEFINED_IN = {
    "AuditError": "privnets.audit.files",
    "AuditResult": "privnets.audit.result",
    "audit_model": "privnets.audit.references",
    "audit_signals": "privnets.audit.evaluation",
}
__all__ = [
    "AuditError",
    "AuditResult",
    "Curve",
    "Replicate",
    "TradeoffPoint",
    "audit_model",
    "audit_signals",
    "experiment",
    "experiments",
    "merge_replicates",
]


def __getattr__(name: str) -> object:
    """Imports the module of a public name."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN[name]), name)
