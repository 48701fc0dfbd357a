"""A sweep from command to everything in MLflow: this platform against what people use.

The toy sweep, 8 weights on privacy x 8 dependences of the bits, one seed each: `plain_toy` says
what one game is, and every contestant plays all of them with the same sizes, rates and networks
and records the same 9 metrics and 10 curves, a value every 20 steps. On every side the exact
information in them comes from `privnets.measures`, at the same price. Contestants run in turn, each
round in a fresh process, on at most two cores; a time is that of a whole command, its imports, the
start and the end of Ray, and this platform's report included.

- `callback`: stock Ray Tune with its MLflow callback as people write it: one configuration per
  trial, a report every 20 steps, everything at defaults, to an `mlflow server` at its defaults. On
  two cores one such trial takes many seconds, so it runs two smaller grids (`--callback-points`),
  and the whole one is extrapolated from them: what the larger one adds is the price of its trials.
- `once`: the same with one report per trial, of metrics and each curve's last value, straight into
  SQLite. It records less than the others.
- `reused`: stock at its best: actors are used again, no files of Tune's own, one `log_batch` per
  trial with whole curves, sent by the trial itself to a server of one worker.
- `reused-fused`: the same, and the game's inference networks share one fused optimiser.
- `reused-fused-sqlite`: the same straight into SQLite, from two actors.
- `optuna`: Optuna in one process with two threads, one `log_batch` per trial, into SQLite.
- `optuna-1`: the same with one thread, as games so small may gain nothing by the second.
- `platform`: `sweeps run` of the same grid as a study, all resources `auto`, into SQLite.
- `platform-server`: the same into a server of one worker.
- `platform-team`, `reused-team`: as `platform` and `reused`, into the server of `sweeps serve`.

Given to all alike: a store whose schema stands already, its server running for some seconds; an
empty cache of this platform; no telemetry. Stock Ray has
two logical CPUs, a thread each. Not timed: whether the store holds every run, metric and value,
without which a round fails.

`--full` compares whole trials instead, attackers included: this platform's study against stock Ray
Tune, one configuration per trial, whose trial calls this platform's own experiment for it; both
into SQLite, the stock side by its callback with one report per trial.

Rows of `results/end_to_end.csv` (with `--full`, `results/full_trial.csv`): `seconds` is the median
of the rounds that were run, beside the quickest and the slowest; `sweep` is the seconds of the
whole grid, measured or extrapolated as `basis` says, `times_ours` their ratio to `platform`, and
`times_ours_same_store` that to `platform-server` for those who go through a server;
`keys` and `curve_values` are what each run holds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import privnets
import tracking
from benchmarks import recorded, toy
from benchmarks.cleanup import run
from benchmarks.harness import publish
from tests.mlflow_server import free_port, mlflow_server
from tracking.server import ADMIN, team_server

# From tracking URI, folder, points and steps to a command line.
Command = Callable[[str, Path, int, int], list[str]]

_CORES = 2
_PASSWORD = "the password of a benchmark"
# Until the processes of a server at its defaults have all started.
_SETTLING_SECONDS = 10.0
_SETTLED = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_FOREIGN = (
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
    "MLFLOW_TRACKING_URI",
    "OMP_NUM_THREADS",
    "RAY_ADDRESS",
)


@dataclass(frozen=True)
class Contestant:
    """One side of the comparison.

    Attributes:
        name: As `--only` takes it.
        store: Where it records: SQLite, a server of one worker, one at MLflow's defaults, or the
            team server that `sweeps serve` runs. All servers have an SQLite database.
        command: What runs it.
        judged: How releases are judged: a key of `toy.JUDGED`.
        last_only: Whether it records only the last value of each curve.
    """

    name: str
    store: str
    command: Command
    judged: str = "exact"
    last_only: bool = False


@dataclass(frozen=True)
class Entry:
    """A contestant with the grid that it is to run."""

    contestant: Contestant
    points: int


def _command(module: str, *arguments: object) -> list[str]:
    """A module's `main` with some arguments, in a fresh interpreter."""
    code = f"import sys; from benchmarks.{module} import main; main(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def _stock(how: str) -> Command:
    return lambda uri, folder, points, steps: _command("stock_toy", how, uri, folder, points, steps)


def _optuna(threads: int) -> Command:
    return lambda uri, folder, points, steps: _command("optuna_toy", uri, points, steps, threads)


