"""From trained models to one replicate: leakage, attacks, bounds and utility."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from privnets import measures
from privnets.membership import attacks, leakage, scoring
from privnets.membership.attacks import Guesses, Trials
from privnets.membership.config import MembershipConfig
from privnets.membership.leakage import Sides
from privnets.membership.metrics import (
    BOUNDS_ON_ATTACKS,
    OF_PARAMETERS,
    metric_keys,
    utility_keys,
)
from privnets.membership.scoring import FALSE_POSITIVE_RATES, Score
from privnets.points import Curve, Replicate
from privnets.randomness import generator

# Shadow models on one side below which an attack's fit to a record means nothing.
_FEWEST_SHADOWS = 2
# Normal quantile for two-sided 95% over all attacks together (Bonferroni).
_ALL_ATTACKS = 2.576
_INFORMATION_DRAWS = 128
# Draws per parameter with which what extrapolation leaves of rho_mi's bias is below its error.
_INFORMATION_FREEDOM = 20
# A mean of which one record in a hundred makes more than this is no typical value.
_HEAVY = 0.5


@dataclass(frozen=True)
class Mean:
    """An estimate and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Tensor) -> Mean:
        """Over independent values, shape [R]."""
        return cls(float(values.mean()), float(values.std() / math.sqrt(len(values))))

    @classmethod
    def two_way(cls, values: Tensor, counted: Tensor, columns_unseen: float) -> Mean:
        """Over models, each of which is measured at the same records.

        Args:
            values: Of model j at record k, shape [J, K].
            counted: Which of them count, shape [J, K].
            columns_unseen: Share of all records that is not among the K; the error of a census
                has no part from records.
        """
        each = torch.where(counted, values, 0.0).sum(1) / counted.sum(1)
        mean = each.mean()
        weight = counted / (counted.sum(1, keepdim=True) * len(values))
        influence = torch.where(counted, values - mean, 0.0) * weight
        models = influence.sum(1).square().sum()
        records = (influence.sum(0).square().sum() - influence.square().sum()).clamp_min(0)
        return cls(float(mean), float((models + columns_unseen * records).sqrt()))


@dataclass(frozen=True)
class Observations:
    """All that the models of one configuration and seed showed.

    Attributes:
        records: Indices of the asked records, shape [R].
        trials: What attackers of outputs see.
        parameters: With noise, shape [R, J, p] (may be expanded from [J, p]).
        sides: Moments of the parameters without noise, or None when out of reach.
        halves: The same from the draws of either fold alone, each with folds of its own.
        output: Moments of a signal of the output at each record, shape [R, ..., 1].
        undefined: Why parameter leakage is undefined, if it is known beforehand.
        interpolates: Why outputs have no Gaussian law either, if so.
        caution: What to bear in mind where it is defined.
        prior: n/N.
        test: Utility outside the training set.
        train: Utility inside.
        shared_models: Whether column j is one model for every record.
        notes: Anything else to tell, by metric key.
    """

    records: Tensor
    trials: Trials
    parameters: Tensor | None
    sides: Sides | None
    halves: tuple[Sides, Sides] | None
    output: Sides
    undefined: str | None
    interpolates: str | None
    caution: str | None
    prior: float
    test: Mean
    train: Mean
    shared_models: bool
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Sheet:
    """A replicate in the making."""

    metrics: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)

    def put(self, key: str, estimate: Mean) -> None:
        """Enter an estimate with its standard error."""
        self.metrics[key], self.errors[key] = estimate.value, estimate.error

    def remark(self, key: str, words: str) -> None:
        """Add to what is said of a metric."""
        self.notes[key] = f"{self.notes[key]}; {words}" if key in self.notes else words

    def undefined(self, reason: str, *keys: str) -> None:
        """Leave metrics NaN, for this reason."""
        self.notes.update({key: reason for key in keys})


def replicate(config: MembershipConfig, seen: Observations) -> Replicate:
    """Everything that is reported of one configuration with one seed.

    Args:
        config: The configuration.
        seen: What its models showed.

    Returns:
        A replicate with every key of `metric_keys`, NaN where undefined, or a failed one when the
        models diverged.
    """
    keys = metric_keys(config)
    if not bool(torch.isfinite(seen.trials.loss).all()):
        return _diverged(config, keys)
    sheet = Sheet(dict.fromkeys(keys, math.nan), notes=dict(seen.notes))
    log_ratio, table = _parameter_leakage(sheet, seen, config.seed)
    _output_leakage(sheet, seen)
    scores = _attacks(sheet, seen, log_ratio)
    flag(sheet, scores)
    _utility(sheet, config, seen)
    return Replicate(
        seed=config.seed,
        metrics=sheet.metrics,
        standard_errors=sheet.errors,
        notes=sheet.notes,
        curves=sheet.curves,
        artifacts={"records.parquet": _table(table)},
        finished_at=time.time(),
    )


