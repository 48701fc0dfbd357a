"""Limits on the leakage of an audit: parsed, judged, and reported for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Final, Literal, get_args
from xml.etree import ElementTree

from privnets.audit.inputs import AuditError
from privnets.config import did_you_mean

Judge = Literal["upper", "estimate", "lower"]
"""End of the interval that is compared with a limit: `upper`, `lower`, or the `estimate` itself."""

JUDGES: Final[tuple[Judge, ...]] = get_args(Judge)


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """Comparison of one metric with its limit; a missing number never passes.

    Attributes:
        subject: What was attacked or how: the family of attacks of an audit.
        metric: Metric that the limit is about.
        limit: Largest value that passes.
        interval: Measured value, and the ends of its interval; for an audit, the upper end is the
            largest of all attacks of the family.
        attack: Attack with the measured value.
        judge: End that is compared.
        obstacle: Reason why the gate fails whatever the numbers are; empty without one.
    """

    subject: str
    metric: str
    limit: float
    interval: tuple[float, float, float]
    attack: str
    judge: Judge
    obstacle: str = ""

    def __post_init__(self) -> None:
        """Raises AuditError if `judge` is unknown."""
        if self.judge not in JUDGES:
            raise AuditError(f"judge must be one of {', '.join(JUDGES)}; got {self.judge!r}")

    @property
    def has_passed(self) -> bool:
        """Whether the end that is judged is at most the limit."""
        value, low, high = self.interval
        judged = {"upper": high, "estimate": value, "lower": low}[self.judge]
        return judged <= self.limit and not self.obstacle

    def __str__(self) -> str:
        """One line with the numbers and the reason."""
        verb, (value, low, high) = "passes" if self.has_passed else "FAILS", self.interval
        numbers = f"{self.metric} {value:.3f}"
        if low < high:  # a lower bound has no interval
            numbers += f" ({low:.3f} to {high:.3f})"
        line = f"{self.subject}: {numbers} of {self.attack} {verb} {self.limit:g}"
        reason = self.obstacle
        if not reason and self.judge == "upper" and low <= self.limit < high:
            reason = f"the interval reaches {high:.3f}, so a leak above the limit is not excluded; "
            reason += "more records narrow it"
        elif not reason and self.judge != "upper" and self.has_passed and high > self.limit:
            judged = "lower end" if self.judge == "lower" else "estimate"
            reason = f"the interval reaches {high:.3f}; only its {judged} was judged"
        return f"{line}: {reason}" if reason else line

    def to_json(self) -> dict[str, Any]:
        """Plain values; numbers that are not finite are None."""
        values: dict[str, Any] = {**asdict(self), "has_passed": self.has_passed}
        values |= zip(("value", "low", "high"), values.pop("interval"), strict=True)
        return {key: plain_number(value) for key, value in values.items()}


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


def check_limits(ranges: Ranges, *several: Mapping[str, float]) -> dict[str, float]:
    """Returns the largest value that passes, by metric, from all limits.

    Raises:
        AuditError: If a metric is unknown or has two limits, or a limit is not a number or could
            never fail.
    """
    checked: dict[str, float] = {}
    for limits in several:
        if not isinstance(limits, Mapping):
            kind = type(limits).__name__
            raise AuditError(f"limits must be a dict, as {{'advantage': 0.1}}; got a {kind}")
        for metric, limit in limits.items():
            if metric not in ranges:
                known = ", ".join(ranges) + did_you_mean(str(metric), ranges)
                raise AuditError(f"metric must be one of {known}; got {metric!r}")
            low, high = ranges[metric]
            if not isinstance(limit, Real) or isinstance(limit, bool):
                raise AuditError(f"a limit must be a number, as {metric}=0.1; got {limit!r}")
            if not low <= limit < high:
                hint = "; divide percentages by 100" if high == 1 < limit < math.inf else ""
                raise AuditError(
                    f"{metric} is in [{low:g}, {high:g}], and a limit must be at least {low:g} and "
                    f"below {high:g}; got {limit:g}{hint}."
                )
            if metric in checked:
                both = f"{checked[metric]:g} and {limit:g}"
                raise AuditError(f"{metric} must have one limit; got {both}")
            checked[metric] = float(limit)
    return checked
