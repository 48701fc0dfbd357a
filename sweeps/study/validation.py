"""Whether an experiment can run a study: every mistake at once, and the configurations if none.

Mistakes hide behind mistakes: a bad value is put aside, and a stand-in for it lets the rest of the
study be checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

import privnets
from privnets.config import ExperimentConfig
from privnets.contract import Experiment
from privnets.data import DataError
from privnets.points import Scalar
from privnets.registry import EXPERIMENTS, ExtensionError
from sweeps.errors import FieldError, describe_choices, format_value
from sweeps.planning import search
from sweeps.study.complaints import Complaint, complaints
from sweeps.study.spec import Claim, Path, Study

_SEEDS: Final = 2**31
_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What a check found.

    Attributes:
        errors: Every mistake.
        configs: One per proposal of the search, in its order, with the base seed; for a study
            without problems.
        notes: What is no mistake and yet worth knowing.
    """

    errors: tuple[FieldError, ...]
    configs: tuple[ExperimentConfig, ...] = ()
    notes: tuple[str, ...] = ()


def validate_study(
    study: Study, broken: Collection[Path] = (), *, data: bool = True
) -> ValidationResult:
    """Check a study against its experiment.

    Args:
        study: The study.
        broken: Paths of parts that were left out of it because they are known to be wrong.
        data: Whether its data must be here, present and intact; not where others will run it.
    """
    if ("experiment",) in broken:
        return ValidationResult(())
    try:
        experiment = privnets.experiment(study.experiment)
    except (ValueError, ExtensionError) as error:
        return ValidationResult(_placed(study, [_no_experiment(study.experiment, error)]))
    examination = _Examination(study, experiment, broken, data)
    configs = examination.run()
    problems = _placed(study, examination.complaints)
    return ValidationResult(
        problems, () if problems else tuple(configs), tuple(_notes(study, experiment))
    )


def _no_experiment(name: str, error: Exception) -> Complaint:
    if isinstance(error, ExtensionError):
        return Complaint(("experiment",), str(error), "an experiment that can be loaded")
    return Complaint(
        ("experiment",), format_value(name), describe_choices(EXPERIMENTS.names(), name)
    )


