"""Validation of a study against its experiment: every mistake at once, or its configurations."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

import privnets
from privnets.config import ExperimentConfig, flatten, nest
from privnets.contract import Experiment
from privnets.data import DataError, UserFormError
from privnets.references import user_files
from privnets.registry import EXPERIMENTS, ExtensionError, Registry
from sweeps.errors import FieldError, FieldPath, describe_choices, format_value
from sweeps.study.field_errors import UNKNOWN_KEY, field_errors, merge_values, without_meant
from sweeps.study.search import SEARCHES, Search, find_setting_errors
from sweeps.study.search_space import (
    OBFUSCATION,
    Proposal,
    example_point,
    find_condition_errors,
    grid_size,
)
from sweeps.study.spec import MAX_POINTS, OBSERVING_FIELDS, Bounds, Claim, Study

_MAX_SEED: Final = 2**31


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Outcome of a validation.

    Attributes:
        errors: Every mistake.
        configs: One configuration per proposed point, with the base seed; empty after mistakes.
        fingerprints: Fingerprint of each configuration's data; empty if data were not checked.
        notes: Remarks on unusual but valid parts.
    """

    errors: tuple[FieldError, ...]
    configs: tuple[ExperimentConfig, ...] = ()
    fingerprints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def validate_study(
    study: Study, invalid: Collection[FieldPath] = (), *, data: bool = True
) -> ValidationResult:
    """Validates a study against its experiment.

    Args:
        study: The study, without its invalid parts.
        invalid: Paths of the parts that were removed.
        data: Whether its data must be present and intact on this machine.
    """
    if ("experiment",) in invalid:
        return ValidationResult(())
    user_files.set_folder(study.source.folder)
    try:
        experiment = privnets.experiment(study.experiment)
    except UserFormError as error:
        unfit = FieldError(("experiment",), error.given, error.expected)
        return ValidationResult((study.source.locate(unfit),))
    except (ValueError, ExtensionError) as error:
        unknown = _registry_error(("experiment",), study.experiment, EXPERIMENTS, error)
        return ValidationResult((study.source.locate(unknown),))
    validator = StudyValidator(study, experiment, invalid, data)
    configs = validator.run()
    found = without_meant(merge_values(validator.errors), study.source.places)
    errors = tuple(map(study.source.locate, found))
    notes = (*_notes(study, experiment), *validator.remarks)
    if errors:
        return ValidationResult(errors, notes=notes)
    return ValidationResult((), tuple(configs), tuple(validator.fingerprints), notes)


def _registry_error(
    path: FieldPath, name: str, registry: Registry[Any], error: Exception
) -> FieldError:
    if isinstance(error, ExtensionError):
        return FieldError(path, str(error), f"an {path[-1]} that can be loaded")
    expected = describe_choices(registry.names(), name)
    return FieldError(path, format_value(name), f"{expected}, or one of a package installed here")


