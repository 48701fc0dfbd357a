"""Observations of trained models, from which every metric is computed, and their trainers."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets import data
from privnets.contract import Experiment, Stage, State
from privnets.membership.config import (
    OBSERVING_FIELDS,
    OPTIONAL_FIELDS,
    PRIVACY_FIELDS,
    MembershipConfig,
)
from privnets.membership.estimates import ControlVariate
from privnets.membership.leakage import Sides
from privnets.membership.models import model_of
from privnets.membership.trials import Trials
from privnets.membership.utilities import Utilities
from privnets.networks.devices import each_computed_in
from privnets.randomness import generator
from privnets.references.data import RawTableReference
from privnets.references.tables import RawRecords, TableSource
from privnets.statistics.estimates import Estimate

_MAX_REGRESSORS = 64
_MAX_EXACT_COLUMNS = 512
_SUBSPACE_ITERATIONS = 3
_TINY = 1e-12


class Trainer(ABC):
    """Base class of what trains target models and observes them."""

    @abstractmethod
    def stages(
        self,
        experiment: Experiment[MembershipConfig],
        configs: Sequence[MembershipConfig],
        device: str,
        state: State,
    ) -> Iterator[Stage]:
        """Trains a stack; see `Experiment.stages`."""

    def stages_in_float32(
        self,
        experiment: Experiment[MembershipConfig],
        configs: Sequence[MembershipConfig],
        device: str,
        state: State,
    ) -> Iterator[Stage]:
        """Stages in single precision, of which PyTorch's default on CUDA keeps ten bits."""
        stages = self.stages(experiment, configs, device, state)
        return each_computed_in("float32", torch.device(device), stages)

    def check(self, config: MembershipConfig) -> None:  # noqa: B027
        """Tries code of the user on the data set; there is none by default.

        Raises:
            UserFormError: If the code fails.
        """


@dataclass(frozen=True)
class Universe:
    """Records from which training sets are drawn.

    Attributes:
        x: Features, shape [N, p], float64.
        y: Target (a number, or the index of a class), shape [N], float64.
        classes: Classes of the target; 1 if it is a number.
        raw: The same records as the user's file has them, for models that take them.
    """

    x: Tensor
    y: Tensor
    classes: int = 1
    raw: RawRecords | None = None

    @property
    def size(self) -> int:
        """Number of records, N."""
        return len(self.x)

    @cached_property
    def regressors(self) -> Tensor:
        """Regressors of the quantile-regression attack, shape [N, q]."""
        return regressors(self.x, self.y, self.classes)

    @classmethod
    def load(cls, config: MembershipConfig, device: str) -> Universe:
        """Loads the data set of a configuration; output perturbation shortens long rows."""
        form = config.data_form
        prepared = data.prepare(form, config.features, rotates=model_of(config).rotates)
        x, y = torch.tensor(prepared.x, device=device), torch.tensor(prepared.y, device=device)
        if config.private_mechanism == "output_perturbation":
            x = x * (config.clip / x.norm(dim=1, keepdim=True)).clamp(max=1)
        source = form.source() if isinstance(form, RawTableReference) else None
        raw = source.raw if isinstance(source, TableSource) else None
        return cls(x, y.double(), max(prepared.classes, 1), raw)


@dataclass(frozen=True)
class Observations:
    """Observations of the models of one configuration and seed.

    Attributes:
        records: Indices of the attacked records, shape [R].
        trials: Observations of attackers.
        sides: Moments of the parameters without noise, or None.
        halves: The same from each half of the draws, with folds of its own; None without `sides`.
        output: Moments of a signal of the output at each record, shape [R, ..., 1].
        undefined: Reason if the leakage of the parameters is undefined, when already established.
        prior: Prior probability of membership, n/N.
        test: Utilities outside the training set.
        train: Main utility inside the training set.
        shared_models: Whether column j is the same model for every record.
        interpolates: Reason if outputs have no Gaussian distribution either.
        caution: Remark on the leakage of the parameters where it is defined.
        control: Predicts the divergence of records that are not attacked, or None.
        notes: Further remarks, by metric key.
    """

    records: Tensor
    trials: Trials
    sides: Sides | None
    halves: tuple[Sides, Sides] | None
    output: Sides
    undefined: str | None
    prior: float
    test: Utilities
    train: Estimate
    shared_models: bool
    interpolates: str | None = None
    caution: str | None = None
    control: ControlVariate | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def random_stream(config: MembershipConfig, purpose: str) -> np.random.Generator:
    """Returns the generator of a configuration for one purpose.

    Configurations that differ in any field draw independently, unless they are `paired`: then
    those with equal seeds draw the same.
    """
    if config.paired:
        return generator(config.seed, purpose)
    resolved = config.canonical().resolved()
    # Fields of no effect are left out: draws are those of versions that had none of them.
    defaults = {name: config.field_defaults[name] for name in OPTIONAL_FIELDS}
    dropped = {name for name, default in defaults.items() if resolved[name] == default}
    dropped |= {name for name in resolved if name.partition(".")[0] in OBSERVING_FIELDS}
    if config.epsilon is None:
        dropped |= PRIVACY_FIELDS | {"epsilon"}
    fields = json.dumps({k: v for k, v in resolved.items() if k not in dropped}, sort_keys=True)
    return generator(config.seed, f"{purpose} {hashlib.sha256(fields.encode()).hexdigest()}")


def attacked_records(config: MembershipConfig, population: int) -> NDArray[np.int64]:
    """Draws the records whose membership is attacked: a uniform subset."""
    order = random_stream(config, "records").permutation(population)
    return order[: config.records].astype(np.int64)


def add_noise(config: MembershipConfig, parameters: Tensor, noise_std: float) -> Tensor:
    """Adds Gaussian noise with this standard deviation to parameters."""
    if noise_std == 0:
        return parameters
    noise = random_stream(config, "noise").standard_normal(parameters.shape)
    return parameters + noise_std * torch.from_numpy(noise).to(parameters)


def regressors(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Principal components of records, and 1, for each class separately.

    Args:
        x: Features of all records, shape [N, p].
        y: Their targets, shape [N].
        classes: Number of classes; 1 if the target is a number, which is then a regressor.

    Returns:
        At most 64 columns (or `classes`, if more), standardised: shape [N, q].
    """
    if classes == 1:
        x, group = torch.cat([x, y[:, None]], dim=1), torch.zeros_like(y).long()
    else:
        group = y.long()
    count = min(max(_MAX_REGRESSORS // classes - 1, 0), x.shape[1])
    centred = x - x.mean(0)
    if (columns := x.shape[1]) <= _MAX_EXACT_COLUMNS:
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, columns - count :]
    else:  # nearly the leading axes of many columns, such as pixels
        axes = centred[: 2 * count].T
        for _ in range(_SUBSPACE_ITERATIONS):
            axes = torch.linalg.qr(centred.T @ (centred @ axes)).Q
        axes = axes[:, :count]
    components = centred @ axes
    components = components / components.std(0).clamp_min(_TINY)
    basis = torch.cat([torch.ones_like(x[:, :1]), components], dim=1)
    indicator = torch.nn.functional.one_hot(group, classes).to(x)
    return (indicator[:, :, None] * basis[:, None]).flatten(1).double()
