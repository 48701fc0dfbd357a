"""What a problem offers: records, networks of the right shape, and what only it can measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.records import Exposure, Pool, Splits
from privnets.adversarial.statement import Statement
from privnets.networks.architecture import Architecture
from privnets.points import Curve

if TYPE_CHECKING:
    from privnets.adversarial.attackers.posterior import Attacker


class Releaser(Protocol):
    """A stacked network that maps observed records to released ones."""

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of one releaser, float32."""

    def noise_shape(self, records: Sequence[int]) -> tuple[int, ...]:
        """Shape of the noise that one record's release takes.

        Args:
            records: Shape of one record.
        """

    def draw(self, random: torch.Generator, shape: Sequence[int]) -> Tensor:
        """Noise of a shape, before it is scaled: standard Gaussian, or uniform on [0, 1]."""

    def release(
        self,
        parameters: Sequence[Tensor],
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        side: Tensor | None,
    ) -> Tensor:
        """Released records.

        Args:
            parameters: Stacked, each [S, ...].
            x: Shape [S, n, ...].
            noise: Scaled, shape [S, n, *noise_shape].
            secret: Shape [S, n] or [S, n, T]; most releasers do not look at it.
            side: Shape [S, n, T, c] or None.

        Returns:
            Shape of `x`.
        """


@dataclass(frozen=True, eq=False)
class Examined:
    """What a problem alone can say of a trained releaser.

    Attributes:
        metrics: By key; with `Problem.limits` all of `Statement.extra_metric_keys`.
        notes: Metric to the reason it is undefined.
        curves: By key, without `curve/`.
        artifacts: File name to content.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)


class Problem(ABC):
    """A source of records with a secret and something of use."""

    statement: ClassVar[Statement]

    @abstractmethod
    def materials(
        self, configs: Sequence[AdversarialConfig], device: str
    ) -> tuple[Pool, list[Splits]]:
        """Records for a stack, and each configuration's splits of equal sizes.

        A configuration's records depend on itself alone (its seed and numbers), not on the stack.
        """

    @abstractmethod
    def releaser(self, config: AdversarialConfig) -> Releaser:
        """The network that releases."""

    @abstractmethod
    def adversary(self, config: AdversarialConfig) -> Architecture:
        """The network that infers the secret; its input is z, with side information beside it."""

    @abstractmethod
    def utility(self, config: AdversarialConfig) -> Architecture | None:
        """The network that infers the utility label, if there is one."""

    @abstractmethod
    def attacking_networks(self, config: AdversarialConfig) -> Mapping[str, Architecture]:
        """Fresh networks of the panel: one like the adversary, and a larger one."""

    def analytic_attackers(self, config: AdversarialConfig) -> Sequence[Attacker]:
        """Attackers that only this problem has; `Statement.analytic` has their names."""
        return ()

    def distance_scale(self, config: AdversarialConfig) -> tuple[float, float]:
        """Offset and scale that bring `x` back to original units: original = offset + scale x."""
        return 0.0, 1.0

    def dependence_bound(self, config: AdversarialConfig, secret: Tensor, utility: Tensor) -> float:
        """K = I(U;S) - I(U;S|X) in nats, from what is known or from labels of shape [n]."""
        return float("nan")

    def probe(
        self, configs: Sequence[AdversarialConfig], parameters: Sequence[Tensor]
    ) -> Mapping[str, Tensor]:
        """Exact quantities of releasers in training, drawn as curves: key to values, shape [S].

        Args:
            configs: Of the members.
            parameters: The releasers', stacked.
        """
        return {}

    def limits(
        self, configs: Sequence[AdversarialConfig]
    ) -> Generator[None, None, Sequence[Mapping[str, float]]]:
        """What limits releases of each configuration, however trained.

        Yields:
            None, wherever the work may pause.

        Returns:
            Metrics by key, of each configuration.
        """
        yield from ()
        return [{} for _ in configs]

    def examine(
        self,
        config: AdversarialConfig,
        parameters: Sequence[Tensor],
        original: Exposure,
        released: Exposure,
    ) -> Examined:
        """Look at one trained releaser (parameters without the stack's dimension) and its test."""
        return Examined()


def with_side(z: Tensor, side: Tensor | None) -> Tensor:
    """Releases with side information beside them, along the last dimension."""
    return z if side is None else torch.cat([z, side], dim=-1)
