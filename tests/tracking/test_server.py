"""A team's tracking server requires accounts, shows no secrets, and ends with its owner."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
import pytest
from mlflow import MlflowClient
from mlflow_server import free_port
from support import run_command

import tracking
from privnets.points import Replicate, TradeoffPoint
from tracking.errors import TrackingError
from tracking.server import ServerStoppedError, team_server

NAME = "mlflow.lab.example"
POINT = TradeoffPoint("p", "membership", {"n": 1}, (Replicate(0, {"m": 1.0}),))
CERTIFICATES = Path(tracking.__file__).parents[1] / "cluster" / "deploy" / "tls" / "certificates.sh"


@dataclass
class Served:
    """A running `sweeps serve`, the text that it printed, and all of its processes."""

    process: subprocess.Popen[str]
    uri: str
    output: str
    family: list[psutil.Process]
    home: Path

    @property
    def password(self) -> str:
        return (self.home / "admin-password").read_text().strip()


@contextmanager
def serving(home: Path, port: int) -> Iterator[Served]:
    command = [sys.executable, "-m", "sweeps", "serve", "--data", str(home)]
    with (home.parent / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--allowed-hosts", NAME],
            stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
        )  # fmt: skip
    family: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "mlflow_tracking_password" in line:
                break
        family = psutil.Process(process.pid).children(recursive=True)
        assert output, (home.parent / "stderr").read_text()
        yield Served(process, f"http://127.0.0.1:{port}", output, family, home)
    finally:
        for one in (process, *family):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder / "team", free_port()) as server:
        yield server


@pytest.fixture
def admin(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    log_in(monkeypatch, "admin", served.password)
    return served


def log_in(monkeypatch: pytest.MonkeyPatch, user: str, password: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)


def call(served: Served, path: str, body: dict[str, Any], **headers: str) -> int:
    """Status of a POST with the credentials of the environment."""
    from mlflow.utils.credentials import read_mlflow_creds
    from requests.auth import _basic_auth_str

    who = read_mlflow_creds()
    request = urllib.request.Request(
        f"{served.uri}/api/2.0/mlflow/{path}", json.dumps(body).encode(),
        {"Content-Type": "application/json",
         "Authorization": _basic_auth_str(who.username, who.password), **headers},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_user_with_an_account_records_and_reads(admin: Served) -> None:
    replicate = Replicate(0, {"m": 1.0}, artifacts={"picture.png": b"not really"})
    point = TradeoffPoint("a", "membership", {"n": 1}, (replicate,))
    tracking.check(admin.uri)
    assert tracking.record([point], sweep="first", study="shared", tracking_uri=admin.uri) == 1
    assert list(tracking.load_points("first", admin.uri)["m"]) == [1.0]
    kept = [path.read_bytes() for path in (admin.home / "artifacts").rglob("picture.png")]
    assert kept == [b"not really"], "artifacts go through the server"


@pytest.mark.parametrize("password", ["wrong, but long enough", ""])
def test_wrong_or_missing_credentials_are_one_sentence(
    admin: Served, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    if password:
        log_in(monkeypatch, "admin", password)
    else:
        monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
        monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    with pytest.raises(TrackingError, match="rejects the credentials") as caught:
        tracking.check(admin.uri)
    output = str(caught.value)
    assert "MLFLOW_TRACKING_PASSWORD" in output
    assert "\n" not in output
    assert not password or password not in output
    with pytest.raises(TrackingError, match="rejects the credentials"):
        tracking.record([POINT], sweep="s", tracking_uri=admin.uri)


def test_another_account_adds_to_a_study_and_cannot_create_accounts(
    admin: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking.record([POINT], sweep="of the admin", study="begun", tracking_uri=admin.uri)
    one = {"username": "ada", "password": "long enough for MLflow"}
    assert call(admin, "users/create", one) == 200
    log_in(monkeypatch, **{"user": one["username"], "password": one["password"]})
    assert tracking.record([POINT], sweep="hers", study="begun", tracking_uri=admin.uri) == 1
    assert list(tracking.load_points("hers", admin.uri)["m"]) == [1.0]
    another = {"username": "eve", "password": "long enough for MLflow"}
    assert call(admin, "users/create", another) == 403


def test_many_calls_at_once_succeed(admin: Served) -> None:
    """Each call holds two connections to the database, of which MLflow's default is 15."""
    tracking.record([POINT], sweep="many calls", tracking_uri=admin.uri)
    client = MlflowClient(admin.uri)
    experiment = client.get_experiment_by_name("many calls").experiment_id
    with ThreadPoolExecutor(40) as pool:
        assert len(list(pool.map(lambda _: client.create_run(experiment), range(80)))) == 80


