"""Interface and registry of search algorithms, which choose points from a search space.

Implementations of this project are in `sweeps.planning.searches` and
`sweeps.planning.optuna_search`; installed packages add others through the entry point group
`sweeps.searches`. A study's algorithm loads when it is first used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from privnets.contract import Direction
from privnets.points import TradeoffPoint
from privnets.registry import Registry
from sweeps.errors import FieldError, format_value
from sweeps.study.search_space import Axis, Proposal, lists_applicable
from sweeps.study.spec import Bounds, SearchSpec, Study

_DEFAULT_SPEC: Final = SearchSpec()
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class SearchResult(NamedTuple):
    """Result of one proposal: its point with the one replicate that was trained for it.

    The configuration of `point` may differ from the proposal in fields that have no effect.
    """

    proposal: Proposal
    point: TradeoffPoint


class Search(ABC):
    """Sequence of points from a search space.

    The sequence depends only on the constructor's arguments and on the calls of `ask`, `register`
    and `tell`, so replaying the same calls proposes the same points. A constructor that overrides
    this one keeps the default values, since the registry calls it without arguments.

    An adaptive search sets `is_adaptive` and overrides `register` and `tell`. Each proposal is
    trained with one seed; a point that is proposed again is trained with another seed.

    Attributes:
        name: Name of the algorithm in study files.
        is_adaptive: Whether proposals depend on results.
        space: Swept fields with their axes.
        spec: Settings of the search.
        objectives: Metrics with their direction.
        constraints: Metrics with the range that a point must keep to.
    """

    name: ClassVar[str]
    is_adaptive: ClassVar[bool] = False

    def __init__(
        self,
        space: Mapping[str, Axis] = _NONE,
        spec: SearchSpec = _DEFAULT_SPEC,
        objectives: Mapping[str, Direction] = _NONE,
        constraints: Mapping[str, Bounds] = _NONE,
    ) -> None:
        """Starts a search with settings that `find_errors` accepts."""
        self.space = space
        self.spec = spec
        self.objectives = objectives
        self.constraints = constraints

    @classmethod
    def find_errors(cls, space: Mapping[str, Axis], spec: SearchSpec) -> list[FieldError]:
        """Returns the reasons why this algorithm cannot search a space."""
        if spec.num_points is None:
            expected = f"the number of points that {spec.algorithm} draws (or --num-points N)"
            return [FieldError(("search", "num_points"), "nothing", expected)]
        return []

    @abstractmethod
    def ask(self, count: int) -> list[Proposal]:
        """Proposes at most `count` points; fewer once it has no more. A point may come twice."""

    def register(self, proposals: Sequence[Proposal]) -> None:
        """Adds proposals that `ask` need not compute: those of a resumed or reused sweep.

        They are pending from now on, as if `ask` had returned them; their results follow.
        """
        if self.is_adaptive:
            raise NotImplementedError

    def tell(self, results: Sequence[SearchResult]) -> None:
        """Receives the results of pending proposals; a search that is not adaptive ignores them.

        A result whose point has the status `failed` has no metrics. Metrics may be NaN.
        """
        if self.is_adaptive:
            raise NotImplementedError

    def front(self, size: int) -> list[Proposal] | None:
        """Estimates at most `size` points of the front by a model; None without a model.

        The points of a search without a model are chosen by the means of their replicates.
        """
        return None

    def front_uncertainty(self) -> float | None:
        """Returns the share x for which the front is known to ± x; None without a model."""
        return None


def has_model(search: type[Search]) -> bool:
    """Whether a search algorithm has a model of the front."""
    return search.front_uncertainty is not Search.front_uncertainty


def find_setting_errors(
    search: type[Search], space: Mapping[str, Axis], spec: SearchSpec
) -> list[FieldError]:
    """Finds settings that an algorithm does not have, and points to try outside of the space."""
    errors = []
    if not search.is_adaptive:
        settings = ["confirm", "ask_size", "front_tolerance"]
        expected = f"nothing, as the algorithm {spec.algorithm} does not learn from results"
    else:
        settings = [] if has_model(search) else ["front_tolerance"]
        expected = f"nothing, as the algorithm {spec.algorithm} has no model of the front"
    for name in settings:
        if (value := getattr(spec, name)) is not None:
            errors.append(FieldError(("search", name), format_value(value), expected))
    if search.is_adaptive and not space:
        expected = f"at least one axis, for the algorithm {spec.algorithm}"
        errors.append(FieldError(("space",), "no axis", expected))
    paired = (
        [name for name, axis in space.items() if axis.along] if spec.algorithm != "grid" else []
    )
    expected = f"nothing with the algorithm {spec.algorithm}; only a grid has fields in step"
    errors += [FieldError(("space", name, "along"), "a field", expected) for name in paired]
    for number, values in enumerate(spec.enqueue):
        path = ("search", "enqueue", number)
        if not lists_applicable(space, values):
            expected = f"a value for each of {', '.join(space) or 'no field'}"
            if any(axis.when for axis in space.values()):
                expected += ", without those whose condition it does not meet"
            errors.append(FieldError(path, format_value(values), expected))
            continue
        errors += [
            FieldError((*path, name), format_value(value), f"a value of space.{name}")
            for name, value in values.items()
            if not space[name].contains(value)
        ]
    return errors


SEARCHES: Final[Registry[Search]] = Registry(
    "search algorithm",
    "sweeps.searches",
    "sweeps.study.search:Search",
    {
        "grid": "sweeps.planning.searches:GridSearch",
        "random": "sweeps.planning.searches:RandomSearch",
        "sobol": "sweeps.planning.searches:SobolSearch",
        "tpe": "sweeps.planning.optuna_search:TpeSearch",
        "nsga2": "sweeps.planning.optuna_search:Nsga2Search",
        "frontier": "sweeps.planning.optuna_search:FrontierSearch",
    },
)


def is_adaptive(study: Study) -> bool:
    """Whether the search algorithm of a study learns from results."""
    return SEARCHES.get(study.search.algorithm).is_adaptive
