"""The examples of the guide run as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sweeps.cli.main import main

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "auditing.md").read_text()
BLOCKS = re.findall(r"```(python|console)\n(.*?)```", GUIDE, re.DOTALL)


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
