"""Settings of all tests: no outside services, fixed draws, a known data directory and cache."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from ray_head import Head, ray_head

_CHECKOUT = str(Path(__file__).resolve().parents[1])
_TURNSTILE = Path(__file__).parent / "sweeps" / "turnstile"
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_CACHE = pytest.StashKey[TemporaryDirectory[str]]()
_ITEM = pytest.StashKey[list[pytest.Item]]()
_CLUSTER = pytest.StashKey[ExitStack]()
_ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "SE_OFFLINE": "true",
}
_FOREIGN = ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")

# Hypothesis's own deadline of 200 ms and its check on slow draws fail on a busy machine alone.
settings.register_profile(
    "thorough",
    derandomize=True,
    deadline=timedelta(seconds=120),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=50)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("privnets")
    group.addoption("--slow", action="store_true", help="also run the tests marked slow")
    group.addoption("--gpu", action="store_true", help="also run the tests marked gpu")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.getoption("--slow") else "quick")
    if version("ray").startswith("2.52."):
        # It announces a change (the dot stands for a colon), and does not wait for its servers.
        config.addinivalue_line("filterwarnings", "ignore:Tip. In future versions:FutureWarning")
        config.addinivalue_line("filterwarnings", "ignore:subprocess .* still:ResourceWarning")
    # Before collection: the skip marks in test modules already look for the data.
    os.environ.update(_ENVIRONMENT)
    for name in _FOREIGN:
        os.environ.pop(name, None)
    paths = [_CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # Subprocesses run this checkout.
    if _DATA.is_dir():
        os.environ.setdefault("PRIVNETS_DATA", str(_DATA))
    # A run in the background inherits an ignored SIGINT, which processes of tests must receive.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = TemporaryDirectory(prefix="privnets-cache-")
    config.stash[_CACHE] = cache
    os.environ["PRIVNETS_CACHE"] = cache.name
    config.stash[_CLUSTER] = ExitStack()
    config.stash[_ITEM] = []
    sys.addaudithook(lambda event, told: _check_ray(config, event, told))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_CLUSTER].close()
    config.stash[_CACHE].cleanup()


@pytest.hookimpl(tryfirst=True)  # before they are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "local_ray" in _fixtures(item):
            item.add_marker("ray")
    # The node of `pair` stays until the cluster ends; jobs with files cannot run beside it.
    places = [place for place, item in enumerate(items) if _uses_cluster(item)]
    users = sorted((items[place] for place in places), key=lambda item: "pair" in _fixtures(item))
    for place, item in zip(places, users, strict=True):
        items[place] = item
    for mark, reason in (
        ("slow", "slow: runs with --slow"),
        ("gpu", "needs a CUDA device: runs with --gpu"),
    ):
        if not config.getoption(f"--{mark}"):
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)  # before fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_ITEM][:] = [item]


@pytest.hookimpl(trylast=True)  # after fixtures
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Ends the cluster with the last test that uses it, as its idle processes take CPU time."""
    if _uses_cluster(item) and item is [i for i in item.session.items if _uses_cluster(i)][-1]:
        item.config.stash[_CLUSTER].close()


def _uses_cluster(item: pytest.Item) -> bool:
    return "cluster_nodes" in _fixtures(item)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _check_ray(config: pytest.Config, event: str, told: Sequence[object]) -> None:
    """Fails a test that starts Ray without the mark `ray`: those tests run in sequence.

    Raises:
        RuntimeError: If this process starts one, and its test lacks the mark.
    """
    if event != "subprocess.Popen" or not (isinstance(told[1], list) and told[1]):
        return
    words = [str(word) for word in told[1]]
    starts = {"ray.scripts.scripts", "start"} <= {*words} or words[0].endswith("/gcs_server")
    if starts and any(not item.get_closest_marker("ray") for item in config.stash[_ITEM]):
        raise RuntimeError("a test that starts a Ray must have the mark `ray`")


@pytest.fixture(scope="session")
def head_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the home of `head`, its data directory, and tickets for its turnstile."""
    folder = tmp_path_factory.mktemp("head")
    for name in ("home", "data", "tickets"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="session")
def cluster_nodes(pytestconfig: pytest.Config) -> ExitStack:
    """Holds the nodes of the cluster that tests share until its last test has ended."""
    return pytestconfig.stash[_CLUSTER]


@pytest.fixture(scope="session")
def head(cluster_nodes: ExitStack, head_folder: Path) -> Head:
    """Head of a cluster of one CPU for all tests, with a job server; it can train `turnstile`."""
    variables = {
        "HOME": str(head_folder / "home"),
        "PRIVNETS_DATA": str(head_folder / "data"),
        "PRIVNETS_TURNSTILE": str(head_folder / "tickets"),
        "PYTHONPATH": os.pathsep.join([str(_TURNSTILE), _CHECKOUT]),
        "WHO": "the head",
    }
    return cluster_nodes.enter_context(ray_head(cpus=1, **variables))