def _diverged(config: MembershipConfig, keys: tuple[str, ...]) -> Replicate:
    reason = "the loss is not finite: training diverged, or noise overflowed"
    metrics = dict.fromkeys(keys, math.nan)
    return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())


def _parameter_leakage(
    sheet: Sheet, seen: Observations, seed: int
) -> tuple[Tensor | None, dict[str, np.ndarray]]:
    """Fill in rho_kl and rho_mi; returns log p1/p0 by the other fold, and the per-record table."""
    table = {"record": seen.records.cpu().numpy()}
    reason = seen.undefined
    if reason is None and seen.sides is not None:
        reason = leakage.why_undefined(seen.sides)
    if reason is not None or seen.sides is None or seen.parameters is None:
        white_box = [k for k in sheet.metrics if k.startswith("privacy/attack/white_box/")]
        sheet.undefined(reason or "", *OF_PARAMETERS, *white_box, "bound/advantage")
        sheet.remark("privacy/membership_advantage", f"no white-box attack in the panel: {reason}")
        return None, table
    record_rho = leakage.jeffreys(seen.sides)
    sheet.put("privacy/rho_kl", Mean.of(record_rho))
    sheet.put("privacy/rho_kl_plugin", Mean.of(leakage.jeffreys_plugin(seen.sides)))
    sheet.metrics["privacy/median_record_rho_kl"] = float(record_rho.quantile(0.5))
    _worst_record(sheet, seen)
    caution = seen.caution or _heavy_tail(record_rho)
    if caution is not None:
        sheet.remark("privacy/rho_kl", caution)
    _bound(sheet, "privacy/rho_kl", "bound/advantage")
    table["rho_kl"] = record_rho.cpu().numpy()
    return _information(sheet, seen, seen.sides, seen.parameters, seed), table


