"""The commands on the pages of `cluster/deploy`, run as the pages say.

Each test has its own network, processes and directory of Ray, so it may listen beyond loopback.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_deploy import DEPLOY, ROOT, steps

import sweeps

ADDRESS = "10.77.0.1"
_MACHINE = f"""
ip link set lo up
ip address add {ADDRESS}/24 dev lo
ip route add default dev lo src {ADDRESS}
mkdir -p /tmp/ray
mount -t tmpfs none /tmp/ray
"""
_FOREIGN = ("RAY_", "MLFLOW_", "PYTEST_")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None,
        reason="only root makes itself a machine, with unshare and ip",
    ),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as made:
        Path(made).chmod(0o711)
        yield Path(made)


def on_a_machine(
    script: str, environment: dict[str, str], timeout: float = 1200, alone: bool = True
) -> str:
    """Output of a bash script in namespaces of its own.

    Raises:
        AssertionError: If it fails.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    kept["USER"] = getpass.getuser()  # as after a login
    own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    machine = ["--net", *own] if alone else own
    done = subprocess.run(
        ["unshare", *machine, "bash", "-euc", (_MACHINE if alone else "") + script],
        env=kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"} | environment,
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


# Stand-ins that really start the processes: each of the two nodes is this machine.
_SCONTROL = """#!/bin/bash
case "$1 $2" in
    "show hostnames") printf '%s\\n' node1 node2 ;;
    requeue*) touch "$SLURM_STAND_IN/requeued" ;;
esac
"""
_SRUN = """#!/bin/bash
nodes=1
while [[ "$1" == --* ]]; do
    case "$1" in --ntasks=*) nodes=${1#*=} ;; esac
    shift
done
started=()
for _ in $(seq "$nodes"); do "$@" & started+=($!); done
trap 'kill -TERM "${started[@]}"' TERM INT
code=0
for one in "${started[@]}"; do wait "$one" || code=$?; done
wait
exit "$code"
"""
# As Slurm does: the script has SIGINT at its default, and gets it alone.
_ALLOCATION = """
import glob, json, os, signal, subprocess, sys, time

script, storage, *arguments = sys.argv[1:]

def run(interrupt):
    with open(f"{storage}.log", "ab") as log:
        job = subprocess.Popen(["bash", script, *arguments], stdout=log, stderr=log,
                               start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        commands = set()
        while job.poll() is None:
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    commands.add(open(path, "rb").read().replace(b"\\0", b" ").decode())
                except OSError:
                    pass
            tokens = [open(p).read() for p in glob.glob(f"{storage}/.ray-*/token")]
            assert not [c for c in commands for t in tokens if t and t in c], "a token is shown"
            if interrupt and len(glob.glob(f"{storage}/slurmed/ledger/*.parquet")) >= 2:
                job.send_signal(signal.SIGINT)
                interrupt = False
            time.sleep(0.2)
    left = [p for p in glob.glob("/proc/[0-9]*/cmdline") if b"ray" in open(p, "rb").read()
            and p.split("/")[2] != str(os.getpid())]
    return {"code": job.returncode, "left": len(left), "tokens": glob.glob(f"{storage}/.ray-*"),
            "packs": len(glob.glob(f"{storage}/slurmed/ledger/*.parquet"))}

first = run(interrupt=True)
requeued = os.path.exists(os.environ["SLURM_STAND_IN"] + "/requeued")
print(json.dumps({"first": first, "requeued": requeued, "second": run(interrupt=False)}))
"""


def test_a_slurm_job_stops_in_time_and_continues_when_requeued(folder: Path) -> None:
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name, text in {"scontrol": _SCONTROL, "srun": _SRUN}.items():
        (stand_ins / name).write_text(text)
        (stand_ins / name).chmod(0o755)
    study = {
        "name": "slurmed", "experiment": "membership", "replicates": 2,
        "fixed": {"dataset": "diabetes", "model": "linear", "train_size": 50},
        "space": {"weight_decay": {"grid": [i / 10 for i in range(1, 13)]}},
        "search": {"algorithm": "grid"}, "resources": {"pack": 1},
    }  # fmt: skip
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    (folder / "allocation.py").write_text(_ALLOCATION)
    storage = folder / "storage"
    script = ["allocation.py", DEPLOY / "slurm/sweep.sbatch", storage, "study.yaml", "slurmed"]
    said = on_a_machine(
        f"cd {folder}; PATH={stand_ins}:$PATH python {shlex.join(map(str, script))}",
        {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_PER_TASK": "1",
            "SLURM_STAND_IN": str(stand_ins), "SWEEPS_STORAGE": str(storage),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "SWEEPS_PYTHON": sys.executable,
        },
    )  # fmt: skip
    told = json.loads(said.splitlines()[-1])
    log = Path(f"{storage}.log").read_text()
    assert told["first"]["code"] == 143, log
    assert 2 <= told["first"]["packs"] < 12, log
    assert told["requeued"]
    assert told["second"]["code"] == 0, log
    assert [told[run][key] for run in ("first", "second") for key in ("left", "tokens")] == [
        0,
        [],
    ] * 2
    points = sweeps.open_result("slurmed", storage=str(storage)).points
    assert list(points["status"]) == ["finished"] * 12


_JOIN = """
import json, os, sys
import cluster

try:
    with cluster.connect(sys.argv[1]) as connection:
        import ray

        @ray.remote(num_cpus=1)
        def work(number):
            return number, ray.get_runtime_context().get_node_id()

        done = ray.get([work.options(scheduling_strategy="SPREAD").remote(i) for i in range(20)])
        machines = connection.machines()
    print(json.dumps({"nodes": len(machines), "worked": len({node for _, node in done})}))
except cluster.ConnectError as error:
    print(json.dumps({"refused": str(error)}))
"""


def test_machines_of_ones_own_join_over_tls_with_a_token(folder: Path) -> None:
    """The commands of `ray up`, those of the page on TLS, and who lacks either stays out."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "onpremise/cluster.yaml").read_text())
    (folder / "sweeps-venv").symlink_to(sys.prefix)
    (folder / "join.py").write_text(_JOIN)
    bootstrap = config | {"file_mounts": {}, "min_workers": 0, "max_workers": 0}
    bootstrap["provider"] = {"type": "local", "head_ip": ADDRESS, "worker_ips": []}
    (folder / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(bootstrap))
    # The first ends what ran before, on the whole machine.
    _, head = config["head_start_ray_commands"]
    _, worker = config["worker_start_ray_commands"]
    head = head.replace("--num-cpus=0", "--num-cpus=1")
    said = on_a_machine(
        f"""
cd {folder}
{DEPLOY}/tls/certificates.sh certificates {ADDRESS} >&2
umask 077; mkdir -p ~/.ray; openssl rand -hex 32 | tr -d '\\n' > ~/.ray/auth_token
export RAY_USE_TLS=1
for file in SERVER_CERT=tls.crt SERVER_KEY=tls.key CA_CERT=ca.crt; do
    export "RAY_TLS_${{file%=*}}={folder}/certificates/{ADDRESS}/${{file#*=}}"
done
({head}) >&2
export RAY_HEAD_IP={ADDRESS}
({worker} --num-cpus=1) >&2
join() {{ timeout 400 python join.py {ADDRESS}:6379; }}
for attempt in $(seq 60); do
    answer=$(join)
    case "$answer" in *'"nodes": 2'*) break ;; esac
    sleep 1
