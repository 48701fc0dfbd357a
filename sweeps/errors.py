"""Errors that users see, and the texts that they are made of."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

FieldPath = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""

_MAX_VALUE_LENGTH = 60
_MAX_KEYS = 5
_MAX_CHOICES = 20
_SIMILAR_CHOICES = 8
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?) ?%")


class UserError(ValueError):
    """Base of errors that name a user's mistake; they are printed without a traceback."""


class InputError(UserError):
    """Raised for bad input other than a study, before anything starts."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake in a study.

    Attributes:
        path: Keys that lead to the value; empty for the file as a whole.
        given: The value, as messages show it.
        expected: The values that are allowed.
        file: The file, or `--set` for an override.
        line: Line in the file, counted from 1; None without a line.
        meant: Known name that an unknown one resembles; empty without one.
    """

    path: FieldPath
    given: str
    expected: str
    file: str = "study"
    line: int | None = None
    meant: str = ""

    @classmethod
    def of_name(cls, path: FieldPath, given: str, names: Iterable[str]) -> FieldError:
        """Mistake in the last key of a path, which is none of the allowed names."""
        choices = [*names]
        meant = _closest(str(path[-1]), choices)
        return cls(path, given, describe_choices(choices, path[-1]), meant=meant)

    @property
    def key(self) -> str:
        """The path, joined by dots."""
        return ".".join(map(str, self.path))

    def at(self, file: str, line: int | None) -> FieldError:
        """Returns the same mistake with its place in a file."""
        return replace(self, file=file, line=line)

    def __str__(self) -> str:
        """`FILE:LINE key: got X; expected Y`, on one line."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = f"{place} {self.key}" if self.path else place
        text = " ".join(f"{subject}: got {self.given}; expected {self.expected}".split())
        return make_printable(text)


class StudyError(UserError):
    """Raised with every mistake of a study; `errors` has them in order of line."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        """Joins the mistakes, of which there is at least one, into one message."""
        unique = dict.fromkeys(errors)
        self.errors = tuple(sorted(unique, key=lambda error: (error.file, error.line or 0)))
        super().__init__("\n".join(map(str, self.errors)))

    def __reduce__(self) -> tuple[type[StudyError], tuple[tuple[FieldError, ...]]]:
        """Pickles the mistakes themselves, for errors that other processes raise."""
        return StudyError, (self.errors,)


def percentage_hint(text: str) -> str:
    """Hint at the number that a percentage in a text means; empty without one."""
    match = _PERCENTAGE.search(text)
    return f"; write {match[0]} as {float(match[1]) / 100:g}" if match else ""


def make_printable(text: str) -> str:
    """Replaces characters that could steer a terminal by `?`; keeps line ends and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def format_value(value: object) -> str:
    """Formats a value for an error message: short, on one line, with texts in quotes."""
    if isinstance(value, dict):
        keys = ", ".join(map(str, [*value][:_MAX_KEYS]))
        return f"a mapping with the keys {keys}" if value else "an empty mapping"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    shortened = f"{text[: _MAX_VALUE_LENGTH - 3]}..."
    return text if len(text) <= _MAX_VALUE_LENGTH else shortened


def describe_choices(names: Iterable[str], given: object = None) -> str:
    """Lists the allowed names; one that `given` resembles comes first, with a hint.

    Of more than 20 names only those most similar to `given` are listed.
    """
    choices = sorted(names)
    if not choices:
        return "none"
    text = str(given)[:_MAX_VALUE_LENGTH]  # difflib takes quadratic time
    shown, others = choices, ""
    if len(choices) > _MAX_CHOICES:
        shown = difflib.get_close_matches(text, choices, n=_SIMILAR_CHOICES, cutoff=0.0)
        others = f" and {len(choices) - len(shown)} others"
    if len(choices) == 1:
        return choices[0]
    if closest := _closest(text, choices):
        shown = [f"{closest} (did you mean {closest}?)", *(n for n in shown if n != closest)]
    return f"one of {', '.join(shown)}{others}"


def _closest(text: str, choices: Sequence[str]) -> str:
    """The choice that a text resembles most; empty if it resembles none."""
    found = difflib.get_close_matches(text[:_MAX_VALUE_LENGTH], choices, n=1)
    return found[0] if found else ""
