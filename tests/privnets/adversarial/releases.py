"""Releases for tests, without a game that made them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence, Release
from privnets.adversarial.problem import Splits


def make_release(
    config: AdversarialConfig, parameters: list[Tensor], original: AttackView, released: AttackView
) -> Release:
    """A release whose three splits are equal, and whose game kept nothing."""
    raw, evidence = (Evidence(split, split, split) for split in (original, released))
    return Release(config, raw, evidence, parameters, {}, torch.empty(0), None)


def split_parts(splits: Splits) -> list[np.ndarray]:
    """The disjoint parts: train, attack, validation and test."""
    return [splits.train, splits.attack, splits.validation, splits.test]
