"""Records on the training device, and the evidence that attackers receive of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import PARTS, AttackView, Evidence, KnownRows, Release
from privnets.adversarial.problem import Problem, Splits, subsample

MISSING = -1
"""Class of an unknown label; it counts in no loss and no score."""


@dataclass(frozen=True, eq=False)
class Pool:
    """All records that a stack draws on, on its training device.

    Attributes:
        x: Observed data on the networks' scale, float32: vectors [N, d], images [N, c, h, w] with
            pixels in [0, 1], or standardised sequences [N, T, 1].
        secret: Classes from 0, int64, shape [N], or [N, T] for sequences; `MISSING` if unknown.
        utility: Classes from 0, int64, shape [N]; None without a utility label, and `MISSING` where
            it does not count.
        side: Public side information, float32, shape [N, T, c]; None if there is none.
        present: Whether a step was observed, bool, shape [N, T]; None if all were. Elsewhere `x`
            is 0 and `secret` is `MISSING`.
        group: Common origin of records, such as one day, int64, shape [N]; None if records are
            independent. Standard errors are clustered by it.
        complete: Those of `secret` and `utility` of which none is missing, so that training need
            not look for missing ones.
    """

    x: Tensor
    secret: Tensor
    utility: Tensor | None = None
    side: Tensor | None = None
    present: Tensor | None = None
    group: Tensor | None = None
    complete: frozenset[str] = frozenset()

    def tensors(self) -> dict[str, Tensor]:
        """Tensors by the name of their field."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


@dataclass(frozen=True, eq=False)
class Minibatch(Pool):
    """One minibatch of every member: the dimension [N] of a pool's fields becomes [S, B].

    `noise` is scaled by `noise_std` and has the shape [S, B, *noise_shape]. `group` is None.
    """

    noise: Tensor = field(kw_only=True)


def load_pool(
    problem: Problem, configs: Sequence[AdversarialConfig], device: str
) -> tuple[Pool, list[Splits]]:
    """Loads the records of a stack to a device, and the splits of each configuration.

    Raises:
        DataError: If the data set is absent or altered.
        ValueError: If `train_size` exceeds the records.
    """
    arrays, whole = problem.load_records(configs)
    splits = []
    for config, split in zip(configs, whole, strict=True):
        if (size := config.train_size) is not None and size > len(split.train):
            most = f"at most {len(split.train)} with {problem.name}"
            raise ValueError(f"train_size must be {most}; got {size}.")
        splits.append(replace(split, train=subsample(split.train, size)))
    tensors = {
        name: torch.tensor(array, device=device)
        for name, array in vars(arrays).items()
        if array is not None
    }
    labels = {"secret": arrays.secret, "utility": arrays.utility}
    complete = {n for n, a in labels.items() if a is not None and (a != MISSING).all()}
    return Pool(**tensors, complete=frozenset(complete)), splits


def select_exposure(pool: Pool, records: NDArray[np.int64], z: Tensor | None = None) -> AttackView:
    """Records of a pool by index [n], with their release `z` [n, ...] or raw if it is None."""
    index = torch.from_numpy(records).to(pool.x.device)
    selected = {name: values[index] for name, values in pool.tensors().items()}
    raw = selected.pop("x")
    return AttackView(raw if z is None else z, **selected)


def raw_evidence(pool: Pool, splits: Splits) -> Evidence:
    """The unreleased records, as a baseline's attackers receive them."""
    parts = (select_exposure(pool, getattr(splits, part)) for part in PARTS)
    other = splits.other_test
    return Evidence(*parts, other_test=None if other is None else select_exposure(pool, other))


def join_tests(evidence: Evidence) -> Evidence:
    """The evidence with both test splits as one, the other after the own."""
    if evidence.other_test is None:
        return evidence
    own, other = evidence.test.tensors(), evidence.other_test.tensors()
    joined = {name: torch.cat([own[name], other[name]]) for name in own}
    return replace(evidence, test=AttackView(**joined))


def sample_attack(evidence: Evidence, most: int) -> Evidence:
    """The evidence with at most so many records of the attack split, evenly spaced."""
    rows, redraw = subsample(np.arange(len(evidence.attack.z)), most), evidence.redraw
    attack = AttackView(**{name: t[rows] for name, t in evidence.attack.tensors().items()})
    return replace(
        evidence, attack=attack, redraw=None if redraw is None else lambda s: redraw(s)[rows]
    )


def to_cpu(evidence: Evidence) -> Evidence:
    """Copies evidence to the CPU's memory, for attackers that use no other device."""
    splits = (AttackView(**{n: t.cpu() for n, t in s.tensors().items()}) for s in evidence.splits)
    return Evidence(*splits, is_random=evidence.is_random, redraw=evidence.redraw)


def known_secret(exposure: AttackView) -> Tensor:
    """The secret, `MISSING` also at absent steps; shape [n] or [n, T]."""
    if exposure.present is None:
        return exposure.secret
    return torch.where(exposure.present, exposure.secret, MISSING)


def known_rows(exposure: AttackView) -> KnownRows:
    """The rows of a split whose secret is known, in the order of records and steps."""
    table = known_secret(exposure).view(len(exposure.secret), -1).cpu().numpy()
    record, step = np.nonzero(table != MISSING)
    cluster = record if exposure.group is None else exposure.group.cpu().numpy()[record]
    return KnownRows(table[record, step], record, step, cluster)


def evidence_defect(evidence: Evidence, classes: int) -> str | None:
    """Reason that attackers cannot be scored on a release; None if they can."""
    for part, exposure in zip(PARTS, evidence.splits, strict=True):
        z = exposure.z if exposure.present is None else exposure.z[exposure.present]
        if not bool(torch.isfinite(z).all()):
            return f"the release of the {part} split is not finite"
        seen = np.unique(known_rows(exposure).secret)
        if len(seen) < classes:
            return f"the {part} split knows {len(seen)} of the secret's {classes} classes"
    return None


def is_finite(release: Release) -> bool:
    """Whether all released numbers are finite."""
    return all(bool(s.z.isfinite().all()) for s in join_tests(release.released).splits)
