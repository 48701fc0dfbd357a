"""Picture of a point: valid SVG that places each share and its interval."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from privnets.points import Replicate, TradeoffPoint
from sweeps.report.figures.point_svg import point_svg

SVG = "{http://www.w3.org/2000/svg}"
PRIVACY, UTILITY = "privacy/membership_advantage", "utility/test_accuracy"


def point(**metrics: float) -> TradeoffPoint:
    replicates = tuple(
        Replicate(seed, {name: value + step for name, value in metrics.items()})
        for seed, step in enumerate((-0.01, 0.01))
    )
    return TradeoffPoint("p", "membership", {}, replicates)


def test_a_picture_shows_shares_with_their_intervals_and_the_objectives_first() -> None:
    metrics = {PRIVACY: 0.25, UTILITY: 0.75, "floor/a<b": 0.5, "privacy/rho_kl": 7.0, "other": 0.5}
    picture = point_svg(point(**metrics), [UTILITY, PRIVACY])
    assert picture is not None
    root = ElementTree.fromstring(picture)
    labels = [e.text for e in root.iter(f"{SVG}text") if e.get("text-anchor") == "end"]
    assert labels == [UTILITY, PRIVACY, "floor/a<b"]
    places = [float(e.get("cx", "")) for e in root.iter(f"{SVG}circle")]
    assert places == [300 + 320 * share for share in (0.75, 0.25, 0.5)]


def test_a_point_without_a_share_has_no_picture() -> None:
    assert point_svg(point(**{"privacy/rho_kl": 7.0}), ["privacy/rho_kl"]) is None
