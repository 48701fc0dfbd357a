"""Finished releases: what attackers and users of one configuration are handed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.records import Evidence, Exposure, Pool, Splits
from privnets.adversarial.training.game import Game
from privnets.points import Curve


@dataclass(frozen=True, eq=False)
class Release:
    """One configuration's release and all that judging it takes.

    Attributes:
        config: The configuration.
        original: The records before release.
        released: The same records after it.
        parameters: The releaser's.
        curves: Of its training.
        adversary: In-loop adversary's log probabilities on test, shape [n, C] or [n, T, C].
        utility: In-loop utility network's on test, shape [n, C], or None.
    """

    config: AdversarialConfig
    original: Evidence
    released: Evidence
    parameters: list[Tensor]
    curves: dict[str, Curve]
    adversary: Tensor
    utility: Tensor | None

    @property
    def finite(self) -> bool:
        """Whether every released number is one."""
        splits = (self.released.attack, self.released.validation, self.released.test)
        return all(bool(torch.isfinite(split.z).all()) for split in splits)


def released(game: Game, member: int, pool: Pool, splits: Splits) -> Release:
    """Let one member of a finished game release the records of its attackers and users."""
    config = game.configs[member]
    if config.evaluation == "exact":  # nobody trains on a release
        splits = replace(splits, attack=_NOBODY, validation=_NOBODY)
    exposed = {name: _released(game, member, pool, splits, name) for name in _SPLITS}
    test = exposed["test"]
    useful = test.utility is not None
    return Release(
        config=config,
        original=raw(pool, splits),
        released=Evidence(**exposed),
        parameters=game.parameters(member),
        curves=game.curves(member),
        adversary=game.infer("adversary", member, test.z, test.side),
        utility=game.infer("utility", member, test.z, test.side) if useful else None,
    )


def raw(pool: Pool, splits: Splits) -> Evidence:
    """The same records as they are, for baselines."""
    return Evidence(**{name: _exposed(pool, getattr(splits, name), None) for name in _SPLITS})


_SPLITS = ("attack", "validation", "test")
_NOBODY = np.array([], dtype=np.int64)


def _released(game: Game, member: int, pool: Pool, splits: Splits, name: str) -> Exposure:
    records = getattr(splits, name)
    z = game.release(member, records, name) if len(records) else None
    return _exposed(pool, records, z)


def _exposed(pool: Pool, records: NDArray[np.int64], z: Tensor | None) -> Exposure:
    index = torch.from_numpy(records).to(pool.x.device)
    return Exposure(
        z=pool.x[index] if z is None else z,
        secret=pool.secret[index],
        utility=_at(pool.utility, index),
        side=_at(pool.side, index),
        present=_at(pool.present, index),
        group=_at(pool.group, index),
    )


def _at(values: Tensor | None, index: Tensor) -> Tensor | None:
    return None if values is None else values[index]
