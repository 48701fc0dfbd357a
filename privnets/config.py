"""Experiment configurations: frozen, validated, and divided into structure and stackable values."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_serializer
from pydantic_core import CoreSchema, PydanticKnownError, core_schema, to_jsonable_python

from privnets.points import Scalar


def _check_metric(key: str) -> str:
    if re.fullmatch(r"utility/[a-z0-9_]{1,80}", key) is None:
        raise ValueError("utility/ and a name of lower-case letters, digits and underscores")
    return key


UserMetric = Annotated[str, AfterValidator(_check_metric)]
"""Key of a utility of the user's own."""


def floor_key(utility: str) -> str:
    """Key of the trivial model's value of a utility."""
    return f"floor/{utility.replace('/', '_')}"


def did_you_mean(text: str, choices: Iterable[str]) -> str:
    """Hint at the choice that is most like a text; empty if none is."""
    closest = get_close_matches(text, list(choices), n=1)
    return f" (did you mean {closest[0]}?)" if closest else ""


class UserForm(BaseModel):
    """Mapping that a study gives in place of a name: the user's own data, model or problem.

    Entries are structural, unless `stackable` has their names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stackable: ClassVar[frozenset[str]] = frozenset()

    def structural_values(self) -> dict[str, Any]:
        """Returns the entries that members of a stack must share, as plain values."""
        return self.model_dump(mode="json", exclude={*self.stackable})


class Named(UserForm):
    """Name with settings, as `{eco: {resolution: hour}}` in a study.

    Attributes:
        name: Name in a registry.
        settings: Settings of what has that name.
    """

    name: str
    settings: UserForm

    def __str__(self) -> str:
        """Name."""
        return self.name

    @model_serializer
    def _as_in_studies(self) -> dict[str, Any]:
        return {self.name: self.settings.model_dump(mode="json")}

    def structural_values(self) -> dict[str, Any]:
        """Returns the settings that members of a stack must share, below the name."""
        return {self.name: self.settings.structural_values()}


class ExperimentConfig(BaseModel):
    """One value for every field of an experiment: a plain scalar, or a `UserForm`.

    A field is *stackable* if it is a number that may differ within a stack, and *structural* if it
    changes shapes or schedule. Configurations with equal `structure()` may be stacked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stackable: ClassVar[frozenset[str]] = frozenset({"seed"})
    field_defaults: ClassVar[Mapping[str, Any]] = {"seed": 0}
    """Default of each field, by name, as `__pydantic_init_subclass__` collects them. Plans of many
    points read it often; pydantic's own description of the fields is slow."""

    seed: int = Field(0, ge=0, lt=2**31, description="source of every random draw")

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Adds the fields to the class's docstring, which `help` shows; collects the defaults."""
        fields = cls.model_fields.items()
        cls.field_defaults = MappingProxyType({name: each.default for name, each in fields})
        lines = []
        for name, each in cls.model_fields.items():
            default = "" if each.is_required() else f" (default {each.default!r})"
            lines.append(f"    {name}: {each.description or 'no description'}{default}.")
        text = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:\n")[0]
        cls.__doc__ = "\n".join([f"{text}\n\nAttributes:", *lines])

    def redundant_fields(self) -> frozenset[str]:
        """Fields without effect beside the other values, which `canonical` resets."""
        return frozenset()

    def canonical(self) -> Self:
        """Returns this configuration with every redundant field at its default.

        Two configurations with equal canonical forms give equal results, so they are one point.
        """
        redundant = self.redundant_fields()
        if not redundant:
            return self
        defaults = {name: self.field_defaults[name] for name in redundant}
        if all(getattr(self, name) == value for name, value in defaults.items()):
            return self
        return self.model_copy(update=defaults)

    def structure(self) -> str:
        """Returns the structural fields as text; configurations of equal text may share a stack."""
        values, stackable = self.canonical().__dict__, self.stackable
        fields = {name: values[name] for name in self.field_defaults if name not in stackable}
        if _SCALARS.issuperset(map(type, fields.values())):
            return repr(fields)
        texts = {}
        for name, value in fields.items():
            is_form = isinstance(value, UserForm)
            plain = value.structural_values() if is_form else to_jsonable_python(value)
            texts[name] = _ENCODER.encode(plain)
        return repr(texts)

    def resolved(self) -> dict[str, Scalar]:
        """Returns all fields but the seed, which distinguishes the replicates of a point.

        The entries of a mapping have dots in their names, as `model.params.max_depth`. Settings
        stand beside the name that they belong to, as `problem` and `problem.eco.resolution`.
        """
        values = self.__dict__  # attributes of a model are slower
        fields = {name: values[name] for name in self.field_defaults if name != "seed"}
        if _SCALARS.issuperset(map(type, fields.values())):
            return fields
        names = {name: each.name for name, each in fields.items() if isinstance(each, Named)}
        return {**names, **flatten(to_jsonable_python(fields))}


