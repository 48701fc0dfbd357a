"""YAML from strangers: plain values with the line each was written on, within bounds.

Scalars are read as YAML 1.2's core schema has it, so `1e-6` is a number and `no` is a word; `dump`
writes what both that schema and YAML 1.1 read as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from sweeps.study.spec import Path

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 20
MOST_NODES: Final = 20_000
_MOST_DIGITS: Final = 300
_TAG: Final = "tag:yaml.org,2002:"

# Complaints of the parser's: what it wanted, and what was there.
_EXPECTED: Final = re.compile(r"expected (?P<expected>.+?),? but (?:got|found) (?P<found>.+)")

_LINE_ENDS: Final = frozenset("\x85\u2028\u2029")
_COLLECTIONS: Final = (_TAG + "map", _TAG + "seq")


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):  # a tag may say of anything that it is a truth
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _text_of(text: str) -> str:
    if not is_encodable(text):  # an escape may name half of a pair
        raise ValueError("half of a character")
    return text


_SCALARS: Final[Mapping[str, Callable[[str], object]]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": _truth,
    _TAG + "int": int,
    _TAG + "float": _real,
    _TAG + "str": _text_of,
}


class YamlError(ValueError):
    """A text that is not an acceptable YAML document.

    Attributes:
        line: Where, counted from 1; None when it is no one line.
        key: The key, where there is one.
        found: What is there.
        allowed: What may be there.
    """

    def __init__(self, found: str, allowed: str, line: int | None = None, key: str = "") -> None:
        """Say what was found, what is allowed, and where."""
        super().__init__(f"found {found}; allowed {allowed}")
        self.found, self.allowed, self.line, self.key = found, allowed, line, key


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a document may be.

    Attributes:
        characters: Of its text.
        nodes: Values in it, an alias as often as it is used.
    """

    characters: int = MOST_BYTES
    nodes: int = MOST_NODES


STUDY: Final = Bounds()
"""Of what people write."""


@dataclass(slots=True)
class YamlDocument:
    """A parsed text.

    Attributes:
        value: Mappings, lists and scalars.
        lines: Path of a key or list element to the line it was written on, counted from 1.
        repeated: Keys that a mapping has twice; the first one counts.
    """

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    repeated: list[YamlError] = field(default_factory=list)


def parse_yaml(text: str, bounds: Bounds = STUDY) -> YamlDocument:
    """Read one YAML document.

    Args:
        text: Untrusted.
        bounds: How large it may be.

    Raises:
        YamlError: If the text is no YAML, too large, too deeply nested, or expands through
            its aliases to too much.
    """
    if len(text) > bounds.characters:
        raise YamlError("a longer text", f"at most {bounds.characters:,} characters")
    reader = _Reader(bounds.nodes)
    try:
        node = _Loader(text).get_single_node()
    except YamlError:
        raise
    # Of characters and versions that cannot be, PyYAML lets Python complain.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _syntax(error) from error
    if node is not None:
        reader.document.value = reader.read(node, ())
    return reader.document


def is_encodable(text: str) -> bool:
    """Whether a text holds characters alone: half of a surrogate pair can be written nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dump_yaml(value: Mapping[str, Any], width: int = 80) -> str:
    """Plain values as YAML that `parse` reads as they were, without aliases.

    Args:
        value: Mappings, lists and scalars.
        width: At which lines are broken.
    """
    text: str = yaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width
    )
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes whatever either schema would take for something other than a text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always: what is the same twice is written twice."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text, quoted with escapes where a line would end at other signs than are written."""
        style = '"' if _LINE_ENDS & set(data) else None
        node: yaml.ScalarNode = self.represent_scalar(_TAG + "str", data, style=style)
        return node


_Dumper.add_representer(str, _Dumper.represent_str)


class _Loader(yaml.SafeLoader):
    """Composes nodes to a bounded depth; resolves scalars by YAML 1.2's core schema."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, unless it lies too deep.

        Raises:
            YamlError: If it does.
        """
        if self.depth > MOST_DEPTH:
            raise _too_deep(self.line + 1)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern in (
    ("null", r"(~|null|Null|NULL|)$"),
    ("bool", r"(true|True|TRUE|false|False|FALSE)$"),
    ("int", r"[-+]?[0-9]+$"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    ("float", r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
):
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_TAG + _name, re.compile(_pattern), None)


@dataclass(slots=True)
class _Reader:
    """Turns nodes into values; an alias counts as often as it is used."""

    most: int
    document: YamlDocument = field(default_factory=YamlDocument)
    nodes: int = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > self.most:
            raise YamlError("more values, aliases expanded", f"at most {self.most:,}")
        if len(path) > MOST_DEPTH:  # an alias may stand inside what it names
            raise _too_deep(_line(node))
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            raise YamlError(_text(node), "a plain mapping or list", _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._entry(child, (*path, i), child) for i, child in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, child in node.value:
            if key_node.tag != _TAG + "str":
                raise YamlError(f"the key {_text(key_node)}", "a text as key", _line(key_node))
            inside = (*path, _scalar(key_node))
            if inside[-1] in values:
                self._repeated(key_node, inside)
            else:
                values[inside[-1]] = self._entry(key_node, inside, child)
        return values

    def _entry(self, written: yaml.Node, path: Path, child: yaml.Node) -> Any:
        self.document.lines[path] = _line(written)
        return self.read(child, path)

    def _repeated(self, node: yaml.Node, path: Path) -> None:
        found = f"it again (first in line {self.document.lines[path]})"
        error = YamlError(found, "each key once", _line(node), ".".join(map(str, path)))
        self.document.repeated.append(error)


def _scalar(node: yaml.Node) -> Any:
    allowed = "a plain text, number, true, false or null"
    refusal = YamlError(_text(node), allowed, _line(node))
    convert = _SCALARS.get(node.tag)  # an explicit tag may name anything
    if convert is None or (convert is not _text_of and len(node.value) > _MOST_DIGITS):
        raise refusal
    try:
        return convert(node.value)
    except ValueError as error:
        raise refusal from error


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _text(node: yaml.Node) -> str:
    tag = node.tag.removeprefix(_TAG)
    return f"a {tag}" if isinstance(node, yaml.CollectionNode) else f"{tag} {node.value[:40]!r}"


def _too_deep(line: int) -> YamlError:
    return YamlError("deeper nesting", f"at most {MOST_DEPTH} levels", line)


def _found(problem: str) -> str:
    """The parser's complaint as the object of `found`."""
    if told := _EXPECTED.fullmatch(problem):
        return f"{told['found']} in place of {told['expected']}"
    if problem.startswith(("found ", "but found ")):
        return problem.removeprefix("but ").removeprefix("found ")
    if problem.startswith("could not find expected "):
        return f"no {problem.removeprefix('could not find expected ')}"
    return f"a mistake ({problem})"


def _syntax(error: Exception) -> YamlError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        found = f"{_found(error.problem or '')} {error.context or ''}".strip()
        return YamlError(found, "valid YAML", error.problem_mark.line + 1)
    return YamlError(next(iter(str(error).splitlines()), "none"), "valid YAML")