class _Examination:
    """One study against one experiment.

    Attributes:
        complaints: What was found so far.
    """

    def __init__(
        self, study: Study, experiment: Experiment, broken: Collection[Path], data: bool
    ) -> None:
        self._with_data = data
        self.complaints: list[Complaint] = []
        self._study = study
        self._experiment = experiment
        self._fields = experiment.Config.model_fields
        self._broken = broken
        self._known = not {("fixed",), ("space",)} & set(broken)
        self._search_known = not any(path[0] == "search" for path in broken)
        self._objectives_known = not any(path[0] == "objectives" for path in broken)
        # Fields whose values are wrong or were left out: nothing more is said of them.
        self._bad = {str(p[1]) for p in broken if len(p) > 1 and p[0] in ("fixed", "space")}

    def run(self) -> list[ExperimentConfig]:
        """Look at everything; the configurations as far as they can be made."""
        self._names()
        self._values()
        self._seeds()
        configs = self._configs(self._proposals())
        self._data(configs)
        if configs:
            self._metrics(configs)
            self._stopping(configs)
        self._claims()
        return configs

    def _names(self) -> None:
        study = self._study
        for part in ("fixed", "space"):
            for name in getattr(study, part):
                if name not in self._fields:
                    allowed = describe_choices(self._fields, name)
                    self._add((part, name), "an unknown field", allowed)
        for name in sorted(study.fixed.keys() & study.space.keys()):
            self._add(("space", name), "it in fixed as well", "one of the two")
        if "seed" in study.space:
            allowed = "replicates: N, which gives every point N seeds"
            self._add(("space", "seed"), "an axis", allowed)
        for name, field in self._fields.items():
            given = name in study.fixed or name in study.space or name in self._bad
            if field.is_required() and not given:
                if self._known:
                    allowed = f"a value here, or an axis in space: {field.description}"
                    self._add(("fixed", name), "nothing", allowed)
                self._bad.add(name)

    def _values(self) -> None:
        """Every value of every field on its own."""
        study = self._study
        given: list[tuple[Path, Sequence[Scalar]]]
        given = [(("fixed", name), (value,)) for name, value in study.fixed.items()]
        given += [(("space", name), axis.probes()) for name, axis in study.space.items()]
        for path, values in given:
            if path[1] in self._fields and path[1] not in self._bad:
                for value in values:
                    self._value(path, value)
        self._bad |= {str(c.path[1]) for c in self.complaints if c.path[0] in ("fixed", "space")}

    def _value(self, path: Path, value: Scalar) -> None:
        """One value; that other fields are missing was seen to."""
        name = str(path[1])
        try:
            self._experiment.Config.model_validate({name: value}, strict=True)
        except ValidationError as error:
            for complaint in complaints(error, self._experiment.Config):
                if complaint.path[:1] == (name,):
                    self._add(
                        path, complaint.found, complaint.allowed + self._hint(path, complaint)
                    )

    def _hint(self, path: Path, complaint: Complaint) -> str:
        axis = self._study.space.get(str(path[1])) if path[0] == "space" else None
        continuum = axis is not None and axis.members() is None
        return ", by range" if continuum and complaint.allowed == "a whole number" else ""

    def _seeds(self) -> None:
        base = self._study.fixed.get("seed", 0)
        if isinstance(base, int) and base + self._study.replicates > _SEEDS:
            found = f"{self._study.replicates} of them from seed {base} on"
            self._add(("replicates",), found, f"seeds below {_SEEDS}")

    def _proposals(self) -> list[search.Proposal]:
        """What the search gives, or each axis's values in turn when it cannot be asked."""
        space = {n: axis for n, axis in self._study.space.items() if n not in self._bad}
        found = search.complaints(self._study.space, self._study.search)
        if self._search_known:
            self.complaints += found
            if not found:
                return search.propose(space, self._study.search)
        first = {name: axis.at(0.0) for name, axis in space.items()}
        rest = [{**first, n: value} for n, axis in space.items() for value in axis.probes()]
        return [first, *rest]

    def _configs(self, proposals: Sequence[search.Proposal]) -> list[ExperimentConfig]:
        fixed = {n: v for n, v in self._study.fixed.items() if n not in self._bad}
        fixed |= self._stand_ins()
        configs: list[ExperimentConfig] = []
        for proposal in proposals:
            try:
                values = {**fixed, **proposal}
                configs.append(self._experiment.Config.model_validate(values, strict=True))
            except ValidationError as error:
                for path, found, allowed in complaints(error, self._experiment.Config):
                    self._field(str(path[0]) if path else "", found, allowed)
        return configs

    def _stand_ins(self) -> dict[str, Any]:
        """An allowed value for each required field that has none of its own."""
        lacking = [n for n in self._bad if n in self._fields and self._fields[n].is_required()]
        if not lacking:
            return {}
        schema = self._experiment.Config.model_json_schema()["properties"]
        return {name: _allowed_value(schema[name]) for name in lacking}

    def _data(self, configs: Iterable[ExperimentConfig]) -> None:
        """What the data and the other fields forbid."""
        for config in configs:
            for problem in self._experiment.invalid_fields(config):
                self._field(problem.field, problem.value, problem.expected)
            if not self._with_data:
                continue
            try:
                self._experiment.fingerprint(config)
            except DataError as error:
                allowed = "a data set that is present and intact"
                self._field(self._experiment.data_field, str(error).rstrip("."), allowed)

    def _metrics(self, configs: Sequence[ExperimentConfig]) -> None:
        """Metrics that some point does not report."""
        samples = list({config.structure(): config for config in configs}.values())
        reported = set.intersection(*(set(self._experiment.metric_keys(c)) for c in samples))
        if self._kind_unknown():  # with another value in its place others would be reported
            reported |= self._experiment.objectives.keys()
        asked: list[tuple[Path, str]] = [
            (("objectives", m), m) for m in self._study.objectives or {}
        ]
        asked += [(("claims", i, "metric"), claim.metric) for i, claim in self._sound_claims()]
        for path, metric in asked:
            if metric not in reported:
                allowed = describe_choices(reported & self._experiment.objectives.keys(), metric)
                self._add(path, f"{metric}, which not every point reports", allowed)
        if self._study.objectives is None and not self._bad and self._objectives_known:
            self._defaults(samples)

    def _stopping(self, configs: Sequence[ExperimentConfig]) -> None:
        """Objectives of which training tells nothing, where points are to be stopped by them."""
        if self._study.early_stopping is None:
            return
        told = frozenset.intersection(*map(self._experiment.interim_objectives, configs))
        if not told:
            name = self._study.experiment
            self._unstoppable("objectives", f"false with {name}, the only choice")
        elif self._objectives_known and not self._kind_unknown():
            objectives = self._study.objectives or self._experiment.default_objectives(configs[0])
            known = objectives.keys() & self._experiment.objectives.keys()
            if untold := sorted(known - told):
                allowed = f"false, or as objectives only {', '.join(sorted(told))}"
                self._unstoppable(", ".join(untold), allowed)

    def _unstoppable(self, untold: str, allowed: str) -> None:
        found = f"points to be stopped by {untold} of which training tells nothing before its end"
        self._add(("early_stopping",), found, allowed)

    def _kind_unknown(self) -> bool:
        """Whether a field of named choices, as a model or a data set is, has a stand-in."""
        schema = self._experiment.Config.model_json_schema()["properties"]
        return any("enum" in schema.get(name, {}) for name in self._bad)

    def _defaults(self, samples: Sequence[ExperimentConfig]) -> None:
        """The experiment's own objectives, if its points agree on them."""
        defaults = [dict(self._experiment.default_objectives(config)) for config in samples]
        if any(each != defaults[0] for each in defaults):
            self._add(("objectives",), "nothing", "metrics that every point reports: min or max")

    def _claims(self) -> None:
        """Claims about fields that the experiment lacks."""
        for i, claim in self._sound_claims():
            if claim.axis not in self._fields:
                allowed = describe_choices(self._fields, claim.axis)
                self._add(("claims", i, "axis"), format_value(claim.axis), allowed)
            for name in claim.where:
                if name not in self._fields:
                    allowed = describe_choices(self._fields, name)
                    self._add(("claims", i, "where", name), "an unknown field", allowed)

    def _sound_claims(self) -> list[tuple[int, Claim]]:
        claims = enumerate(self._study.claims)
        return [(i, claim) for i, claim in claims if ("claims", i) not in self._broken]

    def _field(self, name: str, found: str, allowed: str) -> None:
        """Complain of a field, unless its value is a stand-in."""
        if name not in self._bad:
            self._add(self._path(name), found, allowed)

    def _path(self, name: str) -> Path:
        if name in self._study.space:
            return "space", name
        return ("fixed", name) if name else ("fixed",)

    def _add(self, path: Path, found: str, allowed: str) -> None:
        self.complaints.append(Complaint(path, found, allowed))


def _allowed_value(schema: Mapping[str, Any]) -> object:
    """Some value that a field's JSON schema allows."""
    for key in ("const", "default", "minimum", "maximum"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": 1, "number": 1.0, "boolean": False}.get(schema.get("type", ""), "")


def _placed(study: Study, found: Iterable[Complaint]) -> tuple[FieldError, ...]:
    """Problems with their places; those that differ only in what was found are told as one."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for complaint in found:
        groups.setdefault((complaint.path, complaint.allowed), []).append(complaint.found)
    return tuple(
        study.source.problem(path, _listed(list(dict.fromkeys(values))), allowed)
        for (path, allowed), values in groups.items()
    )


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return ", ".join(values[:_LISTED]) + more


def _notes(study: Study, experiment: Experiment) -> Iterator[str]:
    for metric, direction in (study.objectives or {}).items():
        usual = experiment.objectives.get(metric, direction)
        if direction != usual:
            yield f"{metric} is to be {direction}, though the experiment calls {usual} better."
    if study.early_stopping is not None and study.claims:
        yield "Claims are put to the test on the points that early stopping leaves, not on all."
    for claim in study.claims:
        if claim.axis not in study.space:
            yield f"A claim is not put to the test, as {claim.axis} is not swept: {claim.statement}"
