"""Numbers of an audit: success of each attack, the strongest one, exposed records, groups."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.attacks import ATTACKS
from privnets.attacks.base import Family
from privnets.attacks.view import Array, BoolArray
from privnets.audit.inputs import AuditError
from privnets.audit.model_signals import ModelSignals
from privnets.audit.selection import EPSILON, ScoredAttacks
from privnets.statistics.groups import Group, largest_differences
from privnets.statistics.roc import CONVENTIONS, METRICS, Convention, flatten

EXPOSED_RATE: Final = 0.01
"""A member counts as exposed if the attack finds it at this false-positive rate or below."""

EXPOSURE: Final = f"tpr_at_fpr_{EXPOSED_RATE:g}"
_SIGNED = ("loss", "confidence", "logit", "score")
_ROC_POINTS = 41
_MIN_GROUP = 30


class AuditSuccess:
    """Success of every attack of an audit, in numbers.

    Attributes:
        models: Checked signals.
        families: Families with at least one attack that could be run, by growing knowledge.
        unavailable: Reason why an attack was not run, by name.
        family: Family that `strongest`, `records` and `verdict` describe.
        confidence: Coverage of intervals and of the lower bounds on epsilon.
        delta: Delta of the lower bounds on epsilon.
        seed: Source of the random halves.
        model: Name of the model, for the page; empty if unknown.
        data: Name of the audited file, for the page; empty without one.
        outputs: Outputs of all models of `audit_model`, the audited one first; else empty.
    """

    def __init__(
        self,
        models: ModelSignals,
        *,
        family: Family | None,
        confidence: float,
        delta: float,
        seed: int,
        model: str = "",
        data: str = "",
    ) -> None:
        """Runs every attack; see `privnets.audit_signals` for the arguments."""
        self.models, self.confidence, self.delta = models, confidence, delta
        self.seed, self.model, self.data = seed, model, data
        self.outputs: Mapping[str, NDArray[Any]] = {}
        self._attacks = ScoredAttacks(models, confidence, delta, seed)
        self._trials, self.unavailable = self._attacks.trials, self._attacks.unavailable
        self.families = self._attacks.families
        self.family: Family = self._known_family(family or self.families[-1])

    @cached_property
    def table(self) -> pd.DataFrame:
        """Success of each attack: a row per attack, by name.

        Columns: `family`; each of `METRICS` with `.ci_low` and `.ci_high`; the expected number of
        false positives at each rate; `tpr_at_fpr_0`, the share of members above all others;
        `epsilon_lower_bound`; `members` and `non_members` (numbers of trials).
        """
        rows = [self._attacks.row((name, name)) for name in self._trials]
        return pd.DataFrame(rows).infer_objects().rename_axis("attack")

    @cached_property
    def strongest(self) -> pd.Series:
        """Strongest attack of `family` by advantage; see `strongest_by`."""
        return self.strongest_by("advantage")

    def strongest_by(self, metric: str, family: Family | None = None) -> pd.Series:
        """Row of the strongest attack of a family, selected without flattering.

        Each half of the records selects the attack that the other half reports. If both select
        the same one, its row of the table is returned. Otherwise the row is that of the ranks of
        both attacks, each within its half. An attacker of the family `learned` may also use the
        thresholds of signals.

        Args:
            metric: One of the metrics, or `epsilon_lower_bound`.
            family: `self.family` if None.
        """
        if metric not in (*METRICS, EPSILON):
            known = ", ".join((*METRICS, EPSILON))
            raise AuditError(f"metric must be one of {known}; got {metric!r}")
        chosen = self._attacks.choose(metric, self._known_family(family or self.family))
        if chosen[0] == chosen[1]:
            return pd.Series(self.table.loc[chosen[0]], name=chosen[0])
        return self._attacks.row(chosen)

    @cached_property
    def records(self) -> pd.DataFrame:
        """Risk of each record under the attack with the largest `tpr_at_fpr_0.01`, largest first.

        Columns: `record`; `member` (share of the audited models that trained with it);
        `false_positive_rate`: share of trials that score at least as high, among those of other
        records and its own as a member (median over models; NaN if it never was one); `exposed`:
        whether that rate is at most 0.01; `false_positive_rate.NAME`: the rate of each attack.
        """
        member = self.models.target_member
        everyone = {name: each.false_positive_rates() for name, each in self._trials.items()}
        strongest = np.full(member.shape, np.nan)
        for name, half in zip(
            self._attacks.choose(EXPOSURE, self.family), self._attacks.halves, strict=True
        ):
            strongest[:, half] = everyone[name][:, half]
        median = _median_of_members(strongest, member)
        frame = pd.DataFrame(
            {
                "record": self.models.records,
                "member": member.mean(0),
                "false_positive_rate": median,
                "exposed": median <= EXPOSED_RATE,
            }
            | {
                f"false_positive_rate.{name}": _median_of_members(rates, member)
                for name, rates in everyone.items()
            }
        )
        return frame.sort_values("false_positive_rate", kind="stable", ignore_index=True)

    def tpr_at_fpr(self, rate: float, convention: Convention = "at-most") -> pd.Series:
        """True-positive rate of each attack at a false-positive rate, as another tool reads it.

        Args:
            rate: False-positive rate, in [0, 1).
            convention: `at-most`, as in `table`: the threshold with the largest rate that does
                not exceed `rate` (also ART). `interpolated`: linear between the points of the
                ROC curve (SACRO-ML). `convex-hull`: the same on its upper convex hull
                (JAX-Privacy).

        Raises:
            AuditError: If an argument is out of range.
        """
        if not 0 <= rate < 1:
            raise AuditError(f"rate must be at least 0 and below 1; got {rate}.")
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
                family = ATTACKS.get(name).family
                rows.append((name, family, rate, point.value, point.low, point.high))
        return pd.DataFrame(rows, columns=["attack", "family", "fpr", "tpr", "ci_low", "ci_high"])

    @cached_property
    def inverted_signals(self) -> tuple[str, ...]:
        """Signals on which members score lower than others: their AUC's interval is below 1/2.

        No gate may pass then: the sign of a signal or of `member` is wrong, or the records differ
        by more than membership. Entropies count only where no signal of the true class is known:
        members with wrong labels raise them.
        """
        names = self._attacks.names("threshold")
        signed = [name for name in names if name in _SIGNED] or names
        return tuple(name for name in signed if self._trials[name].area().high < 0.5)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Success of the strongest attack of `family` within each group of `groups=`.

        Columns: `members` and `non_members` (numbers of records); `note`, why a group has no
        numbers; advantage, AUC and true-positive rates at 10% and 1% with intervals. Thresholds of
        decisions are those of all records; false-positive rates are those within the group.

        Raises:
            AuditError: If no groups were given.
        """
        rows: dict[Any, dict[str, Any]] = {}
        for name, group in self._by_group.items():
            sides = group.trials.inside, group.trials.outside
            members, others = (int(side.any(0).sum()) for side in sides)
            rows[name] = {"members": members, "non_members": others, "note": ""}
            if min(members, others) < _MIN_GROUP:
                rows[name]["note"] = (
                    f"too small: {_MIN_GROUP} members and {_MIN_GROUP} others are needed"
                )
            else:
                rows[name] |= flatten(group.intervals())
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("group")

    @cached_property
    def disparity(self) -> pd.DataFrame:
        """Largest difference of each metric between two groups; no row if fewer are large enough.

        Columns: `highest` and `lowest`, the groups; `difference` with `.ci_low` and `.ci_high`,
        which hold for the largest true difference, whichever groups it is of.
        """
        large = self.groups.index[self.groups["note"] == ""]
        if len(large) < 2:
            return pd.DataFrame()
        found = largest_differences({name: self._by_group[name] for name in large})
        rows = {
            metric: {"highest": highest, "lowest": lowest, **flatten({"difference": difference})}
            for metric, (highest, lowest, difference) in found.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")

    @cached_property
    def _by_group(self) -> dict[Any, Group]:
        if self.models.groups is None:
            raise AuditError("no groups were given; name them by groups=")
        chosen = self._attacks.choose("advantage", self.family)
        return Group(*self._attacks.combine(chosen)).split(self.models.groups)

    def positive_predictive_value(self, prevalence: float, rate: float = 0.01) -> pd.DataFrame:
        """Probability that a record that an attack calls a member at a false-positive rate is one.

        Args:
            prevalence: Share of members among the records that an attacker asks about, in (0, 1).
            rate: False-positive rate, in (0, 1).

        Returns:
            A row for each attack: `ppv`, `ppv.ci_low` and `ppv.ci_high`. The true-positive rate
            and its interval are those of `at-most`.

        Raises:
            AuditError: If an argument is out of range.
        """
        for name, value in (("prevalence", prevalence), ("rate", rate)):
            if not 0 < value < 1:
                raise AuditError(f"{name} must be above 0 and below 1; got {value}.")
        false = rate * (1 - prevalence)
        rows = {}
        for name, trials in self._trials.items():
            found = flatten({"ppv": trials.true_positive_rate(rate)})
            rows[name] = {
                key: prevalence * true / (prevalence * true + false) for key, true in found.items()
            }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("attack")

    def _known_family(self, family: Family) -> Family:
        if family not in self.families:
            known = ", ".join(self.families)
            raise AuditError(f"family must be one of {known} for these signals; got {family!r}")
        return family


def _median_of_members(rates: Array, member: BoolArray) -> Array:
    """Median over the models that trained with a record, shape [R]; NaN without one."""
    rates = np.where(member, rates, np.nan)
    known = ~np.isnan(rates).all(0)
    median = np.full(member.shape[1], np.nan)
    median[known] = np.nanmedian(rates[:, known], axis=0)
    return median
