"""What Tune is left with of a sweep that it carried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ray import tune
from small_sweeps import small_plan

from sweeps.engine.executor import execute

if TYPE_CHECKING:
    from cluster.connection import Connection


def test_what_tune_noted_of_a_pack_goes_when_the_pack_ends(
    local_ray: Connection, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories of metrics are most of what the driver of a long sweep would grow by."""
    carried: list[tune.ExperimentAnalysis] = []
    run = tune.run

    def kept(*arguments: Any, **options: Any) -> None:
        carried.append(run(*arguments, **options))

    monkeypatch.setattr(tune, "run", kept)
    plan, folder = small_plan(tmp_path), str(tmp_path)
    outcome = execute(plan, sweep="light", storage=folder, tracking_uri=tracking_uri)
    assert outcome.exit_code == 0, outcome.problems
    trials = [trial for analysis in carried for trial in analysis.trials or ()]
    assert len(trials) > 1
    assert not any(trial.run_metadata.metric_n_steps for trial in trials)
    assert not any(trial.run_metadata.metric_analysis for trial in trials)
