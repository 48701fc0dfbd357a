"""`--set key=value`: changes to a study's plain values before it is checked."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sweeps.errors import FieldError, format_value
from sweeps.study.search_space import KINDS
from sweeps.study.spec import Path, Place
from sweeps.study.yaml_reader import YamlError, is_encodable, parse_yaml

_FILE: Final = "--set"
_FORM: Final = "key=value, as fixed.train_size=100 or space.weight_decay.grid=[0, 1]"


def override(
    raw: Mapping[str, Any], places: Mapping[Path, Place], changes: Sequence[str]
) -> tuple[dict[str, Any], dict[Path, Place], list[FieldError]]:
    """Apply changes in order.

    An axis has one kind, so `space.F.grid=[...]` replaces the axis whatever its kind was, and
    `space.F=null` takes it away.

    Args:
        raw: The study as written.
        places: Where its parts stand.
        changes: Each `key=value`, with dots between a key's parts and the value in YAML.

    Returns:
        The changed study, where its parts now stand, and what is wrong with the changes.
    """
    changed, moved, problems = copy.deepcopy(dict(raw)), dict(places), list[FieldError]()
    for change in changes:
        problem = _apply(changed, moved, change)
        if problem is not None:
            problems.append(problem)
    return changed, moved, problems


def _apply(raw: dict[str, Any], places: dict[Path, Place], change: str) -> FieldError | None:
    key, equals, text = change.partition("=")
    path = _path(key.strip())
    if not equals or not all(path) or not is_encodable(key):
        return FieldError("", format_value(change), _FORM, _FILE)
    try:
        value = parse_yaml(text).value
    except YamlError as error:
        return FieldError(key, error.found, error.allowed, _FILE)
    if path[0] == "space" and len(path) > 2 and path[-1] in KINDS:
        path, value = path[:-1], {path[-1]: value}
    blocked = _put(raw, path, value)
    if blocked is not None:
        return FieldError(key, f"{format_value(blocked)} above it", "a mapping there", _FILE)
    for inner in [place for place in places if place[: len(path)] == path]:
        del places[inner]
    places[path] = Place(_FILE)
    return None


def _path(key: str) -> tuple[str, ...]:
    """A key's parts; a metric's name may itself hold dots."""
    return tuple(key.split(".", 1 if key.startswith("objectives.") else -1))


def _put(raw: dict[str, Any], path: Sequence[str], value: object) -> object:
    """Set a value, making mappings on the way.

    Returns:
        What stands in the way, if anything.
    """
    target = raw
    for part in path[:-1]:
        inner = target.setdefault(part, {})
        if inner is None:
            inner = target[part] = {}
        if not isinstance(inner, dict):
            return inner
        target = inner
    if len(path) == 2 and path[0] == "space" and value is None:
        target.pop(path[1], None)
    else:
        target[path[-1]] = value
    return None
