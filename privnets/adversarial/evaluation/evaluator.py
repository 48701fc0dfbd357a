"""Evaluation of finished releases: attackers, utility, bounds and artifacts, as replicates."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    discard_progress,
    score_releases,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import estimates
from privnets.adversarial.evaluation.baselines import (
    Baseline,
    Baselines,
    fit_utility,
    likeliest_labels,
)
from privnets.adversarial.evaluation.estimates import Estimate
from privnets.adversarial.metrics import metric_keys
from privnets.adversarial.problem import Problem, ReleaseDetails, Splits
from privnets.adversarial.records import (
    PARTS,
    Evidence,
    Exposure,
    Pool,
    raw_evidence,
    select_exposure,
)
from privnets.adversarial.training.game import Game
from privnets.points import Curve, Replicate

_NO_RECORDS = np.array([], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Release:
    """One configuration's release, with everything that its evaluation needs.

    Attributes:
        config: The configuration.
        original: The raw records of the attack, validation and test split.
        released: The same records after release.
        parameters: The releaser's parameters, without the stack's dimension.
        curves: Training curves.
        adversary: In-loop adversary's log probabilities on test, shape [n, C] or [n, T, C].
        utility: In-loop utility network's log probabilities on test, shape [n, C], or None.
    """

    config: AdversarialConfig
    original: Evidence
    released: Evidence
    parameters: list[Tensor]
    curves: dict[str, Curve]
    adversary: Tensor
    utility: Tensor | None

    def is_finite(self) -> bool:
        """Whether all released numbers are finite."""
        return all(bool(split.z.isfinite().all()) for split in self.released.splits)


def release_records(game: Game, member: int, pool: Pool, splits: Splits) -> Release:
    """Lets one member of a finished game release the records that its evaluation needs."""
    config = game.configs[member]
    if config.evaluation == "exact":  # no attacker trains on the release
        splits = replace(splits, attack=_NO_RECORDS, validation=_NO_RECORDS)
    exposures = []
    for part in PARTS:
        records = getattr(splits, part)
        z = game.release(member, records, part) if len(records) else None
        exposures.append(select_exposure(pool, records, z))
    test = exposures[-1]
    return Release(
        config=config,
        original=raw_evidence(pool, splits),
        released=Evidence(*exposures),
        parameters=game.parameters(member),
        curves=game.curves(member),
        adversary=game.infer("adversary", member, test),
        utility=None if test.utility is None else game.infer("utility", member, test),
    )


def evaluate_by_attackers(
    problem: Problem, releases: Sequence[Release]
) -> Generator[Replicate | None, None, None]:
    """Evaluates releases of one structure by fresh attackers.

    Yields:
        One replicate per release, in order; None wherever the work may pause.
    """
    configs = [release.config for release in releases]
    baselines = Baselines(problem, configs, [release.original for release in releases])
    yield from discard_progress(baselines.compute())
    evidence = [release.released for release in releases]
    refitted = yield from discard_progress(
        fit_utility(problem, configs, evidence, "refitted utility")
    )
    results = score_releases(
        evidence,
        build_panel(problem, configs[0]),
        alphas=[config.alpha for config in configs],
        seeds=[config.seed for config in configs],
        attack_steps=configs[0].attack_steps,
        inferred=[likeliest_labels(log_p) for log_p in refitted],
    )
    references = yield from problem.reference_metrics(configs)
    pending = enumerate(zip(releases, references, refitted, strict=True))
    for result in results:
        if result is None:
            yield None
        else:
            place, (release, reference, utility) = next(pending)
            baseline = yield from discard_progress(baselines.get(place))
            draft = _begin_draft(problem, release, reference)
            yield _attacked_replicate(problem, release, draft, baseline, utility, result)


def evaluate_exactly(problem: Problem, releases: Sequence[Release]) -> Iterator[Replicate | None]:
    """Evaluates releases of one structure by exact information, without any attacker.

    Yields:
        One replicate per release, in order; None wherever the work may pause.
    """
    references = yield from problem.reference_metrics([release.config for release in releases])
    for release, reference in zip(releases, references, strict=True):
        draft = _begin_draft(problem, release, reference)
        _add_adversary(draft, release)
        _add_accuracy(draft, release)
        details = _add_details(draft, problem, release)
        total = draft.metrics["exact/leakage"] + draft.metrics["exact/censored"]
        _add_bound(draft, problem, release, total)
        yield _finish(draft, release, details)


def failed_replicate(problem: Problem, config: AdversarialConfig, reason: str) -> Replicate:
    """A replicate without results, and the reason."""
    metrics = dict.fromkeys(metric_keys(problem, config), math.nan)
    return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())


@dataclass
class _Draft:
    """Metrics of a replicate while it is evaluated."""

    metrics: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, estimate: Estimate) -> None:
        self.metrics[key], self.errors[key] = estimate.value, estimate.error


def _begin_draft(problem: Problem, release: Release, reference: Mapping[str, float]) -> _Draft:
    undefined = dict.fromkeys(metric_keys(problem, release.config), math.nan)
    return _Draft({**undefined, **reference})


def _attacked_replicate(
    problem: Problem,
    release: Release,
    draft: _Draft,
    baseline: Baseline,
    refitted: NDArray[np.float64],
    result: PanelResult,
) -> Replicate:
    draft.metrics.update(result.metrics)
    draft.errors.update(result.standard_errors)
    draft.notes.update(result.notes)
    key = "baseline/attacker_balanced_accuracy"
    draft.metrics[key], draft.errors[key] = baseline.attacker
    if math.isnan(baseline.attacker[0]):
        draft.notes[key] = "attackers of the raw records could not be scored"
    _add_adversary(draft, release)
    _add_normalized_error(draft, problem, release)
    if problem.spec.utility_classes:
        _add_accuracy(draft, release)
        _add_utility(draft, release, baseline, refitted)
        total = draft.metrics["privacy/leakage"] + draft.metrics["utility/censored"]
        _add_bound(draft, problem, release, total)
    return _finish(draft, release, _add_details(draft, problem, release))


def _add_details(draft: _Draft, problem: Problem, release: Release) -> ReleaseDetails:
    original, released = release.original.test, release.released.test
    details = problem.release_details(release.config, release.parameters, original, released)
    draft.metrics.update(details.metrics)
    draft.notes.update(details.notes)
    return details


def _finish(draft: _Draft, release: Release, details: ReleaseDetails) -> Replicate:
    tensors = {str(i): p.contiguous().cpu() for i, p in enumerate(release.parameters)}
    return Replicate(
        seed=release.config.seed,
        metrics=draft.metrics,
        standard_errors=draft.errors,
        notes=draft.notes,
        curves={**release.curves, **details.curves},
        artifacts={"releaser.safetensors": save(tensors), **details.artifacts},
        finished_at=time.time(),
    )


def _add_adversary(draft: _Draft, release: Release) -> None:
    """Balanced accuracy of the game's adversary on test: a diagnostic, not a privacy metric."""
    secret = release.released.test.secret
    guess = release.adversary.argmax(-1)
    classes = [c for c in range(release.adversary.shape[-1]) if bool((secret == c).any())]
    recalls = [float((guess[secret == c] == c).double().mean()) for c in classes]
    draft.metrics["diagnostic/adversary_balanced_accuracy"] = sum(recalls) / len(recalls)


