"""Interface and registry of search algorithms, which choose points from a search space.

Implementations of this project are in `sweeps.planning.searches`; installed packages add others
through the entry point group `sweeps.searches`. A study's algorithm loads when it is first used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from privnets.points import Scalar, TradeoffPoint
from privnets.registry import Registry
from sweeps.errors import FieldError
from sweeps.study.search_space import Axis
from sweeps.study.spec import SearchSpec

Proposal = dict[str, Scalar]
"""One value per swept field."""

_DEFAULT_SPEC: Final = SearchSpec()


class Search(ABC):
    """Sequence of points from a search space.

    The sequence depends only on the space, the settings and the results that `tell` received, so
    replaying the same calls proposes the same points. A constructor that overrides this one keeps
    the default values, since the registry calls it without arguments.

    Attributes:
        name: Name of the algorithm in study files.
        is_adaptive: Whether proposals depend on results.
    """

    name: ClassVar[str]
    is_adaptive: ClassVar[bool] = False

    def __init__(
        self, space: Mapping[str, Axis] = MappingProxyType({}), spec: SearchSpec = _DEFAULT_SPEC
    ) -> None:
        """Starts a search with settings that `find_errors` accepts."""
        self.space = space
        self.spec = spec

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

    def tell(self, results: Sequence[TradeoffPoint]) -> None:
        """Receives finished points; a search that is not adaptive ignores them."""
        if self.is_adaptive:
            raise NotImplementedError


SEARCHES: Final[Registry[Search]] = Registry(
    "search algorithm",
    "sweeps.searches",
    "sweeps.study.search:Search",
    {
        "grid": "sweeps.planning.searches:GridSearch",
        "random": "sweeps.planning.searches:RandomSearch",
        "sobol": "sweeps.planning.searches:SobolSearch",
    },
)
