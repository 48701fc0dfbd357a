"""Result of an audit in words: a verdict, what it rests on, a gate and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy.special import expit

from privnets.attacks.base import Family
from privnets.attacks.thresholds import NOT_GIVEN
from privnets.audit import page
from privnets.audit.gate import GateAnswer, GateResult, Judge, check_limits
from privnets.audit.inputs import SAVED, AuditError
from privnets.audit.selection import EPSILON, EXPECTED
from privnets.audit.success import EXPOSED_RATE, EXPOSURE, AuditSuccess
from privnets.references.columns import describe_classes
from privnets.statistics.roc import RATE_OF

GATED: Final = {
    "advantage": (-1.0, 1.0),
    "auc": (0.0, 1.0),
    **{name: (0.0, 1.0) for name in RATE_OF},
    EPSILON: (0.0, math.inf),
}
"""Metrics that a limit may be about, with the range of their values."""

_BEGINNINGS: Final[Mapping[Family, str]] = {
    "threshold": "By thresholds alone",
    "learned": "Without reference models",
    "offline": "With reference models trained without the record",
    "online": "With reference models trained with and without the record",
}


class AuditResult(AuditSuccess):
    """Success of every attack of an audit, and what it means.

    Attributes:
        answers: Line and outcome of each limit that was checked last, for the page.
    """

    answers: Sequence[tuple[str, bool]] = ()

    def check(
        self,
        limits: Mapping[str, float] = MappingProxyType({}),
        *,
        judge: Judge = "upper",
        family: Family | None = None,
        **named: float,
    ) -> GateResult:
        """Compares the strongest attack of each family with limits, as `check(advantage=0.1)`.

        The upper end is the largest of all attacks of the family: it holds for the strongest one,
        whichever that is. Value and lower end are those of the attack that one half of the records
        chooses and the other half reports. A lower bound on epsilon has no interval: all three are
        the bound.

        Args:
            limits: Metric to its largest value that passes, for names such as
                `tpr_at_fpr_0.01`. Metrics are those of the table, and `epsilon_lower_bound`.
            judge: What must be at most the limit: the `upper` end of the interval, the measured
                value (`estimate`), or the `lower` end.
            family: The only family to judge; all that could be run if None.
            named: Further limits.

        Raises:
            AuditError: If a limit could never fail, a metric has two, or an argument is unknown.
        """
        answers = []
        for metric, limit in check_limits(GATED, limits, named).items():
            for each in self.families if family is None else (family,):
                row = self.strongest_by(metric, each)
                low = high = value = float(row[metric])
                if metric != EPSILON:
                    ends = self.table.loc[self._attacks.candidates(each), f"{metric}.ci_high"]
                    low = float(row[f"{metric}.ci_low"])
                    high = max(float(ends.max()), float(row[f"{metric}.ci_high"]))
                interval = (value, low, high)
                answers.append(
                    GateAnswer(each, metric, limit, interval, str(row.name), judge, self.inversion)
                )
        self.answers = [(str(answer), answer.has_passed) for answer in answers]
        return GateResult(tuple(answers), self.blind_spot)

    def save(self, path: str | Path) -> Path:
        """Saves the outputs of all models as `.npz`: `audit_signals(path, target=0)` reads them.

        Raises:
            AuditError: If the audit is one of saved outputs already.
            OSError: If the file cannot be written.
        """
        if not self.outputs:
            raise AuditError("the outputs are saved already; only those of audit_model are not")
        notes, groups = np.array(self.models.notes, dtype=str), self.models.groups
        classes = np.array(self.models.classes, dtype=str)
        others = {SAVED: np.array(True), "notes": notes, "classes": classes}
        if groups is not None:
            named = np.array(groups.tolist())
            others["groups"] = named.astype(str) if named.dtype == object else named
        with Path(path).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.outputs, **others)
        return Path(path)

    @property
    def blind_spot(self) -> str:
        """Limits of the attackers of this audit."""
        knowledge = {
            "online": "have reference models trained with and without each record",
            "offline": "have reference models trained without the record",
        }.get(self.families[-1], "have no reference models, with which attacks are stronger")
        return (
            f"Not seen: these attackers {knowledge}, see outputs alone and average over the "
            "records of this audit; access to parameters, single exposed records and better "
            "attacks may reveal more."
        )

    @property
    def inversion(self) -> str:
        """Sentence that asks for the sign of `inverted_signals`; empty without one."""
        if not (names := self.inverted_signals):
            return ""
        area, listed = self._trials[names[0]].area(), " and ".join(f"`{name}`" for name in names)
        return (
            f"Members score LOWER than others on {listed}: the AUC of `{names[0]}` is "
            f"{area.value:.3f}, and its interval ends at {area.high:.3f}, below 0.5. Is the sign "
            "right? `loss` and `entropy` are smaller for members, other signals larger; `member` "
            "is 1 for records of the training set. Do not rely on this audit before that is known."
        )

    @cached_property
    def verdict(self) -> str:
        """Leakage by the strongest attack, its interval, exposed records, difference of groups."""
        if self.inversion:
            return self.inversion
        row, members = self.strongest, int(self.records["member"].gt(0).sum())
        low, high = row["advantage.ci_low"], row["advantage.ci_high"]
        leaks = (
            "the outputs reveal membership"
            if low > 0
            else "this audit cannot tell the leakage from zero"
        )
        is_single = len(self.models.targets) == 1
        sure = self.strongest_by(EXPOSURE)
        by = "it" if sure.name == row.name else f"the best attack there ({sure.name})"
        exposing = math.floor(EXPOSED_RATE * (row["non_members"] + 1) + 1e-9)
        by_chance = members * exposing / (row["non_members"] + 1)
        # Of medians over many models the number is unknown.
        chance = f"; chance alone exposes about {by_chance:.3g}" if is_single else ""
        between = ""
        if self.models.groups is not None and not self.disparity.empty:
            found, values = self.disparity.astype(object).loc["advantage"], self.groups["advantage"]
            between = (
                f"Between groups the advantage differs by up to {found['difference']:.3f} "
                f"({found['difference.ci_low']:.3f} to {found['difference.ci_high']:.3f}): "
                f"{values[found['highest']]:.3f} for {found['highest']}, "
                f"{values[found['lowest']]:.3f} for {found['lowest']}. "
            )
        return (
            f"{_BEGINNINGS[self.family]}, the strongest attack ({row.name}) reaches an advantage "
            f"of {row['advantage']:.3f} ({self.confidence:.0%} interval {low:.3f} to {high:.3f}): "
            f"{leaks}. At a false-positive rate of 1% {by} finds {sure[EXPOSURE]:.1%} of the "
            f"members ({sure[f'{EXPOSURE}.ci_low']:.1%} to {sure[f'{EXPOSURE}.ci_high']:.1%}; "
            f"{row[EXPECTED.format(EXPOSED_RATE)]:.3g} false positives expected). "
            f"Of the {len(self.records)} records, {members} were members"
            f"{'' if is_single else ' of at least one model'}; "
            f"{int(self.records['exposed'].sum())} "
            f"of these are exposed at that rate{chance}. {between}"
            "A better attack may find more."
        )

    @property
    def basis(self) -> str:
        """Models, records, clipping and bounds that the numbers rest on."""
        models, limit, audited = self.models, self.models.limit, len(self.models.targets)
        clipped = ""
        if models.references and limit < np.inf:
            clip = expit(-limit)
            clipped = (
                f"Log-odds are clipped to [-{limit:.4g}, {limit:.4g}], probabilities to "
                f"[{clip:.3g}, 1 - {clip:.3g}], for attacks with references. "
            )
        classes = ""
        if models.labels is not None:
            counts = np.bincount(models.labels, minlength=len(models.classes)).tolist()
            names = models.classes or map(str, range(len(counts)))
            classes = describe_classes("The target", dict(zip(names, counts, strict=True))) + " "
        trials = "if trials are independent"
        if audited == 1:
            trials = "as if trials were independent; they are not certified bounds"
        scores = {name: each.score for name, each in self._trials.items()}
        equal = [name for name, each in scores.items() if np.nanmin(each) == np.nanmax(each)]
        constant = f" Equal scores for all trials: {', '.join(equal)}." if equal else ""
        return (
            f"{audited} audited model{'s' * (audited > 1)}, {models.references} reference models "
            f"each, {len(models.records)} records. {classes}"
            f"{''.join(f'{note} ' for note in models.notes)}{clipped}"
            f"Lower bounds on epsilon hold at delta {self.delta:g} with "
            f"{self.confidence:.0%} confidence {trials}. Families of attacks differ in knowledge; "
            f"do not compare across them.{constant}"
        )

    @property
    def not_run(self) -> str:
        """Sentence that lists the attacks that could not be run, by reason; empty if all were.

        Signals that were not given are left out for `audit_model`, which makes all that it can.
        """
        reasons: dict[str, list[str]] = {}
        for name, reason in self.unavailable.items():
            reasons.setdefault(reason, []).append(name)
        if self.outputs:
            reasons.pop(NOT_GIVEN, None)
        parts = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
        return f"Not run: {'; '.join(parts)}." if parts else ""

    def report(
        self,
        path: str | Path,
        *,
        title: str = "Membership audit",
        model: str | None = None,
        data: str | None = None,
    ) -> Path:
        """Writes one HTML page that needs no network.

        Args:
            path: File to write.
            title: Heading of the page.
            model: Name of the model; that of its class, if it is known.
            data: Name of the data; the audited file, if there is one.

        Raises:
            OSError: If the file cannot be written.
        """
        headline, _, verdict = self.verdict.partition(". ")
        sentences = {"headline": f"{headline}.", "verdict": verdict, "basis": self.basis}
        words = {"title": title, "not_run": self.not_run, "answers": self.answers, **sentences}
        text = page.describe_page(self, model or self.model, data or self.data, words)
        Path(path).write_text(text, encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        """Verdict, table, basis and attacks that were not run, for notebooks."""
        frame = page.format_table(self.table)
        table: str = frame.to_html(escape=True, index=False, justify="left", border=0)
        texts = (self.verdict, page.TABLE_NOTE, self.basis, self.not_run)
        verdict, *rest = (f"<p>{escape(text)}</p>" for text in texts)
        style = "overflow-x: auto; white-space: nowrap"
        return f"{verdict}<div style='{style}'>{table}</div>{''.join(rest)}"

    def __repr__(self) -> str:
        """Verdict, table, basis and attacks that were not run, as text."""
        table = page.format_table(self.table).to_string(index=False)
        return f"{self.verdict}\n\n{table}\n{page.TABLE_NOTE}\n\n{self.basis}\n{self.not_run}"
