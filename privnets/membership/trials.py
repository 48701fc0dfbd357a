"""Trials on which membership attacks are judged: a model and a record each.

Trials come in two folds. The models of one fold are judged with those of the other as shadow
models, and vice versa, so no target model is among its own shadows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.attacks.base import SIDES, TOO_FEW_REFERENCES, Attack
from privnets.attacks.view import AttackerView, BoolArray, References, Training
from privnets.membership.models import MAX_COMPONENTS
from privnets.points import Curve
from privnets.statistics.estimates import Estimate
from privnets.statistics.roc import RATE_OF, ScoredTrials, best_threshold

_MIN_SHADOWS = 2
_CURVE_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)


@dataclass(frozen=True)
class Population:
    """Observations of K records that are not attacked, whose membership the attacker knows.

    Attributes:
        outside: Whether the record was outside the training set of model j, shape [K, J].
        signal: As in `Trials`, shape [K, J].
        loss: As in `Trials`, shape [K, J].
        features: Regressors of the signal, functions of a record, shape [K, q].
        features_of_records: The same of the attacked records, shape [R, q].
    """

    outside: Tensor
    signal: Tensor
    loss: Tensor
    features: Tensor
    features_of_records: Tensor


@dataclass(frozen=True, eq=False)
class Trials:
    """Observations of an attacker: R records, and J models for each.

    Column j is the same model for all records, except for linear models: there every record has
    models of its own.

    Attributes:
        member: Whether the record was in the training set, shape [R, J].
        fold: Which half of the models model j belongs to, 0 or 1, shape [J].
        signal: Nearly Gaussian for each record: the residual y - f(x) of a regression, or the
            logit of the probability of the true class; shape [R, J].
        error: The residual, or one minus the probability of the true class; shape [R, J].
        loss: Loss of the model at the record, without the penalty, shape [R, J].
        train_loss: Mean training loss of the model, shape [R, J] or broadcast to it.
        two_sided: Whether members have signals nearer to 0 (residuals) rather than larger ones.
        parameters: Parameters as released, shape [R, J, p], or [J, p] if every record has the
            same models; None if the attacker sees outputs alone.
        draw: Draw to which model j belongs, shape [J]; the two models of a draw share all members
            but the record. None if no two models do.
        population: Observations of other records by the same models; None if every record has
            models of its own.
        queries: Signals at changed copies of the records, shape [Q, R, J]; None without any.
        trajectory: Losses at the records in the course of training, shape [E, R, J]; the last ones
            are those of the trained models. None if the attacker sees no training.
    """

    member: Tensor
    fold: Tensor
    signal: Tensor
    error: Tensor
    loss: Tensor
    train_loss: Tensor
    two_sided: bool
    parameters: Tensor | None = None
    draw: Tensor | None = None
    population: Population | None = None
    queries: Tensor | None = None
    trajectory: Tensor | None = None

    def view(self, judged: int) -> AttackerView:
        """Models of one fold, beside those of the other fold as shadow models."""
        return self._compare(judged, 1 - judged, leaves_out=False)

    def shadow_view(self, shadows: int, *, leaves_out: bool) -> AttackerView:
        """Shadow models of one fold, each beside the others, or beside all."""
        return self._compare(shadows, shadows, leaves_out=leaves_out)

    @cached_property
    def rows(self) -> tuple[BoolArray, BoolArray]:
        """Whether model j belongs to fold 0, or to fold 1, shape [J] each."""
        fold = self.fold.cpu().numpy()
        return fold == 0, fold == 1

    @cached_property
    def by_model(self) -> dict[str, NDArray[Any]]:
        """Memberships, signals, errors and losses as arrays with a row for each model, [J, R]."""
        names = ("member", "signal", "error", "loss", "train_loss")
        arrays = {name: _rows(getattr(self, name).expand_as(self.member)) for name in names}
        if (population := self.population) is not None:
            columns = {"outside": population.outside, "signal": population.signal}
            columns["loss"] = population.loss
            arrays |= {f"population {name}": _rows(value) for name, value in columns.items()}
        return arrays

    @cached_property
    def _views(self) -> dict[tuple[int, int, bool], AttackerView]:
        return {}

    def _compare(self, judged: int, shadows: int, *, leaves_out: bool) -> AttackerView:
        """Compares the models of one fold with those of one fold; see `shadow_view`."""
        if view := self._views.get((judged, shadows, leaves_out)):
            return view
        one, other = self.rows[judged], self.rows[shadows]
        arrays = self.by_model
        member, loss, partner = arrays["member"][other], arrays["loss"], None
        scale = 1.0
        if self.two_sided:
            scale = max(2 * float(loss[other][~member].mean()), 1e-300)
        if self.draw is not None:
            partner = partners(self.draw[torch.from_numpy(other)]).cpu().numpy()
        references = References(member)
        if leaves_out:
            companions = (
                None if partner is None else np.broadcast_to(partner[:, None], member.shape)
            )
            references = References.leave_one_out(member, np.arange(len(member)), companions)
        queries = () if self.queries is None else map(_rows, self.queries)
        population = features = None
        if self.population is not None:
            features = self.population.features_of_records.cpu().numpy()
            population = self._compare_population(one, other, scale, leaves_out=leaves_out)
        self._views[judged, shadows, leaves_out] = view = AttackerView(
            signal=arrays["signal"][one],
            of_references=arrays["signal"][other],
            logs=loss[one] / -scale,
            logs_of_references=loss[other] / -scale,
            references=references,
            two_sided=self.two_sided,
            population=population,
            queries=tuple((each[one], each[other]) for each in queries),
            training=self._training(one, other, partner),
            features=features,
        )
        return view

    def _compare_population(
        self, one: BoolArray, other: BoolArray, scale: float, *, leaves_out: bool
    ) -> AttackerView:
        """Compares models at the population, each at the records outside its training set."""
        assert self.population is not None
        arrays = self.by_model
        outside, signal, loss = (arrays[f"population {n}"] for n in ("outside", "signal", "loss"))
        member, left_out = ~outside[other], None
        if leaves_out:
            own = np.broadcast_to(np.arange(len(member))[:, None], member.shape)
            left_out = own, own
        return AttackerView(
            signal=signal[one],
            of_references=signal[other],
            logs=np.where(outside[one], loss[one] / -scale, np.nan),
            logs_of_references=loss[other] / -scale,
            references=References(member, left_out),
            two_sided=self.two_sided,
            features=self.population.features.cpu().numpy(),
        )

    def _training(
        self, one: BoolArray, other: BoolArray, partner: NDArray[np.int64] | None
    ) -> Training:
        arrays = self.by_model
        parameters, trajectory = self._components, self.trajectory
        losses = None if trajectory is None else trajectory.mT.double().cpu().numpy()
        chosen = [torch.from_numpy(each) for each in (one, other)]
        return Training(
            error=arrays["error"][one],
            error_of_references=arrays["error"][other],
            loss=arrays["loss"][one],
            mean_loss=arrays["train_loss"][one],
            parameters=None if parameters is None else parameters[..., chosen[0], :],
            parameters_of_references=None if parameters is None else parameters[..., chosen[1], :],
            partners=partner,
            trajectory=None if losses is None else losses[:, one],
            trajectory_of_references=None if losses is None else losses[:, other],
        )

    @cached_property
    def _components(self) -> Tensor | None:
        """Parameters; of many that every record shares, the leading principal components."""
        values = self.parameters
        if values is None or values.ndim == 3 or values.shape[1] <= MAX_COMPONENTS:
            return values
        left, sizes, _ = torch.linalg.svd(values - values.mean(0), full_matrices=False)
        components: Tensor = left[:, :MAX_COMPONENTS] * sizes[:MAX_COMPONENTS]
        return components


@dataclass(frozen=True)
class Guesses:
    """Answers of an attack.

    Attributes:
        score: Larger for more likely members, shape [R, J].
        decision: Whether the attack calls the record a member, bool, shape [R, J].
    """

    score: Tensor
    decision: Tensor


def why_unavailable(attack: Attack, trials: Trials) -> str | None:
    """Reason why an attack cannot be run on trials, or None.

    Every record needs two shadow models on each side that the attack's family requires.
    """
    for judged in (0, 1):
        view = trials.view(judged)
        if reason := attack.why_unavailable(view):
            return reason
        if _fewest_shadows(view, attack) < _MIN_SHADOWS:
            return TOO_FEW_REFERENCES
    return None


def guess(attack: Attack, trials: Trials) -> Guesses:
    """Scores and decides the models of each fold, with the other fold as shadow models.

    Without a threshold of its own, an attack decides by the one with the largest advantage on the
    shadow models. An attack that needs shadow models at the record scores each of them without
    itself, unless that leaves a record with fewer than two on a side.
    """
    views = [trials.view(judged) for judged in (0, 1)]
    scores = [attack.score(view) for view in views]
    member = trials.by_model["member"]
    score, decision = np.empty(member.shape), np.empty(member.shape, dtype=bool)
    leaves_out = min(_fewest_shadows(view, attack) for view in views) > _MIN_SHADOWS
    for judged, (view, own) in enumerate(zip(views, scores, strict=True)):
        threshold = attack.choose_threshold(view)
        if threshold is None:
            known = scores[1 - judged]
            if SIDES[attack.family]:
                known = attack.score(trials.shadow_view(1 - judged, leaves_out=leaves_out))
            _, threshold = best_threshold(known, member[trials.rows[1 - judged]])
        rows = trials.rows[judged]
        score[rows], decision[rows] = own, own >= threshold
    device = trials.signal.device
    return Guesses(*(torch.from_numpy(each.T).to(device) for each in (score, decision)))


def _fewest_shadows(view: AttackerView, attack: Attack) -> int:
    """Least number of shadow models of a record on a side that the attack's family requires."""
    inside = view.references.member.sum(0)
    counts = (len(view.references.member) - inside, inside)
    return min((int(counts[side].min()) for side in SIDES[attack.family]), default=_MIN_SHADOWS)


