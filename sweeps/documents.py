"""YAML from strangers: plain values with the line each was written on, within bounds.

Scalars are read as YAML 1.2's core schema has it, so `1e-6` is a number and `no` is a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from sweeps.spec import Path

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 20
MOST_NODES: Final = 20_000
_MOST_DIGITS: Final = 300
_TAG: Final = "tag:yaml.org,2002:"

_COLLECTIONS: Final = (_TAG + "map", _TAG + "seq")


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Final[Mapping[str, Callable[[str], object]]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": lambda text: text.lower() == "true",
    _TAG + "int": int,
    _TAG + "float": _real,
    _TAG + "str": str,
}


class DocumentError(ValueError):
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


@dataclass(slots=True)
class Document:
    """A parsed text.

    Attributes:
        value: Mappings, lists and scalars.
        lines: Path of a key or list element to the line it was written on, counted from 1.
        repeated: Keys that a mapping has twice; the first one counts.
    """

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    repeated: list[DocumentError] = field(default_factory=list)


def parse(text: str) -> Document:
    """Read one YAML document.

    Args:
        text: Untrusted.

    Raises:
        DocumentError: If the text is no YAML, too large, too deeply nested, or expands through
            its aliases to too much.
    """
    if len(text) > MOST_BYTES:
        raise DocumentError("a longer text", f"at most {MOST_BYTES:,} characters")
    reader = _Reader()
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        raise _syntax(error) from error
    if node is not None:
        reader.document.value = reader.read(node, ())
    return reader.document


class _Loader(yaml.SafeLoader):
    """Composes nodes to a bounded depth; resolves scalars by YAML 1.2's core schema."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, unless it lies too deep.

        Raises:
            DocumentError: If it does.
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
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), None)


@dataclass(slots=True)
class _Reader:
    """Turns nodes into values; an alias counts as often as it is used."""

    document: Document = field(default_factory=Document)
    nodes: int = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise DocumentError("more values, aliases expanded", f"at most {MOST_NODES:,}")
        if len(path) > MOST_DEPTH:  # an alias may stand inside what it names
            raise _too_deep(_line(node))
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            raise DocumentError(_text(node), "a plain mapping or list", _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._entry(child, (*path, i), child) for i, child in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, child in node.value:
            if key_node.tag != _TAG + "str":
                raise DocumentError(f"the key {_text(key_node)}", "a text as key", _line(key_node))
            inside = (*path, key_node.value)
            if inside[-1] in values:
                self._repeated(key_node, inside)
            else:
                values[key_node.value] = self._entry(key_node, inside, child)
        return values

    def _entry(self, written: yaml.Node, path: Path, child: yaml.Node) -> Any:
        self.document.lines[path] = _line(written)
        return self.read(child, path)

    def _repeated(self, node: yaml.Node, path: Path) -> None:
        found = f"it again (first in line {self.document.lines[path]})"
        error = DocumentError(found, "each key once", _line(node), ".".join(map(str, path)))
        self.document.repeated.append(error)


def _scalar(node: yaml.Node) -> Any:
    allowed = "a plain text, number, true, false or null"
    refusal = DocumentError(_text(node), allowed, _line(node))
    convert = _SCALARS.get(node.tag)  # an explicit tag may name anything
    if convert is None or (convert is not str and len(node.value) > _MOST_DIGITS):
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


def _too_deep(line: int) -> DocumentError:
    return DocumentError("deeper nesting", f"at most {MOST_DEPTH} levels", line)


def _syntax(error: yaml.YAMLError) -> DocumentError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        found = f"{error.problem} {error.context or ''}".removeprefix("but ").strip()
        found = found.removeprefix("found ")
        return DocumentError(found, "valid YAML", error.problem_mark.line + 1)
    return DocumentError(str(error).splitlines()[0], "valid YAML")
