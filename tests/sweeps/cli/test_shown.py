"""Secrets in URIs are recognised by the same names wherever they are rejected or redacted."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support import run_command

from privnets.credentials import holds_secret, redact, strip_credentials

WITH_SECRETS = [
    "http://ann:hunter2@host:5000/path",
    "HTTPS://hunter2@host",
    "s3://AKIA1:hunter2/hunter2+x@host/path?region=eu",
    "s3://AKIA1%3Ahunter2@host",
    "abfs://files:hunter2@host",
    "abfs://files@host/path?account_key=hunter2",
    "postgresql+psycopg2://ann:p@ss/hun'hunter2@host/db",
    "postgresql://ann:hunter?hunter2@host/db",
    "postgresql:///host?user=ann&password=p@hunter2",
    "postgresql://host/db?sslmode=require&p%61ssword=hunter2",
    "https://host/x?X-Amz-Credential=a&X-Amz-Signature=hunter2",
    "https://host/x?X-Amz-Security-Token=hunter2",
    "https://host/x?key=hunter2",
    "https://host/x?a=1;sig=hunter2",
    "gs://host/x?access_token=hunter2",
    "mssql+pyodbc:///?odbc_connect=Server%3Dhost%3BPWD%3Dhunter2",
    "--tracking-uri=https://host?token=hunter2",
    "no route to host 'http://ann:hunter2@host', try again",
    "host=host password=hunter2",
    "postgresql://ann:p hunter2@host/db",
    "http://ann:p\nhunter2@host:5000",
    "http://ann:1\thunter2@host",
    "http://to hunter2@host",
    "s3://AKIA1:a /hunter2 b@host/x",
    "no route to host at 'http://ann:p hunter2@host', try again",
    "//ann:hunter2@host/x",
    "--storage //ann:hunter2@host/x",
    "https://host/x?bearer=hunter2",
    "https://host/x?Authorization=hunter2",
    "https://host/x?jwt=hunter2",
    "https://host/x?pw=hunter2",
    "https://host/x#access_token=hunter2",
    "host PGPASSWORD=hunter2 psql",
    "host AWS_SECRET_ACCESS_KEY=hunter2",
]
NESTED = f"https://host/{'?a=' * 300}hunter2"
WITHOUT = [
    "http://host:5000/path?a=b",
    "s3://bucket/path?region=eu&endpoint_override=host:9000",
    "abfs://files@account.dfs.core.windows.net/path",
    "gs://anonymous@bucket/path",
    "hdfs://ann@host:8020/path",
    "postgresql://host/db?sslkey=/a/key.pem&passfile=/a/b",
    "sqlite:////tmp/an@odd:name@x/mlflow.db?timeout=9",
    "/shared/a:b@c",
    "--set fixed.tokens=512 fixed.key=3",
    "sweeps submit a.yaml --address http://head:8265 --storage /shared/a@b",
    "sweeps submit a.yaml --address http://[::1]:8265 --storage /shared/a@b",
    "//shared/ann@lab/results",
    "RAY_AUTH_MODE=token",
]
# Minutes' work for a rule that tries every start, each with all of what follows.
LONG = 1_000_000
REPEATED = ["://", "a://", "://a:", "//a:", "?a=://"]
HOSTILE = [
    *(some * (LONG // len(some)) for some in REPEATED),
    "://" + "%3a" * (LONG // 3),
    "@" + "://a" * (LONG // 4),
]


@pytest.mark.parametrize("text", [*WITH_SECRETS, NESTED])
def test_what_is_secret_is_refused_and_never_shown(text: str) -> None:
    assert holds_secret(text)
    assert "hunter2" not in redact(text)
    assert "host" in redact(text) or "odbc" in text


@pytest.mark.parametrize("uri", [text for text in WITH_SECRETS if re.match(r"[\w+]+://", text)])
def test_what_is_secret_is_not_written_down(uri: str) -> None:
    assert "hunter2" not in strip_credentials(uri)


@pytest.mark.parametrize("text", WITHOUT)
def test_what_is_not_secret_may_be_handed_over(text: str) -> None:
    assert not holds_secret(text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_time_grows_with_the_length_alone(text: str) -> None:
    for judge in (holds_secret, redact, strip_credentials):
        start = time.process_time()
        judge(text)
        assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "words",
    [
        ["status", "s", "--address", "http://127.0.0.1:1", "--storage", "s3://k:hunter2@host/x"],
        ["submit", "quickstart", "--address", "http://127.0.0.1:1/?token=hunter2"],
        ["serve", "--database", "postgresql://ann:hunter2@host/db"],
        ["serve", "--artifacts", "s3://key:hunter2@host/x"],
        ["resume", "s", "--storage", "nosuch://host/x?token=hunter2"],
        ["points", "s", "--storage", "file:///x/host?password=hunter2"],
    ],
)
def test_no_refusal_repeats_a_secret(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run_command(*words)
    assert ended.exit_code == 2, ended.stderr
    assert ended.stderr.startswith("Error: ")
    assert "hunter2" not in ended.stderr + ended.stdout
    assert list(tmp_path.iterdir()) == []
