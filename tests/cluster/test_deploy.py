"""Files for deployment are well formed, agree with each other, and their commands exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

import cluster
import sweeps

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = Path(cluster.__file__).parent / "deploy"
SCRIPTS = ["compose/secrets.sh", "slurm/sweep.sbatch", "tls/certificates.sh"]
PAGES = sorted(DEPLOY.rglob("*.md"))


def read(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


def blocks(page: Path) -> Iterator[str]:
    """Lines of a page's blocks of commands, those that go on joined."""
    for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()


def commands() -> list[str]:
    """Every command of `sweeps` that a page or a manifest gives."""
    pages = [line for page in PAGES for line in blocks(page)]
    found = [line.partition(" #")[0] for line in pages if line.startswith("sweeps ")]
    entrypoint = read("kuberay/job/rayjob.yaml")["spec"]["entrypoint"]
    return [*found, entrypoint.removeprefix("python -m ")]


def ours(command: str) -> list[str]:
    """A command's arguments, split as a shell would."""
    return shlex.split(command.rstrip("& "))[1:]


@pytest.mark.parametrize("command", commands())
def test_commands_that_are_told_exist_with_their_options(command: str) -> None:
    from sweeps.cli.main import app

    name, *arguments = ours(command)
    group = typer.main.get_command(app)
    context = group.make_context("sweeps", [name, *arguments], resilient_parsing=False)
    _, called, rest = group.resolve_command(context, [name, *arguments])  # type: ignore[attr-defined]
    assert called.make_context(name, rest, parent=context).command is called


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_parse_and_may_be_run(script: str) -> None:
    subprocess.run(["bash", "-n", DEPLOY / script], check=True)
    assert os.access(DEPLOY / script, os.X_OK)
    assert "set -euo pipefail" in (DEPLOY / script).read_text()


def test_no_file_holds_a_secret() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix in (".yaml", ".yml", ".sh", ".sbatch", ".conf", ".md"):
            assert not re.search(
                r"(?i)(token|password|secret)\S*[=:]\s*[0-9a-f]{16}", path.read_text()
            )


# KubeRay


def test_the_ray_job_is_retried_on_the_same_cluster_and_resumes() -> None:
    manifest = read("kuberay/job/rayjob.yaml")
    spec = manifest["spec"]
    assert spec["backoffLimit"] >= 1
    assert f"--name {manifest['metadata']['name']} " in spec["entrypoint"]
    assert "--address auto " in spec["entrypoint"]
    assert yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]["RAY_JOB_STOP_SIGNAL"] == "SIGINT"
    assert without_study(spec["rayClusterSpec"]) == read("kuberay/cluster/raycluster.yaml")["spec"]


def without_study(spec: dict[str, Any]) -> dict[str, Any]:
    pod = spec["headGroupSpec"]["template"]["spec"]
    *volumes, study = pod["volumes"]
    assert study == {"name": "study", "configMap": {"name": "sweeps-study"}}
    pod["volumes"] = volumes
    (head,) = pod["containers"]
    *head["volumeMounts"], mount = head["volumeMounts"]
    assert mount == {"name": "study", "mountPath": "/etc/sweeps"}
    return spec


def test_a_cluster_requires_a_token_and_its_pods_have_no_rights() -> None:
    spec = read("kuberay/cluster/raycluster.yaml")["spec"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={spec['rayVersion']}" in pins, "the image has the pinned versions"
    assert spec["authOptions"] == {"mode": "token", "secretName": "sweeps-ray-token"}
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            for variable in container.get("env", []):
                assert set(variable) == {"name", "valueFrom"}, "secrets come from Secrets"


def test_the_study_that_the_job_runs_is_one() -> None:
    study = sweeps.load(str(DEPLOY / "kuberay/job/study.yaml"))
    assert study.name == read("kuberay/job/rayjob.yaml")["metadata"]["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize(("folder", "kinds"), [
    ("storage", {"PersistentVolumeClaim"}),
    ("cluster", {"RayCluster"}),
    ("job", {"ConfigMap", "RayJob"}),
])  # fmt: skip
def test_kustomize_sets_the_image_everywhere(folder: str, kinds: set[str]) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "kuberay" / folder],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {document["kind"] for document in yaml.safe_load_all(built.stdout)} == kinds
    assert set(re.findall(r"\bimage: (.*)", built.stdout)) <= {"registry.example/sweeps:0.2.0"}
    assert "*" not in built.stdout, "nothing is left for others to resolve"


