"""Study files: from a packaged name or a path, with overrides, to a checked `Study`.

Files are not trusted: they are read as plain YAML of limited size and depth.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sweeps.errors import FieldError, FieldPath, StudyError, describe_choices, format_value
from sweeps.study.field_errors import field_errors, without_meant
from sweeps.study.search_space import AXIS_KINDS
from sweeps.study.spec import Study, StudySource
from sweeps.study.validation import validate_study
from sweeps.study.yaml_reader import MAX_CHARACTERS, YamlError, is_encodable, parse_yaml

_PACKAGED: Final = resources.files("sweeps") / "studies"
_SUFFIXES: Final = (".yaml", ".yml")
_OVERRIDE: Final = "--set"
_OVERRIDE_FORM: Final = "key=value, as fixed.train_size=100 or space.weight_decay.grid=[0, 1]"
_ENTRIES: Final = ("fixed", "space", "metrics", "objectives", "constraints", "claims")
_METRIC_SECTIONS: Final = ("metrics", "objectives", "constraints")
_PLACEHOLDER_CLAIM: Final = {"statement": "", "metric": "", "axis": "", "trend": "constant"}


def study_names() -> list[str]:
    """Returns the names of the packaged studies."""
    files = (file.name for file in _PACKAGED.iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def load(
    study: Study | str | os.PathLike[str] | Mapping[str, Any], overrides: Sequence[str] = ()
) -> Study:
    """Reads a study and checks its shape.

    If the shape is wrong, the valid parts are checked against the experiment too, so that one
    message has all mistakes.

    Args:
        study: A packaged study's name, a path to a YAML file, the content of such a file, or a
            study; a mapping names the user's own files from the working directory.
        overrides: `key=value` with dots between the parts of a key, as
            `space.weight_decay.grid=[0, 1]`; values are YAML. A text is one of them.

    Raises:
        StudyError: With every mistake.
    """
    overrides = [overrides] if isinstance(overrides, str) else overrides
    if isinstance(study, Study):
        return _load_values(study.to_dict(), study.source, overrides) if overrides else study
    if isinstance(study, Mapping):
        return _load_values(deepcopy(dict(study)), StudySource(), overrides)
    file, text, folder = _read_text(os.fspath(study))
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise StudyError([error.error.at(file, error.error.line)]) from error
    if not isinstance(document.value, dict):
        given = "nothing" if document.value is None else format_value(document.value)
        raise StudyError([FieldError((), given, "a mapping that describes a study", file)])
    places = {path: (file, line) for path, line in document.lines.items()}
    errors = [error.at(file, error.line) for error in document.repeated]
    return _load_values(document.value, StudySource(file, places, folder), overrides, errors)


def _load_values(
    raw: dict[str, Any],
    source: StudySource,
    overrides: Sequence[str],
    errors: Sequence[FieldError] = (),
) -> Study:
    """Makes a study of plain values, after the overrides."""
    places = dict(source.places)
    found = filter(None, [_apply_override(raw, places, change) for change in overrides])
    return read_study(raw, replace(source, places=places), [*errors, *found])


def read_study(
    raw: Mapping[str, Any], source: StudySource | None = None, errors: Sequence[FieldError] = ()
) -> Study:
    """Makes a study from plain values, as a file or `Study.to_dict` gives them.

    Args:
        raw: Plain values.
        source: Their places in files.
        errors: Mistakes found so far, which a `StudyError` has besides the others.
    """
    source = source or StudySource()
    shape: list[FieldError] = []
    try:
        study = Study.model_validate(raw).with_source(source)
        if not errors:
            return study
    except ValidationError as error:
        shape = field_errors(error, Study)
    # The smallest parts that can be removed without changing the rest.
    paths = [error.path for error in shape]
    invalid = {path[: 1 + (len(path) > 1 and path[0] in _ENTRIES)] for path in paths}
    valid = {key: value for key, value in raw.items() if (key,) not in invalid}
    for path in invalid:
        if len(path) > 1 and (name := str(path[0])) in valid:
            part, entry = valid[name], path[1]
            if isinstance(part, dict):
                valid[name] = {key: value for key, value in part.items() if key != entry}
            else:  # the other claims keep their positions, which lead to their lines
                claims = [_PLACEHOLDER_CLAIM if i == entry else c for i, c in enumerate(part)]
                valid[name] = claims
    if not valid.get("objectives"):
        valid.pop("objectives", None)
    rest = Study.model_validate({"name": "unnamed", "experiment": "unknown", **valid}).with_source(
        source
    )
    others = validate_study(rest, invalid).errors
    found = without_meant([*shape, *others], source.places)
    raise StudyError([*errors, *map(source.locate, found)])


def _read_text(study: str) -> tuple[str, str, Path]:
    """Returns a file's name for messages, its text, and the folder of the files that it names."""
    if not (study.endswith(_SUFFIXES) or os.sep in study) and study in study_names():
        packaged = _PACKAGED / f"{study}.yaml"
        return str(packaged), packaged.read_text(encoding="utf-8"), Path.cwd()
    path = Path(study)
    if not os.path.exists(path) and not (study.endswith(_SUFFIXES) or os.sep in study):
        expected = f"a path to a YAML file, or {describe_choices(study_names(), study)}"
        raise StudyError([FieldError((), format_value(study), expected, "study")])
    expected = f"a readable YAML file of at most {MAX_CHARACTERS // 1024} KiB"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CHARACTERS + 1).decode("utf-8-sig")
        return study, text, path.absolute().parent
    except OSError as error:
        given = f"a file that cannot be read ({error.strerror or error})"
    except UnicodeDecodeError as error:
        given = f"bytes that are not UTF-8 text (at {error.start})"
    raise StudyError([FieldError((), given, expected, study)])


