"""The examples of the guide run as they are written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from sweeps.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "auditing.md").read_text()
BLOCKS = re.findall(r"```(python|console)\n(.*?)```", GUIDE, re.DOTALL)
CI = ROOT / "docs" / "examples" / "ci-gate"
CI_NAMES = ("github", "gitlab")


def test_every_example_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # joblib's workers take seconds to start
    assert [kind for kind, _ in BLOCKS] == ["python", "python", "python", "console"]
    for kind, code in BLOCKS:
        if kind == "python":
            exec(compile(code, "auditing.md", "exec"), {"__name__": "guide"})
            continue
        for line in code.splitlines():
            monkeypatch.setattr("sys.argv", shlex.split(line))
            with pytest.raises(SystemExit) as stopped:
                main()
            assert not stopped.value.code, line
    assert "advantage" in capsys.readouterr().out
    assert {"forest.html", "audit.html", "records.csv"} <= {f.name for f in tmp_path.iterdir()}


def test_the_lines_of_the_recipes_pass_one_model_and_fail_another(tmp_path: Path) -> None:
    github, gitlab = (yaml.safe_load((CI / f"{name}.yml").read_text()) for name in CI_NAMES)
    lines = gitlab["audit"]["script"]
    assert lines == [step["run"] for step in github["jobs"]["audit"]["steps"] if "run" in step]
    for name in (*(f"{name}.yml" for name in CI_NAMES), "gate.sh", "model.py"):
        assert f"examples/ci-gate/{name}\n" in GUIDE
    folder = shutil.copytree(CI, tmp_path / "gate")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "LOKY_MAX_CPU_COUNT": "1"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=folder, env=environment, capture_output=True, text=True
        )

    install, *others = lines
    assert install.startswith("pip install")  # the only line that needs a network
    for line in others:
        done = run(line)
        assert done.returncode == 0, done.stderr
    failed = run("sh gate.sh forest")
    assert (failed.returncode, failed.stdout.count("FAILS")) == (1, 8)
    suite = ElementTree.parse(folder / "audit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("8", "8")
    page = (folder / "audit.html").read_text()
    assert page.count('<span class="verdict">failed</span>') == 8
