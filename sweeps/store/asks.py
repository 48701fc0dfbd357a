"""Asks of an adaptive search: the proposals of each, stored in the sweep before they are trained.

The files are only added to. A resumed sweep replays them and computes new asks alone.
"""

from __future__ import annotations

import json
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from privnets.points import Scalar
from sweeps.errors import InputError
from sweeps.store.lease import check_lease
from sweeps.store.ledger import Ledger
from sweeps.study.spec import SearchSpec

AskKind = Literal["reuse", "search", "confirm"]

_MAX_BYTES: Final = 16 * 2**20


class AskRecord(BaseModel):
    """Content of `asks/NNNNN.json`: points that a search proposed, or that are confirmed.

    Attributes:
        kind: `reuse` for trainings of other sweeps, before the first proposals; `search` for
            proposals; `confirm` for points of the estimated front, which may be none.
        told: Number of earlier asks, the first ones, whose results the search had received.
        proposals: Values of the swept fields, for each training or confirmed point.
        point_ids: Id of each proposal's point; empty for one that the experiment refused.
        seeds: Seed of each proposal's training; empty where points get all confirming seeds.
        refusals: Position of each refused proposal, with the reason.
        goal: Settings of the search that ended with this confirmation; see `SearchSpec.goal`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    kind: AskKind
    told: int = Field(ge=0)
    proposals: tuple[dict[str, Scalar], ...]
    point_ids: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    refusals: dict[int, str] = Field(default_factory=dict)
    goal: dict[str, float | None] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_lengths(self) -> AskRecord:
        seeds = 0 if self.kind == "confirm" else len(self.proposals)
        if len(self.point_ids) != len(self.proposals) or len(self.seeds) != seeds:
            raise ValueError("an id, and in a search a seed, for each proposal")
        if {i for i, name in enumerate(self.point_ids) if not name} != self.refusals.keys():
            raise ValueError("a reason for each proposal without an id, and for no other")
        return self

    def ends(self, search: SearchSpec) -> bool:
        """Whether a search with these settings has ended by this ask."""
        return self.kind == "confirm" and self.goal == search.goal

    def ends_search(self, search: SearchSpec) -> bool:
        """Whether only the confirmation of more points may follow, with these settings."""
        goal = {**search.goal, "confirm": self.goal.get("confirm")}
        return self.kind == "confirm" and self.goal == goal


def write_ask(ledger: Ledger, number: int, ask: AskRecord) -> None:
    """Adds an ask to a sweep; `number` counts them from 0.

    Raises:
        OSError: If it cannot be written.
        RunSupersededError: If the run has ended or was taken over.
    """
    check_lease(ledger.directory)
    # Not pydantic's JSON, which has no infinity.
    content = json.dumps(ask.model_dump(mode="python"), indent=1).encode()
    if not (ledger.directory / "asks").create_exclusive(_file_name(number), content):
        raise FileExistsError(f"{ledger.directory.path}/asks/{_file_name(number)} exists")


def read_asks(ledger: Ledger) -> list[AskRecord]:
    """Reads the asks of a sweep, in order; none for a search that is not adaptive.

    Raises:
        InputError: If one is missing or damaged.
    """
    directory = ledger.directory / "asks"
    asks = []
    for number, name in enumerate(directory.files(".json")):
        try:
            if name != _file_name(number):
                raise ValueError(f"{_file_name(number)} is missing before it")
            ask = AskRecord.model_validate(json.loads(directory.read(name, _MAX_BYTES)))
            if ask.told > number:
                raise ValueError(f"told must be at most {number}, the asks before; got {ask.told}")
            asks.append(ask)
        except (OSError, ValueError, ValidationError, RecursionError) as error:
            raise InputError(f"{directory.path}/{name} cannot be used: {error}") from error
    return asks


def _file_name(number: int) -> str:
    return f"{number:05d}.json"