# Machines of one's own


def test_the_cluster_file_is_what_rays_schema_and_ray_itself_want() -> None:
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = read("onpremise/cluster.yaml")
    schema = Path(ray.autoscaler.__file__).parent / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema.read_text()))
    config["file_mounts"] = {}  # of the machine that runs `ray up`
    ready = prepare_config(config)
    validate_config(ready)
    assert ready["max_workers"] == len(config["provider"]["worker_ips"])


# Compose


def test_compose_offers_nothing_beyond_loopback_and_nothing_runs_as_root() -> None:
    services = read("compose/compose.yaml")["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 2
    assert all(re.match(r"\$\{\w+:-127\.0\.0\.1:\d+\}:\d+$", port) for port in ports)
    for name in ("mlflow", "head", "worker"):
        assert services[name]["user"] == "${SWEEPS_USER_ID:-1000}"
        assert services[name]["cap_drop"] == ["ALL"]


def test_the_secrets_of_compose_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    script, folder = DEPLOY / "compose/secrets.sh", tmp_path / "secrets"
    subprocess.run([script, folder], check=True, capture_output=True)
    wanted = {
        path["file"].rpartition("/")[2] for path in read("compose/compose.yaml")["secrets"].values()
    }
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == wanted
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    random = [made[name] for name in ("ray_token", "mlflow_password", "postgres_password")]
    assert len(set(random)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{64}", secret) for secret in random)
    assert made["postgres_passfile"] == f"postgres:5432:mlflow:mlflow:{made['postgres_password']}\n"
    again = subprocess.run([script, folder], check=True, capture_output=True, text=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == made
    assert not [secret for secret in random if secret in again.stdout + again.stderr]


def test_mlflow_itself_understands_the_credentials_of_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.utils.credentials import read_mlflow_creds

    subprocess.run([DEPLOY / "compose/secrets.sh", tmp_path], check=True, capture_output=True)
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / "mlflow_credentials").rename(tmp_path / ".mlflow" / "credentials")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    assert tuple(read_mlflow_creds()) == ("admin", (tmp_path / "mlflow_password").read_text())


# The image


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, those that go on joined."""
    text = (DEPLOY / "image/Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_copies_what_there_is_and_ends_as_a_user_without_rights() -> None:
    copied = [name for word, rest in steps() if word == "COPY" for name in rest.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    packages = {"cluster", "privnets", "sweeps", "tracking"}
    assert packages | {"pyproject.toml", "constraints.txt"} <= set(copied)
    assert [rest for word, rest in steps() if word == "USER"] == ["sweeps"]


# TLS


def openssl(*arguments: str | Path) -> str:
    return subprocess.run(
        ["openssl", *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_each_node_gets_a_certificate_of_its_own_for_all_its_names(tmp_path: Path) -> None:
    script = DEPLOY / "tls/certificates.sh"
    subprocess.run([script, tmp_path, "head.example,10.0.0.1", "10.0.0.2"], check=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in before} == {0o600}
    for node, names in {
        "head.example": {"DNS:head.example", "IP Address:10.0.0.1"},
        "10.0.0.2": {"IP Address:10.0.0.2"},
    }.items():
        own = tmp_path / node
        assert sorted(path.name for path in own.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
        for purpose in ("sslserver", "sslclient"):
            openssl("verify", "-purpose", purpose, "-CAfile", own / "ca.crt", own / "tls.crt")
        listed = openssl("x509", "-in", own / "tls.crt", "-noout", "-ext", "subjectAltName")
        assert names <= set(re.split(r",\s*|\n\s*", listed.strip()))
    subprocess.run([script, tmp_path, "10.0.0.2", "new.example"], check=True)
    assert all(path.read_bytes() == content for path, content in before.items())
    openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "new.example/tls.crt")