def _rows(values: Tensor) -> NDArray[Any]:
    """Array with a row for each model, from values [R, J] of a tensor."""
    rows = values.T if values.dtype == torch.bool else values.T.double()
    return np.ascontiguousarray(rows.cpu().numpy())


def partners(draw: Tensor) -> Tensor:
    """Index of the other model of the same draw, from draws [n] that occur twice each."""
    pairs = draw.argsort().view(-1, 2)
    partner = torch.empty_like(draw)
    partner[pairs] = pairs.flip(1)
    return partner


def combine_strongest(guesses: Sequence[Guesses], member: Tensor, parts: Tensor) -> Guesses:
    """For each part of the records, answers of the attack that is strongest on the others.

    The largest of several advantages would be too large. A single part chooses for itself.

    Args:
        member: Whether the record was in the training set, shape [R, J].
        parts: Number of the part of each record, shape [R].
    """
    score, decision = guesses[0].score.clone(), guesses[0].decision.clone()
    for part in sorted(set(parts.tolist())):
        own = parts == part
        others = own if bool(own.all()) else ~own
        known = member[others]

        def advantage(each: Guesses, others: Tensor = others, known: Tensor = known) -> float:
            yes = each.decision[others].double()
            return float(yes[known].mean() - yes[~known].mean())

        best = max(guesses, key=advantage)
        score[own], decision[own] = best.score[own], best.decision[own]
    return Guesses(score, decision)


