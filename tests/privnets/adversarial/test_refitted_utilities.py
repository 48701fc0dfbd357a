"""Further utilities of the fresh utility network, and their floors, against scikit-learn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle

from privnets.adversarial.attackers.neural import FittedUtility
from privnets.adversarial.evaluation.attacked import _add_refitted
from privnets.adversarial.evaluation.evaluator import ReplicateDraft
from privnets.adversarial.metrics import REFITTED

KEYS = [
    *(f"utility/refitted_{name}" for name in REFITTED),
    "floor/utility_accuracy",
    *(f"floor/utility_refitted_{name}" for name in ("accuracy", *REFITTED)),
]


def draft_of(label: np.ndarray, log_p: np.ndarray, group: np.ndarray | None) -> ReplicateDraft:
    """Draft of a replicate whose attack split has 90 labels 0 and 10 labels 1."""
    test = SimpleNamespace(
        utility=torch.from_numpy(label),
        group=None if group is None else torch.from_numpy(group),
    )
    attack = SimpleNamespace(utility=torch.tensor([0] * 90 + [1] * 10 + [-1] * 30))
    draft = ReplicateDraft.__new__(ReplicateDraft)
    draft.metrics = dict.fromkeys([*KEYS, "utility/refitted_accuracy"], float("nan"))
    draft.errors, draft.notes = {}, {}
    draft.release = SimpleNamespace(
        released=SimpleNamespace(test=test), original=SimpleNamespace(attack=attack)
    )
    _add_refitted(draft, FittedUtility(log_p))
    return draft


def test_known_labels_are_scored_as_scikit_learn_scores_them():
    random = np.random.default_rng(0)
    label = (random.random(400) < 0.1).astype(np.int64)
    p = 1 / (1 + np.exp(1.5 - 2 * label + random.normal(size=400)))
    log_p = np.log(np.stack([1 - p, p], axis=1)).astype(np.float32)
    label[:50] = -1
    metrics = draft_of(label, log_p, None).metrics
    y, score = label[50:], p[50:]
    assert metrics["utility/refitted_auc"] == pytest.approx(oracle.roc_auc_score(y, score))
    assert metrics["utility/refitted_log_loss"] == pytest.approx(oracle.log_loss(y, score))
    balanced = oracle.balanced_accuracy_score(y, score > 0.5)
    assert metrics["utility/refitted_balanced_accuracy"] == pytest.approx(balanced)
    share = 1 - y.mean()
    assert metrics["floor/utility_accuracy"] == pytest.approx(share)
    assert metrics["floor/utility_refitted_accuracy"] == pytest.approx(share)
    assert metrics["floor/utility_refitted_auc"] == 0.5
    trivial = oracle.log_loss(y, np.full(len(y), 0.1))
    assert metrics["floor/utility_refitted_log_loss"] == pytest.approx(trivial)
    assert np.isnan(metrics["utility/refitted_accuracy"])  # another function sets it


def test_records_of_one_origin_count_as_one():
    random = np.random.default_rng(1)
    label = random.integers(0, 2, 50)
    log_p = np.log(random.dirichlet([1, 1], 50))
    alone = draft_of(label, log_p, None).errors
    copies = [np.repeat(each, 4, axis=0) for each in (label, log_p, np.arange(50))]
    copied = draft_of(*copies).errors
    for key in KEYS:
        assert copied[key] == pytest.approx(alone[key], rel=1e-6), key
