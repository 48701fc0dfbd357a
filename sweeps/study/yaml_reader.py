"""Safe YAML: plain values with the line of each key, within size limits.

Scalars follow the core schema of YAML 1.2: `1e-6` is a number and `no` is a text. `dump_yaml`
writes YAML that readers of version 1.1 understand in the same way.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml as pyyaml
from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from sweeps.errors import FieldError, FieldPath

MAX_CHARACTERS: Final = 256 * 1024
MAX_DEPTH: Final = 20
MAX_VALUES: Final = 20_000
_MAX_DIGITS: Final = 300

_TAG: Final = "tag:yaml.org,2002:"
_COLLECTION_TAGS: Final = (_TAG + "map", _TAG + "seq")
_CORE_SCHEMA: Final[Mapping[str, re.Pattern[str]]] = {
    _TAG + "null": re.compile(r"(~|null|Null|NULL|)$"),
    _TAG + "bool": re.compile(r"(true|True|TRUE|false|False|FALSE)$"),
    _TAG + "int": re.compile(r"[-+]?[0-9]+$"),
    _TAG + "float": re.compile(
        r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
}
_CONVERSIONS: Final[Mapping[str, Callable[[str], object]]] = {
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
_LINE_BREAKS: Final = frozenset("\x85\u2028\u2029")


class YamlError(ValueError):
    """Raised for text that is not acceptable YAML; `error` is the mistake, with its line."""

    def __init__(self, given: str, expected: str, line: int | None = None) -> None:
        """Describes the mistake; lines are counted from 1."""
        self.error = FieldError((), given, expected, line=line)
        super().__init__(f"got {given}; expected {expected}")


@dataclass(slots=True)
class YamlDocument:
    """A parsed text.

    Attributes:
        value: Mappings, lists and scalars.
        lines: Line of each key and list element, counted from 1.
        repeated: Errors for keys that occur twice in a mapping; the first value counts.
    """

    value: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    repeated: list[FieldError] = field(default_factory=list)


def parse_yaml(
    text: str, max_characters: int = MAX_CHARACTERS, max_values: int = MAX_VALUES
) -> YamlDocument:
    """Parses one YAML document from an untrusted source.

    Args:
        text: The document.
        max_characters: Limit on the length of the text.
        max_values: Limit on the number of values; an alias counts each time it is used.

    Raises:
        YamlError: If the text is not YAML, holds tags, or exceeds a limit.
    """
    if len(text) > max_characters:
        raise YamlError("a longer text", f"at most {max_characters:,} characters")
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = _CoreResolver
    yaml.max_depth = MAX_DEPTH + 1
    try:
        with warnings.catch_warnings(action="ignore"):  # about anchors that are used twice
            root = yaml.compose(text)
    except (YAMLError, ValueError, OverflowError) as error:
        if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
            given = f"a syntax error ({next(iter(str(error).splitlines()), '')})"
            raise YamlError(given, "valid YAML") from error
        line = error.problem_mark.line + 1
        if isinstance(error, MaxDepthExceededError):
            raise YamlError("deeper nesting", f"at most {MAX_DEPTH} levels", line) from error
        reasons = ", ".join(filter(None, [error.context, error.problem]))
        raise YamlError(f"a syntax error ({reasons})", "valid YAML", line) from error
    reader = _NodeReader(max_values)
    if root is not None:
        reader.document.value = reader.read(root, ())
    return reader.document


def is_encodable(text: str) -> bool:
    """Returns whether a text can be written as UTF-8; lone surrogates cannot."""
    return text.isascii() or re.search("[\ud800-\udfff]", text) is None


def dump_yaml(value: Mapping[str, Any], width: int = 80) -> str:
    """Writes plain values as YAML without aliases, with lines of about `width` characters."""
    text: str = pyyaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width
    )
    return text


class _CoreResolver(VersionedResolver):
    """Resolves plain scalars by the core schema, whatever version a text declares."""

    @property
    def versioned_resolver(self) -> Mapping[str | None, list[tuple[str, re.Pattern[str]]]]:
        """First character (None for any) to tags and their patterns."""
        return {None: [*_CORE_SCHEMA.items()]}


class _Dumper(pyyaml.SafeDumper):
    """Writer of PyYAML, as ruamel.yaml loses spaces where it breaks lines.

    Quotes texts that YAML 1.1 or 1.2 would read as another type.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Returns True: equal values are written twice."""
        return True

    def represent_str(self, data: str) -> pyyaml.ScalarNode:
        """Escapes line breaks other than the usual one."""
        style = '"' if _LINE_BREAKS & set(data) else None
        node: pyyaml.ScalarNode = self.represent_scalar(_TAG + "str", data, style=style)
        return node


_Dumper.add_representer(str, _Dumper.represent_str)
for _tag, _pattern in _CORE_SCHEMA.items():
    _Dumper.add_implicit_resolver(_tag, _pattern, None)


@dataclass(slots=True)
class _NodeReader:
    """Turns composed nodes into values and counts them, aliases included."""

    max_values: int
    document: YamlDocument = field(default_factory=YamlDocument)
    count: int = 0

    def read(self, node: Node, path: FieldPath) -> Any:
        self.count += 1
        if self.count > self.max_values:
            raise YamlError("more values, aliases expanded", f"at most {self.max_values:,}")
        if len(path) > MAX_DEPTH:  # an alias may name a collection that contains it
            raise YamlError("deeper nesting", f"at most {MAX_DEPTH} levels", _line(node))
        if isinstance(node, CollectionNode) and node.tag not in _COLLECTION_TAGS:
            raise YamlError(_describe(node), "a plain mapping or list", _line(node))
        if isinstance(node, SequenceNode):
            return [self._entry(child, (*path, i), child) for i, child in enumerate(node.value)]
        if not isinstance(node, MappingNode):
            return _read_scalar(node)
        values: dict[str, Any] = {}
        for key_node, child in node.value:
            key = _read_scalar(key_node) if key_node.tag == _TAG + "str" else None
            if not isinstance(key, str):
                raise YamlError(f"the key {_describe(key_node)}", "a text as key", _line(key_node))
            inner = (*path, key)
            if key not in values:
                values[key] = self._entry(key_node, inner, child)
                continue
            first = self.document.lines[inner]
            repeated = FieldError(
                inner, f"a second value (the first is in line {first})", "each key once"
            )
            self.document.repeated.append(repeated.at("study", _line(key_node)))
        return values

    def _entry(self, start: Node, path: FieldPath, child: Node) -> Any:
        self.document.lines[path] = _line(start)
        return self.read(child, path)


def _read_scalar(node: Node) -> Any:
    tag, text = str(node.tag).removeprefix(_TAG), node.value
    try:
        if tag == "str" and is_encodable(text):
            return text
        if tag in _CONVERSIONS and len(text) <= _MAX_DIGITS:
            return _CONVERSIONS[tag](text)
    except (ValueError, KeyError):  # an explicit tag may contradict the text
        pass
    raise YamlError(_describe(node), "a plain text, number, true, false or null", _line(node))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _describe(node: Node) -> str:
    tag = str(node.tag).removeprefix(_TAG)
    return f"a {tag}" if isinstance(node, CollectionNode) else f"{tag} {node.value[:40]!r}"