class StudyValidator:
    """Validation of one study against one experiment.

    Invalid values are replaced by valid placeholders, so that one pass reports every error.

    Attributes:
        errors: Mistakes found so far.
        remarks: Sentences on the data.
        fingerprints: Fingerprint of each configuration's data, without those that are unreadable.
    """

    def __init__(
        self, study: Study, experiment: Experiment[Any], invalid: Collection[FieldPath], data: bool
    ) -> None:
        """Prepares a validation; see `validate_study` for the arguments."""
        self.errors: list[FieldError] = []
        self.remarks: dict[str, None] = {}
        self.fingerprints: list[str] = []
        self._study = study
        self._experiment = experiment
        self._checks_data = data
        self._fields = experiment.Config.model_fields
        self._invalid = invalid
        # Fields with an invalid or removed value: no further errors are reported for them.
        self._invalid_fields = {
            _head(path[1]) for path in invalid if len(path) > 1 and path[0] in ("fixed", "space")
        }

    def run(self) -> list[ExperimentConfig]:
        """Validates every part; returns the configurations, with placeholders if need be."""
        self._check_names()
        self._check_values()
        configs = self._check_configs(self._make_configs(self._proposals()))
        for i, claim in self._valid_claims():
            if claim.axis is not None and _head(claim.axis) not in self._fields:
                expected = describe_choices(self._fields, claim.axis)
                self._add(("claims", i, "axis"), format_value(claim.axis), expected)
            for part, names in (("where", claim.where), ("elsewhere", claim.elsewhere)):
                for name in names:
                    self._check_field_name(("claims", i, part, name))
        return configs

    def _check_names(self) -> None:
        study = self._study
        for name in OBSERVING_FIELDS:
            for part in ("fixed", "space"):
                if name in getattr(study, part):
                    expected = f"{name} beside fixed, as a section of the study"
                    self._add((part, name), "it here", expected)
            if name in study.constants and name not in self._fields:
                expected = f"none with {study.experiment}, whose utilities are its own"
                self._add((name,), "a value", expected)
        for part, names in (("fixed", study.fixed), ("space", study.space)):
            for name in names:
                self._check_field_name((part, name))
        for name in sorted({*study.fixed, *flatten(study.fixed)} & study.space.keys()):
            self._add(("space", name), "a field that is also in fixed", "it in one of the two")
        for name in study.space:
            try:
                nest({**study.fixed, name: None})
            except ValueError:
                above = name.rpartition(".")[0]
                self._add(("space", name), f"an entry of {above}", f"a mapping at {above} in fixed")
        self.errors += find_condition_errors(study.space)
        if study.obfuscation and OBFUSCATION in study.space:
            expected = "it in one of the two"
            self._add(("space", OBFUSCATION), "an axis beside the section obfuscation", expected)
        if "seed" in study.space:
            self._add(("space", "seed"), "an axis", "replicates: N, which gives each point N seeds")
        base, most = study.fixed.get("seed", 0), _MAX_SEED - MAX_POINTS
        # Confirming seeds of an adaptive search start that far above the others.
        if isinstance(base, int) and base + study.replicates > most:
            given = f"{study.replicates} seeds from {base} on"
            self._add(("replicates",), given, f"seeds below {most}")
        present = self._given_fields() | self._invalid_fields
        for name, field in self._fields.items():
            if field.is_required() and name not in present:
                if not {("fixed",), ("space",)} & {*self._invalid}:
                    expected = f"a value here, or an axis in space: {field.description}"
                    self._add(("fixed", name), "nothing", expected)
                self._invalid_fields.add(name)

    def _check_field_name(self, path: FieldPath) -> None:
        if _head(path[-1]) not in self._fields:
            self.errors.append(FieldError.of_name(path, "an unknown field", self._fields))

    def _given_fields(self) -> set[str]:
        return {_head(name) for name in (*self._study.constants, *self._study.space)}

    def _check_values(self) -> None:
        """Checks every value of every field on its own."""
        values: list[tuple[FieldPath, Sequence[Any]]] = [
            *((("fixed", name), (value,)) for name, value in self._study.fixed.items()),
            *((("space", name), axis.check_values()) for name, axis in self._study.space.items()),
        ]
        for path, candidates in values:
            if self._is_valid_field(_head(path[1])):
                for value in candidates:
                    self._check_value(path, value)
        errors = [*without_meant(self.errors, self._study.source.places)]
        # The description of the data is checked further, as its unknown keys were meant.
        data = ("fixed", self._experiment.data_field)
        unknown = [e for e in errors if e.path[:-1] == data and e.given == UNKNOWN_KEY]
        if unknown:
            described: Any = self._study.fixed[data[1]]
            meant = {str(error.path[-1]): error.meant for error in unknown}
            renamed = {name: described[key] for key, name in meant.items() if name}
            known = {key: value for key, value in described.items() if key not in meant}
            fixed = {**self._study.fixed, data[1]: {**renamed, **known}}
            self._study = self._study.model_copy(update={"fixed": fixed})
        self._invalid_fields |= {
            _head(error.path[1])
            for error in errors
            if error.path[0] in ("fixed", "space") and error not in unknown
        }

    def _is_valid_field(self, name: str) -> bool:
        return name in self._fields and name not in self._invalid_fields

    def _check_value(self, path: FieldPath, value: Any) -> None:
        """Checks a value together with the other entries of its field's mapping."""
        name, study = str(path[1]), self._study
        given = {name: value} if name in study.space else {}
        values = {**study.fixed, **example_point(study.space, given)}
        field = {n: v for n, v in values.items() if _head(n) == _head(name)}
        keys = tuple(name.split("."))
        try:
            nested = nest({**field, name: value})
        except ValueError:  # reported with the names
            return
        try:
            self._experiment.Config.model_validate(nested, strict=True)
        except ValidationError as validation_error:
            for error in field_errors(validation_error, self._experiment.Config):
                # Other fields are missing here, and other entries are checked by themselves.
                if error.path[: len(keys)] == keys and (
                    name == error.key or error.key not in field
                ):
                    is_interval = path[0] == "space" and study.space[name].values() is None
                    hint = (
                        ", by range" if is_interval and error.expected == "a whole number" else ""
                    )
                    place = (*path, *error.path[len(keys) :])
                    self.errors.append(replace(error, path=place, expected=error.expected + hint))

    def _proposals(self) -> list[Proposal]:
        """Returns the proposed points, or each axis's values in turn if the search is invalid."""
        study = self._study
        space = {n: axis for n, axis in study.space.items() if self._is_valid_field(_head(n))}
        search = self._search_class()
        if search is not None and not space:
            return [{}]
        first_points = [] if search is None else [*study.search.enqueue]
        if search is not None and not search.is_adaptive:
            size = study.search.num_points or grid_size(space)
            return first_points + search(space, study.search).ask(size)
        others = [
            example_point(space, {name: value})
            for name, axis in space.items()
            for value in axis.check_values()
        ]
        return [*first_points, example_point(space), *others]

    def _search_class(self) -> type[Search] | None:
        """Returns the search algorithm; None if it cannot search the space."""
        if self._is_invalid("search"):
            return None
        spec = self._study.search
        try:
            search = type(SEARCHES.get(spec.algorithm))
        except (ValueError, ExtensionError) as error:
            place = ("search", "algorithm")
            self.errors.append(_registry_error(place, spec.algorithm, SEARCHES, error))
            return None
        space = self._study.space
        errors = [*search.find_errors(space, spec), *find_setting_errors(search, space, spec)]
        if self._is_invalid("space"):  # without its invalid axes, it may be empty
            errors = [error for error in errors if error.path != ("space",)]
        self.errors += errors
        return None if errors else search

    def _make_configs(
        self, proposals: Sequence[Proposal]
    ) -> list[tuple[Proposal, ExperimentConfig]]:
        model = self._experiment.Config
        fixed: dict[str, Any] = {
            n: v for n, v in self._study.constants.items() if self._is_valid_field(_head(n))
        }
        schema = model.model_json_schema()["properties"] if self._invalid_fields else {}
        for name in self._invalid_fields & self._fields.keys():
            if self._fields[name].is_required():
                fixed[name] = _allowed_value(schema[name])
        made: list[tuple[Proposal, ExperimentConfig]] = []
        for proposal in proposals:
            try:
                config = model.model_validate(nest({**fixed, **proposal}), strict=True)
                made.append((proposal, config))
            except ValidationError as validation_error:
                for error in field_errors(validation_error, model):
                    self._add_to_field(error.key, error.given, error.expected)
        return made

    def _check_configs(
        self, made: Sequence[tuple[Proposal, ExperimentConfig]]
    ) -> list[ExperimentConfig]:
        """Checks whole configurations, and their data; returns those whose data can be read."""
        readable = []
        proposed: set[str] = set()
        effective: set[str] = set()
        # Configurations of equal structure share their data, and report equal metrics.
        numbers: dict[str, int] = {}
        structures: list[int] = []
        for proposal, config in made:
            try:
                problems = self._experiment.invalid_fields(config)
            except DataError as error:  # a file of the user
                self._add_data_error(error)
                continue
            readable.append(config)
            unused = self._experiment.unused_fields(config)
            proposed |= proposal.keys()
            effective |= {name for name in proposal if _head(name) not in unused}
            structures.append(numbers.setdefault(config.structure(), len(numbers)))
            for problem in problems:
                # A limit that follows from a placeholder says nothing about the study.
                if not self._invalid_fields & set(problem.expected.split()):
                    is_default = problem.field in self._fields.keys() - self._given_fields()
                    given = f"the default, {problem.value}" if is_default else problem.value
                    self._add_to_field(problem.field, given, problem.expected)
        reported = {error.path for error in self.errors}
        for name in () if self._invalid_fields else self._study.space:
            if name in proposed - effective and ("space", name) not in reported:
                expected = "a field that has an effect beside the other values of the study"
                self._add(("space", name), "an axis without effect", expected)
        samples = list(dict(zip(structures, readable, strict=True)).values())
        fingerprints = []
        for config in samples if self._checks_data else ():
            try:
                fingerprints.append(self._experiment.fingerprint(config))
                self.remarks |= dict.fromkeys(self._experiment.remarks(config))
                if not (self.errors or self._invalid):
                    self._experiment.try_code(config)
            except DataError as error:
                self._add_data_error(error)
        if len(fingerprints) == len(samples):
            self.fingerprints = [fingerprints[number] for number in structures]
        if samples:
            self._check_metrics(samples)
            self._check_early_stopping(samples)
        return readable

    def _add_data_error(self, error: DataError) -> None:
        if self._checks_data:
            field = self._experiment.data_field
            if isinstance(error, UserFormError):
                for each in (error, *error.others):
                    name = each.field if "." in each.field else f"{field}.{each.field}"
                    self._add_to_field(name, each.given, each.expected)
                return
            expected = "a data set that is present and intact"
            self._add_to_field(field, str(error).rstrip("."), expected)

    def _check_metrics(self, samples: Sequence[ExperimentConfig]) -> None:
        """Checks metrics of objectives, constraints and claims, and limits of the latter two.

        Every point must report them, with enough data for the objectives.
        """
        reported = set.intersection(*({*self._experiment.metric_keys(c)} for c in samples))
        if self._has_placeholder_choice():  # another choice would report other metrics
            reported |= self._experiment.objectives.keys()
        reported |= {str(path[1]) for path in self._invalid if path[0] == "metrics" and path[1:]}
        study = self._study
        metrics: list[tuple[FieldPath, str]] = [
            *((("objectives", metric), metric) for metric in study.objectives or {}),
            *((("constraints", metric), metric) for metric in study.constraints),
        ]
        limited: list[tuple[FieldPath, str, Bounds]] = [
            (("constraints", name), name, each) for name, each in study.constraints.items()
        ]
        for i, claim in self._valid_claims():
            metrics += [(("claims", i, *keys), metric) for keys, metric in claim.metrics.items()]
            limited.append((("claims", i), claim.metric, claim))
            limited += [(("claims", i, "given", k), k, each) for k, each in claim.given.items()]
        reasons: dict[str, str] = {}
        for config in () if self._invalid_fields else samples:
            reasons.update(self._experiment.unsupported_objectives(config))
        for path, metric in metrics:
            if metric not in reported:
                expected = describe_choices(reported & self._experiment.objectives.keys(), metric)
                reason = f" ({reasons[metric]})" if metric in reasons else ""
                self._add(path, f"{metric}, which not every point reports{reason}", expected)
        for path, metric, bounds in limited:
            for end in filter(math.isfinite, bounds.ends):
                if limits := self._experiment.limit_mistake(metric, end):
                    self._add(path, f"{end:g}", limits)
        if self._invalid_fields:
            return
        if study.objectives is None and not self._is_invalid("objectives"):
            defaults = [dict(self._experiment.default_objectives(config)) for config in samples]
            if any(objectives != defaults[0] for objectives in defaults):
                expected = "metrics that every point reports: min or max"
                self._add(("objectives",), "nothing", expected)
        for config in samples:
            lacking = self._experiment.unsupported_objectives(config)
            declared = {*self._experiment.metric_keys(config)}
            for metric in lacking.keys() & (study.objectives or {}).keys() & declared:
                given = f"{metric}, which is undefined ({lacking[metric]})"
                self._add(("objectives", metric), given, "a metric that every point supports")

    def _check_early_stopping(self, samples: Sequence[ExperimentConfig]) -> None:
        """Checks that training estimates the objectives that stop points."""
        if self._study.early_stopping is None:
            return
        estimated = frozenset.intersection(*map(self._experiment.interim_objectives, samples))
        expected = f"false, or as objectives only {', '.join(sorted(estimated))}"
        missing = set[str]()
        if not estimated:
            field, interim = self._experiment.data_field, self._experiment.interim_objectives
            bare = next((config for config in samples if not interim(config)), samples[0])
            missing = {"objectives"}
            expected = (
                f"false, the only choice with {self._study.experiment} and {field} "
                f"{getattr(bare, field)}"
            )
        elif not self._is_invalid("objectives") and not self._has_placeholder_choice():
            objectives = self._study.objectives or self._experiment.default_objectives(samples[0])
            missing = (objectives.keys() & self._experiment.objectives.keys()) - estimated
        if missing:
            names = ", ".join(sorted(missing))
            given = f"early stopping by {names}, which training does not estimate"
            self._add(("early_stopping",), given, expected)

    def _has_placeholder_choice(self) -> bool:
        """Returns whether a field of named choices, such as the model, has a placeholder."""
        schema = self._experiment.Config.model_json_schema()["properties"]
        return any(_names(schema.get(name, {})) for name in self._invalid_fields)

    def _valid_claims(self) -> list[tuple[int, Claim]]:
        claims = enumerate(self._study.claims)
        return [(i, claim) for i, claim in claims if ("claims", i) not in self._invalid]

    def _is_invalid(self, section: str) -> bool:
        return any(path[0] == section for path in self._invalid)

    def _add_to_field(self, name: str, given: str, expected: str) -> None:
        """Adds an error for a field or an entry of it, unless the field has a placeholder."""
        if _head(name) not in self._invalid_fields:
            is_swept = name in self._study.space
            keys = tuple(filter(None, name.split(".")))
            fixed = keys if _head(name) in OBSERVING_FIELDS else ("fixed", *keys)
            path = ("space", name) if is_swept else fixed
            self._add(path, given, expected)

    def _add(self, path: FieldPath, given: str, expected: str) -> None:
        self.errors.append(FieldError(path, given, expected))


