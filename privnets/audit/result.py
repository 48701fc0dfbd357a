"""Result of an audit: success of each attack, the strongest one, exposed records, a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit

from privnets.audit.attacks import AUDIT_ATTACKS, FAMILIES, Family
from privnets.audit.files import AuditError
from privnets.audit.model_signals import ModelSignals
from privnets.audit.page import TABLE_NOTE, RocLine, format_table, render_page
from privnets.audit.rates import (
    CONVENTIONS,
    Convention,
    RateInterval,
    ScoredTrials,
    mean_interval,
)
from privnets.audit.signals import MIN_RECORDS
from privnets.randomness import generator
from privnets.reference_models import BoolArray

RATES: Final = (0.1, 0.01, 0.001)
"""False-positive rates of the table."""

_SIGNED = ("loss", "confidence", "logit", "score")
_RATE_OF = {f"tpr_at_fpr_{rate:g}": rate for rate in RATES}
_EXPECTED = "expected_false_positives_at_fpr_{:g}"
METRICS: Final = ("advantage", "auc", *_RATE_OF)
"""Metrics with an interval; 0 is the value of guessing, and for `auc` 0.5."""

EPSILON: Final = "epsilon_lower_bound"
EXPOSED_RATE: Final = 0.01
"""A member counts as exposed if the attack finds it at this false-positive rate or below."""

_ROC_POINTS = 41
_SHOWN_RECORDS = 20


class AuditResult:
    """Success of every attack of an audit.

    Attributes:
        models: Checked signals.
        family: Family that `strongest`, `records` and `verdict` describe.
        confidence: Coverage of intervals and of the lower bounds on epsilon.
        delta: Delta of the lower bounds on epsilon.
        unavailable: Reason why an attack was not run, by name.
    """

    def __init__(
        self,
        models: ModelSignals,
        *,
        family: Family | None,
        confidence: float,
        delta: float,
        seed: int,
        shadow: ModelSignals | None = None,
    ) -> None:
        """Runs every attack; see `privnets.audit_signals` for the arguments."""
        self.models, self.confidence, self.delta = models, confidence, delta
        self.unavailable: dict[str, str] = {}
        self._trials: dict[str, ScoredTrials] = {}
        for name in AUDIT_ATTACKS.names():
            self._run(name)
        self._shadow = None if shadow is None else _shadow_thresholds(shadow, self._trials)
        self._halves = _split_records(models.target_member, seed)
        if family is not None and family not in self.families:
            known = ", ".join(self.families)
            raise AuditError(f"family must be one of {known} for these signals; got {family!r}")
        self.family: Family = self.families[-1] if family is None else family

    def _run(self, name: str) -> None:
        attack, member = AUDIT_ATTACKS.get(name), self.models.target_member
        if reason := attack.why_unavailable(self.models):
            self.unavailable[name] = reason
            return
        scores = attack.score(self.models)
        trials = ScoredTrials(scores, member, self.confidence)
        if min(side.any(0).sum() for side in (trials.inside, trials.outside)) < MIN_RECORDS:
            self.unavailable[name] = "too few records have reference models of the kind it needs"
        else:
            self._trials[name] = trials

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Families with at least one attack that could be run, by growing knowledge."""
        return tuple(family for family in FAMILIES if self._names(family))

    @cached_property
    def table(self) -> pd.DataFrame:
        """Success of each attack: a row per attack, by name.

        Columns: `family`; each of `METRICS` with `.ci_low` and `.ci_high`; the expected number of
        false positives at each rate; `epsilon_lower_bound`; `members` and `non_members` (numbers
        of trials).
        """
        rows = {name: self._row(name) for name in self._trials}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("attack")

    @cached_property
    def strongest(self) -> pd.Series:
        """Strongest attack of `family` by advantage; see `strongest_by`."""
        return self.strongest_by("advantage")

    def strongest_by(self, metric: str, family: Family | None = None) -> pd.Series:
        """Row of the strongest attack of a family, selected without flattering.

        Each half of the records selects the attack that the other half reports. If both select
        the same one, its row of the table is returned; otherwise the means over both halves.
        Halves of one model are independent; halves of several share the models.

        Args:
            metric: One of the metrics, or `epsilon_lower_bound`.
            family: `self.family` if None.
        """
        if metric not in (*METRICS, EPSILON):
            known = ", ".join((*METRICS, EPSILON))
            raise AuditError(f"metric must be one of {known}; got {metric!r}")
        chosen_family = family or self.family
        if chosen_family not in self.families:
            raise AuditError(
                f"family must be one of {', '.join(self.families)}; got {chosen_family!r}"
            )
        names = self._names(chosen_family)
        chosen = [self._best(names, metric, ~half) for half in self._halves]
        if len(set(chosen)) == 1:
            return pd.Series(self.table.loc[chosen[0]], name=chosen[0])
        rows = [
            self._summary(self._trials[name].select(half), self._threshold(name, ~half))
            for name, half in zip(chosen, self._halves, strict=True)
        ]
        merged: dict[Any, Any] = self.table.loc[chosen[0]].to_dict()
        alone = len(self.models.targets) == 1
        for key in METRICS:
            mean = mean_interval([row[key] for row in rows], independent=alone)
            merged |= _flatten({key: mean})
        merged |= {column: merged[column] / 2 for column in map(_EXPECTED.format, RATES)}
        merged[EPSILON] = max(
            self._epsilon(name, half) for name, half in zip(chosen, self._halves, strict=True)
        )
        return pd.Series(merged, name=" / ".join(chosen))

    @cached_property
    def records(self) -> pd.DataFrame:
        """Risk of each record under the strongest attack of `family`, largest first.

        Columns: `record`; `member` (share of the audited models that trained with it);
        `false_positive_rate`: share of trials that score at least as high, among those of other
        records and its own as a member (median over models; NaN if it never was one); `exposed`:
        whether that rate is at most 0.01.
        """
        names = self._names(self.family)
        rates = np.full(self.models.target_member.shape, np.nan)
        for half in self._halves:
            trials = self._trials[self._best(names, "advantage", ~half)]
            rates[:, half] = trials.false_positive_rates()[:, half]
        member = self.models.target_member
        rates = np.where(member, rates, np.nan)
        known = ~np.isnan(rates).all(0)
        median = np.full(member.shape[1], np.nan)
        median[known] = np.nanmedian(rates[:, known], axis=0)
        frame = pd.DataFrame(
            {
                "record": self.models.records,
                "member": member.mean(0),
                "false_positive_rate": median,
                "exposed": median <= EXPOSED_RATE,
            }
        )
        return frame.sort_values("false_positive_rate", kind="stable", ignore_index=True)

    def tpr_at_fpr(self, rate: float, convention: Convention = "at-most") -> pd.Series:
        """True-positive rate of each attack at a false-positive rate, as another tool reads it.

        Args:
            rate: False-positive rate, in (0, 1).
            convention: `at-most`, as in `table`: the threshold with the largest rate that does
                not exceed `rate` (also ART). `interpolated`: linear between the points of the
                ROC curve (SACRO-ML). `convex-hull`: the same on its upper convex hull
                (JAX-Privacy).

        Raises:
            AuditError: If an argument is out of range.
        """
        if not 0 < rate < 1:
            raise AuditError(f"rate must be above 0 and below 1; got {rate}.")
        if convention not in CONVENTIONS:
            known = ", ".join(CONVENTIONS)
            raise AuditError(f"convention must be one of {known}; got {convention!r}")
        rates = {name: each.read_rate(rate, convention) for name, each in self._trials.items()}
        return pd.Series(rates, name=f"tpr_at_fpr_{rate:g}").rename_axis("attack")

    @cached_property
    def roc(self) -> pd.DataFrame:
        """ROC curves with pointwise bands: columns attack, family, fpr, tpr, ci_low, ci_high."""
        rows = []
        for name, trials in self._trials.items():
            fewest = max(1e-4, 1 / len(trials.others))
            for rate in np.geomspace(fewest, 1, _ROC_POINTS):
                point = trials.true_positive_rate(float(rate))
                family = AUDIT_ATTACKS.get(name).family
                rows.append((name, family, rate, point.value, point.low, point.high))
        return pd.DataFrame(rows, columns=["attack", "family", "fpr", "tpr", "ci_low", "ci_high"])

    @cached_property
    def inverted(self) -> tuple[str, ...]:
        """Signals on which members score lower than others: their AUC's interval is below 1/2.

        No gate may pass then: the sign of a signal or of `member` is wrong, or the records differ
        by more than membership. Entropies count only where no signal of the true class is known:
        members with wrong labels raise them.
        """
        names = self._names("threshold")
        signed = [name for name in names if name in _SIGNED] or names
        return tuple(name for name in signed if self._trials[name].area().high < 0.5)

    @property
    def inversion(self) -> str:
        """Sentence that asks for the sign of `inverted` signals; empty without one."""
        if not self.inverted:
            return ""
        name, low = self.inverted[0], " and ".join(f"`{each}`" for each in self.inverted)
        area = self._trials[name].area()
        return (
            f"Members score LOWER than others on {low}: the AUC of `{name}` is {area.value:.3f}, and its "
            f"interval ends at {area.high:.3f}, below 0.5. Is the sign right? `loss` and `entropy` are "
            "smaller for members, other signals larger; `member` is 1 for records of the training "
            "set. Do not rely on this audit before that is known."
        )

    @cached_property
    def verdict(self) -> str:
        """Sentences that state the leakage, its interval, and what they rest on."""
        if self.inverted:
            return self.inversion
        row, level = self.strongest, f"{self.confidence:.0%}"
        low, high = row["advantage.ci_low"], row["advantage.ci_high"]
        begin = {
            "threshold": "Without reference models, the strongest attack",
            "offline": "With reference models trained without the record, the strongest attack",
            "online": "With reference models trained with and without the record, the strongest "
            "attack",
        }[self.family]
        numbers = f"{row['advantage']:.3f} ({level} interval {low:.3f} to {high:.3f})"
        leaks = (
            "the outputs reveal membership"
            if low > 0
            else "this audit cannot tell the leakage from zero"
        )
        several = " of at least one model" if len(self.models.targets) > 1 else ""
        rate, expected = "tpr_at_fpr_0.01", row["expected_false_positives_at_fpr_0.01"]
        members, risky = int(self.records["member"].gt(0).sum()), int(self.records["exposed"].sum())
        return (
            f"{begin} ({row.name}) reaches an advantage of {numbers}: {leaks}. "
            f"At a false-positive rate of 1% it finds {row[rate]:.1%} of the members "
            f"({row[f'{rate}.ci_low']:.1%} to {row[f'{rate}.ci_high']:.1%}; "
            f"{expected:.3g} false positives expected). "
            f"Of the {len(self.records)} records, {members} were members{several}; "
            f"{risky} of these are exposed at that rate"
            f"{self._chance(members, row['non_members'])}. A better attack may find more."
        )

    def _chance(self, members: int, others: int) -> str:
        """Number of members that are exposed by chance; unknown for medians over many models."""
        if len(self.models.targets) > 1:
            return ""
        exposing = math.floor(EXPOSED_RATE * (others + 1) + 1e-9)
        return f"; chance alone exposes about {members * exposing / (others + 1):.3g}"

    @property
    def basis(self) -> str:
        """Sentences on the models, records, clipping and bounds that the numbers rest on."""
        models, limit = self.models, self.models.limit
        shape = f"{len(models.targets)} audited model{'s' * (len(models.targets) > 1)}, "
        shape += f"{models.references} reference models each, {len(models.records)} records. "
        shape += "".join(f"{note} " for note in models.notes)
        clip = expit(-limit)
        clipped = (
            f"Log-odds are clipped to [-{limit:.4g}, {limit:.4g}], probabilities to "
            f"[{clip:.3g}, 1 - {clip:.3g}], for attacks with references. "
        )
        trials = "if trials are independent"
        if len(models.targets) == 1:
            trials = "as if trials were independent; they are not certified bounds"
        bound = (
            f"Lower bounds on epsilon hold at delta {self.delta:g} with {self.confidence:.0%} "
            f"confidence {trials}. Families of attacks differ in knowledge; do "
            "not compare across them."
        )
        scores = {name: each.score for name, each in self._trials.items()}
        equal = [name for name, each in scores.items() if np.nanmin(each) == np.nanmax(each)]
        constant = f" Equal scores for all trials: {', '.join(equal)}." if equal else ""
        return shape + (clipped if models.references and limit < np.inf else "") + bound + constant

    @property
    def not_run(self) -> str:
        """Sentence that lists the attacks that could not be run, by reason; empty if all were."""
        reasons: dict[str, list[str]] = {}
        for name, reason in self.unavailable.items():
            reasons.setdefault(reason, []).append(name)
        parts = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
        return f"Not run: {'; '.join(parts)}." if parts else ""

    def report(self, path: str | Path) -> Path:
        """Writes one HTML page that needs no network.

        Raises:
            OSError: If the file cannot be written.
        """
        path = Path(path)
        lines = []
        for family in self.families:
            name = str(self.strongest_by("advantage", family).name).partition(" / ")[0]
            curve = self.roc.loc[self.roc["attack"] == name]
            lines.append(RocLine(f"{name} ({family})", curve))
        exposed = self.records.loc[self.records["member"] > 0].head(_SHOWN_RECORDS)
        page = render_page(
            self.verdict, self.basis, self._shown_table(), exposed, lines, self.not_run
        )
        path.write_text(page, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Verdict, table, basis and attacks that were not run, for notebooks."""
        table: str = self._shown_table().to_html(escape=True, index=False, justify="left", border=0)
        style = "overflow-x: auto; white-space: nowrap"
        verdict, *rest = (
            f"<p>{escape(text)}</p>"
            for text in (self.verdict, TABLE_NOTE, self.basis, self.not_run)
        )
        return f"{verdict}<div style='{style}'>{table}</div>{''.join(rest)}"

    def __repr__(self) -> str:
        """Verdict, table, basis and attacks that were not run, as text."""
        table = self._shown_table().to_string(index=False)
        return f"{self.verdict}\n\n{table}\n{TABLE_NOTE}\n\n{self.basis}\n{self.not_run}"

    def _shown_table(self) -> pd.DataFrame:
        return format_table(self.table, METRICS)

    def _names(self, family: Family) -> list[str]:
        return [name for name in self._trials if AUDIT_ATTACKS.get(name).family == family]

    def _row(self, name: str) -> dict[str, object]:
        trials = self._trials[name]
        decision = np.zeros(trials.score.shape, dtype=bool)
        for half in self._halves:
            threshold = self._threshold(name, ~half)
            decision[:, half] = trials.score[:, half] >= threshold
        values = _flatten(_rates(trials, decision))
        expected = {_EXPECTED.format(rate): rate * len(trials.others) for rate in RATES}
        epsilon = max(self._epsilon(name, half) for half in self._halves)
        counts = {"members": len(trials.members), "non_members": len(trials.others)}
        family = AUDIT_ATTACKS.get(name).family
        return {"family": family, **values, **expected, EPSILON: epsilon, **counts}

    def _summary(self, trials: ScoredTrials, threshold: float) -> dict[str, RateInterval]:
        return _rates(trials, trials.score >= threshold)

    def _threshold(self, name: str, records: BoolArray) -> float:
        """Threshold fitted on some records, or on shadow signals if there are any."""
        if self._shadow is not None and name in self._shadow:
            return self._shadow[name]
        return self._trials[name].select(records).best_threshold()[1]

    def _epsilon(self, name: str, half: BoolArray) -> float:
        """Lower bound on one half, at the best threshold of the other, of two such bounds."""
        level = 1 - (1 - self.confidence) / 2
        trials = self._trials[name]
        _, threshold = trials.select(~half).epsilon_threshold(self.delta, level)
        return trials.select(half).epsilon_at(threshold, self.delta, level)

    def _best(self, names: Sequence[str], metric: str, records: BoolArray) -> str:
        """Attack with the largest value of a metric on some records."""
        return max(names, key=lambda name: self._measure(name, metric, records))

    def _measure(self, name: str, metric: str, records: BoolArray) -> float:
        trials = self._trials[name].select(records)
        if metric == "advantage":
            return trials.best_threshold()[0]
        if metric == "auc":
            return trials.area().value
        if metric == EPSILON:
            return trials.epsilon_threshold(self.delta, self.confidence)[0]
        return trials.true_positive_rate(_RATE_OF[metric]).value


def _rates(trials: ScoredTrials, decision: BoolArray) -> dict[str, RateInterval]:
    powers = {key: trials.true_positive_rate(rate) for key, rate in _RATE_OF.items()}
    return {"advantage": trials.advantage(decision), "auc": trials.area(), **powers}


def _flatten(intervals: Mapping[str, RateInterval]) -> dict[str, float]:
    columns: dict[str, float] = {}
    for key, interval in intervals.items():
        columns |= {key: interval.value}
        columns |= {f"{key}.ci_low": interval.low, f"{key}.ci_high": interval.high}
    return columns


def _shadow_thresholds(
    shadow: ModelSignals, trials: Mapping[str, ScoredTrials]
) -> dict[str, float]:
    """Best threshold of each threshold attack on shadow signals."""
    thresholds = {}
    for name in trials:
        attack = AUDIT_ATTACKS.get(name)
        if attack.family == "threshold":
            if reason := attack.why_unavailable(shadow):
                raise AuditError(f"shadow signals lack the attack {name!r}: {reason}")
            scored = ScoredTrials(attack.score(shadow), shadow.target_member)
            thresholds[name] = scored.best_threshold()[1]
    return thresholds


def _split_records(member: BoolArray, seed: int) -> tuple[BoolArray, BoolArray]:
    """Two random halves of the records; each has half of the records with every membership."""
    random = generator(seed, "audit halves")
    first = np.zeros(member.shape[1], dtype=bool)
    order = random.permutation(member.shape[1])
    ranked = order[np.argsort(member[:, order].sum(0), kind="stable")]
    pairs = ranked[: len(ranked) // 2 * 2].reshape(-1, 2)
    side = random.integers(0, 2, len(pairs))
    first[pairs[np.arange(len(pairs)), side]] = True
    return first, ~first
