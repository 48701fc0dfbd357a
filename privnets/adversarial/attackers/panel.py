"""Panel that scores finished releases: all attackers, the strongest of them, and the floor.

Attackers are fitted to the attack split, calibrated and chosen on validation, and scored on test.
Networks learn from all of it, the others from a sample (`PanelProfile.records`): on images trees
took four fifths of a panel's time, and networks were stronger. An attacker of a sample that leads
on validation, in accuracy or in leakage, learns again from all records. The better of its two fits
there stays, and the leader is chosen again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from privnets.adversarial.attackers import ATTACKERS, PROFILES, SIDE, PanelProfile
from privnets.adversarial.attackers.attacker import (
    NetworkAttacker,
    Posterior,
    ReleaseAttacker,
    ReleaseView,
)
from privnets.adversarial.attackers.floors import Floors, fit_floors
from privnets.adversarial.attackers.neural import fit_network
from privnets.adversarial.attackers.scores import (
    Assessment,
    Beliefs,
    assess,
    balanced_accuracy,
    balanced_decision,
    leakage,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackerGuesses, Evidence, Redraw
from privnets.adversarial.metrics import (
    ATTAINABLE_KEY,
    FLOOR_KEYS,
    INFERRED_LABEL_KEY,
    PRIVACY_KEYS,
    attacker_keys,
    other_label_keys,
    under_labels,
)
from privnets.adversarial.problem import Problem, class_frequencies
from privnets.adversarial.records import (
    evidence_defect,
    join_tests,
    known_rows,
    known_secret,
    sample_attack,
    to_cpu,
)
from privnets.networks.layers import Architecture
from privnets.points import Curve
from privnets.statistics.estimates import Estimate

CURVE: Final = "attacker/"
"""Prefix of curves that show the convergence of attackers."""

_T = TypeVar("_T")

_STANDARD_ERRORS = 2.0  # beyond which a difference is stated
_FLOOR: Final = "floor/attacker_balanced_accuracy"
_BELOW_FLOOR: Final = "flag/attacker_below_floor"
_NOT_CONVERGED: Final = "flag/attacker_not_converged"
_FROZEN_NOISE: Final = "flag/attacker_frozen_noise"


@dataclass(frozen=True, eq=False)
class Panel:
    """The attackers that score a release, by name in metric keys.

    Attributes:
        networks: With the suffix `_side` inputs are sequences [S, n, T, 1 + c] of releases and
            side information.
        attackers: The others; with the suffix `_side` they also see side information.
        other_labels: Rule that labels `Evidence.other_test`; None if there is one rule.
    """

    networks: Mapping[str, Architecture]
    attackers: Mapping[str, ReleaseAttacker]
    profile: PanelProfile
    other_labels: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all attackers."""
        return (*self.networks, *self.attackers)


@dataclass(frozen=True)
class PanelResult:
    """Scores of one release.

    Attributes:
        metrics: All `privacy/*`, `floor/*` and `flag/*` keys; NaN where undefined.
        standard_errors: Standard errors of those metrics that have one.
        notes: Key to the strongest attacker's name, or why a flag is raised or a metric undefined.
        strongest: Attacker with the best balanced accuracy on validation, by `validation_score` if
            several have it; None if none is scored.
        curves: `attacker/<name>` to the lowest validation loss so far of each network, nats.
        guesses: The strongest attacker's; None if no attacker is scored.
        leakage: The metric `privacy/leakage`; None if no attacker is scored.
        label_leakage: Leakage of the utility label by itself; None without one.
    """

    metrics: Mapping[str, float]
    standard_errors: Mapping[str, float]
    notes: Mapping[str, str]
    strongest: str | None
    curves: Mapping[str, Curve]
    guesses: AttackerGuesses | None = None
    leakage: Estimate | None = None
    label_leakage: Estimate | None = None


def build_panel(problem: Problem, config: AdversarialConfig) -> Panel:
    """The registered attackers of a problem."""
    networks: dict[str, Architecture] = {}
    attackers: dict[str, ReleaseAttacker] = {}
    for name, registered in problem.spec.attackers.items():
        attacker = ATTACKERS.get(registered)
        if isinstance(attacker, NetworkAttacker):
            networks[name] = attacker.architecture(problem, config, name.endswith(SIDE))
        elif isinstance(attacker, ReleaseAttacker):
            attackers[name] = attacker
    return Panel(networks, attackers, PROFILES[config.panel], problem.other_labels(config))


