"""Adaptive searches: how results change proposals, and what a rebuilt search repeats."""

import math
from collections.abc import Sequence

import pytest
from optuna.trial import TrialState

from privnets.points import Replicate, TradeoffPoint
from sweeps.planning.optuna_search import OptunaSearch
from sweeps.study.search import SEARCHES, SearchResult
from sweeps.study.search_space import Proposal
from sweeps.study.spec import Study

ADAPTIVE = ("tpe", "nsga2", "frontier")
SPACE = {
    "noise": {"loguniform": [0.01, 10]},
    "weight": {"uniform": [0, 1]},
    "depth": {"range": [1, 8]},
    "rate": {"grid": [0.1, 0.001, 0.01]},
    "model": {"choice": ["mlp", None, True]},
}
STUDY = {
    "name": "s",
    "experiment": "membership",
    "space": SPACE,
    "objectives": {"privacy/leakage": "min", "utility/accuracy": "max"},
    "constraints": {"utility/accuracy": ">= 0.2"},
}


def start(algorithm: str, space: dict[str, object] = SPACE, **changes: object) -> OptunaSearch:
    settings = {"algorithm": algorithm, "num_points": 64, "seed": 3}
    study = Study.model_validate({**STUDY, "space": space, "search": settings, **changes})
    search = type(SEARCHES.get(algorithm))(
        study.space, study.search, study.objectives or {}, study.constraints
    )
    assert isinstance(search, OptunaSearch)
    return search


def result(proposal: Proposal, **changes: object) -> SearchResult:
    loss = (float(proposal["weight"]) - 0.4) ** 2
    scale = math.log10(float(proposal["noise"]) / 0.01) / 3
    metrics = {"privacy/leakage": 1 - scale + loss, "utility/accuracy": 1 - scale**2 - loss}
    replicate = Replicate(0, **{"metrics": metrics, **changes})
    return SearchResult(proposal, TradeoffPoint("0" * 20, "membership", proposal, (replicate,)))


def trial_states(search: OptunaSearch) -> list[TrialState]:
    return [trial.state for trial in search._study.get_trials(deepcopy=False)]


@pytest.mark.parametrize("algorithm", ADAPTIVE)
def test_a_rebuilt_search_continues_with_the_same_proposals(algorithm):
    search, asks = start(algorithm), []
    for _ in range(4):
        asks.append(search.ask(8))
        if len(asks) > 1:
            search.tell([result(proposal) for proposal in asks[-2]])
    rebuilt = start(algorithm)
    for position, proposals in enumerate(asks):
        rebuilt.register(proposals)
        if position:
            rebuilt.tell([result(proposal) for proposal in asks[position - 1]])
    assert rebuilt.ask(8) == search.ask(8)


@pytest.mark.parametrize("algorithm", ADAPTIVE)
def test_results_change_later_proposals(algorithm):
    def propose(sign: float) -> Sequence[Proposal]:
        search = start(algorithm)
        first = search.ask(16)
        leakage = [{"privacy/leakage": sign * float(p["noise"])} for p in first]
        search.tell(
            [
                result(p, metrics={**metrics, "utility/accuracy": 0.5})
                for p, metrics in zip(first, leakage, strict=True)
            ]
        )
        return search.ask(8)

    assert propose(1) != propose(-1)


def test_failed_undefined_and_stopped_points_are_no_bad_values():
    search = start("frontier")
    proposals = search.ask(5)
    nan = {"privacy/leakage": math.nan, "utility/accuracy": 0.5}
    outcomes = [{}, {"failure": "diverged"}, {"metrics": nan}, {"stopped": "dominated"}]
    search.tell([result(p, **o) for p, o in zip(proposals, outcomes, strict=False)])
    complete, failed, pruned = TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED
    assert trial_states(search) == [complete, failed, failed, pruned, TrialState.RUNNING]


def test_constraints_are_those_of_optuna():
    search = start("tpe")
    kept, broken = search.ask(2)
    low = {"privacy/leakage": 0.1, "utility/accuracy": 0.05}
    search.tell(
        [result(kept, metrics={**low, "utility/accuracy": 0.5}), result(broken, metrics=low)]
    )
    excesses = [t.constraints["utility/accuracy"] for t in search._study.get_trials(deepcopy=False)]
    assert excesses == pytest.approx([-0.3, 0.15])


def test_a_repeated_proposal_is_pending_once_for_each_time():
    search = start("frontier")
    (proposal,) = search.ask(1)
    search.register([proposal])
    search.tell([result(proposal)])
    assert trial_states(search) == [TrialState.COMPLETE, TrialState.RUNNING]


def test_proposals_outside_the_space_and_their_results_are_left_out():
    inside = {"noise": 0.1, "weight": 0.5, "depth": 2, "rate": 0.01, "model": None}
    outside = [{**inside, "noise": 100.0}, {**inside, "depth": 9}, {**inside, "rate": 0.5}]
    search = start("frontier")
    search.register([inside, *outside])
    search.tell([result(proposal) for proposal in [*outside, inside]])
    assert trial_states(search) == [TrialState.COMPLETE]


def test_the_front_of_the_frontier_search_has_proposals_of_the_search():
    search = start("frontier", {name: SPACE[name] for name in ("noise", "weight")})
    proposals = []
    for _ in range(4):
        proposals += (pack := search.ask(8))
        search.tell([result(proposal) for proposal in pack])
    front = search.front(5)
    assert len(front) == 5
    assert all(proposal in proposals for proposal in front)
    assert start("tpe").front(5) is None


def test_a_front_is_known_the_better_the_more_trials_there_are():
    search, uncertainties = start("frontier", {n: SPACE[n] for n in ("noise", "weight")}), []
    for _ in range(5):
        uncertainties.append(search.front_uncertainty())
        search.tell([result(proposal) for proposal in search.ask(8)])
    assert uncertainties[:2] == [math.inf, math.inf]
    assert uncertainties[2] > 2 * uncertainties[4] > 0
    assert uncertainties[4] < 0.05
    assert start("tpe").front_uncertainty() is None


@pytest.mark.filterwarnings("error")
def test_no_front_is_known_while_no_trial_is_feasible():
    space = {n: SPACE[n] for n in ("noise", "weight")}
    search = start("frontier", space, constraints={"utility/accuracy": ">= 1e6"})
    for _ in range(2):
        search.tell([result(proposal) for proposal in search.ask(8)])
    assert search.front_uncertainty() == math.inf
