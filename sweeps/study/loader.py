"""Study files: from a packaged name or a path to a checked `Study`, or to all that is wrong.

Files are not trusted: they are read as plain YAML of bounded size and depth.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError

from sweeps.errors import FieldError, StudyError, describe_choices, format_value
from sweeps.study.complaints import complaints
from sweeps.study.overrides import override
from sweeps.study.spec import Path, Place, Study, StudySource
from sweeps.study.yaml_reader import MOST_BYTES, YamlDocument, YamlError, parse_yaml

_SUFFIXES: Final = (".yaml", ".yml")
_NO_CLAIM: Final = {"statement": "", "metric": "", "axis": "", "trend": "constant"}


def study_names() -> list[str]:
    """The packaged studies."""
    found = (f.name for f in _folder().iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def load(study: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Study:
    """A study, checked for its shape.

    Whether its experiment can run it is checked by `sweeps.planning.plan.plan`; when the shape is
    wrong, that is checked here too as far as can be, so that all mistakes are told at once.

    Args:
        study: A packaged study's name, or a path to a YAML file.
        overrides: `key=value` with dots between a key's parts, as `space.weight_decay.grid=[0, 1]`;
            values are YAML.

    Raises:
        StudyError: With everything that is wrong.
    """
    file, text = _text(os.fspath(study))
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise StudyError([_problem(file, error)]) from error
    if not isinstance(document.value, dict):
        found = "nothing" if document.value is None else format_value(document.value)
        raise StudyError([FieldError("", found, "a mapping that describes a study", file)])
    raw, places, wrong = override(document.value, _places(file, document), overrides)
    problems = [*(_problem(file, error) for error in document.repeated), *wrong]
    return read_study(raw, StudySource(file, places), problems)


def read_study(
    raw: Mapping[str, Any], source: StudySource | None = None, problems: Sequence[FieldError] = ()
) -> Study:
    """A study from plain values, as a file or `Study.to_dict` gives them.

    Args:
        raw: Plain values.
        source: Where they were written.
        problems: What is known to be wrong with them.

    Raises:
        StudyError: With everything that is wrong.
    """
    source = source or StudySource()
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        found = complaints(error, Study)
        shape = [source.problem(*complaint) for complaint in found]
        rest = _further(raw, source, {_part(complaint.path) for complaint in found})
        raise StudyError([*problems, *shape, *rest]) from error
    study = study.written(source)
    if problems:
        raise StudyError([*problems, *_further(raw, source, set())])
    return study


def _further(
    raw: Mapping[str, Any], source: StudySource, broken: set[Path]
) -> Sequence[FieldError]:
    """What is wrong with the parts whose shape is right."""
    from sweeps.study.validation import validate_study

    study = Study.model_validate(_without(raw, broken))
    return validate_study(study.written(source), broken).errors


def _part(path: Path) -> Path:
    """The smallest part of a study that can be left out so that the rest keeps its meaning."""
    entries = len(path) > 1 and path[0] in ("fixed", "space", "objectives", "claims")
    return path[:2] if entries else path[:1]


def _without(raw: Mapping[str, Any], broken: Collection[Path]) -> dict[str, Any]:
    kept = {key: value for key, value in raw.items() if (key,) not in broken}
    for path in broken:
        if len(path) > 1:
            top = str(path[0])
            kept[top] = _without_entry(kept[top], path[1])
    if not kept.get("objectives"):
        kept.pop("objectives", None)
    return {"name": "unnamed", "experiment": "unknown", **kept}


def _without_entry(part: Any, entry: str | int) -> Any:
    if isinstance(part, dict):
        return {key: value for key, value in part.items() if key != entry}
    # A claim's place is kept, so that the others are still found at theirs.
    return [_NO_CLAIM if i == entry else claim for i, claim in enumerate(part)]


def _text(study: str) -> tuple[str, str]:
    """The file's name as messages give it, and its text."""
    if not _looks_like_path(study) and study in study_names():
        packaged = _folder() / f"{study}.yaml"
        return str(packaged), packaged.read_text(encoding="utf-8")
    path = FilePath(study)
    if not os.path.exists(path) and not _looks_like_path(study):
        raise StudyError([FieldError("", "no such study", _known(study), study)])
    return study, _contents(path)


def _contents(path: FilePath) -> str:
    allowed = f"a readable YAML file of at most {MOST_BYTES // 1024} KiB"
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        found = error.strerror or str(error)
        raise StudyError([FieldError("", found, allowed, str(path))]) from error
    except UnicodeDecodeError as error:
        found = f"bytes that are not UTF-8 text (at {error.start})"
        raise StudyError([FieldError("", found, allowed, str(path))]) from error


def _known(study: str) -> str:
    return f"a path to a YAML file, or {describe_choices(study_names(), study)}"


def _looks_like_path(study: str) -> bool:
    separators = tuple(filter(None, (os.sep, os.altsep)))
    return study.endswith(_SUFFIXES) or any(separator in study for separator in separators)


def _folder() -> Traversable:
    return resources.files("sweeps") / "studies"


def _problem(file: str, error: YamlError) -> FieldError:
    return FieldError(error.key, error.found, error.allowed, file, error.line)


def _places(file: str, document: YamlDocument) -> dict[Path, Place]:
    return {path: Place(file, line) for path, line in document.lines.items()}