def _heavy_tail(values: Tensor) -> str | None:
    """What to bear in mind of a mean that a few records make."""
    few = max(1, len(values) // 100)
    sizes = values.abs().sort(descending=True).values
    share = float(sizes[:few].sum() / sizes.sum())
    if share < _HEAVY:
        return None
    return (
        f"{few} of {len(values)} records make {share:.0%} of the mean: heavy-tailed parameters, "
        "as with nearly singular Gram matrices; read the median record beside the mean"
    )


def _worst_record(sheet: Sheet, seen: Observations) -> None:
    """The record that leaks most, found on half of the draws and measured on the other half.

    Without bias for the record that is found, which need not be the worst: the true maximum is
    larger on average.
    """
    key = "privacy/worst_record_rho_kl"
    if seen.halves is None or any(leakage.why_undefined(half) for half in seen.halves):
        sheet.undefined("too few draws to find the worst record and measure it apart", key)
        return
    first, second = (leakage.jeffreys(half) for half in seen.halves)
    sheet.metrics[key] = float(second[first.argmax()] + first[second.argmax()]) / 2


def _information(
    sheet: Sheet, seen: Observations, sides: Sides, parameters: Tensor, seed: int
) -> Tensor:
    needed = _INFORMATION_FREEDOM * parameters.shape[-1]
    if float(sides.counts.min()) < needed:
        reason = f"its bias needs {needed} draws on each side of each half: raise draws"
        sheet.undefined(reason, "privacy/rho_mi", "privacy/rho_mi_balanced")
        return leakage.gaussian_log_ratio(parameters, sides, 1 - seen.trials.fold)
    shape = (len(seen.records), _INFORMATION_DRAWS, parameters.shape[-1])
    drawn = generator(seed, "mutual information").standard_normal(shape)
    normals = torch.from_numpy(drawn).to(parameters.device)
    for key, prior in (("rho_mi", seen.prior), ("rho_mi_balanced", 0.5)):
        values = leakage.mutual_information(sides, prior, normals)
        sheet.put(f"privacy/{key}", Mean.of(values))
    return leakage.gaussian_log_ratio(parameters, sides, 1 - seen.trials.fold)


def _output_leakage(sheet: Sheet, seen: Observations) -> None:
    """Leakage of the output at the record: by data processing no more than the parameters'."""
    key = "privacy/rho_kl_output"
    reason = seen.interpolates or leakage.why_undefined(seen.output)
    if reason is not None:
        sheet.undefined(reason, key, "bound/advantage_output")
        return
    sheet.put(key, Mean.of(leakage.jeffreys(seen.output)))
    _bound(sheet, key, "bound/advantage_output")


def _bound(sheet: Sheet, leaked: str, bound: str) -> None:
    """No test of membership has more advantage than this (theorem 1, corrected, sharp form)."""
    value, error = sheet.metrics[leaked], sheet.errors[leaked]
    low, middle, high = (
        float(measures.membership_advantage_bound(max(v, 0.0)))
        for v in (value - error, value, value + error)
    )
    sheet.put(bound, Mean(middle, (high - low) / 2))


def _attacks(sheet: Sheet, seen: Observations, log_ratio: Tensor | None) -> dict[str, Score]:
    guesses: dict[str, Guesses] = {
        "threshold_gaussian": attacks.threshold_gaussian(seen.trials),
        "threshold_mean_loss": attacks.threshold_mean_loss(seen.trials),
        "lira_offline": attacks.lira_offline(seen.trials),
    }
    if attacks.fewest_shadows(seen.trials) >= _FEWEST_SHADOWS:
        guesses["lira_online"] = attacks.lira_online(seen.trials)
    else:
        keys = [k for k in sheet.metrics if k.startswith("privacy/attack/lira_online/")]
        sheet.undefined("a record has too few shadow models that trained with it", *keys)
    if log_ratio is not None:
        guesses["white_box"] = attacks.white_box(log_ratio)
    member, shared = seen.trials.member, seen.shared_models
    scores = {n: scoring.score(g, member, shared_models=shared) for n, g in guesses.items()}
    for name, score in scores.items():
        _report_attack(sheet, name, score)
    decision = _strongest([g.decision for g in guesses.values()], member)
    strongest = scoring.signed_advantage(decision, member, shared_models=shared)
    sheet.put("privacy/membership_advantage", Mean(*strongest))
    inside, outside = (
        sum(v) / 2
        for v in zip(*(attacks.error_deviations(seen.trials, f) for f in (0, 1)), strict=True)
    )
    sheet.metrics["privacy/threshold_advantage_if_gaussian"] = attacks.gaussian_threshold_advantage(
        inside, outside
    )
    return scores


def _strongest(decisions: Sequence[Tensor], member: Tensor) -> Tensor:
    """For each half of the records, the answers of the attack that did best on the other half."""
    chosen = decisions[0].clone()
    half = torch.arange(len(member), device=member.device) % 2
    for judged in (0, 1):
        other = half != judged
        gains = [_advantage(d[other], member[other]) for d in decisions]
        best = decisions[max(range(len(gains)), key=gains.__getitem__)]
        chosen[half == judged] = best[half == judged]
    return chosen


def _advantage(decision: Tensor, member: Tensor) -> float:
    yes = decision.double()
    return float(yes[member].mean() - yes[~member].mean())


def _report_attack(sheet: Sheet, name: str, score: Score) -> None:
    prefix = f"privacy/attack/{name}"
    sheet.put(f"{prefix}/advantage", Mean(score.advantage, score.advantage_error))
    sheet.metrics[f"{prefix}/auc"] = score.auc
    for rate in FALSE_POSITIVE_RATES:
        sheet.metrics[f"{prefix}/tpr_at_fpr_{rate}"] = score.true_positive_rates[rate]
        sheet.metrics[f"{prefix}/false_positives_at_fpr_{rate}"] = score.false_positives[rate]
    sheet.curves[f"roc/{name}"] = score.roc


def flag(sheet: Sheet, scores: Mapping[str, Score]) -> None:
    """Say when an attack beats the bound on it by more than both intervals."""
    key, beaten, judged = "flag/attack_beats_bound", [], 0
    for name, applicable in BOUNDS_ON_ATTACKS.items():
        bound = next((b for b in applicable if not math.isnan(sheet.metrics[b])), None)
        if name not in scores or bound is None:
            continue
        judged += 1
        limit = sheet.metrics[bound]
        margin = math.hypot(scores[name].advantage_error, sheet.errors[bound])
        if scores[name].advantage - limit > _ALL_ATTACKS * margin:
            beaten.append(f"{name}: {scores[name].advantage:.4f} over {bound} {limit:.4f}")
    if beaten:
        words = "an attack beats its bound by more than its interval: "
        sheet.notes[key] = words + "; ".join(beaten)
    if judged:
        sheet.metrics[key] = float(bool(beaten))
    else:
        sheet.undefined("no bound is defined", key)


def _utility(sheet: Sheet, config: MembershipConfig, seen: Observations) -> None:
    test, train = utility_keys(config)
    sheet.put(test, seen.test)
    sheet.put(train, seen.train)
    gap = seen.test.value - seen.train.value
    worse = -gap if test.endswith("accuracy") else gap
    sheet.metrics["utility/generalization_gap"] = worse


def _table(columns: Mapping[str, np.ndarray]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), sink)
    return sink.getvalue()
