"""What attackers and users get from raw AMNIST, against what the paper reports of it."""

from __future__ import annotations

import numpy as np
import pytest

from privnets.adversarial.baseline import baselines
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems import registry
from privnets.adversarial.releases import raw
from tests.support import requires_data

# arXiv 2310.18241: digits 97.25% and, balanced, thickness 91.5% on the original images.
DIGITS, THICKNESS = 0.9725, 0.915


@pytest.mark.slow
@pytest.mark.timeout(3600)
@requires_data("mnist")
def test_raw_images_tell_digits_and_thickness_at_least_as_well_as_published():
    config = AdversarialConfig(problem="amnist", attack_steps=1500)
    problem = registry.problem("amnist")
    pool, splits = problem.materials([config], "cpu")
    run = baselines(problem, [config], [raw(pool, splits[0])])
    while True:
        try:
            next(run)
        except StopIteration as ended:
            (found,) = ended.value
            break
    assert pool.utility is not None
    label = pool.utility.numpy()[splits[0].test]
    assert np.mean(found.log_utility.argmax(1) == label) >= DIGITS
    assert found.attacker[0] >= THICKNESS
