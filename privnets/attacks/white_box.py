"""Attack on the parameters of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from privnets.attacks.base import TOO_FEW_REFERENCES, Attack
from privnets.attacks.view import Array, AttackerView
from privnets.statistics.roc import best_threshold

# From two separate covariances to one that both sides share.
_SHRINKAGES = (1e-9, 1e-3, 0.1, 10.0)
_THRESHOLD_TRIALS = 2**15
_MIN_REFERENCES = 3
_RIDGE = 0.1
# Rounding can leave a smaller share of a determinant than is possible.
_LEAST_DETERMINANT = 1e-12
_CHUNK_NUMBERS = 2**22


class WhiteBox(Attack):
    """Likelihood ratio of the parameters under Gaussians with shrunk covariances.

    The covariance of a side is shrunk towards that of both sides (Friedman 1989, regularised
    discriminant analysis), so it exists for any number of parameters. The reference models choose
    the shrinkage and the threshold, each scored by a fit without itself. Scores are log-likelihood
    ratios minus this threshold.
    """

    name = "white_box"
    family = "online"
    paper = "quadratic discriminant analysis of parameters, after Friedman, JASA 84, 1989"
    bounds = ("bound/advantage",)
    threshold = 0.0

    def why_unavailable(self, view: AttackerView) -> str | None:
        """The attacker must see parameters, and three reference models on each side."""
        if view.training is None or view.training.parameters is None:
            return "the attacker sees no parameters"
        inside = view.references.member.sum(0)
        fewest = int(np.minimum(inside, len(view.references.member) - inside).min())
        return TOO_FEW_REFERENCES if fewest < _MIN_REFERENCES else None

    def score(self, view: AttackerView) -> Array:
        """Scores the log-likelihood ratio of the parameters."""
        training = view.training
        assert training is not None  # by `why_unavailable`
        assert training.parameters is not None
        assert training.parameters_of_references is not None
        device = training.parameters.device
        member = torch.from_numpy(view.references.member.T).to(device)
        partners = training.partners
        partner = None if partners is None else torch.from_numpy(partners).to(device)
        records = len(member)
        judged, references = (
            each.expand(records, *each.shape[-2:])
            for each in (training.parameters, training.parameters_of_references)
        )
        # As many records choose as have enough trials for a threshold.
        enough = max(1, _THRESHOLD_TRIALS // member.shape[1])
        some, inside = references[:enough], member[:enough]
        left_out = left_out_log_ratios(some, inside, _SHRINKAGES, partner)
        _, threshold, shrinkage = max(
            (*best_threshold(ratios.cpu().numpy(), inside.cpu().numpy()), shrinkage)
            for shrinkage, ratios in left_out.items()
        )
        ratios = gaussian_log_ratios(references, member, judged, shrinkage)
        scores: Array = ratios.T.cpu().numpy() - threshold
        return scores


def gaussian_log_ratios(
    references: Tensor, member: Tensor, judged: Tensor, shrinkage: float
) -> Tensor:
    """Log-likelihood ratios of judged models' parameters under Gaussians fitted to references.

    The scatter matrix of a side is W_z + s (W_0 + W_1 + n I / 10) with shrinkage s, after
    division of each parameter by its deviation within sides; n is the number of references.

    Args:
        references: Shape [R, n, p].
        member: Whether a record was in the training set of a reference model, shape [R, n].
        judged: Shape [R, m, p].

    Returns:
        Nats, shape [R, m].
    """
    ratios = judged.new_empty(judged.shape[:2])
    for part in _chunks(references):
        fit = _TwoSides(references[part], member[part])
        ratios[part] = fit.log_ratio(judged[part], shrinkage)
    return ratios


def left_out_log_ratios(
    references: Tensor, member: Tensor, shrinkages: Sequence[float], partner: Tensor | None = None
) -> dict[float, Tensor]:
    """Log-likelihood ratios of references as in `gaussian_log_ratios`, each left out of its fit.

    Args:
        partner: Index of the reference model on the other side that shares all other members,
            which is left out too, shape [n]; None if no two do.

    Returns:
        Nats, shape [R, n], for each shrinkage.
    """
    ratios = {each: references.new_empty(references.shape[:2]) for each in shrinkages}
    for part in _chunks(references):
        fit = _TwoSides(references[part], member[part])
        for shrinkage, found in ratios.items():
            found[part] = fit.left_out_log_ratio(shrinkage, partner)
    return ratios


def _chunks(references: Tensor) -> list[slice]:
    at_once = max(1, _CHUNK_NUMBERS // references[0].numel())
    return [slice(start, start + at_once) for start in range(0, len(references), at_once)]


class _TwoSides:
    """Moments of reference models on both sides of each record."""

    def __init__(self, references: Tensor, member: Tensor) -> None:
        """Takes reference models [R, n, p] and their memberships [R, n]."""
        self._sides = torch.stack([~member, member], dim=1).to(references.dtype)
        self._counts, self._size = self._sides.sum(-1), member.shape[1]
        means = self._sides @ references / self._counts[..., None]
        own = torch.where(member[..., None], means[:, 1, None], means[:, 0, None])
        centred = references - own
        deviation = (centred.square().sum(1, keepdim=True) / (self._size - 2)).sqrt()
        self._scale = torch.where(deviation > 0, deviation, 1.0)
        self._means, centred = means / self._scale, centred / self._scale
        inside = centred * self._sides[:, 1, :, None]
        products = [each.transpose(-1, -2) @ each for each in (centred - inside, inside)]
        self._scatter = torch.stack(products, dim=1)
        self._centred = centred.transpose(-1, -2)[:, None]

    def _factor(self, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Cholesky factor of each side's scatter matrix, and the logarithm of its determinant."""
        ridge = _RIDGE * self._size * torch.eye(self._scatter.shape[-1]).to(self._scatter)
        both = self._scatter.sum(1, keepdim=True) + ridge
        factor = torch.linalg.cholesky(self._scatter + shrinkage * both)
        return factor, 2 * torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)[..., None]

    def log_ratio(self, judged: Tensor, shrinkage: float) -> Tensor:
        """Log-likelihood ratio at parameters [R, m, p], shape [R, m]."""
        factor, log_determinant = self._factor(shrinkage)
        away = (judged / self._scale)[:, None] - self._means[:, :, None]
        away = torch.linalg.solve_triangular(factor, away.transpose(-1, -2), upper=False)
        freedom = self._counts - 1 + shrinkage * (self._size - 2)
        return self._log_ratio(away.square().sum(-2), log_determinant, freedom[..., None])

    def left_out_log_ratio(self, shrinkage: float, partner: Tensor | None) -> Tensor:
        """Log-likelihood ratio at each reference model by fits without it and its partner.

        Without a model of side z, the scatter matrix W_z loses a multiple of vv', v its deviation
        from the mean of z, and the mean moves by v / (n_z - 1). So the scatter matrix of each side
        loses two such terms, and the Woodbury formula gives distances and determinants. All are
        inner products of whitened deviations: u of the model, p of its partner (0 without one),
        m the difference of both means.

        Returns:
            Shape [R, n].
        """
        factor, log_determinant = self._factor(shrinkage)
        u, m = (
            torch.linalg.solve_triangular(factor, each, upper=False)
            for each in (self._centred, (self._means[:, 1] - self._means[:, 0])[:, None, :, None])
        )
        uu, um, mm = u.square().sum(-2), (u * m).sum(-2), m.square().sum(-2)
        up = pp = pm = torch.zeros_like(uu)
        if partner is not None:
            up, pp, pm = (u * u[..., partner]).sum(-2), uu[..., partner], um[..., partner]
        is_own = self._sides.bool()
        counts = self._counts[..., None]
        moved = 1 / (counts - 1)
        # From the mean of the other side, a member is at u + m, and another record at u - m.
        sign = torch.tensor([1.0, -1.0]).to(u)[:, None]
        lost, shared = torch.where(is_own, uu, pp), torch.where(is_own, pp, uu)
        lost_away = torch.where(is_own, (1 + moved) * uu, up + sign * pm + moved * pp)
        shared_away = torch.where(is_own, (1 + moved) * up, uu + sign * um + moved * up)
        square = uu + mm + moved**2 * pp + 2 * (sign * um + moved * (up + sign * pm))
        square = torch.where(is_own, (1 + moved) ** 2 * uu, square)
        growth = counts / (counts - 1)
        own, other = growth * (1 + shrinkage), growth.flip(1) * shrinkage
        # The matrix [[first, -both], [-both, second]] is the one that Woodbury's formula inverts.
        first, second = 1 - own * lost, 1 - other * shared
        both = (own * other).sqrt() * up
        left = (first * second - both**2).clamp_min(_LEAST_DETERMINANT)
        along_own, along_other = own.sqrt() * lost_away, other.sqrt() * shared_away
        added = along_own**2 * second + 2 * both * along_own * along_other + along_other**2 * first
        leaving = torch.ones_like(uu) if partner is not None else self._sides
        number = leaving.sum(1, keepdim=True)
        freedom = counts - 1 - leaving + shrinkage * (self._size - 2 - number)
        return self._log_ratio(square + added / left, log_determinant + left.log(), freedom)

    def _log_ratio(self, squares: Tensor, log_determinant: Tensor, freedom: Tensor) -> Tensor:
        """Difference of two log densities whose covariance is a scatter matrix over `freedom`.

        `squares` are distances by the scatter matrices, shape [R, 2, n].
        """
        numbers = self._scatter.shape[-1]
        densities: Tensor = (numbers * freedom.log() - freedom * squares - log_determinant) / 2
        return densities[:, 1] - densities[:, 0]