def _platform(judged: str) -> Command:
    def command(uri: str, folder: Path, points: int, steps: int) -> list[str]:
        study = folder / "toy.yaml"
        # JSON is YAML.
        study.write_text(json.dumps(toy.study(points, steps, judged)))
        # The console script stands beside the interpreter.
        sweeps = str(Path(sys.executable).with_name("sweeps"))
        return [sweeps, "run", str(study), "--storage", str(folder), "--tracking-uri", uri]

    return command


_CONTESTANTS = (
    Contestant("platform", "sqlite", _platform("exact")),
    Contestant("platform-server", "server", _platform("exact")),
    Contestant("platform-team", "team server", _platform("exact")),
    Contestant("reused", "server", _stock("reused")),
    Contestant("reused-team", "team server", _stock("reused")),
    Contestant("reused-fused", "server", _stock("reused-fused")),
    Contestant("reused-fused-sqlite", "sqlite", _stock("reused-fused")),
    Contestant("optuna", "sqlite", _optuna(threads=2)),
    Contestant("optuna-1", "sqlite", _optuna(threads=1)),
    Contestant("once", "sqlite", _stock("once"), last_only=True),
    Contestant("callback", "default server", _stock("callback")),
)
_FULL = (
    Contestant("platform", "sqlite", _platform("attackers"), "attackers"),
    Contestant("once", "sqlite", _stock("full"), "attackers", last_only=True),
)


def main() -> None:
    """Measure and publish."""
    options = _options()
    _prepare()
    entries = [
        Entry(contestant, points)
        for contestant in (_FULL if options.full else _CONTESTANTS)
        if options.only is None or contestant.name in options.only.split(",")
        for points in _grids(contestant, options)
    ]
    taken, held = _rounds(entries, options.steps, options.rounds)
    rows = list(_rows(taken, held, options.points, options.steps))
    publish("full_trial" if options.full else "end_to_end", rows)


