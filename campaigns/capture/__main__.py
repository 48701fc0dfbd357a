"""`python -m campaigns.capture [CASE ...]`, where a stand-in for the driver is loaded.

The library exports `nullcuda_reset()` and `nullcuda_dump(buffer, size)`, which writes a line
`name=count` for each call that it saw. `make test-capture NULL_CUDA=FOLDER` loads it. Numbers on
the device are garbage there: checks that would read them are left out below.
"""

from __future__ import annotations

import csv
import ctypes
import math
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from privnets.adversarial.attackers.neural import fit_network
from privnets.adversarial.attackers.panel import build_panel
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import Evidence, load_pool
from privnets.adversarial.training.batches import RecordReleaser, redraw_together
from privnets.adversarial.training.game import Game
from privnets.differential_privacy import module_gradients
from privnets.differential_privacy.dp_sgd import PrivateSchedule
from privnets.membership.config import MembershipConfig
from privnets.membership.models.mlp import MlpTrainer
from privnets.membership.models.shared import make_batch
from privnets.membership.observations import Universe
from privnets.membership.outputs import TrainingDesign
from privnets.membership.user_models.module_training import ModuleJob
from privnets.membership.user_models.module_trials import ModuleSource
from privnets.membership.user_models.output_training import OutputRequest
from privnets.networks import streams
from privnets.networks.capture import Step, StepRunner

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "capture.csv"
_REPEATED = 20  # steps over which launches are averaged
_COPIES = frozenset(("copy_on_device", "copy_to_device", "copy_to_host"))
_KERNELS = frozenset(("kernel", "gemm", "cudnn_conv", "cudnn_rnn", "memset", "cudaGraphLaunch"))
_WAITS = frozenset(("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"))


def _calls() -> Counter[str]:
    """Calls that the stand-in saw so far, by name."""
    text = ctypes.create_string_buffer(2**16)
    ctypes.CDLL(None).nullcuda_dump(text, len(text))
    pairs = (line.split("=") for line in text.value.decode().split())
    return Counter({name: int(count) for name, count in pairs})


def _since(before: Counter[str], times: int) -> dict[str, object]:
    taken = _calls() - before
    totals = {"launches": _KERNELS | _COPIES, "waits": _WAITS}
    return {key: round(sum(taken[n] for n in names) / times, 1) for key, names in totals.items()}


class _Enough(Exception):
    """Ends a training whose steps are counted."""


