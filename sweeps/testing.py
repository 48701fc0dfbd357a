"""Checks that every search algorithm must pass, for the tests of other packages as well.

`privnets.testing` has those of attacks, data sets, problems, target models and experiments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.study.search import SEARCHES, Search
from sweeps.study.search_space import Axis
from sweeps.study.spec import SearchSpec, Study

_LISTED = {"a": {"grid": [1, 2, 3]}, "b": {"choice": ["x", "y"]}, "c": {"range": [0, 4, 2]}}
_DRAWN = {"u": {"uniform": [-1, 3]}, "l": {"loguniform": [1e-4, 1]}}
_POINTS = 9


def check_search(name: str) -> None:
    """Checks that a registered search algorithm proposes points of its space, repeatably.

    Asking in parts must propose the same points as asking once. The space has numbers, names and
    intervals, or lists of values alone if the algorithm refuses intervals.

    Raises:
        AssertionError: With the property that does not hold.
    """
    space = _make_space({**_LISTED, **_DRAWN})
    spec = SearchSpec(algorithm=name, num_points=_POINTS, seed=3)
    if type(SEARCHES.get(name)).find_errors(space, spec):
        space = _make_space(_LISTED)
    errors = type(SEARCHES.get(name)).find_errors(space, spec)
    assert not errors, f"{name} refuses lists of values: {errors}"
    proposals = _start(name, space, spec).ask(_POINTS)
    assert len(proposals) <= _POINTS, f"{len(proposals)} proposals of {_POINTS} asked"
    for proposal in proposals:
        assert list(proposal) == list(space), f"a value of each axis is needed; got {proposal}"
        for axis, value in proposal.items():
            listed = space[axis].values()
            low, high = (space[axis].at(share) for share in (0.0, 1.0))
            is_inside = value in listed if listed is not None else low <= value <= high  # type: ignore
            assert is_inside, f"{axis} must be on its axis; got {value!r}"
    assert _start(name, space, spec).ask(_POINTS) == proposals, "the proposals are not repeatable"
    parts = _start(name, space, spec)
    assert [*parts.ask(2), *parts.ask(_POINTS - 2)] == proposals, "asks in parts differ from one"


def _make_space(axes: Mapping[str, Any]) -> dict[str, Axis]:
    raw = {"name": "search", "experiment": "membership", "space": axes}
    return Study.model_validate(raw).space


def _start(name: str, space: dict[str, Axis], spec: SearchSpec) -> Search:
    return type(SEARCHES.get(name))(space, spec)