def test_only_requests_by_its_names_and_from_its_pages_are_allowed(admin: Served) -> None:
    """A browser sends the name that it called, and the page that it is on."""
    port = admin.uri.rpartition(":")[2]
    asked = "experiments/search", {"max_results": 1}
    assert call(admin, *asked, Host=f"{NAME}:{port}") == 200
    assert call(admin, *asked, Host=NAME) == 200
    assert call(admin, *asked, Host=f"evil.example:{port}") == 403
    assert call(admin, *asked, Origin=f"http://{NAME}:{port}") == 200
    assert call(admin, *asked, Origin=f"https://{NAME}") == 200
    assert call(admin, *asked, Origin="https://evil.example") == 403


def test_no_command_line_and_no_output_contains_a_secret(served: Served) -> None:
    assert len(served.password) >= 32
    shown = [" ".join(process.cmdline()) for process in served.family]
    assert any("basic-auth" in command for command in shown)
    shown += [served.output, (served.home.parent / "stderr").read_text()]
    assert not [text for text in shown if served.password in text]
    assert str(served.home / "admin-password") in served.output


def test_its_files_are_closed_to_other_users(served: Served) -> None:
    files = ("admin-password", "accounts.ini", "accounts.db", "mlflow.db")
    for name in (".", *files):
        assert not stat.S_IMODE((served.home / name).stat().st_mode) & 0o077, name


def test_it_listens_on_loopback_alone(served: Served) -> None:
    listening = {
        connection.laddr.ip
        for process in served.family
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


# The last two of those that share the server: the first ends it.
def kill(served: Served) -> None:
    """Records a point and kills the server; does nothing if that was done."""
    if served.process.poll() is None:
        tracking.record([POINT], sweep="kept", tracking_uri=served.uri)
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait()


def test_a_killed_server_leaves_no_process(admin: Served) -> None:
    kill(admin)
    assert_gone(admin.family, int(admin.uri.rpartition(":")[2]))


@pytest.mark.slow
def test_a_killed_server_starts_again_with_its_data(admin: Served) -> None:
    port = int(admin.uri.rpartition(":")[2])
    kill(admin)
    assert_gone(admin.family, port)
    with serving(admin.home, port) as again:
        assert list(tracking.load_points("kept", again.uri)["m"]) == [1.0]
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(120) == 128 + signal.SIGTERM
        assert_gone(again.family, port)


def assert_gone(family: list[psutil.Process], port: int) -> None:
    assert psutil.wait_procs(family, timeout=240)[1] == []
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))


@pytest.mark.slow
def test_postgres_tls_and_a_password_from_the_environment(
    postgres_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow puts artifacts into ./mlruns beside such a database
    subprocess.run([CERTIFICATES, tmp_path / "tls", "localhost"], check=True, capture_output=True)
    own = tmp_path / "tls" / "localhost"
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", "of the environment")
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(own / "ca.crt"))
    log_in(monkeypatch, "admin", "of the environment")
    port, data = free_port(), tmp_path / "data"
    tls = (own / "tls.crt", own / "tls.key")
    with team_server(data, postgres_uri, port=port, tls=tls) as team:
        assert team.uri == f"https://127.0.0.1:{port}"
        tracking.record([POINT], sweep="s", tracking_uri=team.uri)
        assert list(tracking.load_points("s", team.uri)["m"]) == [1.0]
        assert not (data / "admin-password").exists()
        assert not (data / "mlflow.db").exists()
        team.process.kill()
        with pytest.raises(ServerStoppedError, match="ended by itself"):
            team.wait()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "give --allowed-hosts"),
        ({"host": "::"}, "give --allowed-hosts"),
        ({"host": "no.such.host.invalid", "allowed_hosts": ["x"]}, "cannot listen on no.such"),
        ({"database": "not a uri"}, "cannot be used"),
        ({"database": "postgresql://me:hidden@127.0.0.1:1/x"}, "cannot be used: .*refused"),
    ],
)
def test_wrong_options_are_refused_before_the_server_starts(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with (
        pytest.raises(TrackingError, match=message) as refused,
        team_server(tmp_path / "home", **{"port": free_port(), **options}),
    ):
        pass
    assert "hidden" not in str(refused.value)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with (
            pytest.raises(TrackingError, match="another --port"),
            team_server(tmp_path / "home", port=port),
        ):
            pass


def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "admin-password").write_text("x" * 32)
    (tmp_path / "admin-password").chmod(0o644)
    with pytest.raises(TrackingError, match="chmod 600"), team_server(tmp_path, port=free_port()):
        pass


def test_a_password_on_the_command_line_is_refused_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("postgresql://me:hidden@there/x", "postgresql://there/x?user=me&password=hidden"):
        ended = run_command("serve", "--database", uri, "--data", "d")
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert "~/.pgpass" in ended.stderr
        assert "hidden" not in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
