"""The examples of `docs/your-own-data-and-models.md` run as they are written, at a small size."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privnets
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

GUIDE = (Path(__file__).parents[3] / "docs" / "your-own-data-and-models.md").read_text()
BLOCKS = re.findall(r"```(yaml|python)\n(.*?)```", GUIDE, re.DOTALL)
STUDIES = {code.split()[1]: code for kind, code in BLOCKS if kind == "yaml"}
(NETS,) = (code for kind, code in BLOCKS if kind == "python")
SMALLER = {
    "my-forest": ["fixed.model.params.n_estimators=5", "fixed.train_size=40"],
    "my-network": ["fixed.model.training.steps=5", "space.train_size.grid=[70]"],
}


@pytest.mark.parametrize("name", STUDIES)
def test_an_example_of_the_guide_runs(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    age = random.integers(20, 90, 200)
    frame = pd.DataFrame({"age": age, "ward": random.choice(["n", "s"], 200), "benign": age > 50})
    frame.to_csv(tmp_path / "patients.csv", index=False)
    np.savez(tmp_path / "images.npz", x=random.normal(size=(200, 3, 8, 8)), y=np.arange(200) % 2)
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / f"{name}.yaml").write_text(STUDIES[name])
    smaller = [*SMALLER[name], "fixed.draws=32", "fixed.records=8"]
    plan = make_plan(load(tmp_path / f"{name}.yaml", smaller))
    (point,) = privnets.experiment("membership").run([plan.points[0].config])
    assert point.failure is None
    assert 0 <= point.metrics["utility/test_accuracy"] <= 1


def test_a_route_takes_at_most_twenty_lines() -> None:
    assert len(STUDIES["my-forest"].splitlines()) <= 20
    assert len(STUDIES["my-network"].splitlines() + NETS.splitlines()) <= 20
