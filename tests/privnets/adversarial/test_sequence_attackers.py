"""Attackers on sequences: neighbouring steps, side information and missing secrets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.attacker import ReleaseView, public_tables
from privnets.adversarial.attackers.classical import (
    BoostedTrees,
    LogisticRegression,
    NearestNeighbours,
)
from privnets.adversarial.attackers.floors import fit_floors
from privnets.adversarial.attackers.panel import Panel, score_releases
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.records import MISSING, known_rows
from privnets.networks.recurrent import Recurrent

STEPS = 12
PROFILE = replace(PROFILES["quick"], steps=200)
ATTACKERS = {
    kind.name + suffix: kind()
    for suffix in ("", "_side")
    for kind in (BoostedTrees, NearestNeighbours, LogisticRegression)
}


def _exposure(records: int, seed: int) -> AttackView:
    """Independent random secrets, a release of noise, and one random bit of side information."""
    random = np.random.default_rng(seed)
    return AttackView(
        z=torch.tensor(random.standard_normal((records, STEPS, 1)), dtype=torch.float32),
        secret=torch.tensor(random.integers(0, 2, (records, STEPS))),
        side=torch.tensor(random.integers(0, 2, (records, STEPS, 1)), dtype=torch.float32),
        group=torch.arange(records) // 2,
    )


def _evidence(change) -> Evidence:
    return Evidence(*(change(_exposure(n, i)) for i, n in enumerate((150, 80, 150))))


def _masked_with_side(given: AttackView) -> AttackView:
    """A release of the secret under a one-time pad that is the side information."""
    assert given.side is not None
    padded = given.secret ^ given.side[..., 0].long()
    return replace(given, z=padded[..., None].float() + 0.1 * given.z)


def test_only_attackers_with_side_information_decode_a_one_time_pad():
    evidence = _evidence(_masked_with_side)
    networks = {"network": Recurrent(1, 8, 1, 2), "network_side": Recurrent(2, 8, 1, 2)}
    panel = Panel(networks, ATTACKERS, PROFILE)
    config = AdversarialConfig(problem="eco")
    (*_, verdict) = score_releases([evidence], panel, [config], [None])
    assert verdict is not None
    assert verdict.strongest is not None
    assert verdict.strongest.endswith("_side")
    found = {
        name: verdict.metrics[f"privacy/attacker/{name}/balanced_accuracy"] for name in panel.names
    }
    assert all(found[name] < 0.6 for name in found if not name.endswith("_side"))
    assert found["boosted_trees_side"] > 0.95
    assert found["network_side"] > 0.95
    assert verdict.metrics["floor/side_information"] < 0.6
    assert verdict.metrics["flag/attacker_below_floor"] == 0


def _late(given: AttackView) -> AttackView:
    """A release that shows each step's secret one step later."""
    told = torch.roll(given.secret, 1, dims=1)[..., None].float()
    return replace(given, z=told + 0.1 * given.z, side=None)


def test_attackers_see_the_steps_after_the_one_they_guess():
    view = ReleaseView(_evidence(_late))
    seen, posterior = view.tables, BoostedTrees().fit(view, 0)
    hit = posterior.test.argmax(1) == seen.test.rows.secret
    assert hit[seen.test.rows.step < STEPS - 1].mean() > 0.98


def _by_day(given: AttackView) -> AttackView:
    """A secret that the time of day predicts with probability 0.9."""
    noise = torch.rand(given.secret.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    day = (torch.arange(STEPS) >= STEPS // 2).long().expand_as(given.secret)
    return replace(given, secret=torch.where(noise, 1 - day, day), side=None)


def test_the_floor_includes_the_time_of_day():
    floor = fit_floors(_evidence(_by_day), 2, 0, None)
    estimate = floor.estimates["floor/side_information"]
    assert estimate.value == pytest.approx(0.9, abs=3 * estimate.error)
    assert "time of day" in floor.notes["floor/side_information"]


def _known_by_side(given: AttackView) -> AttackView:
    assert given.side is not None
    return replace(given, secret=given.side[..., 0].long())


def test_the_floor_includes_side_information():
    floor = fit_floors(_evidence(_known_by_side), 2, 0, None)
    assert floor.estimates["floor/side_information"].value == 1
    assert floor.highest == "floor/side_information"


def _likely_by_side(given: AttackView) -> AttackView:
    """A secret that side information predicts with probability 0.9; the release is noise."""
    assert given.side is not None
    noise = torch.rand(given.secret.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    return replace(given, secret=given.side[..., 0].long() ^ noise.long())


def test_side_information_is_not_counted_as_leakage():
    evidence, config = _evidence(_likely_by_side), AdversarialConfig(problem="eco", alpha=4.0)
    (*_, verdict) = score_releases([evidence], Panel({}, ATTACKERS, PROFILE), [config], [None])
    assert verdict is not None
    assert verdict.metrics["privacy/attacker_balanced_accuracy"] > 0.85
    # The bit is worth ln 2 - h(.1) = .37 nats; a release of noise adds none of them.
    for key in ("privacy/leakage", "privacy/alpha_leakage"):
        assert abs(verdict.metrics[key]) < 0.02, key
    assert "beyond side information" in verdict.notes["privacy/leakage"]


def _with_gaps(given: AttackView) -> AttackView:
    present = torch.rand(given.secret.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    return replace(given, present=present)


def test_absent_steps_and_missing_secrets_have_no_row():
    given = _with_gaps(_exposure(20, 0))
    secret = given.secret.clone()
    secret[:, 3] = MISSING
    rows = known_rows(replace(given, secret=secret))
    known = (given.present & (secret != MISSING)).numpy()
    assert len(rows.secret) == known.sum()
    assert known[rows.record, rows.step].all()
    np.testing.assert_array_equal(rows.secret, secret.numpy()[rows.record, rows.step])
    np.testing.assert_array_equal(rows.cluster, rows.record // 2)


def test_values_of_absent_steps_are_not_used():
    given = _with_gaps(_exposure(20, 0))
    assert given.present is not None
    other = torch.where(given.present[..., None], given.z, 1e6)
    first, second = (
        ReleaseView(Evidence(one, one, one), True).tables.test.x
        for one in (given, replace(given, z=other))
    )
    np.testing.assert_array_equal(first, second)


def test_window_features_are_those_of_the_steps_that_were_observed():
    given = _with_gaps(_exposure(10, 0))
    assert given.present is not None
    z, present = given.z[..., 0].numpy().astype(np.float64), given.present.numpy()
    part = ReleaseView(Evidence(given, given, given), False).tables.test
    for row, record, step in zip(part.x, part.rows.record, part.rows.step, strict=True):
        column = 9  # after the step itself and four neighbours on either side
        assert row[4] == given.z[record, step, 0]
        for reach in (1, 3, STEPS):
            near = slice(max(0, step - reach), step + reach + 1)
            values = z[record, near][present[record, near]]
            expected = [values.mean(), values.std(), values.min(), values.max()]
            np.testing.assert_allclose(row[column : column + 4], expected, atol=1e-5)
            column += 4


def test_without_a_release_rows_are_the_same_and_columns_are_public():
    evidence = _evidence(lambda given: given)
    seen, public = ReleaseView(evidence, True).tables, public_tables(evidence)
    np.testing.assert_array_equal(public.test.rows.secret, seen.test.rows.secret)
    assert public.test.x.shape[1] < seen.test.x.shape[1]
    other = _evidence(lambda given: replace(given, z=given.z + 1))
    np.testing.assert_array_equal(public.test.x, public_tables(other).test.x)
