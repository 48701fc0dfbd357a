"""From finished releases to replicates: attackers' verdicts, utility, bounds and what was seen."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from privnets.adversarial.attackers.panel import Verdict, judging
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import estimates, inference
from privnets.adversarial.evaluation.baseline import Baseline, Baselines
from privnets.adversarial.evaluation.estimates import Estimate
from privnets.adversarial.evaluation.releases import Release
from privnets.adversarial.metrics import metric_keys
from privnets.adversarial.problem import Examined, Problem
from privnets.adversarial.records import Exposure
from privnets.points import Replicate

_T = TypeVar("_T")


@dataclass
class _Sheet:
    """A replicate in the making."""

    metrics: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, estimate: Estimate) -> None:
        self.metrics[key], self.errors[key] = estimate.value, estimate.error


def judged(
    problem: Problem, releases: Sequence[Release]
) -> Generator[Replicate | None, None, None]:
    """One replicate per release, in order; None between, wherever the work may pause.

    Args:
        problem: What was released.
        releases: Of one structure.
    """
    configs = [release.config for release in releases]
    first = configs[0]
    originals = [release.original for release in releases]
    bases = Baselines(problem, configs, originals)
    yield from _silently(bases.compute())
    evidence = [release.released for release in releases]
    refitted = yield from _silently(
        inference.utility(problem, configs, evidence, "refitted utility")
    )
    verdicts = judging(
        evidence,
        networks=problem.attacking_networks(first),
        analytic=problem.analytic_attackers(first),
        alphas=[config.alpha for config in configs],
        seeds=[config.seed for config in configs],
        attack_steps=first.attack_steps,
        inferred=[inference.labels(log_p) for log_p in refitted],
    )
    limits = yield from problem.limits(configs)
    waiting = enumerate(zip(releases, limits, refitted, strict=True))
    for verdict in verdicts:
        if verdict is None:
            yield None
        else:
            place, (release, own, useful) = next(waiting)
            base = yield from _silently(bases.of(place))
            yield _replicate(problem, release, _sheet(problem, release, own), base, useful, verdict)


def examined(problem: Problem, releases: Sequence[Release]) -> Iterator[Replicate | None]:
    """As `judged`, by exact information and without any attacker.

    Args:
        problem: What was released, of which exact information is known.
        releases: Of one structure.
    """
    limits = yield from problem.limits([release.config for release in releases])
    for release, own in zip(releases, limits, strict=True):
        sheet = _sheet(problem, release, own)
        _in_loop(sheet, release)
        _accuracy(sheet, release)
        found = _examine(sheet, problem, release)
        exact = sheet.metrics["exact/leakage"] + sheet.metrics["exact/censored"]
        _bound(sheet, problem, release, exact)
        yield _made(sheet, release, found)


def unfinished(problem: Problem, config: AdversarialConfig, reason: str) -> Replicate:
    """A replicate that came to nothing, and why."""
    metrics = dict.fromkeys(metric_keys(problem.statement, config), math.nan)
    return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())


def _sheet(problem: Problem, release: Release, limits: Mapping[str, float]) -> _Sheet:
    unknown = dict.fromkeys(metric_keys(problem.statement, release.config), math.nan)
    return _Sheet({**unknown, **limits})


def _replicate(
    problem: Problem,
    release: Release,
    sheet: _Sheet,
    base: Baseline,
    refitted: NDArray[np.float64],
    verdict: Verdict,
) -> Replicate:
    sheet.metrics.update(verdict.metrics)
    sheet.errors.update(verdict.standard_errors)
    sheet.notes.update(verdict.notes)
    key = "baseline/attacker_balanced_accuracy"
    sheet.metrics[key], sheet.errors[key] = base.attacker
    if math.isnan(base.attacker[0]):
        sheet.notes[key] = "attackers of the raw records could not be judged"
    _in_loop(sheet, release)
    _closeness(sheet, problem, release)
    if problem.statement.utility_classes:
        _accuracy(sheet, release)
        _utility(sheet, release, base, refitted)
        both = sheet.metrics["privacy/leakage"] + sheet.metrics["utility/censored"]
        _bound(sheet, problem, release, both)
    return _made(sheet, release, _examine(sheet, problem, release))


def _examine(sheet: _Sheet, problem: Problem, release: Release) -> Examined:
    """What the problem alone can say."""
    original, test = release.original.test, release.released.test
    found = problem.examine(release.config, release.parameters, original, test)
    sheet.metrics.update(found.metrics)
    sheet.notes.update(found.notes)
    return found


def _made(sheet: _Sheet, release: Release, found: Examined) -> Replicate:
    return Replicate(
        seed=release.config.seed,
        metrics=sheet.metrics,
        standard_errors=sheet.errors,
        notes=sheet.notes,
        curves={**release.curves, **found.curves},
        artifacts={"releaser.safetensors": _state(release.parameters), **found.artifacts},
        finished_at=time.time(),
    )


def _in_loop(sheet: _Sheet, release: Release) -> None:
    """What the adversary of the game makes of the test release; it says nothing of privacy."""
    secret = release.released.test.secret
    guess = release.adversary.argmax(-1)
    classes = [c for c in range(release.adversary.shape[-1]) if bool((secret == c).any())]
    recalls = [float((guess[secret == c] == c).double().mean()) for c in classes]
    sheet.metrics["diagnostic/adversary_balanced_accuracy"] = sum(recalls) / len(recalls)


def _closeness(sheet: _Sheet, problem: Problem, release: Release) -> None:
    """Squared error relative to the squared records, both in original units."""
    key = "utility/normalized_error"
    if not problem.statement.copies:
        sheet.notes[key] = "a release of this problem is not meant to resemble its record"
        return
    offset, scale = problem.distance_scale(release.config)
    original, test = release.original.test, release.released.test
    error = _per_record((scale * (test.z - original.z)).double().square(), test)
    power = _per_record((offset + scale * original.z).double().square(), test)
    sheet.put(key, estimates.ratio(error, power, _group(test)))


def _accuracy(sheet: _Sheet, release: Release) -> None:
    """Of the utility network that was trained with the releaser."""
    test = release.released.test
    assert test.utility is not None
    assert release.utility is not None
    right = (release.utility.argmax(-1) == test.utility).double().cpu().numpy()
    sheet.put("utility/accuracy", estimates.mean(right, _group(test)))


def _utility(
    sheet: _Sheet, release: Release, base: Baseline, refitted: NDArray[np.float64]
) -> None:
    test = release.released.test
    assert test.utility is not None
    label, group = test.utility.cpu().numpy(), _group(test)
    for key, log_p in (
        ("utility/refitted_accuracy", refitted),
        ("baseline/utility_accuracy", base.log_utility),
    ):
        sheet.put(key, estimates.mean((log_p.argmax(-1) == label).astype(float), group))
    # Every network's cross-entropy is an upper bound of what is uncertain, up to chance.
    rows = np.arange(len(label))
    lost = base.log_utility[rows, label] - refitted[rows, label]
    sheet.put("utility/censored", estimates.mean(lost, group))


def _bound(sheet: _Sheet, problem: Problem, release: Release, both: float) -> None:
    """Lemma 3.1 of the ICLR 2019 submission: I(S;Q) + I(U;X|Q), here `both`, is at least K."""
    test = release.original.test
    assert test.utility is not None
    least = problem.dependence_bound(release.config, test.secret, test.utility)
    sheet.metrics["bound/release"] = least
    sheet.metrics["bound/gap"] = both - max(least, 0.0)
    if math.isnan(both):
        sheet.notes["bound/gap"] = "leakage is undefined"


def _per_record(values: Tensor, test: Exposure) -> NDArray[np.float64]:
    """Sums over each record's numbers that were observed, shape [n]."""
    if test.present is not None:
        values = torch.where(test.present[..., None].expand_as(values), values, 0.0)
    sums: NDArray[np.float64] = values.flatten(1).sum(1).cpu().numpy()
    return sums


def _group(test: Exposure) -> NDArray[np.int64] | None:
    return None if test.group is None else test.group.cpu().numpy()


def _state(parameters: Sequence[Tensor]) -> bytes:
    return save({str(i): p.contiguous().cpu() for i, p in enumerate(parameters)})


def _silently(work: Generator[object, None, _T]) -> Generator[None, None, _T]:
    """Pauses without what is said at them."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: _T = ended.value
            return found
        yield None