def score_releases(
    evidence: Sequence[Evidence],
    panel: Panel,
    configs: Sequence[AdversarialConfig],
    inferred: Sequence[NDArray[np.int64] | None],
) -> Iterator[PanelResult | None]:
    """Fits and scores all attackers of a panel on the releases of a stack, of equal shapes.

    Each result depends on its own release, seed and order alone. Networks train as one stack, the
    other attackers release by release on the pack's cores (`torch.get_num_threads`), at the same
    time if another device trains the networks. `inferred` has utility labels of each test split as
    inferred from its release; None without any.

    Yields:
        One result per release, in order; None wherever the work may pause.
    """
    classes = max(2, *(1 + int(known_secret(one.attack).max()) for one in evidence))
    defects = [evidence_defect(one, classes) for one in evidence]
    usable = [i for i, defect in enumerate(defects) if defect is None]
    releases, seeds = [evidence[i] for i in usable], [configs[i].seed for i in usable]

    def submit_fits() -> deque[_Fits]:
        return deque(
            _submit_fits(pool, panel, evidence[i], configs[i].seed, classes, inferred[i])
            for i in usable
        )

    # A CPU that trains the networks has no core left for other attackers meanwhile.
    has_device = evidence[0].attack.z.device.type != "cpu"
    with CorePool(torch.get_num_threads(), caller_works=has_device) as pool:
        fits = submit_fits() if has_device else deque()
        neural = yield from _fit_networks(panel, [*map(join_tests, releases)], seeds)
        fits = fits or submit_fits()
        pending = zip(releases, neural, strict=True)
        for defect, config in zip(defects, configs, strict=True):
            if defect is not None:
                undefined = _undefined_metrics(panel)
                yield PanelResult(undefined, {}, dict.fromkeys(undefined, defect), None, {})
                continue
            release, posteriors = next(pending)
            fitted = fits.popleft()  # which frees the tables of the release before
            for wait in fitted.waiting:
                posteriors.append(wait())
                yield None
            yield _score(release, panel, posteriors, fitted, classes, config.alpha)


