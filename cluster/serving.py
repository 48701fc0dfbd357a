"""A tracking server for a team: MLflow on PostgreSQL, with accounts, on one machine."""

from __future__ import annotations

import base64
import configparser
import importlib.util
import io
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cluster.errors import ServingRefused
from cluster.guests import ServerFailed
from cluster.mlflow_process import Certificate, Place, serving
from cluster.ports import check_port, is_loopback
from cluster.postgres import postgres
from cluster.secrets import check_private, kept_secret, write_secret
from cluster.uris import holds_secret, names_secret

if TYPE_CHECKING:
    from sqlalchemy import URL

Permission = Literal["READ", "EDIT", "MANAGE", "NO_PERMISSIONS"]
Server = tuple[str, subprocess.Popen[bytes]]
"""Its name, and its process."""

ADMIN = "admin"
PASSWORD = "MLFLOW_AUTH_ADMIN_PASSWORD"

_LEAST_PASSWORD = 12
_CONNECT_SECONDS = 5
_LOOK_SECONDS = 1.0
_CACHE_SECONDS = 60
_HERE = ("localhost", "127.0.0.1")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ALLOWED = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9*.-]+(:[0-9*]+)?")


@dataclass(frozen=True)
class TeamServer:
    """A tracking server that answers.

    Attributes:
        uri: Where this machine finds it.
        database: Its database, without a password.
        artifacts: Where it keeps artifacts.
        password_file: That holds the admin's password; None if the environment does.
        password_fits: Whether that password is the admin's: a database that was in use before
            keeps the one that it had.
    """

    uri: str
    database: str
    artifacts: str
    password_file: Path | None
    password_fits: bool
    _servers: tuple[Server, ...]

    def wait(self) -> None:
        """Stay until one of its servers ends.

        Raises:
            ServerFailed: When one has ended by itself.
        """
        while True:
            for name, server in self._servers:
                if server.poll() is not None:
                    code = server.returncode
                    raise ServerFailed(f"the {name} server ended by itself (exit code {code})")
            try:
                self._servers[0][1].wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def serve(
    database: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 5000,
    artifacts: str | None = None,
    allowed_hosts: Sequence[str] = (),
    data: Path | str = "sweeps-server",
    workers: int = 1,
    permission: Permission = "EDIT",
    certificate: Certificate | None = None,
) -> Iterator[TeamServer]:
    """Serve a team's runs while the block runs; then, or when this process dies, all of it ends.

    Every request needs an account. The first is `admin`, whose password is that of the variable
    MLFLOW_AUTH_ADMIN_PASSWORD or else in `<data>/admin-password`, made up at the first start.

    Args:
        database: A PostgreSQL's URI; None for one of our own, kept in `<data>/postgres`.
        host: The address that it listens on.
        port: A free one.
        artifacts: A directory, or a URI that MLflow can write to; `<data>/artifacts` by default.
        allowed_hosts: The names under which clients reach it, as in `mlflow.lab.example` or
            `10.0.0.7`; those that listen beyond loopback need at least one.
        data: A directory for secrets and whatever else has no other place; made if need be.
        workers: How many processes answer; one is the fastest.
        permission: What an account may do with what others recorded; to add to a study that
            somebody else began, it takes EDIT.
        certificate: For TLS.

    Yields:
        The server, once it answers.

    Raises:
        ServingRefused: If it cannot be started so; nothing was.
        SecretRefused: If a file of a secret cannot be trusted.
        ServerFailed: If MLflow or PostgreSQL does not start.
    """
    place = Place(host, port, certificate)
    names = _hosts(host, allowed_hosts)
    _check(place, artifacts)
    given = None if database is None else _checked(database)
    home = _home(Path(data))
    kept = artifacts or str(home / "artifacts")
    options = _options(kept, names, allowed_hosts)
    with _alone(home):
        secrets, password_file = _secrets(home)
        with _database(given, home) as (store, own):
            secrets["MLFLOW_AUTH_CONFIG_PATH"] = str(_configure(home, store, permission, workers))
            with serving(store, place, options, secrets, workers) as mlflow:
                fits, shown = _accepted(place, secrets[PASSWORD]), _redacted(store)
                servers = (("MLflow", mlflow), *own)
                yield TeamServer(place.uri, shown, kept, password_file, fits, servers)


@contextmanager
def _database(given: str | None, home: Path) -> Iterator[tuple[str, tuple[Server, ...]]]:
    """The database to use, with the server of one of our own."""
    if given is not None:
        yield given, ()
        return
    with postgres(home / "postgres") as (store, server):
        yield store, (("PostgreSQL", server),)


