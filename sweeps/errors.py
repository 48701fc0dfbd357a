"""What is wrong with an input, said so that it can be mended."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LONGEST = 60
_MOST_LISTED = 20
_ALIKE = 8


class InputError(ValueError):
    """Bad input other than a study: one clear message, and nothing was started."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake in a study.

    Attributes:
        key: The key, its parts joined by dots; empty for the file as a whole.
        found: What is there.
        allowed: What may be there.
        file: The file, or `--set` for an override.
        line: Line in the file, counted from 1; None where there is no such line.
    """

    key: str
    found: str
    allowed: str
    file: str = "study"
    line: int | None = None

    def __str__(self) -> str:
        """`FILE:LINE key: found X; allowed Y`, on one line."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = f"{place} {self.key}" if self.key else place
        text = " ".join(f"{subject}: found {self.found}; allowed {self.allowed}".split())
        return make_printable(text)


class StudyError(ValueError):
    """Everything that is wrong with a study.

    Attributes:
        problems: Every mistake, in order of line.
    """

    def __init__(self, problems: Sequence[FieldError]) -> None:
        """Gather problems into one message.

        Args:
            problems: At least one.
        """
        ordered = sorted(dict.fromkeys(problems), key=lambda p: (p.file, p.line or 0))
        self.errors = tuple(ordered)
        super().__init__("\n".join(str(problem) for problem in ordered))

    def __reduce__(self) -> tuple[type[StudyError], tuple[tuple[FieldError, ...]]]:
        """Travel between processes with the problems, not with their text."""
        return StudyError, (self.errors,)


def make_printable(text: str) -> str:
    """A text without what would steer a terminal, or write in another direction: `?` instead.

    Line ends and tabs stay. Names and reasons in files are not trusted to hold nothing else.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def format_value(value: object) -> str:
    """A value as an error message shows it: short, on one line, told apart by type."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)} keys" if value else "an empty mapping"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def describe_choices(names: Iterable[str], wrong: object = None) -> str:
    """The allowed names, and which of them `wrong` was probably meant to be.

    Of very many names those most like `wrong` are given.
    """
    known = sorted(names)
    if not known:
        return "none"
    asked = str(wrong)[:_LONGEST]  # comparing takes the square of a length
    near = difflib.get_close_matches(asked, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    if len(known) <= _MOST_LISTED:
        return f"one of {', '.join(known)}{hint}"
    alike = difflib.get_close_matches(asked, known, n=_ALIKE, cutoff=0.0)
    return f"one of {', '.join(alike)} and {len(known) - len(alike)} others{hint}"
