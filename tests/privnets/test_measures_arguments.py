"""Arguments that measures accept and refuse, and the types of their results."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from privnets import measures

NAN = math.nan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measures.renyi_entropy(np.array([0.5, 0.6]), 1), r"p must sum to 1 over \[n\]"),
        (lambda: measures.renyi_entropy(np.array([1.5, -0.5]), 1), "p must be non-neg.* -0.5"),
        (lambda: measures.renyi_entropy(np.array([NAN, 1]), 1), "p must hold numbers; got NaN"),
        (lambda: measures.renyi_entropy(np.array([math.inf, 1]), 1), "p must sum to 1.*got inf"),
        (lambda: measures.renyi_entropy(np.array([]), 1), "p must sum to 1"),
        (lambda: measures.renyi_entropy(np.array(1.0), 1), r"p must have shape \[\.\.\., n\]"),
        (lambda: measures.renyi_entropy(np.array(["1"]), 1), "p must hold real numbers; got <U1"),
        (lambda: measures.renyi_entropy(torch.ones(1, dtype=torch.complex64), 1), "real numbers"),
        (
            lambda: measures.renyi_entropy(np.ones(1), -0.1),
            r"alpha must be in \[0, inf\]; got -0.1",
        ),
        (lambda: measures.renyi_entropy(np.ones(1), NAN), r"alpha must be in \[0, inf\]; got nan"),
        (lambda: measures.mutual_information(np.array([0.5, 0.5])), r"joint must have .* S, Z\]"),
        (lambda: measures.mutual_information(np.eye(2)), r"joint must sum to 1 over \[S, Z\]"),
        (lambda: measures.arimoto_conditional_entropy(np.eye(2) / 2, -1), "alpha must be"),
        (lambda: measures.arimoto_mutual_information(np.eye(2), 1), "joint must sum to 1"),
        (lambda: measures.sibson_mutual_information(np.eye(2), 1), "joint must sum to 1"),
        (lambda: measures.release_bound(np.eye(2) / 2), r"joint_usx must have .* U, S, X\]"),
        (
            lambda: measures.kl_divergence(np.ones(1), np.array([0.5, 0.5])),
            r"p and q must have .* got shapes \[1\] and \[2\]",
        ),
        (
            lambda: measures.kl_divergence(np.ones((2, 1)), np.ones((3, 1))),
            r"batch dimensions of p, q must broadcast; got \[2\], \[3\]",
        ),
        (lambda: measures.membership_advantage_bound(-1.0), r"rho_kl must be in \[0, inf\]"),
        (lambda: measures.membership_advantage_bound(NAN), "rho_kl must hold numbers; got NaN"),
        (lambda: measures.privacy_advantage_bound(1.0, 1.5), r"delta must be in \[0, 1\]; got 1.5"),
        (
            lambda: measures.gaussian_noise_advantage_bound(1.0, -1.0),
            r"sigma must be in \[0, inf\)",
        ),
        (lambda: measures.gaussian_mechanism_sigma(1.0, 0.0, 1.0), r"delta must be in \(0, 1\)"),
        (lambda: measures.gaussian_mechanism_sigma(-1.0, 0.1, 1.0), r"epsilon must be in \[0, inf"),
        (lambda: measures.gaussian_mechanism_sigma(1.0, 0.1, -1.0), "sensitivity must be in"),
        (lambda: measures.gaussian_mechanism_delta(1.0, 0.0, 1.0), r"sigma must be in \(0, inf\)"),
    ],
)
def test_errors_name_the_argument_and_its_value(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_one_bad_table_of_a_batch_is_refused() -> None:
    tables = np.full((3, 2), 0.5)
    tables[1, 0] = 0.4
    with pytest.raises(ValueError, match="p must sum to 1"):
        measures.renyi_entropy(tables, 2)


def test_results_have_the_type_of_the_arguments() -> None:
    p = np.full((3, 2), 0.5)
    assert isinstance(measures.renyi_entropy(torch.from_numpy(p), 2), torch.Tensor)
    assert isinstance(measures.renyi_entropy(p, 2), np.ndarray)
    assert isinstance(measures.renyi_entropy(p[0], 2), np.float64)
    assert isinstance(measures.membership_advantage_bound(2.0), float)
    assert isinstance(measures.gaussian_mechanism_sigma(1.0, 0.1, torch.ones(2)), torch.Tensor)
    assert isinstance(measures.gaussian_mechanism_sigma(np.ones(2), 0.1, 1.0), np.ndarray)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_floats_are_normalised_and_computed_in_float64(dtype: torch.dtype) -> None:
    p = torch.linspace(1, 9, 100).softmax(0).to(dtype)
    exact = p.double() / p.double().sum()
    found = measures.renyi_entropy(p, 1)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, -(exact * exact.log()).sum(), rtol=1e-14, atol=0)


def test_integers_are_accepted_as_probabilities() -> None:
    assert measures.renyi_entropy(np.array([0, 1, 0]), 0.5) == 0


def test_arguments_are_not_changed() -> None:
    p = np.array([0.2, 0.8 + 1e-12])
    before = p.copy()
    measures.renyi_entropy(p, 1.5)
    assert (p == before).all()


def test_an_empty_batch_gives_an_empty_result() -> None:
    assert measures.arimoto_mutual_information(np.empty((0, 2, 3)), 2).shape == (0,)


def test_the_package_does_not_load_measures_by_itself() -> None:
    """`import privnets` stays light; `from privnets import measures` still works."""
    code = (
        "import sys, privnets; assert 'torch' not in sys.modules;"
        "from privnets import measures; assert measures.renyi_entropy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