class CorePool:
    """Thread pool that keeps within a pack's share of the cores.

    Libraries called by the work (OpenMP, BLAS) use one core per thread. Without threads the work
    runs when its result is requested, on all of the pack's cores. Leaving the context cancels work
    that has not begun and waits for the rest.
    """

    def __init__(self, cores: int, *, caller_works: bool) -> None:
        """Prepares a pool for a pack's cores; a caller that goes on working needs one itself."""
        self._cores = cores
        self._threads = max(1, cores - 1) if caller_works else cores if cores > 1 else 0
        self._pool: ThreadPoolExecutor | None = None
        self._exits = ExitStack()

    def __enter__(self) -> CorePool:
        """Starts the threads, if there are any."""
        if self._threads:
            # BLAS limits apply to the whole process, OpenMP limits to one thread.
            self._exits.enter_context(_thread_limits().limit(limits=1, user_api="blas"))
            self._pool = ThreadPoolExecutor(self._threads, "privnets-attackers", _use_one_core)
            self._exits.callback(self._pool.shutdown, cancel_futures=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all threads."""
        self._exits.close()

    def submit(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Starts work; returns a function, to be called once, that waits for its result."""
        if self._pool is None:
            return lambda: self._run_here(work)
        return self._pool.submit(work).result

    def _run_here(self, work: Callable[[], _T]) -> _T:
        with _thread_limits().limit(limits=self._cores):
            return work()


def _use_one_core() -> None:
    # The limit holds for this thread only and ends with it.
    _thread_limits().limit(limits=1, user_api="openmp")


@cache
def _thread_limits() -> ThreadpoolController:
    """Thread limits of the native libraries, scikit-learn's included, as loaded at first use."""
    return ThreadpoolController()


@dataclass(frozen=True)
class _Fits:
    """Fits of the attackers of one release that are not networks.

    Attributes:
        waiting: Each waits for an attacker of a sample.
        floors: Waits for the floors.
        refit: Fits an attacker, by name, to the whole attack split.
    """

    waiting: Sequence[Callable[[], Posterior]]
    floors: Callable[[], Floors]
    refit: Callable[[str], Posterior]


def _submit_fits(
    pool: CorePool,
    panel: Panel,
    evidence: Evidence,
    seed: int,
    classes: int,
    inferred: NDArray[np.int64] | None,
) -> _Fits:
    """Starts to fit the attackers that are not networks, and the floors, of one release."""
    whole = to_cpu(join_tests(evidence))

    def views(seen: Evidence) -> Mapping[bool, ReleaseView]:
        if seen.redraw is not None:
            seen = replace(seen, redraw=_share_draws(seen.redraw))
        return {side: ReleaseView(seen, side, panel.profile) for side in (False, True)}

    def fit(seen: Mapping[bool, ReleaseView], name: str) -> Posterior:
        return panel.attackers[name].fit(seen[name.endswith(SIDE)], seed)

    sample = views(sample_attack(whole, panel.profile.records))
    return _Fits(
        [pool.submit(partial(fit, sample, name)) for name in panel.attackers],
        pool.submit(partial(fit_floors, evidence, classes, seed, inferred)),
        lambda name: pool.submit(partial(fit, views(whole), name))(),
    )


def _share_draws(redraw: Redraw) -> Redraw:
    """Releases each stream once for all attackers and threads, into the CPU's memory."""
    lock, share = Lock(), cache(lambda stream: redraw(stream).cpu())

    def draw(stream: str) -> torch.Tensor:
        with lock:
            return share(stream)

    return draw


def _fit_networks(
    panel: Panel, evidence: Sequence[Evidence], seeds: Sequence[int]
) -> Generator[None, None, list[list[Posterior]]]:
    """Posteriors of every network, per release."""
    posteriors: list[list[Posterior]] = [[] for _ in evidence]
    for name, architecture in panel.networks.items() if evidence else ():
        run = fit_network(name, architecture, evidence, seeds, panel.profile.steps)
        fitted = yield from discard_progress(run)
        for own, posterior in zip(posteriors, fitted, strict=True):
            own.append(posterior)
    return posteriors


def discard_progress(work: Generator[object, None, _T]) -> Generator[None, None, _T]:
    """Runs work that reports progress, and yields None in place of each report."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result
        yield None


def _undefined_metrics(panel: Panel) -> dict[str, float]:
    """NaN for every key of a result."""
    scores = {key for name in panel.names for key in attacker_keys(name)}
    scores |= other_label_keys(panel.names, panel.other_labels)
    flags = (_BELOW_FLOOR, _NOT_CONVERGED, _FROZEN_NOISE)
    general = (*PRIVACY_KEYS, *FLOOR_KEYS, INFERRED_LABEL_KEY, ATTAINABLE_KEY, _FLOOR, *flags)
    return dict.fromkeys((*general, *scores), math.nan)


def _score(
    evidence: Evidence,
    panel: Panel,
    sampled: Sequence[Posterior],
    fits: _Fits,
    classes: int,
    alpha: float,
) -> PanelResult:
    floors, is_sample = fits.floors(), len(evidence.attack.z) > panel.profile.records
    validation, test = known_rows(evidence.validation), known_rows(evidence.test)
    prior = class_frequencies(known_rows(evidence.attack).secret, classes)

    def assess_own(posterior: Posterior) -> Assessment:
        own = replace(posterior, test=posterior.test[: len(test.secret)])
        side = floors.side_beliefs if posterior.name.endswith(SIDE) else None
        return assess(own, validation, test, prior, side)

    posteriors = {each.name: each for each in sampled}
    assessed = {name: assess_own(each) for name, each in posteriors.items()}
    saw_sample = {*panel.attackers} if is_sample else set()

    def leader(rank: Callable[[Assessment], tuple[float, ...]]) -> Assessment:
        while (first := max(assessed.values(), key=rank)).name in saw_sample:
            saw_sample.remove(first.name)
            again = fits.refit(first.name)
            assessment = assess_own(again)
            if rank(assessment) >= rank(first):
                posteriors[first.name], assessed[first.name] = again, assessment
        return first

    def leak(one: Assessment) -> tuple[float, ...]:
        # Of attackers without side information only if no attacker has any.
        return float(
            floors.side_beliefs is None or one.name.endswith(SIDE)
        ), one.validation_leakage.value

    leader(_strength)
    # By calibrated confidence, so it may differ from the strongest.
    leaking = leader(leak)
    best = leader(_strength)
    assessments = [*assessed.values()]
    reference = floors.side_beliefs or Beliefs.from_prior(prior, validation, test)
    by_order = leakage(leaking.calibrated.test, reference.test, test, alpha)
    headline = (best.accuracy, best.auc, leaking.leakage, by_order)
    estimates: dict[str, Estimate] = dict(zip(PRIVACY_KEYS, headline, strict=True))
    for one in assessments:
        scores = (one.accuracy, one.auc, one.leakage)
        estimates |= zip(attacker_keys(one.name), scores, strict=True)
    estimates |= {**floors.estimates, _FLOOR: floors.estimates[floors.highest]}
    estimates[ATTAINABLE_KEY] = floors.attainable
    if floors.inferred_label is not None:
        estimates[INFERRED_LABEL_KEY] = floors.inferred_label
    if panel.other_labels is not None and evidence.other_test is not None:
        other = known_rows(evidence.other_test)
        found = {FLOOR_KEYS[1]: floors.other_label}
        for each in posteriors.values():
            decision = balanced_decision(each.test[len(test.secret) :], prior)
            found[attacker_keys(each.name)[0]] = balanced_accuracy(decision, other, classes)
        found[PRIVACY_KEYS[0]] = found[attacker_keys(best.name)[0]]
        estimates |= {under_labels(k, panel.other_labels): e for k, e in found.items() if e}
    beyond = "" if floors.side_beliefs is None else ", beyond side information"
    notes = {
        **floors.notes,
        PRIVACY_KEYS[0]: _note_strongest(best, assessments),
        _FLOOR: f"of {floors.highest}",
        "privacy/leakage": f"by {leaking.name}, chosen on validation{beyond}",
    }
    frozen = [one.name for one in posteriors.values() if one.is_frozen]
    flags = _flags(best, assessments, floors.attainable, frozen if evidence.is_random else [])
    metrics = _undefined_metrics(panel) | {key: e.value for key, e in estimates.items()}
    metrics |= {key: float(bool(reason)) for key, reason in flags.items()}
    notes |= {key: reason for key, reason in flags.items() if reason}
    errors = {key: estimate.error for key, estimate in estimates.items()}
    curves = {f"{CURVE}{p.name}": p.curve for p in posteriors.values() if p.curve is not None}
    guesses = AttackerGuesses(best.decision, best.calibrated.test)
    informations = leaking.leakage, floors.label_leakage
    return PanelResult(metrics, errors, notes, best.name, curves, guesses, *informations)


def _strength(one: Assessment) -> tuple[float, ...]:
    """Rank of an attacker: the strongest has the largest."""
    return one.validation_accuracy.value, one.validation_score.value


def _note_strongest(best: Assessment, assessments: Sequence[Assessment]) -> str:
    """The strongest attacker, and attackers that are clearly better than it on test."""
    note = f"{best.name}, chosen on validation ({best.validation_accuracy.value:.4f} there)"
    for one in assessments:
        ahead = one.accuracy - best.accuracy
        if ahead.value > _STANDARD_ERRORS * ahead.error:
            note += f"; {one.name} is better on test by {ahead.value:.4f} +- {ahead.error:.4f}"
    return note


def could_overtake(lead: Estimate, remaining_gain: float) -> bool:
    """Whether further training could make up for a lead, a difference of log scores in nats.

    The lead is the attacker's, negative if it is behind. Its interval and the remaining gain count
    in the attacker's favour; without a remaining gain it has converged.
    """
    behind = lead.value + _STANDARD_ERRORS * lead.error + remaining_gain <= 0
    return remaining_gain > 0 and not behind


def _flags(
    best: Assessment, assessments: Sequence[Assessment], floor: Estimate, frozen: Sequence[str]
) -> dict[str, str]:
    """Doubts about the panel, in words; empty ones do not apply.

    `frozen` names the attackers that saw one release of each record, though others would differ.
    """
    below, short = "", floor - best.accuracy
    if short.value > 0:
        size = "more than" if short.value > _STANDARD_ERRORS * short.error else "within"
        below = (
            f"{best.name} reaches {best.accuracy.value:.4f} and {ATTAINABLE_KEY} is "
            f"{floor.value:.4f}: short by {short.value:.4f} +- {short.error:.4f}, {size} "
            f"{_STANDARD_ERRORS:g} standard errors"
        )
    unfinished = [
        one.name
        for one in assessments
        if could_overtake(one.validation_score - best.validation_score, one.remaining_gain)
    ]
    noise, steps = "trained on a single draw of release noise", "steps ran out before they could"
    return {
        _BELOW_FLOOR: below,
        _NOT_CONVERGED: f"{steps} overtake: {', '.join(unfinished)}" if unfinished else "",
        _FROZEN_NOISE: f"{noise}: {', '.join(frozen)}" if frozen else "",
    }
