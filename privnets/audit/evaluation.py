"""`privnets.audit_signals`: audits models whose outputs were saved."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path

from numpy.typing import ArrayLike

from privnets.attacks.base import FAMILIES, Family
from privnets.audit.files import AuditError
from privnets.audit.result import AuditResult
from privnets.audit.signals import Signals, load_signals


def audit_signals(
    signals: Signals,
    member: ArrayLike | str = "member",
    *,
    labels: ArrayLike | str | None = None,
    groups: ArrayLike | str | None = None,
    target: int | None = None,
    shadow: Signals | None = None,
    shadow_member: ArrayLike | str = "member",
    shadow_labels: ArrayLike | str | None = None,
    family: Family | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
) -> AuditResult:
    """Audits saved outputs of one model, or of many, for leakage of membership.

    One model is attacked by thresholds on its signals, and by attacks that learn from one half of
    the records to judge the other. With many models, each is also attacked with all the others as
    references (leave-one-out), or only the `target` is.

    Args:
        signals: Arrays by name, a table, or the path of an `.npz`, `.csv` or `.parquet` file.
            `loss` (cross-entropy, or any loss), `confidence` (probability of the true class),
            `entropy` (nats), `logit` (log-odds of the true class) and `score` (anything larger for
            members) have shape [records] or [models, records]; `probabilities` [records, classes]
            or [models, records, classes]. Tables have a row per record, columns `probability_0`,
            `probability_1`, ..., and for many models the columns `model` and `record`.
        member: Booleans of the scores' shape: was the record in the model's training set; or the
            name of a column.
        labels: True classes from 0, shape [records], or the name of a column. Needed with
            `probabilities`, and used with other signals. Of tables and files, `labels` or `label`
            is the default.
        groups: Group of each record, or the name of a column such as `label`; see
            `AuditResult.groups`. Of an `.npz` file, `groups` is the default.
        target: Number of the only model to audit; all if None.
        shadow: Signals of other models of known membership. They calibrate the thresholds of
            attacks without references. Without them, each half of the records calibrates the
            thresholds of the other half.
        family: Family of attacks that the verdict is about: `threshold`, `learned`, `offline` or
            `online`. The one with the most knowledge if None.
        clip: Probabilities are clipped to [clip, 1 - clip] for attacks with references. Chosen
            from the signals if None; see `choose_limit`.
        confidence: Coverage of intervals, in (0, 1).
        delta: Delta of the lower bounds on epsilon, in [0, 1).
        seed: Source of the random halves.

    Raises:
        AuditError: With the first mistake in the input.
    """
    check_options(family, clip, confidence, delta, seed)
    models = load_signals(signals, member, labels, groups=groups, target=target, clip=clip)
    calibration = None
    if shadow is not None:
        calibration = load_signals(shadow, shadow_member, shadow_labels)
    data = str(signals) if isinstance(signals, str | Path) else ""
    return AuditResult(
        models, family=family, confidence=confidence, delta=delta, seed=seed, shadow=calibration,
        data=data,
    )  # fmt: skip


def check_options(
    family: Family | None, clip: float | None, confidence: float, delta: float, seed: int
) -> None:
    """Checks options that need no signals.

    Raises:
        AuditError: With the first one that is out of range.
    """
    if family is not None and family not in FAMILIES:
        raise AuditError(f"family must be one of {', '.join(FAMILIES)}; got {family!r}")
    if clip is not None and not (isinstance(clip, Real) and 0 < clip < 0.5):
        raise AuditError(f"clip must be above 0 and below 0.5; got {clip!r}.")
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise AuditError(f"confidence must be above 0 and below 1; got {confidence!r}.")
    if not (isinstance(delta, Real) and 0 <= delta < 1):
        raise AuditError(f"delta must be at least 0 and below 1; got {delta!r}.")
    if not (isinstance(seed, Integral) and seed >= 0):
        raise AuditError(f"seed must be a whole number of at least 0; got {seed!r}.")