def _check(place: Place, artifacts: str | None) -> None:
    """Refuse what would not start, or not be safe."""
    _check_installed()
    _check_certificate(place.certificate)
    if artifacts is not None and holds_secret(artifacts):
        raise ServingRefused(
            "artifacts must not hold a password or key, which every user of this machine could "
            "read on the server's command line: put credentials into its environment, as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    check_port(place.host, place.port)


def _options(artifacts: str, names: Sequence[str], allowed_hosts: Sequence[str]) -> list[str]:
    """Of MLflow's server."""
    options = ["--app-name", "basic-auth", "--serve-artifacts"]
    options += ["--artifacts-destination", artifacts, "--allowed-hosts", ",".join(names)]
    if allowed_hosts:
        options += ["--cors-allowed-origins", ",".join(_origins(allowed_hosts))]
    return options


def _hosts(host: str, allowed: Sequence[str]) -> list[str]:
    """The Host headers to answer to, as MLflow's patterns: with and without a port."""
    if not allowed and not is_loopback(host):
        raise ServingRefused(
            f"a server that listens on {host} must know by which names clients may call it, or any "
            "web page could reach it through its reader's browser: give --allowed-hosts "
            "NAME[,NAME...]"
        )
    for name in allowed:
        if not _ALLOWED.fullmatch(name):
            raise ServingRefused(
                f"--allowed-hosts takes names and IPv4 addresses, as in mlflow.lab.example or "
                f"*.lab.example, with or without a port; got {name!r}"
            )
    # In these patterns a bracket begins a set of characters.
    own = f"[[]{host}]" if ":" in host else host
    found = [pattern for name in (*_HERE, "[[]::1]", own) for pattern in (name, f"{name}:*")]
    for name in allowed:
        found += [name] if ":" in name else [name, f"{name}:*"]
    return list(dict.fromkeys(found))


def _origins(allowed: Sequence[str]) -> list[str]:
    """Whose pages may change things: the server's own, which MLflow does not tell from others.

    It knows those of this machine.
    """
    hosts = [host for name in allowed for host in ([name] if ":" in name else [name, f"{name}:*"])]
    return [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]


def _check_installed() -> None:
    missing = [name for name in ("flask_wtf", "psycopg2") if not importlib.util.find_spec(name)]
    if missing:
        raise ServingRefused(
            f"a server needs what is not installed here ({', '.join(missing)}): "
            "pip install 'privnets-sweeps[server]'"
        )


def _check_certificate(certificate: Certificate | None) -> None:
    if certificate is None:
        return
    check_private(certificate.key)
    if not os.access(certificate.certificate, os.R_OK):
        raise ServingRefused(f"{certificate.certificate} cannot be read; TLS takes a certificate")


def _checked(database: str) -> str:
    """A database's URI, with the driver that is installed, once it has answered."""
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    url = _url(database)
    if url.get_backend_name() != "postgresql":
        raise ServingRefused(
            f"a team's database must be postgresql://USER@HOST:PORT/NAME; got {_redacted(database)}"
        )
    url = url.set(drivername="postgresql+psycopg2")
    engine = sqlalchemy.create_engine(url, connect_args={"connect_timeout": _CONNECT_SECONDS})
    try:
        engine.connect().close()
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise ServingRefused(f"{_redacted(database)} cannot be used: {reason}") from None
    finally:
        engine.dispose()
    return url.render_as_string(hide_password=False)


def _url(database: str) -> URL:
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError

    try:
        return sqlalchemy.make_url(database)
    except (ArgumentError, ValueError):
        # What it was may hold a password.
        raise ServingRefused(
            "a database must be postgresql://USER@HOST:PORT/NAME; what was given is no URI"
        ) from None


def _redacted(database: str) -> str:
    url = _url(database)
    query = {name: value for name, value in url.query.items() if not names_secret(name)}
    return url.set(drivername=url.get_backend_name(), query=query).render_as_string()


def _home(data: Path) -> Path:
    home = data.expanduser().absolute()
    try:
        # PostgreSQL does not run as root, and has to get through.
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ServingRefused(f"{home}: {error.strerror}; give another --data") from error
    if home.stat().st_uid != os.geteuid() or home.stat().st_mode & _WRITABLE:
        raise ServingRefused(
            f"{home} is to keep secrets and others may write to it: give a --data of your own, or "
            f"chmod go-w {home}"
        )
    (home / "artifacts").mkdir(mode=0o700, exist_ok=True)
    return home


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(home / ".lock", timeout=0, mode=0o600):
            yield
    except Timeout as error:
        raise ServingRefused(f"another server runs in {home}: give another --data") from error


def _secrets(home: Path) -> tuple[dict[str, str], Path | None]:
    password = os.environ.get(PASSWORD, "").strip()
    file = None if password else home / "admin-password"
    if file is not None:
        password = kept_secret(file)
    if len(password) < _LEAST_PASSWORD:
        raise ServingRefused(
            f"the admin's password ({file or PASSWORD}) must have at least {_LEAST_PASSWORD} "
            "characters"
        )
    # Signs the forms of its pages, so it must outlive a restart.
    key = kept_secret(home / "session-key")
    return {PASSWORD: password, "MLFLOW_FLASK_SERVER_SECRET_KEY": key}, file


def _configure(home: Path, database: str, permission: Permission, workers: int) -> Path:
    """Write MLflow's settings of accounts, which hold the database's password if it has one."""
    settings = configparser.ConfigParser(interpolation=None)
    settings["mlflow"] = {
        "default_permission": permission,
        "database_uri": database.replace("%", "%%"),
        "admin_username": ADMIN,
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        # A password is costly to check. Several workers would not learn of a change from another.
        "auth_cache_ttl_seconds": str(_CACHE_SECONDS if workers == 1 else 0),
    }
    text = io.StringIO()
    settings.write(text)
    path, aside = home / "accounts.ini", home / "accounts.ini.new"
    aside.unlink(missing_ok=True)
    write_secret(aside, text.getvalue())
    os.replace(aside, path)
    return path


def _accepted(place: Place, password: str) -> bool:
    credentials = base64.b64encode(f"{ADMIN}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}"}
    return place.ask("/api/2.0/mlflow/users/current", headers) == 200
