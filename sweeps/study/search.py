"""Interface and registry of search algorithms, which choose points from a search space.

The algorithms of this project are implemented in `sweeps.planning.searches`. An installed package
adds one through an entry point of the group `sweeps.searches`: its name is the algorithm's, and its
object is a subclass of `Search`. Modules load when a study first uses their algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from typing import ClassVar, Final

from privnets.points import Scalar, TradeoffPoint
from privnets.registry import installed_entry_points
from sweeps.errors import FieldError, describe_choices
from sweeps.study.search_space import Axis
from sweeps.study.spec import SearchSpec

GROUP: Final = "sweeps.searches"
_OWN: Final = {
    "grid": "sweeps.planning.searches:GridSearch",
    "random": "sweeps.planning.searches:RandomSearch",
    "sobol": "sweeps.planning.searches:SobolSearch",
}

Proposal = dict[str, Scalar]
"""One value per swept field."""


class Search(ABC):
    """Sequence of points from a search space.

    The sequence depends on the space, the settings and the results told so far, and on nothing
    else. Replaying the same calls therefore proposes the same points.

    Attributes:
        is_adaptive: Whether proposals depend on results.
    """

    is_adaptive: ClassVar[bool] = False

    def __init__(self, space: Mapping[str, Axis], spec: SearchSpec) -> None:
        """Starts a search.

        Args:
            space: Swept fields with their axes; at least one.
            spec: Settings that `find_errors` accepts.
        """
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
        """Proposes the next points.

        Args:
            count: Number of points.

        Returns:
            At most `count` points; fewer once the search has no more. A point may come twice.
        """

    def tell(self, results: Sequence[TradeoffPoint]) -> None:
        """Receives finished points; a search that is not adaptive ignores them."""
        if self.is_adaptive:
            raise NotImplementedError


def search_names() -> list[str]:
    """Returns the name of every search algorithm, sorted; loads none of them."""
    return sorted(_OWN.keys() | {point.name for point in installed_entry_points(GROUP)})


@cache
def search_class(name: str) -> type[Search]:
    """Loads a search algorithm.

    Raises:
        ValueError: If no algorithm has this name, or it cannot be loaded. The message lists the
            algorithms there are.
    """
    if name in _OWN:
        offers = {EntryPoint(name, _OWN[name], GROUP)}
    else:
        offers = {point for point in installed_entry_points(GROUP) if point.name == name}
    if len(offers) != 1:
        raise ValueError(describe_choices(search_names(), name))
    (offer,) = offers
    try:
        loaded = offer.load()
    except Exception as error:  # packages of others may raise anything
        raise ValueError(f"an algorithm that can be loaded ({offer.value}: {error})") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Search)):
        raise ValueError(f"an algorithm that is a subclass of {Search.__qualname__}")
    return loaded