def _count_steps(train: Callable[[], object]) -> dict[str, object]:
    """Nodes of the captured step of a training, and what a repeated step starts on average."""
    row: dict[str, object] = {}
    repeats: list[Counter[str]] = []
    run = StepRunner.run

    def counted(self: StepRunner, step: Step, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        before = _calls()["captured_nodes"]
        outputs = run(self, step, inputs)
        if self._graph is not None:
            repeats.append(_calls())
            row.setdefault("nodes", repeats[0]["captured_nodes"] - before)
        if len(repeats) > _REPEATED:
            row.update(_since(repeats[0], _REPEATED))
            raise _Enough
        return outputs

    StepRunner.run = counted  # type: ignore[method-assign]
    with suppress(_Enough):
        train()
    StepRunner.run = run  # type: ignore[method-assign]
    if "launches" not in row:
        raise SystemExit("the step was not captured")
    return row


def _configs(fields: Mapping[str, object], members: int) -> list[AdversarialConfig]:
    """Members that differ in seed and, for the objective `alpha`, in order and weight."""
    orders, weights = (0.5, 1.0, 2.0, 8.0, math.inf), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    configs = []
    for i in range(members):
        varied = {"alpha": orders[i % 5], "privacy_weight": weights[i % 6]}
        own = varied if fields["objective"] == "alpha" else {}
        configs.append(AdversarialConfig.model_validate({**fields, **own, "seed": i}))
    return configs


def _game(fields: Mapping[str, object], members: int) -> Callable[[], object]:
    configs = _configs(fields, members)
    problem = problem_of(configs[0])
    return partial(Game(problem, configs, *load_pool(problem, configs, "cuda")).advance, 10**6)


def _evidence(fields: Mapping[str, object], members: int) -> list[Evidence]:
    configs = _configs(fields, members)
    problem = problem_of(configs[0])
    pool, splits = load_pool(problem, configs, "cuda")
    game = Game(problem, configs, pool, splits)
    return [release_records(game, i, pool, own).released for i, own in enumerate(splits)]


def _attackers(fields: Mapping[str, object], members: int) -> Callable[[], object]:
    config = _configs(fields, 1)[0]
    name, architecture = next(iter(build_panel(problem_of(config), config).networks.items()))
    evidence = _evidence(fields, members)
    return lambda: list(fit_network(name, architecture, evidence, range(members), 1000))


def _count_redraw() -> dict[str, object]:
    """What redraws the attack splits of all members once, as before a pass over the records."""
    redraws = [one.redraw for one in _evidence(_AMNIST, 32) if one.redraw is not None]
    before = _calls()
    redraw_together(redraws, "again")
    return {"nodes": "", **_since(before, 1)}


def _perceptrons(fields: Mapping[str, object], members: int) -> Callable[[], object]:
    size = {"train_size": 100, "records": 64, "draws": members, "hidden_layers": 5}
    own = {"dataset": "adult", "model": "mlp", "features": 5, "hidden_units": 50, "steps": 50}
    config = MembershipConfig.model_validate({**own, **size, **fields})
    universe = Universe.load(config, "cuda")
    design = TrainingDesign.draw(config, universe.size)
    return partial(MlpTrainer().fit, make_batch([(design, range(members))], universe))


def _modules(fields: Mapping[str, object], members: int) -> Callable[[], object]:
    own = {"dataset": "mnist", "model": "cnn", "train_size": 1000, "draws": 64, "records": 64}
    config = MembershipConfig.model_validate({**own, "steps": 40, **fields})
    request = OutputRequest.draw(config, Universe.load(config, "cuda"))
    return partial(ModuleJob.make(request, "cuda").run, range(members))


_TOY = {"problem": "gaussian-mixture", "objective": "squared-kl", "evaluation": "exact"}
_TOY_ALPHA = {"problem": "gaussian-mixture", "objective": "alpha"}
_DIGITS = {"problem": "digits", "objective": "alpha", "releaser": "convolutional"}
_AMNIST = {"problem": "amnist", "objective": "alpha", "gradient": "posterior"}
_ECO = {"problem": "eco", "objective": "alpha", "gradient": "label"}
_PRIVATE = {"epsilon": 5.0, "clip": 1.0, "delta": 1e-4}
_SHIFT = {"augmentation": "shift"}

_Make = Callable[[Mapping[str, object], int], Callable[[], object]]
_CASES: dict[str, tuple[_Make, dict[str, object], tuple[int, ...]]] = {
    "toy, squared-kl": (_game, dict(_TOY), (1, 64, 1024)),
    "toy, alpha": (_game, dict(_TOY_ALPHA), (60,)),
    "digits": (_game, dict(_DIGITS), (8,)),
    "AMNIST": (_game, dict(_AMNIST), (8, 32, 120)),
    "ECO": (_game, dict(_ECO), (8, 60, 180)),
    "attackers, AMNIST": (_attackers, dict(_AMNIST), (32,)),
    "perceptrons": (_perceptrons, {"weight_decay": 1e-3}, (2048,)),
    "perceptrons, DP-SGD": (_perceptrons, {**_PRIVATE, "sample_rate": 0.2}, (256,)),
    "CNN": (_modules, {}, (16,)),
    "CNN, shifted": (_modules, dict(_SHIFT), (16,)),
    "CNN, DP-SGD": (_modules, {**_PRIVATE, "sample_rate": 0.02}, (16,)),
}


def _leave_out_checks() -> None:
    """Replaces what reads numbers of the device, which are garbage."""

    def fused(keys: Tensor, counters: Tensor) -> Tensor:  # launches as many kernels
        return torch.stack([keys[:, :1] ^ counters] * 4, -1)

    streams._fused_philox = lambda: fused  # type: ignore[assignment]
    RecordReleaser.is_random = lambda self, records: True  # type: ignore[method-assign]
    PrivateSchedule.__post_init__ = lambda self: None  # type: ignore[method-assign]
    module_gradients._check_records = lambda *given: None  # type: ignore[assignment]
    ModuleSource.check = lambda self: None  # type: ignore[method-assign]
    ModuleSource.obstacle = lambda self: None  # type: ignore[assignment, method-assign]


def main() -> None:
    """Counts each case, or those named, and appends a row of it."""
    _leave_out_checks()
    warnings.simplefilter("error", RuntimeWarning)  # of steps that cannot be captured
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    counts: list[tuple[str, int, Callable[[], dict[str, object]]]] = [
        (name, members, partial(lambda make, *own: _count_steps(make(*own)), make, fields, members))
        for name, (make, fields, sizes) in _CASES.items()
        for members in sizes
    ]
    for name, members, count in [*counts, ("redraws, AMNIST", 32, _count_redraw)]:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.cuda.reset_peak_memory_stats()
        row = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"no GPU, stand-in for its driver, torch {torch.__version__}",
            "commit": commit,
            "rounds": 1,
            "training": name,
            "members": members,
            **count(),
            "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        }
        print(*(f"{key} {value}" for key, value in row.items()), sep=", ", flush=True)
        with _RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
