"""The choice among forms of a layer: by time, kept on disk, never one that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from privnets.networks import forms
from privnets.networks.forms import compute_fastest


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    monkeypatch.setattr(forms, "_chosen", {})


def product(calls: list[str], name: str, repeats: int = 1) -> Callable[..., Tensor]:
    """Batched product; the time of more `repeats` is theirs, and the result the same."""

    def form(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        calls.append(name)
        for _ in range(repeats):
            y = x @ parameters[0]
        return y

    return form


def stack(device: str = "cpu") -> tuple[list[Tensor], Tensor]:
    return [torch.ones(2, 64, 64, device=device)], torch.ones(2, 32, 64, device=device)


def compute(calls: list[str], slow: str, fast: str) -> None:
    """Computes by two forms, of which one takes 100 times as long, in alphabetical order."""
    both = {n: product(calls, n, 100 if n == slow else 1) for n in sorted((slow, fast))}
    parameters, x = stack()
    torch.testing.assert_close(compute_fastest("product", both, parameters, x), x @ parameters[0])


def test_the_fastest_form_computes_the_layer():
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    assert calls[-1] == "b"
    calls.clear()
    compute(calls, slow="a", fast="b")
    assert calls == ["b"]


def test_later_processes_take_the_form_that_was_measured_first(monkeypatch):
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    monkeypatch.setattr(forms, "_chosen", {})  # as in another process
    calls.clear()
    compute(calls, slow="b", fast="a")
    assert calls == ["b"]


def test_other_shapes_are_measured_again():
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    parameters, x = stack()
    both = {"a": product(calls, "a"), "b": product(calls, "b", 100)}
    compute_fastest("product", both, parameters, x[:, :4])
    assert calls[-1] == "a"


@pytest.mark.parametrize(("seconds", "chosen"), [(0.95, "first"), (0.85, "second")])
def test_the_first_form_stays_unless_another_is_faster_by_a_tenth(seconds, chosen, monkeypatch):
    calls: list[str] = []
    both = {name: product(calls, name) for name in ("first", "second")}
    of_form = {both["first"]: 1.0, both["second"]: seconds}
    monkeypatch.setattr(forms, "measure_seconds", lambda work, units, device: of_form[work.args[0]])
    compute_fastest("product", both, *stack())
    assert calls[-1] == chosen


def test_a_form_that_this_device_cannot_compute_is_left_out(tmp_path):
    def fail(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        raise RuntimeError("could not create a primitive")

    parameters, x = stack()
    slow = product([], "slow", 100)
    y = compute_fastest("product", {"fails": fail, "slow": slow}, parameters, x)
    torch.testing.assert_close(y, x @ parameters[0])
    assert not [*tmp_path.iterdir()], "memory may have been short for the moment"
    with pytest.raises(RuntimeError, match="primitive"):
        compute_fastest("alone", {"fails": fail, "also": fail}, parameters, x)


def test_tensors_without_values_take_the_first_form():
    calls: list[str] = []
    both = {"first": product(calls, "first", 100), "second": product(calls, "second")}
    assert compute_fastest("product", both, *stack("meta")).shape == (2, 32, 64)
    assert calls == ["first"]


def test_a_captured_step_takes_the_form_of_the_steps_before(monkeypatch):
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    # Nothing can be measured while CUDA captures a step.
    monkeypatch.setattr(forms, "_can_measure", lambda x: False)
    calls.clear()
    compute(calls, slow="a", fast="b")
    assert calls == ["b"]


def test_processes_that_measure_at_once_take_the_same_form(tmp_path, monkeypatch):
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(forms, "_chosen", {})
    measure = forms._measure

    def measure_too_late(*arguments):
        kept.write_bytes(content)  # the other process ends first
        return measure(*arguments)

    content = kept.read_bytes()
    kept.unlink()
    monkeypatch.setattr(forms, "_measure", measure_too_late)
    compute(calls, slow="b", fast="a")
    assert calls[-1] == "b"
    assert kept.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"damaged"])
def test_a_damaged_file_is_measured_and_written_again(content, tmp_path, monkeypatch):
    calls: list[str] = []
    compute(calls, slow="a", fast="b")
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(content)
    for slow, fast in (("b", "a"), ("a", "b")):  # the second reads what the first has written
        monkeypatch.setattr(forms, "_chosen", {})
        compute(calls, slow=slow, fast=fast)
        assert calls[-1] == "a"


def test_measuring_leaves_no_gradient_behind():
    parameters, x = stack()
    leaves = [p.requires_grad_() for p in parameters]
    both = {name: product([], name) for name in ("first", "second")}
    compute_fastest("product", both, leaves, x.requires_grad_()).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 64.0))