def _add_normalized_error(draft: _Draft, problem: Problem, release: Release) -> None:
    """Squared error relative to the squared records, in original units (arXiv 2310.18241)."""
    key = "utility/normalized_error"
    if not problem.spec.copies_input:
        draft.notes[key] = "a release of this problem is not meant to resemble its record"
        return
    offset, scale = problem.original_units(release.config)
    original, test = release.original.test, release.released.test
    error = _record_sums((scale * (test.z - original.z)).double().square(), test)
    power = _record_sums((offset + scale * original.z).double().square(), test)
    draft.add(key, estimates.ratio(error, power, _group(test)))


def _add_accuracy(draft: _Draft, release: Release) -> None:
    """Accuracy of the utility network that was trained with the releaser."""
    test = release.released.test
    assert test.utility is not None
    assert release.utility is not None
    right = (release.utility.argmax(-1) == test.utility).double().cpu().numpy()
    draft.add("utility/accuracy", estimates.mean(right, _group(test)))


def _add_utility(
    draft: _Draft, release: Release, baseline: Baseline, refitted: NDArray[np.float64]
) -> None:
    """Accuracies of fresh utility networks, and the utility information that the release lost."""
    test = release.released.test
    assert test.utility is not None
    label, group = test.utility.cpu().numpy(), _group(test)
    for key, log_p in (
        ("utility/refitted_accuracy", refitted),
        ("baseline/utility_accuracy", baseline.log_utility),
    ):
        draft.add(key, estimates.mean((log_p.argmax(-1) == label).astype(float), group))
    # The cross-entropy of any network bounds the conditional entropy from above, up to chance.
    rows = np.arange(len(label))
    lost = baseline.log_utility[rows, label] - refitted[rows, label]
    draft.add("utility/censored", estimates.mean(lost, group))


def _add_bound(draft: _Draft, problem: Problem, release: Release, total: float) -> None:
    """Gap of `total`, nats, above the bound I(S;Q) + I(U;X|Q) >= K (ICLR 2019, Lemma 3.1)."""
    test = release.original.test
    assert test.utility is not None
    secret, utility = test.secret.cpu().numpy(), test.utility.cpu().numpy()
    bound = problem.dependence_bound(release.config, secret, utility)
    draft.metrics["bound/release"] = bound
    draft.metrics["bound/gap"] = total - max(bound, 0.0)
    if math.isnan(total):
        draft.notes["bound/gap"] = "leakage is undefined"


def _record_sums(values: Tensor, test: Exposure) -> NDArray[np.float64]:
    """Sums over each record's observed numbers, shape [n]."""
    if test.present is not None:
        values = torch.where(test.present[..., None].expand_as(values), values, 0.0)
    sums: NDArray[np.float64] = values.flatten(1).sum(1).cpu().numpy()
    return sums


def _group(test: Exposure) -> NDArray[np.int64] | None:
    return None if test.group is None else test.group.cpu().numpy()
