"""Batches of runs keep within the limits of the endpoint of `sweeps serve`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mlflow_server import answering_server
from pydantic import ValidationError

from tracking import batches, runs
from tracking.client import translate_errors
from tracking.database import new_runs
from tracking.database.new_runs import NEW_RUNS, NewRun
from tracking.errors import TrackingError


def fields(number: int = 0, **changes: object) -> dict[str, Any]:
    run = {"run_id": f"{number:032x}", "name": "n", "status": "FINISHED", "started": 1, "ended": 2}
    return {**run, "tags": {}, "params": {}, "metrics": [], "files": {}, **changes}


@pytest.mark.parametrize(
    "made",
    [
        [{}] * 50_000,
        [fields(metrics=[[]] * 50_000)],
        [fields(number) for number in range(new_runs.MAX_RUNS + 1)],
    ],
    ids=["empty runs", "empty metrics", "too many runs"],
)
def test_an_invalid_body_makes_few_errors(made: list[dict[str, Any]]) -> None:
    """An error takes hundreds of bytes, an empty value of the body two."""
    with pytest.raises(ValidationError) as refused:
        NEW_RUNS.validate_json(json.dumps(made))
    assert refused.value.error_count() <= len(NewRun.model_fields)


def test_the_bodies_of_a_batch_keep_to_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BODY", 2000)
    monkeypatch.setattr(new_runs, "MAX_RUNS", 5)
    long = [1200 if number < 3 else 0 for number in range(20)]
    batch = [NewRun(**fields(i, params={"p": "x" * size})) for i, size in enumerate(long)]
    batch.insert(7, NewRun(**fields(20, params={"p": "x" * 2000})))
    sent = list(batches._bodies(batch))
    assert [run_id for ids, _ in sent for run_id in ids] == [f"{i:032x}" for i in range(20)]
    assert [[run.run_id for run in NEW_RUNS.validate_json(body)] for _, body in sent] == [
        ids for ids, _ in sent
    ]
    assert max(len(body) for _, body in sent) <= 2000
    assert max(len(ids) for ids, _ in sent) == 5


@pytest.mark.parametrize("status", [200, 404, 503])
def test_only_a_server_that_refuses_the_path_lacks_the_endpoint(status: int) -> None:
    """A server that fails at that moment must not get single calls afterwards."""
    with answering_server(status) as uri, translate_errors(uri):
        if status == 503:
            with pytest.raises(TrackingError, match="503"), translate_errors(uri):
                batches.batch_writer(uri, runs.ParentRun("1", "r"))
        else:
            assert batches.batch_writer(uri, runs.ParentRun("1", "r")) is None