def _prepare() -> None:
    """Give this process, and so every contestant and server, two cores and the same settings."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CORES])
    os.environ.update(_SETTLED)
    for name in _FOREIGN:
        os.environ.pop(name, None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="whole trials, attackers included")
    parser.add_argument("--rounds", type=int, default=1, help="of all contestants in turn")
    parser.add_argument("--only", help="contestants, by name, with commas between")
    parser.add_argument("--steps", type=int, default=200, help="of a game, a multiple of 20")
    parser.add_argument("--points", type=int, help="of the grid; 64, or 8 with --full")
    parser.add_argument(
        "--callback-points",
        type=int,
        nargs="+",
        default=[8, 16],
        help="grids that `callback` runs: two to extrapolate from, or the whole one",
    )
    options = parser.parse_args()
    options.points = options.points or (8 if options.full else 64)
    if options.steps % toy.EVERY:
        parser.error(f"--steps must be a multiple of {toy.EVERY}")
    names = {contestant.name for contestant in (_FULL if options.full else _CONTESTANTS)}
    if options.only and not set(options.only.split(",")) <= names:
        parser.error(f"--only takes some of {', '.join(sorted(names))}")
    return options


def _grids(contestant: Contestant, options: argparse.Namespace) -> list[int]:
    """Sizes of the grids that a contestant is to run."""
    grids: list[int] = options.callback_points
    return grids if contestant.name == "callback" else [options.points]


def _rounds(
    entries: Sequence[Entry], steps: int, rounds: int
) -> tuple[dict[Entry, list[float]], dict[Entry, recorded.Holdings]]:
    """Seconds of every entry, and what its store held in the end."""
    taken: dict[Entry, list[float]] = {entry: [] for entry in entries}
    held: dict[Entry, recorded.Holdings] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        template = _template(Path(folder))
        for i in range(rounds):
            # The first contestant of a round finds the fewest files in memory.
            first = (i + 1) % len(entries)
            for entry in (*entries[first:], *entries[:first]):
                seconds, held[entry] = _run(entry, steps, template)
                taken[entry].append(seconds)
                told = f"{entry.contestant.name}, {entry.points} points: {seconds:.1f} s"
                print(told, flush=True)
    return taken, held


def _template(folder: Path) -> Path:
    """Creates an empty store in the folder of a contestant, which also gets an empty cache."""
    os.environ["PRIVNETS_CACHE"] = str(folder / "cache")
    tracking.create(f"sqlite:///{folder}/mlflow.db")
    return folder


def _run(entry: Entry, steps: int, template: Path) -> tuple[float, recorded.Holdings]:
    """One round of one contestant: its seconds, and what it recorded."""
    contestant = entry.contestant
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        shutil.copytree(template, folder, dirs_exist_ok=True)
        with _serving(contestant.store, folder) as uri:
            command = contestant.command(uri, folder, entry.points, steps)
            start = time.perf_counter()
            _run_command(command, folder)
            seconds = time.perf_counter() - start
        return seconds, recorded.check(
            f"sqlite:///{folder}/mlflow.db",
            toy.games(entry.points, steps),
            _metrics(contestant.judged),
            last_only=contestant.last_only,
        )


def _metrics(judged: str) -> tuple[str, ...]:
    """The keys that every run is to have: all but flags, which only this platform raises."""
    experiment = privnets.experiment("adversarial")
    keys = experiment.metric_keys(experiment.Config(**toy.fields(toy.EVERY, judged)))
    return tuple(key for key in keys if not key.startswith("flag/"))


@contextmanager
def _serving(store: str, folder: Path) -> Iterator[str]:
    """The URI of the store in a folder, behind a server where one is asked for."""
    if store == "sqlite":
        yield f"sqlite:///{folder}/mlflow.db"
        return
    with ExitStack() as stack:
        if store == "team server":
            os.environ |= {
                "MLFLOW_AUTH_ADMIN_PASSWORD": _PASSWORD,
                "MLFLOW_TRACKING_USERNAME": ADMIN,
                "MLFLOW_TRACKING_PASSWORD": _PASSWORD,
            }
            database = f"sqlite:///{folder}/mlflow.db"
            uri = stack.enter_context(team_server(folder, database, port=free_port())).uri
        else:
            uri = stack.enter_context(mlflow_server(folder, lean=store == "server")).uri
        time.sleep(_SETTLING_SECONDS)
        yield uri


def _run_command(command: Sequence[str], folder: Path) -> None:
    environment = os.environ | {"PRIVNETS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stdout.decode(errors='replace')[-4000:]}")


def _rows(
    taken: Mapping[Entry, Sequence[float]],
    held: Mapping[Entry, recorded.Holdings],
    points: int,
    steps: int,
) -> Iterator[dict[str, object]]:
    """A row per entry; the last of `callback` has what all points would take."""
    medians = {entry: statistics.median(seconds) for entry, seconds in taken.items()}
    ours = {e.contestant.name: median for e, median in medians.items()}
    for entry, seconds in taken.items():
        whole, basis = _of_all(entry, medians, points)
        yield {
            "contestant": entry.contestant.name,
            "steps": steps,
            "points": entry.points,
            "rounds": len(seconds),
            "seconds": round(medians[entry], 1),
            "quickest": round(min(seconds), 1),
            "slowest": round(max(seconds), 1),
            "sweep": "" if whole is None else round(whole, 1),
            "basis": basis,
            "times_ours": _ratio(whole, ours.get("platform")),
            "times_ours_same_store": _ratio(whole, ours.get(_rival(entry.contestant))),
            "keys": held[entry].metric_keys,
            "curve_values": held[entry].curve_values,
        }


def _rival(contestant: Contestant) -> str:
    """This platform with a store of the same kind."""
    return {"sqlite": "platform", "team server": "platform-team"}.get(
        contestant.store, "platform-server"
    )


def _ratio(theirs: float | None, ours: float | None) -> float | str:
    return "" if theirs is None or ours is None else round(theirs / ours, 2)


def _of_all(entry: Entry, medians: Mapping[Entry, float], points: int) -> tuple[float | None, str]:
    """Seconds of the whole grid, and their basis; None where a larger grid gives better ones."""
    if entry.points == points:
        return medians[entry], "measured"
    of_smaller = {
        e.points: median
        for e, median in medians.items()
        if e.contestant == entry.contestant and e.points < entry.points
    }
    if not of_smaller:
        return None, ""
    least = min(of_smaller)
    per_point = (medians[entry] - of_smaller[least]) / (entry.points - least)
    whole = medians[entry] + per_point * (points - entry.points)
    return whole, f"extrapolated from {least} and {entry.points}"


if __name__ == "__main__":
    run(main)
