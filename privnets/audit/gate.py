"""Limits on the leakage of an audit: parsed, judged, and reported for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Final, Literal, get_args
from xml.etree import ElementTree

from privnets.audit.files import AuditError

Judge = Literal["upper", "estimate", "lower"]
"""End of the interval that is compared with a limit: `upper`, `lower`, or the `estimate` itself."""

JUDGES: Final[tuple[Judge, ...]] = get_args(Judge)


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """Comparison of one metric with its limit.

    Attributes:
        subject: What was attacked or how: the family of attacks of an audit.
        metric: Metric that the limit is about.
        limit: Largest value that passes.
        value: Measured value.
        low: Lower end of its interval.
        high: Upper end; for an audit, the largest of all attacks of the family.
        attack: Attack with the measured value.
        judge: End that was compared.
        has_passed: Whether that end is at most the limit.
        obstacle: Reason why the gate fails whatever the numbers are; empty without one.
    """

    subject: str
    metric: str
    limit: float
    value: float
    low: float
    high: float
    attack: str
    judge: Judge
    has_passed: bool
    obstacle: str = ""

    @classmethod
    def of(
        cls,
        subject: str,
        limit: tuple[str, float],
        interval: tuple[float, float, float],
        attack: str,
        judge: Judge,
        obstacle: str = "",
    ) -> GateAnswer:
        """Compares an interval (value, low, high) with a limit; a missing number never passes.

        Raises:
            AuditError: If `judge` is unknown.
        """
        if judge not in JUDGES:
            raise AuditError(f"judge must be one of {', '.join(JUDGES)}; got {judge!r}")
        (metric, largest), (value, low, high) = limit, interval
        judged = {"upper": high, "estimate": value, "lower": low}[judge]
        has_passed = judged <= largest and not obstacle
        return cls(subject, metric, largest, value, low, high, attack, judge, has_passed, obstacle)

    def __str__(self) -> str:
        """One line with the numbers and the reason."""
        verb = "passes" if self.has_passed else "FAILS"
        numbers = f"{self.metric} {self.value:.3f}"
        if self.low < self.high:  # a lower bound has no interval
            numbers += f" ({self.low:.3f} to {self.high:.3f})"
        line = f"{self.subject}: {numbers} of {self.attack} {verb} {self.limit:g}"
        return f"{line}: {reason}" if (reason := self._reason()) else line

    def _reason(self) -> str:
        if self.obstacle:
            return self.obstacle
        if self.judge == "upper" and self.low <= self.limit < self.high:
            return (
                f"the interval reaches {self.high:.3f}, so a leak above the limit is not excluded; "
                "more records narrow it"
            )
        if self.judge != "upper" and self.has_passed and self.high > self.limit:
            return f"the interval reaches {self.high:.3f}; only its {self.judge} was judged"
        return ""


@dataclass(frozen=True)
class GateResult:
    """Answers of all limits; true in a condition if there are any and all have passed.

    Attributes:
        answers: One for each limit and subject.
        blind_spot: Sentence on what these attacks cannot see.
    """

    answers: tuple[GateAnswer, ...]
    blind_spot: str

    @property
    def has_passed(self) -> bool:
        """Whether every limit is kept."""
        return all(answer.has_passed for answer in self.answers)

    def __bool__(self) -> bool:
        """Whether there are limits, and every one is kept: a gate without any judges nothing."""
        return bool(self.answers) and self.has_passed

    def __str__(self) -> str:
        """A line for each answer, and the blind spot."""
        return "\n".join([*map(str, self.answers), self.blind_spot])

    def to_json(self) -> list[dict[str, Any]]:
        """Answers as plain values; numbers that are not finite are None."""
        rows = [asdict(answer) for answer in self.answers]
        return [{key: plain_number(value) for key, value in row.items()} for row in rows]

    def junit(self, name: str) -> str:
        """JUnit XML: one test case for each answer.

        Args:
            name: Name of the suite, as the audited file.
        """
        failed = sum(not answer.has_passed for answer in self.answers)
        counts = {"tests": str(len(self.answers)), "failures": str(failed), "errors": "0"}
        root = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(root, "testsuite", {"name": name, **counts})
        for answer in self.answers:
            title = f"{answer.metric} <= {answer.limit:g} ({answer.subject})"
            case = ElementTree.SubElement(suite, "testcase", {"classname": name, "name": title})
            if not answer.has_passed:
                ElementTree.SubElement(case, "failure", {"message": str(answer)})
        ElementTree.SubElement(suite, "system-out").text = self.blind_spot
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def plain_number(value: object) -> object:
    """A value as JSON has it: None for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value that each metric can have."""


def parse_limits(texts: Iterable[str], ranges: Ranges) -> dict[str, float]:
    """Parses limits of the form `METRIC=LIMIT`; see `check_limits`.

    Raises:
        AuditError: If a text has another form.
    """
    limits = {}
    for text in texts:
        metric, _, limit = text.partition("=")
        try:
            limits[metric] = float(limit)
        except ValueError:
            hint = "; write 10% as 0.1" if "%" in limit else f", as {metric}=0.1"
            raise AuditError(f"{text}: expected METRIC=NUMBER{hint}") from None
    return check_limits(limits, ranges)


def check_limits(limits: Mapping[str, float], ranges: Ranges) -> dict[str, float]:
    """Returns the largest value that passes, by metric.

    Raises:
        AuditError: If a metric is unknown, or a limit is not a number or could never fail.
    """
    if not isinstance(limits, Mapping):
        kind = type(limits).__name__
        raise AuditError(f"limits must be a dict, as {{'advantage': 0.1}}; got a {kind}")
    for metric, limit in limits.items():
        if metric not in ranges:
            raise AuditError(f"metric must be one of {', '.join(ranges)}; got {metric!r}")
        low, high = ranges[metric]
        if not isinstance(limit, Real):
            raise AuditError(f"a limit must be a number, as {metric}=0.1; got {limit!r}")
        if not low <= limit < high:
            hint = "; divide percentages by 100" if high == 1 < limit < math.inf else ""
            raise AuditError(
                f"{metric} is in [{low:g}, {high:g}], and a limit must be at least {low:g} and "
                f"below {high:g}; got {limit:g}{hint}."
            )
    return {metric: float(limit) for metric, limit in limits.items()}