def configure(experiment: Experiment[Any], values: Mapping[str, Any]) -> ExperimentConfig | str:
    """Returns the configuration with these values, or the reason why it is invalid."""
    try:
        config = experiment.Config.model_validate(values, strict=True)
    except ValidationError as validation_error:
        error = field_errors(validation_error, experiment.Config)[0]
        place = f"{error.key}: " if error.path else ""
        return f"{place}got {error.given}; expected {error.expected}"
    problems = experiment.invalid_fields(config)
    texts = (f"{p.field}: got {p.value}; expected {p.expected}" for p in problems)
    return next(texts, config)


def _head(name: str | int) -> str:
    """Returns the field of a name, which may lead into the field's mapping."""
    return str(name).partition(".")[0]


def _names(schema: Mapping[str, Any]) -> list[str]:
    """Returns the named choices of a field's JSON schema; empty if it has none."""
    options = schema.get("anyOf", [schema])
    return next((option["enum"] for option in options if "enum" in option), [])


def _allowed_value(schema: Mapping[str, Any]) -> object:
    """Returns a value that a field's JSON schema allows."""
    for key in ("const", "default", "minimum", "maximum"):
        if key in schema:
            return schema[key]
    if names := _names(schema):
        return names[0]
    return {"integer": 1, "number": 1.0, "boolean": False}.get(schema.get("type", ""), "")


def _notes(study: Study, experiment: Experiment[Any]) -> Iterator[str]:
    for metric, direction in (study.objectives or {}).items():
        usual = experiment.objectives.get(metric, direction)
        if direction != usual:
            better = {"min": "smaller", "max": "larger"}[usual]
            yield f"{metric} has the direction {direction} here, but {better} is better for it."
    if study.early_stopping is not None and study.claims:
        yield "Claims are tested on the points that early stopping leaves, not on all points."
    for claim in study.claims:
        if claim.axis is not None and claim.axis not in study.space:
            yield f"A claim is not tested, because {claim.axis} is not swept: {claim.statement}"
    size, wanted = grid_size(study.space), study.search.num_points
    if wanted is not None and not study.space:
        yield "num_points has no effect, because no field is swept."
    elif wanted is not None and study.search.algorithm == "grid" and wanted < size:
        yield f"{wanted:,} of the grid's {size:,} combinations, drawn by seed {study.search.seed}."
    elif wanted is not None and study.search.algorithm == "grid" and wanted > size:
        yield f"num_points is {wanted:,}, but the grid has only {size:,} combinations."
