"""The published tests of Optuna for samplers, run on `FrontierSampler`."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler

from sweeps import FrontierSampler

pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna has them from 4.8")

from optuna.testing import pytest_samplers


class TestFrontierSampler(
    pytest_samplers.BasicSamplerTestCase,
    pytest_samplers.RelativeSamplerTestCase,
    pytest_samplers.MultiObjectiveSamplerTestCase,
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return FrontierSampler
