"""Evaluation: from observations of trained models to the metrics of one replicate."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from scipy.special import ndtri
from torch import Tensor

from privnets import data, measures
from privnets.attacks import ATTACKS, attack_names
from privnets.attacks.thresholds import error_deviations, gaussian_threshold_advantage
from privnets.config import floor_key
from privnets.membership import leakage
from privnets.membership.config import (
    DISPARITY,
    FALSE_POSITIVE_RATES,
    LARGEST_GROUP,
    MECHANISM,
    OBJECTIVES,
    PARAMETER_LEAKAGE,
    MembershipConfig,
    attack_keys,
    metric_keys,
    too_few_non_members,
    utilities,
)
from privnets.membership.estimates import mean_over
from privnets.membership.guarantee import epsilon_lower_bound, guarantee_of
from privnets.membership.observations import Observations
from privnets.membership.trials import (
    AttackScore,
    Guesses,
    Trials,
    combine_strongest,
    guess,
    score_guesses,
    signed_advantage,
    why_unavailable,
)
from privnets.points import Curve, Replicate
from privnets.randomness import generator
from privnets.statistics.estimates import Estimate
from privnets.statistics.groups import Group, cross_chosen_extremes
from privnets.statistics.roc import RATE_OF, ScoredTrials

# Confidence of a test of all attacks together, which is divided among them (Bonferroni).
_CONFIDENCE = 0.95
_INFORMATION_DRAWS = 128
# Draws per parameter that make the bias of rho_mi, after extrapolation, smaller than its error.
_INFORMATION_FREEDOM = 20
# A mean is not typical if one record in a hundred contributes more than this share.
_HEAVY_TAIL_SHARE = 0.5
# Attacked records that a group needs, half of them on each side of the choice of groups.
_LEAST_RECORDS = 10


@dataclass
class MetricTable:
    """Metrics of one replicate while they are computed."""

    metrics: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)

    def set_metric(self, key: str, found: Estimate | str) -> None:
        """Sets a metric and its standard error, or notes the reason why it is undefined."""
        if isinstance(found, str):
            self.mark_undefined(found, key)
        else:
            self.metrics[key], self.errors[key] = found.value, found.error

    def add_note(self, key: str, text: str) -> None:
        """Appends to the note of a metric."""
        self.notes[key] = f"{self.notes[key]}; {text}" if key in self.notes else text

    def mark_undefined(self, reason: str, *keys: str) -> None:
        """Leaves metrics NaN and notes the reason."""
        self.notes.update({key: reason for key in keys})


def evaluate(config: MembershipConfig, observed: Observations) -> Replicate:
    """Computes every metric of one configuration with one seed.

    Returns:
        A replicate with every key of `metric_keys`, NaN where undefined; a failed replicate if
        the models diverged, or the user's code failed.
    """
    keys = metric_keys(config)
    reason = observed.test.failure
    if not bool(torch.isfinite(observed.trials.loss).all()):
        reason = "the loss is not finite: training diverged, or the noise overflowed"
    if reason is not None:
        metrics = dict.fromkeys(keys, math.nan)
        return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())
    table = MetricTable(dict.fromkeys(keys, math.nan), notes=dict(observed.notes))
    records = _parameter_leakage(table, observed, config.seed)
    # The leakage of the output is at most that of the parameters (data processing).
    key = "privacy/rho_kl_output"
    if reason := observed.interpolates or leakage.why_undefined(observed.output):
        table.mark_undefined(reason, key, "bound/advantage_output")
    else:
        table.set_metric(key, mean_over(leakage.jeffreys(observed.output)))
        _bound(table, key, "bound/advantage_output")
    is_private = config.epsilon is not None
    scores, guesses = _attack(
        table, observed.trials, shared_models=observed.shared_models, is_private=is_private
    )
    _privacy(table, config, observed, guesses)
    flag_beaten_bounds(table, scores)
    if config.groups is not None:
        member, shared = observed.trials.member, observed.shared_models
        decision = _strongest_decision(guesses, member)
        for key, value in group_metrics(
            config, observed.records, guesses, decision, member, shared_models=shared
        ).items():
            table.set_metric(key, value)
    test = observed.test
    for key, value in test.values.items():
        table.set_metric(key, value)
    for key, value in test.floors.items():
        table.set_metric(floor_key(key), value)
    table.notes.update(test.notes)
    main = utilities(config)[0]
    table.set_metric(f"utility/train_{main}", observed.train)
    difference = test.values[f"utility/test_{main}"].value - observed.train.value
    gap = -difference if OBJECTIVES[f"utility/test_{main}"] == "max" else difference
    table.metrics["utility/generalization_gap"] = gap
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(records), sink)
    return Replicate(
        seed=config.seed,
        metrics=table.metrics,
        standard_errors=table.errors,
        notes=table.notes,
        curves=table.curves,
        artifacts={"records.parquet": sink.getvalue()},
        finished_at=time.time(),
    )


def _parameter_leakage(
    table: MetricTable, observed: Observations, seed: int
) -> dict[str, np.ndarray]:
    """Sets rho_kl and rho_mi; returns the table of records."""
    records = {"record": observed.records.cpu().numpy()}
    sides, halves = observed.sides, observed.halves
    reason = observed.undefined
    if reason is None and sides is not None and halves is not None:
        reason = next(filter(None, map(leakage.why_undefined, (sides, *halves))), None)
    if reason is not None or sides is None or halves is None:
        bounds = "bound/advantage", "bound/advantage_rho_kl"
        table.mark_undefined(reason or "", *PARAMETER_LEAKAGE, *bounds)
        return records
    rho_kl = leakage.extrapolated_jeffreys(sides, halves)
    mean = mean_over if observed.control is None else observed.control.mean
    table.set_metric("privacy/rho_kl", mean(rho_kl))
    table.set_metric("privacy/rho_kl_plugin", mean(leakage.jeffreys_plugin(sides)))
    table.metrics["privacy/median_record_rho_kl"] = float(rho_kl.quantile(0.5))
    # On one half, the record with the highest leakage on the other one: unbiased for this record,
    # and not the maximum over records, which is larger on average.
    first, second = map(leakage.jeffreys, halves)
    worst = float(second[first.argmax()] + first[second.argmax()]) / 2
    table.metrics["privacy/worst_record_rho_kl"] = worst
    few = max(1, len(rho_kl) // 100)
    sizes = rho_kl.abs().sort(descending=True).values
    share = float(sizes[:few].sum() / sizes.sum())
    caution = observed.caution
    if caution is None and not share < _HEAVY_TAIL_SHARE:
        caution = (
            f"{few} of {len(rho_kl)} records contribute {share:.0%} of the mean: the parameters "
            "are heavy-tailed, as with nearly singular Gram matrices; compare the median record"
        )
    if caution is not None:
        table.add_note("privacy/rho_kl", caution)
    _bound(table, "privacy/rho_kl", "bound/advantage", "bound/advantage_rho_kl")
    records["rho_kl"] = rho_kl.cpu().numpy()
    # Mutual information, at the prior n/N and at the balanced prior 1/2.
    parameters = sides.means.shape[-1]
    required = _INFORMATION_FREEDOM * parameters
    if float(sides.counts.min()) < required:
        reason = f"its bias needs {required} draws on each side of each half: raise draws"
        table.mark_undefined(reason, "privacy/rho_mi", "privacy/rho_mi_balanced")
        return records
    shape = (len(observed.records), _INFORMATION_DRAWS, parameters)
    draws = generator(seed, "mutual information").standard_normal(shape)
    normals = torch.from_numpy(draws).to(sides.means.device)
    for key, prior in (("rho_mi", observed.prior), ("rho_mi_balanced", 0.5)):
        values = leakage.mutual_information(sides, prior, normals)
        table.set_metric(f"privacy/{key}", mean_over(values))
    return records


def _bound(table: MetricTable, leaked: str, *bounds: str) -> None:
    """Sets the bound on the advantage of any attack (theorem 1, corrected, sharp form)."""
    value, error = table.metrics[leaked], table.errors[leaked]
    low, middle, high = (
        float(measures.membership_advantage_bound(max(v, 0.0)))
        for v in (value - error, value, value + error)
    )
    for bound in bounds:
        table.set_metric(bound, Estimate(middle, (high - low) / 2))


def _attack(
    table: MetricTable, trials: Trials, *, shared_models: bool, is_private: bool
) -> tuple[dict[str, AttackScore], list[Guesses]]:
    """Runs every attack that is available, and the strongest of them.

    With privacy, the strongest attack is one that uses only what the guarantee covers.

    Returns:
        Scores of all attacks, and the guesses from which the strongest is chosen.
    """
    non_members = int((~trials.member).sum())
    for rate in FALSE_POSITIVE_RATES:
        table.metrics[f"privacy/expected_false_positives_at_fpr_{rate}"] = rate * non_members
    answers: list[Guesses] = []
    scores: dict[str, AttackScore] = {}
    constant: list[str] = []  # equal scores for all trials of a fold, though signals differ
    differ = not bool((trials.signal == trials.signal[:, :1]).all())
    for name in attack_names("sweeps"):
        attack, prefix = ATTACKS.get(name), f"privacy/attack/{name}"
        if reason := why_unavailable(attack, trials):
            table.mark_undefined(reason, *attack_keys(name))
            continue
        guesses = guess(attack, trials)
        # Noise does not hide what is observed beside the release, such as the training loss.
        if not is_private or attack.bounds:
            answers.append(guesses)
        scores[name] = score = score_guesses(guesses, trials.member, shared_models=shared_models)
        halves = [guesses.score[:, trials.fold == fold] for fold in (0, 1)]
        if differ and any(bool((half == half[0, 0]).all()) for half in halves):
            constant.append(name)
        table.set_metric(f"{prefix}/advantage", score.advantage)
        table.set_metric(f"{prefix}/auc", score.auc)
        for rate, power in score.low_rates.items():
            few = too_few_non_members(score.non_members, rate)
            table.set_metric(f"{prefix}/tpr_at_fpr_{rate}", few or power)
        table.curves[f"roc/{name}"] = score.roc
    table.metrics["flag/constant_attack"] = float(bool(constant))
    if constant:
        table.notes["flag/constant_attack"] = f"equal scores for all trials: {', '.join(constant)}"
    decision = _strongest_decision(answers, trials.member)
    strongest = signed_advantage(decision, trials.member, shared_models=shared_models)
    table.set_metric("privacy/membership_advantage", strongest)
    error, member = trials.by_model["error"], trials.by_model["member"]
    deviations = [error_deviations(error[rows], member[rows]) for rows in trials.rows]
    inside, outside = (sum(values) / 2 for values in zip(*deviations, strict=True))
    advantage = gaussian_threshold_advantage(inside, outside)
    table.metrics["privacy/threshold_advantage_if_gaussian"] = advantage
    return scores, answers


def group_metrics(
    config: MembershipConfig,
    records: Tensor,
    guesses: Sequence[Guesses],
    decision: Tensor,
    member: Tensor,
    *,
    shared_models: bool,
) -> dict[str, Estimate | str]:
    """Scores attacks within each group of the attacked records.

    The advantage is that of the strongest attack's decisions. The area and the rates are those of
    the attack with the largest advantage on the other groups' records.

    Args:
        records: Numbers of the attacked records, shape [R].
        guesses: Answers of all attacks that may be the strongest.
        decision: Decisions of the strongest attack, shape [R, J].
        member: Whether the record was in the training set, shape [R, J].

    Returns:
        Value of each metric by its key, or the reason why it is undefined.
    """
    assert config.groups is not None
    codes, names = data.groups(config.data_form, config.groups)
    own = codes[records.cpu().numpy()]
    strongest = combine_strongest(guesses, member, torch.from_numpy(own).to(member.device))
    score, yes, inside = (each.T.cpu().numpy() for each in (strongest.score, decision, member))
    whole = Group(ScoredTrials(score, inside, shared_models=shared_models), yes)
    large = {c: each for c, each in whole.split(own).items() if len(each) >= _LEAST_RECORDS}
    found: dict[str, Estimate | str] = {}
    for code, keys in enumerate(config.group_keys()):
        if code not in large:
            reason = (
                f"{(own == code).sum()} attacked records belong to {names[code]}, and at least "
                f"{_LEAST_RECORDS} are needed; raise records"
            )
            found |= dict.fromkeys(keys, reason)
            continue
        estimates, others = large[code].estimates(), len(large[code].trials.others)
        for key, (metric, estimate) in zip(keys, estimates.items(), strict=True):
            too_few = too_few_non_members(others, RATE_OF[metric]) if metric in RATE_OF else None
            found[key] = too_few or estimate
    if len(large) < 2:
        reason = f"fewer than two groups have {_LEAST_RECORDS} attacked records; raise records"
        return found | {LARGEST_GROUP: reason, DISPARITY: reason}
    largest, excess = cross_chosen_extremes(list(large.values()))
    return found | {LARGEST_GROUP: largest, DISPARITY: excess}


def _privacy(
    table: MetricTable, config: MembershipConfig, observed: Observations, answers: Sequence[Guesses]
) -> None:
    """Sets epsilon, the bound on epsilon by the attacks, and the bound on their advantage."""
    keys = ("privacy/epsilon", "privacy/epsilon_lower_bound", "flag/epsilon_contradicted")
    others = ("bound/advantage_dp", *MECHANISM)
    if config.epsilon is None:
        table.mark_undefined("training is not differentially private", *keys, *others)
        return
    if reason := table.notes.get(keys[0]):
        table.mark_undefined(reason, *keys[1:], *others)
        table.add_note("bound/advantage", f"{reason}, so privacy/epsilon implies no bound")
        return
    guarantee = guarantee_of(config)
    for name, value in asdict(guarantee.training).items():
        table.metrics[f"mechanism/{name}"] = float(value)
    table.metrics[keys[0]] = guarantee.epsilon
    table.add_note(keys[0], guarantee.assumption)
    scores = [guesses.score for guesses in answers]
    bound = epsilon_lower_bound(scores, observed.trials.member, config.delta, _CONFIDENCE)
    table.metrics[keys[1]] = bound
    table.metrics[keys[2]] = float(bound > guarantee.replace_one_epsilon)
    if bound > guarantee.replace_one_epsilon:
        limit = f"the accountant's {guarantee.replace_one_epsilon:.4f} for replaced records"
        table.add_note(keys[2], f"attacks show an epsilon of at least {bound:.4f}, above {limit}")
    table.metrics["bound/advantage_dp"] = guarantee.advantage
    if not guarantee.advantage >= table.metrics["bound/advantage"]:
        table.notes.pop("bound/advantage", None)
        table.set_metric("bound/advantage", Estimate(guarantee.advantage, 0.0))


def _strongest_decision(guesses: Sequence[Guesses], member: Tensor) -> Tensor:
    """For each half of the records, the decisions of the best attack on the other half."""
    halves = torch.arange(len(member), device=member.device) % 2
    return combine_strongest(guesses, member, halves).decision


def flag_beaten_bounds(table: MetricTable, scores: Mapping[str, AttackScore]) -> None:
    """Sets the flag if an attack exceeds its bound by more than both intervals."""
    key = "flag/attack_beats_bound"
    excess, is_checked = [], False
    quantile = round(float(ndtri(1 - (1 - _CONFIDENCE) / (2 * len(scores)))), 3)
    for name, score in scores.items():
        bounds = ATTACKS.get(name).bounds
        bound = next((each for each in bounds if not math.isnan(table.metrics[each])), None)
        if bound is None:
            continue
        is_checked, limit = True, table.metrics[bound]
        advantage = score.advantage
        margin = math.hypot(advantage.error, table.errors[bound])
        if advantage.value - limit > quantile * margin:
            excess.append(f"{name}: {advantage.value:.4f} over {bound} {limit:.4f}")
    if excess:
        reason = "an attack beats its bound by more than its interval: "
        table.notes[key] = reason + "; ".join(excess)
    if is_checked:
        table.metrics[key] = float(bool(excess))
    else:
        table.mark_undefined("no bound is defined", key)
