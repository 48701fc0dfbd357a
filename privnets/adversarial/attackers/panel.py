"""The panel that judges finished releases: every attacker, the strongest of them, and the floor.

Attackers are fitted to the attack split, calibrated and chosen on validation, and judged on test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from privnets.adversarial.attackers import classical
from privnets.adversarial.attackers.assessment import Assessment, Known, assess
from privnets.adversarial.attackers.beside import Beside
from privnets.adversarial.attackers.features import Tables, tables
from privnets.adversarial.attackers.floors import INFERRED, KEYS, Floors, floors
from privnets.adversarial.attackers.names import CLASSIFIERS, SIDE, Classifier, attacker_names
from privnets.adversarial.attackers.networks import fit_network
from privnets.adversarial.attackers.posterior import Attacker, Posterior
from privnets.adversarial.attackers.rows import (
    frequencies,
    known_rows,
    known_secret,
    unusable,
)
from privnets.adversarial.attackers.scoring import alpha_leakage
from privnets.adversarial.evaluation.estimates import Estimate
from privnets.adversarial.records import Evidence, on_host
from privnets.networks.architecture import Architecture

_SURE = 2.0  # standard errors
_STRONGEST: Final = (
    "privacy/attacker_balanced_accuracy",
    "privacy/attacker_auc",
    "privacy/leakage",
    "privacy/alpha_leakage",
)
_PARTS: Final = ("balanced_accuracy", "auc", "leakage")
_FLOOR: Final = "floor/attacker_balanced_accuracy"
_BELOW: Final = "flag/attacker_below_floor"
_UNRESTED: Final = "flag/attacker_not_converged"


@dataclass(frozen=True)
class Verdict:
    """What the panel says of one release.

    Attributes:
        metrics: All `privacy/*`, `floor/*` and `flag/*` keys; NaN where undefined.
        standard_errors: Of those metrics that have one.
        notes: Key to who the strongest attacker is, why a flag is raised or a metric undefined.
        strongest: Name of the attacker with the best balanced accuracy on validation; None when
            nothing could be judged.
    """

    metrics: Mapping[str, float]
    standard_errors: Mapping[str, float]
    notes: Mapping[str, str]
    strongest: str | None


def judging(
    evidence: Sequence[Evidence],
    *,
    networks: Mapping[str, Architecture],
    analytic: Sequence[Attacker],
    alphas: Sequence[float],
    seeds: Sequence[int],
    attack_steps: int,
    inferred: Sequence[NDArray[np.int64] | None],
) -> Iterator[Verdict | None]:
    """Judge the releases of a stack.

    Each verdict depends on its own release and seed alone. Networks are trained as one stack, the
    other attackers release by release: on the cores that the pack has (`torch.get_num_threads`),
    while the networks are trained if a device of its own does that.

    Args:
        evidence: One per release, of equal shapes.
        networks: By attacker's name. One whose name ends in `_side` takes side information beside
            the release, [S, n, T, 1 + c].
        analytic: The problem's own attackers.
        alphas: Order of `privacy/alpha_leakage`, one per release.
        seeds: One per release.
        attack_steps: The most that a network takes.
        inferred: Per release, the test split's utility labels as read from it; None without any.

    Yields:
        A verdict per release, in order; None between, wherever the work may pause.

    Raises:
        ValueError: If a network has a name that the panel does not know.
    """
    names = _names(evidence[0], analytic, networks)
    classes = max(2, *(1 + int(known_secret(one.attack).max()) for one in evidence))
    reasons = [unusable(one, classes) for one in evidence]
    usable = [i for i, reason in enumerate(reasons) if reason is None]
    chosen, own = [evidence[i] for i in usable], [seeds[i] for i in usable]

    def fits() -> list[_Fits]:
        hosted = zip(chosen, own, [inferred[i] for i in usable], strict=True)
        return [
            _Fits.begun(beside, on_host(one), seed, analytic, classes, labels)
            for one, seed, labels in hosted
        ]

    # A processor that trains the networks has no core left for anything else meanwhile.
    apart = evidence[0].attack.z.device.type != "cpu"
    with Beside(torch.get_num_threads(), spare=apart) as beside:
        begun = fits() if apart else []
        neural = yield from _neural(networks if usable else {}, chosen, own, attack_steps)
        waiting = zip(chosen, begun or fits(), neural, strict=True)
        for reason, alpha in zip(reasons, alphas, strict=True):
            if reason is not None:
                yield _undefined(names, reason)
                continue
            one, fit, posteriors = next(waiting)
            others = yield from fit.posteriors()
            floor = fit.floor()
            yield _verdict(one, names, [*posteriors, *others], floor, classes, alpha)


def _names(
    evidence: Evidence, analytic: Sequence[Attacker], networks: Iterable[str]
) -> tuple[str, ...]:
    """Everybody on the panel, of whom the networks must be some."""
    attack = evidence.attack
    own = [name for attacker in analytic for name in attacker.names]
    names = attacker_names(attack.secret.ndim == 2, attack.side is not None, own)
    if unknown := [name for name in networks if name not in names]:
        raise ValueError(f"networks must be among {', '.join(names)}; got {', '.join(unknown)}.")
    return names


def _neural(
    networks: Mapping[str, Architecture],
    evidence: Sequence[Evidence],
    seeds: Sequence[int],
    attack_steps: int,
) -> Generator[None, None, list[list[Posterior]]]:
    """Posteriors of every network, per release."""
    found: list[list[Posterior]] = [[] for _ in evidence]
    for name, architecture in networks.items():
        run = fit_network(name, architecture, evidence, seeds, attack_steps)
        fitted = yield from _paused(run)
        for posteriors, posterior in zip(found, fitted, strict=True):
            posteriors.append(posterior)
    return found


def _paused(run: Generator[float, None, list[Posterior]]) -> Generator[None, None, list[Posterior]]:
    while True:
        try:
            next(run)
        except StopIteration as end:
            fitted: list[Posterior] = end.value
            return fitted
        yield None


@dataclass(frozen=True)
class _Fits:
    """Attackers of one release that are no networks, on their way."""

    attackers: list[Callable[[], Sequence[Posterior]]]
    floor: Callable[[], Floors]

    @classmethod
    def begun(
        cls,
        beside: Beside,
        evidence: Evidence,
        seed: int,
        analytic: Sequence[Attacker],
        classes: int,
        inferred: NDArray[np.int64] | None,
    ) -> _Fits:
        work: list[Callable[[], Sequence[Posterior]]] = []
        for side in (False, True) if evidence.attack.side is not None else (False,):
            seen = cache(partial(tables, evidence, side=side))
            work += [partial(_fitted, name, seen, seed, side) for name in CLASSIFIERS]
        work += [partial(attacker.fit, evidence, seed) for attacker in analytic]
        floor = partial(floors, evidence, classes, seed, inferred)
        return cls([beside.submit(one) for one in work], beside.submit(floor))

    def posteriors(self) -> Generator[None, None, list[Posterior]]:
        found: list[Posterior] = []
        for wait in self.attackers:
            found += wait()
            yield None
        return found


def _fitted(
    classifier: Classifier, seen: Callable[[], Tables], seed: int, side: bool
) -> Sequence[Posterior]:
    name = classifier + SIDE if side else classifier
    return [classical.fit(name, seen(), seed, classifier)]


def _undefined(names: Iterable[str], reason: str) -> Verdict:
    metrics = _blank(names)
    return Verdict(metrics, {}, dict.fromkeys(metrics, reason), None)


def _blank(names: Iterable[str]) -> dict[str, float]:
    """Every key of a verdict, with no value yet."""
    keys = [_of(name, part) for name in names for part in _PARTS]
    return dict.fromkeys([*_STRONGEST, *KEYS, INFERRED, _FLOOR, _BELOW, _UNRESTED, *keys], math.nan)


def _verdict(
    evidence: Evidence,
    names: Iterable[str],
    posteriors: Sequence[Posterior],
    floor: Floors,
    classes: int,
    alpha: float,
) -> Verdict:
    validation, test = known_rows(evidence.validation), known_rows(evidence.test)
    prior = frequencies(known_rows(evidence.attack).secret, classes)
    panel = [
        assess(one, validation, test, prior, floor.side if _informed(one.name) else None)
        for one in posteriors
    ]
    best = max(panel, key=lambda one: one.on_validation.value)
    telling = _telling(panel, floor)
    known = floor.side or Known.prior(prior, validation, test)
    by_order = alpha_leakage(telling.calibrated.test, known.test, test, alpha)
    told = (best.accuracy, best.auc, telling.leakage, by_order)
    found = dict(zip(_STRONGEST, told, strict=True))
    for one in panel:
        estimates = (one.accuracy, one.auc, one.leakage)
        found |= {_of(one.name, p): e for p, e in zip(_PARTS, estimates, strict=True)}
    found |= {**floor.estimates, _FLOOR: floor.estimates[floor.highest]}
    found |= {} if floor.inferred is None else {INFERRED: floor.inferred}
    metrics = {**_blank(names), **{key: e.value for key, e in found.items()}}
    notes = {**floor.notes, _STRONGEST[0]: _who(best, panel), _FLOOR: f"of {floor.highest}"}
    notes["privacy/leakage"] = _whose(telling, floor)
    flags = {_BELOW: _below(best, floor.attainable), _UNRESTED: _unrested(panel)}
    metrics |= {key: float(bool(reason)) for key, reason in flags.items()}
    notes |= {key: reason for key, reason in flags.items() if reason}
    return Verdict(metrics, {key: e.error for key, e in found.items()}, notes, best.name)


def _informed(name: str) -> bool:
    return name.endswith(SIDE)


def _telling(panel: Sequence[Assessment], floor: Floors) -> Assessment:
    """Who tells most of the secret on validation; of those with side information, if there is any.

    Who guesses best need not be who knows best how sure to be, which is what leakage asks.
    """
    asked = [one for one in panel if floor.side is None or _informed(one.name)]
    return max(asked, key=lambda one: one.told_on_validation.value)


def _whose(telling: Assessment, floor: Floors) -> str:
    given = "" if floor.side is None else ", beyond what side information tells"
    return f"by {telling.name}, chosen on validation{given}"


def _of(name: str, part: str) -> str:
    return f"privacy/attacker/{name}/{part}"


def _who(best: Assessment, panel: Sequence[Assessment]) -> str:
    """The strongest attacker, and those that test shows to be stronger."""
    said = f"{best.name}, chosen on validation ({best.on_validation.value:.4f} there)"
    for one in panel:
        ahead = one.accuracy - best.accuracy
        if ahead.value > _SURE * ahead.error:
            gain = f"{ahead.value:.4f} +- {ahead.error:.4f}"
            said += f"; {one.name} is better on test by {gain}"
    return said


def _below(best: Assessment, floor: Estimate) -> str:
    """Why the strongest attacker's success cannot be the last word; empty if it may be."""
    short = floor - best.accuracy
    if short.value <= 0:
        return ""
    beyond = short.value > _SURE * short.error
    size = "more than" if beyond else "within"
    return (
        f"{best.name} reaches {best.accuracy.value:.4f} and the floor is {floor.value:.4f}: short "
        f"by {short.value:.4f} +- {short.error:.4f}, {size} {_SURE:g} standard errors"
    )


def _unrested(panel: Sequence[Assessment]) -> str:
    names = [one.name for one in panel if not one.converged]
    return f"steps ran out while validation still improved: {', '.join(names)}" if names else ""