@dataclass(frozen=True)
class AttackScore:
    """Scores of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        auc: Area under the ROC curve (Mann-Whitney; ties count half), in [0, 1].
        low_rates: For each false-positive rate, the true-positive rate at the threshold with the
            largest false-positive rate that does not exceed it.
        non_members: Number of trials of records outside the training set.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: Estimate
    auc: Estimate
    low_rates: Mapping[float, Estimate]
    non_members: int
    roc: Curve


def score_guesses(guesses: Guesses, member: Tensor, *, shared_models: bool) -> AttackScore:
    """Scores an attack on trials pooled over records; `member` has shape [R, J]."""
    score, inside, decision = (
        each.T.cpu().numpy() for each in (guesses.score, member, guesses.decision)
    )
    trials = ScoredTrials(score, inside, shared_models=shared_models)
    found = trials.estimates(decision)
    return AttackScore(
        found["advantage"],
        found["auc"],
        {rate: found[key] for key, rate in RATE_OF.items()},
        len(trials.others),
        Curve(_CURVE_RATES, tuple(trials.read_rate(step / 1000) for step in _CURVE_RATES)),
    )


def signed_advantage(decision: Tensor, member: Tensor, *, shared_models: bool) -> Estimate:
    """TPR - FPR over all trials, [R, J], and its standard error."""
    yes, inside = decision.T.cpu().numpy(), member.T.cpu().numpy()
    trials = ScoredTrials(yes.astype(float), inside, shared_models=shared_models)
    return trials.advantage_estimate(yes)