@dataclass(frozen=True)
class OneOf:
    """Type annotation for a field whose values are the names in a registry, or user forms.

    Example: `problem: Annotated[str, OneOf(PROBLEMS.names)]`. Its errors and its JSON schema are
    those of a `Literal`.

    Attributes:
        forms: Key that a mapping must have to the type of that mapping.
        settings: Type of the settings of a name, if names have settings. A name stands for a
            mapping of the name to settings at their defaults. Values are `Named` then, or names
            that have no settings.
    """

    names: Callable[[], Sequence[str]]
    forms: Mapping[str, type[UserForm]] = field(default_factory=dict)
    settings: Callable[[str], type[UserForm]] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Returns the schema that validates a value."""
        name = core_schema.no_info_plain_validator_function(
            self._check_named if self.settings else self._check_name,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.model_dump(mode="json") if isinstance(value, Named) else value
            ),
        )
        if not self.forms:
            return name
        forms = {form_tag(key): handler(form) for key, form in self.forms.items()}
        keys = " or ".join(self.forms)
        return core_schema.tagged_union_schema(
            {"": name, **forms},
            self._tag,
            custom_error_type="form",
            custom_error_message=f"a name, or a mapping with exactly one of the keys {keys}"
            + (", or of one name to its settings" if self.settings else ""),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Returns the JSON schema."""
        names = {"type": "string", "enum": list(self.names())}
        forms = [handler(form.__pydantic_core_schema__) for form in self.forms.values()]
        return {"anyOf": [names, *forms]} if forms else names

    def _tag(self, value: object) -> str | None:
        """Returns which schema validates a value; None for a mapping of no form."""
        if isinstance(value, UserForm) and not isinstance(value, Named):
            keys = {key for key, form in self.forms.items() if isinstance(value, form)}
        elif not isinstance(value, Mapping) or (
            self.settings and len(value) == 1 and next(iter(value)) in self.names()
        ):
            return ""
        else:
            keys = self.forms.keys() & value.keys()
        return form_tag(keys.pop()) if len(keys) == 1 else None

    def model_at(self, part: str | int) -> type[UserForm] | None:
        """Returns the type of the mapping that a part of an error's location leads into."""
        if self.settings and part in self.names():
            return self.settings(str(part))
        return self.forms.get(form_of_tag(part))

    def _check_named(self, value: object) -> str | Named:
        assert self.settings is not None
        if isinstance(value, Named):
            return value
        ((name, given),) = value.items() if isinstance(value, Mapping) else ((value, {}),)
        name = self._check_name(name)
        kind = self.settings(name)
        settings = _named_settings(kind).validate_python({name: given}, strict=True)[name]
        return Named.model_construct(name=name, settings=settings) if kind.model_fields else name

    def _check_name(self, value: object) -> str:
        names = self.names()
        if isinstance(value, str) and value in names:
            return value
        *first, last = [*map(repr, names), *(f"a mapping with the key {key}" for key in self.forms)]
        expected = f"{', '.join(first)} or {last}" if first else last
        expected += did_you_mean(str(value)[:_MAX_LIST_TEXT], names) if first else ""
        raise PydanticKnownError("literal_error", {"expected": expected})


@lru_cache(maxsize=32)
def _named_settings(kind: type[UserForm]) -> TypeAdapter[dict[str, UserForm]]:
    return TypeAdapter(dict[str, kind])  # type: ignore[valid-type]


_SCALARS = frozenset({str, int, float, bool, type(None)})
_TAG_MARK = "form "
_MAX_LIST_TEXT = 500


def form_tag(key: str) -> str:
    """Returns the tag of a form in the locations of pydantic's errors."""
    return f"{_TAG_MARK}{key}"


def form_of_tag(part: str | int) -> str:
    """Returns the key of the form that a part of a location tags; empty for other parts."""
    text = str(part)
    return text.removeprefix(_TAG_MARK) if text.startswith(_TAG_MARK) else ""


def choice_of(model: type[BaseModel], name: str) -> OneOf | None:
    """Returns the choice that a field of a model is; None for other fields, and without one."""
    field = model.model_fields.get(name)
    metadata = [] if field is None else field.metadata
    return next((each for each in metadata if isinstance(each, OneOf)), None)


def without_form_tags(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Returns the location of an error without the tags of forms."""
    return tuple(part for part in location if part != "" and not form_of_tag(part))


def flatten(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Joins the keys of nested mappings by dots; lists become JSON texts, or digests if long."""
    flat: dict[str, Scalar] = {}
    for name, value in values.items():
        if type(value) in _SCALARS:
            flat[name] = value
        elif isinstance(value, dict):  # an instance check of an abstract type takes longer
            flat.update({f"{name}.{key}": each for key, each in flatten(value).items()})
        elif not isinstance(value, list):
            flat[name] = value
        elif len(text := json.dumps(value)) <= _MAX_LIST_TEXT:
            flat[name] = text
        else:  # MLflow limits the length of a run's configuration
            digest = hashlib.sha256(text.encode()).hexdigest()
            flat[name] = f"{len(value)} values, sha256 {digest}"
    return flat


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Makes mappings of names with dots; a later value replaces or extends an earlier one.

    `problem: eco` beside `problem.eco.resolution` is short for `problem: {eco: {}}`.

    Raises:
        ValueError: If a name with dots leads into a value that is not a mapping.
    """
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        target = nested
        for part, following in pairwise((*parents, last)):
            inner = target.get(part, {})
            if isinstance(inner, str) and inner == following:
                inner = {inner: {}}
            if not isinstance(inner, Mapping):
                raise ValueError(f"{part} must be a mapping to set {name}; got {inner!r}.")
            target[part] = dict(inner)
            target = target[part]
        target[last] = value
    return nested


def point_id(experiment: str, version: int, config: ExperimentConfig, fingerprint: str) -> str:
    """Computes the identity of a point: 20 hexadecimal digits, equal on every machine.

    Args:
        config: Configuration; its seed and its redundant fields have no influence.
        fingerprint: Fingerprint of the data.
    """
    identity: Mapping[str, object] = {
        "experiment": experiment,
        "version": version,
        "config": config.canonical().resolved(),
        "data": fingerprint,
    }
    return hashlib.sha256(_ENCODER.encode(identity).encode()).hexdigest()[:20]


# Some fields, such as an order of leakage, may be infinite: JSON then has `Infinity`.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
