"""Numbers that other libraries' tests expect. Run as a script, it writes `docs/conformity.md`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.special import ndtri

from privnets.audit.model_signals import derive_from_probabilities
from privnets.differential_privacy.accounting import epsilon_spent
from privnets.measures import bounds, entropies
from privnets.statistics import estimates
from privnets.statistics.intervals import student_quantile
from privnets.statistics.roc import ScoredTrials, clopper_pearson_upper, wilson
from sweeps.analysis.pareto import hypervolume, pareto_front

PAGE = Path(__file__).parents[2] / "docs" / "conformity.md"
FOLDER = Path(__file__).parent


def trials(**classes: Any) -> ScoredTrials:
    """Scores of members and of others: a list each, or numbers of records by score."""
    members, others = (
        np.repeat([*scores], [*scores.values()]) if isinstance(scores, Mapping) else scores
        for scores in (classes["members"], classes["others"])
    )
    scores = np.concatenate([members, others]).astype(float)[None]
    return ScoredTrials(scores, (np.arange(scores.size) < len(members))[None])


def exact_limits(successes: int, trials: int, tail: float) -> list[Any]:
    low = 1 - clopper_pearson_upper(trials - successes, trials, tail)
    return [low, clopper_pearson_upper(successes, trials, tail)]


def student_limits(values: Sequence[float], tail: float) -> Any:
    mean = estimates.mean(np.array(values))
    return mean.value + student_quantile(len(values) - 1, 1 - tail) * mean.error * np.array([-1, 1])


def signal(probabilities: Any, labels: Any, signal: str) -> Any:
    signals = derive_from_probabilities(np.array(probabilities)[None], np.array(labels))
    return (signals | {"cross-entropy": -signals["loss"]})[signal][0]


def of_points(function: Callable[..., Any], points: Any, directions: Any, *reference: Any) -> Any:
    frame = pd.DataFrame(points)
    return function(frame, dict(zip(frame, directions, strict=True)), *reference)


def in_bits(measure: Callable[..., Any]) -> Callable[..., float]:
    return lambda **arguments: float(measure(*map(np.array, arguments.values()))) / math.log(2)


QUANTITIES: Mapping[str, Callable[..., Any]] = {
    "δ of Gaussian noise": bounds.gaussian_mechanism_delta,
    "deviation of Gaussian noise": bounds.gaussian_mechanism_sigma,
    "ε by privacy losses": partial(epsilon_spent, accountant="pld"),
    "ε by Rényi divergences": partial(epsilon_spent, accountant="rdp"),
    "Clopper-Pearson limits": exact_limits,
    "Wilson limits": lambda successes, trials, tail: astuple(
        wilson(successes / trials, trials, float(-ndtri(tail)))
    )[1:],
    "Student limits of a mean": student_limits,
    "AUC": lambda **scores: trials(**scores).area_estimate.value,
    "variance of the AUC": lambda **scores: trials(**scores).area_estimate.error ** 2,
    "true-positive rate": lambda rate, kind, **scores: trials(**scores).read_rate(rate, kind),
    "largest advantage": lambda **scores: trials(**scores).best_threshold()[0],
    "signal of probabilities": signal,
    "Rényi entropy in bits": in_bits(entropies.renyi_entropy),
    "Arimoto conditional entropy in bits": in_bits(entropies.arimoto_conditional_entropy),
    "Sibson information in bits": in_bits(entropies.sibson_mutual_information),
    "mutual information in bits": in_bits(entropies.mutual_information),
    "Kullback-Leibler divergence in bits": in_bits(entropies.kl_divergence),
    "hypervolume": lambda **points: of_points(hypervolume, *points.values()),
    "front": lambda **points: of_points(pareto_front, *points.values()).to_numpy(),
}


class Case(SimpleNamespace):
    """Case of `cases.yaml`, with the keys of its group."""

    absolute = relative = at_most = 0.0
    differs = ""

    @cached_property
    def here(self) -> Any:
        return np.asarray(QUANTITIES[self.quantity](**self.inputs))

    @cached_property
    def agrees(self) -> bool:
        return np.allclose(self.here, self.expected, rtol=self.relative, atol=self.absolute)


CASES = [
    Case(**group, expected=case.pop("expected"), inputs=case)
    for group in yaml.safe_load((FOLDER / "cases.yaml").read_text(encoding="utf-8"))
    for case in group.pop("cases")
]


def page() -> str:
    rows = different = ""
    for key, group in groupby(CASES, lambda c: (f"{c.peer} {c.version}", c.quantity)):
        cases = list(group)
        errors = [float(np.abs(c.here - c.expected).max()) for c in cases if c.agrees]
        # The next power of ten, as rounding errors vary by machine.
        largest = f"below 1e{math.ceil(math.log10(max(*errors, 1e-12)))}" if errors else ""
        rows += f"| {' | '.join(key)} | {len(cases)} | {len(errors)} | {largest} |\n"
        for c in (case for case in cases if case.differs):
            inputs = ", ".join(f"{name} {value}" for name, value in c.inputs.items())
            numbers = f"{c.expected:.7g} | {c.here:.7g} | {c.here / c.expected - 1:+.0e}"
            different += f"| {key[0]} | {c.quantity} | {inputs} | {numbers} | {c.differs} |\n"
    peers, same = len({case.peer for case in CASES}), sum(case.agrees for case in CASES)
    counts = {"cases": len(CASES), "peers": peers, "same": same}
    template = (FOLDER / "page.md").read_text(encoding="utf-8")
    return template.format(**counts, rows=rows, different=different)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.peer}, {case.quantity}")
def test_number_agrees_or_differs_as_explained(case: Case) -> None:
    assert case.agrees == (not case.differs), (case.here, case.expected)
    assert case.agrees or np.isclose(case.here, case.expected, rtol=case.at_most, atol=0)


def test_every_quantity_has_a_case() -> None:
    assert {case.quantity for case in CASES} == set(QUANTITIES)


def test_page_is_that_of_the_cases() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make pages`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