done
echo "$answer"
mv ~/.ray/auth_token token; join
printf %064d 0 > ~/.ray/auth_token; join
cp token ~/.ray/auth_token; chmod 644 ~/.ray/auth_token; join
chmod 600 ~/.ray/auth_token; export RAY_USE_TLS=0
join
""",
        {"HOME": str(folder)},
    )
    joined, without, wrong, loose, plain = (json.loads(line) for line in said.splitlines())
    assert joined == {"nodes": 2, "worked": 2}
    assert "no token is set for it" in without["refused"]
    assert "rejects this token" in wrong["refused"]
    assert "chmod 600" in loose["refused"]
    assert "set RAY_USE_TLS" in plain["refused"]


_CHROOT = """
mkdir {folder}/new
mount -t tmpfs -o size=16g none {folder}/new
cd {folder}/new
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for one in dev proc sys; do mount --rbind /$one root/$one; done
# The interpreter of this machine may lie where only root goes, that of the image does not.
chmod o+x root/root
chroot root bash -euc {script} >&2
"""


def test_the_steps_of_the_image_make_one(folder: Path) -> None:
    """They run one by one on a copy of this machine's files, which goes with the test."""
    script = [f"PATH={Path(sys._base_executable).parent}:$PATH"]  # type: ignore[attr-defined]
    user = ""
    for word, rest in steps():
        match word:
            case "ARG" if rest.startswith("USER_ID="):
                script.append("export USER_ID=47110")  # the default is somebody here
            case "ARG" | "ENV":
                script.append(f"export {rest}")
            case "WORKDIR":
                script.append(f"mkdir -p {rest}; cd {rest}")
            case "COPY":
                *names, target = rest.split()
                script += [f"cp -r {ROOT / name} {target}" for name in names]
            case "RUN":
                step = f"bash -euc {shlex.quote(rest)}"
                script.append(f"su -p -s /bin/sh {user} -c {shlex.quote(step)}" if user else step)
            case "USER":
                user = rest
            case _:
                assert word == "FROM"
    assert user
    script.append("/usr/local/sweeps/bin/sweeps list")
    account = "47110:47110:/home/sweeps:/usr/sbin/nologin"
    script.append(f'test "$(getent passwd sweeps | cut -d: -f3,4,6,7)" = {account}')
    script.append(
        'test "$(stat -c %u:%g:%a /home/sweeps /srv/sweeps/*)" = "$(yes 47110:47110:700 | head -4)"'
    )
    on_a_machine(
        _CHROOT.format(folder=folder, script=shlex.quote("\n".join(script))),
        {"DEBIAN_FRONTEND": "noninteractive"},
        alone=False,
    )