def _apply_override(
    raw: dict[str, Any], places: dict[FieldPath, tuple[str, int | None]], change: str
) -> FieldError | None:
    """Applies one `key=value` to a study in place; returns its mistake, if any.

    An axis has one kind, so `space.F.grid=[...]` replaces the axis of any other kind. It keeps the
    axis's condition, and a grid its pairing with another field. `space.F=null` removes it.
    """
    key, equals, text = change.partition("=")
    # Names of metrics and of swept fields may themselves contain dots.
    section, dot, name = key.strip().partition(".")
    path = tuple(key.strip().split("."))
    if section in (*_METRIC_SECTIONS, "space"):
        field, _, kind = name.rpartition(".")
        path = (section, name) if dot else (section,)
        if section == "space" and kind in AXIS_KINDS and field:
            path = (section, field, kind)
    if not equals or not all(path) or not is_encodable(key):
        return FieldError((), format_value(change), _OVERRIDE_FORM, _OVERRIDE)
    if path[0] not in Study.model_fields:
        expected = f"{describe_choices(Study.model_fields, key)}; fields are set as fixed.{key}"
        return FieldError((key,), "an unknown key", expected, _OVERRIDE)
    try:
        value = parse_yaml(text).value
    except YamlError as error:
        return FieldError((key,), error.error.given, error.error.expected, _OVERRIDE)
    if path[0] == "space" and len(path) > 2:
        path, kind = path[:-1], path[-1]
        space = raw.get("space")
        axis = space.get(path[-1]) if isinstance(space, dict) else None
        kept = ("when", "along") if kind == "grid" else ("when",)
        of_axis = axis if isinstance(axis, dict) else {}
        value = {kind: value, **{key: of_axis[key] for key in kept if key in of_axis}}
    obstacle = _set_value(raw, path, value)
    if obstacle is not None:
        given = f"{format_value(obstacle)} above it"
        return FieldError((key,), given, "a mapping there", _OVERRIDE)
    for inner in [place for place in places if place[: len(path)] == path]:
        del places[inner]
    places[path] = (_OVERRIDE, None)
    return None


def _set_value(raw: dict[str, Any], path: Sequence[str], value: object) -> object:
    """Sets a nested value; returns the value above it that is not a mapping, if any."""
    target = raw
    for part, following in pairwise(path):
        if target.get(part) is None:
            target[part] = {}
        elif target[part] == following:  # a name in place of a mapping of it to its settings
            target[part] = {following: {}}
        target = target[part]
        if not isinstance(target, dict):
            return target
    if len(path) == 2 and path[0] == "space" and value is None:
        target.pop(path[1], None)
    else:
        target[path[-1]] = value
    return None
