"""The published tests of Optuna for samplers, run on `FrontierSampler`."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing import pytest_samplers

from sweeps import FrontierSampler


class TestFrontierSampler(
    pytest_samplers.BasicSamplerTestCase,
    pytest_samplers.RelativeSamplerTestCase,
    pytest_samplers.MultiObjectiveSamplerTestCase,
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return FrontierSampler
