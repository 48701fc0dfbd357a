"""Training of scikit-learn estimators, one by one, on all the cores of their pack."""

from __future__ import annotations

import math
from concurrent.futures.process import BrokenProcessPool
from typing import Final, cast

import numpy as np
import torch
from joblib.externals.loky import ProcessPoolExecutor
from sklearn.utils.parallel import Parallel, delayed

from privnets.data import UserFormError
from privnets.membership.config import MembershipConfig
from privnets.membership.observations import Universe
from privnets.membership.user_models.estimators import Answers, EstimatorModel, FitTask
from privnets.membership.user_models.output_training import (
    STAGE_SECONDS,
    OutputRequest,
    OutputTrainer,
    UserCodeError,
)
from privnets.randomness import generator
from privnets.references.user_files import folder

_TRIAL_SECONDS: Final = 20.0


class EstimatorTrainer(OutputTrainer):
    """Trains estimators in processes of their own where the pack has several cores."""

    def check(self, config: MembershipConfig) -> None:
        """Trains the first model, as a sweep will; see `EstimatorModel.try_training`."""
        request = OutputRequest.draw(config, Universe.load(config, "cpu"))
        (task,) = _fit_tasks(request, range(1))
        pool = ProcessPoolExecutor(max_workers=1)
        try:
            answers = pool.submit(task.run).result(_TRIAL_SECONDS)
        except (TimeoutError, BrokenProcessPool):
            return
        finally:
            # An idle worker would keep this command's output open after its end.
            pool.shutdown(kill_workers=True)
        failure = answers
        if not isinstance(answers, str):
            failure = self.describe_lack(request, range(1), torch.from_numpy(answers[0][None]))
        if failure:
            reference = cast(EstimatorModel, config.target_model).reference
            given = f"{reference.location!r}, whose training fails: {failure}"
            expected = f"an estimator that trains on {config.train_size:,} records of the data set"
            raise UserFormError(reference.entry, given, expected)

    def fit(self, request: OutputRequest, models: range, device: str) -> list[Answers]:
        """Trains one estimator on each core at a time."""
        processes = min(torch.get_num_threads(), len(models))
        tasks = _fit_tasks(request, models)
        if processes == 1:
            results = [each.run() for each in tasks]
        else:
            results = Parallel(n_jobs=processes)(delayed(each.run)() for each in tasks)
        if failure := next((each for each in results if isinstance(each, str)), None):
            raise UserCodeError(failure)
        return [each for each in results if not isinstance(each, str)]

    def models_at_once(self, request: OutputRequest, seconds: float, device: str) -> int:
        """Number of models that take a few seconds; at first one for each core."""
        processes = torch.get_num_threads()
        if math.isinf(seconds):
            return processes
        rounds = int(STAGE_SECONDS / max(processes * seconds, 1e-6))
        return processes * max(1, rounds)


def _fit_tasks(request: OutputRequest, models: range) -> list[FitTask]:
    config, universe = request.design.config, request.universe
    described = cast(EstimatorModel, config.target_model)
    x, y = universe.x.cpu().numpy(), universe.y.cpu().numpy()
    if universe.classes > 1:
        y = y.astype(np.int64)
    raw, target, scale = universe.raw, y, (0.0, 1.0)
    if raw is not None and universe.classes == 1:
        target = raw.target.astype(np.float64)
        scale = float(target.mean()), float(target.std()) or 1.0
    elif raw is not None and request.classes:
        target = raw.target
    tasks, advice = [], described.advice(raw)
    for j in models:
        asked = request.asked_records(j)
        tasks.append(
            FitTask(
                folder=folder(),
                reference=described.reference,
                seed=int(generator(config.seed, f"model {j}").integers(2**31)),
                x=x[asked] if raw is None else raw.frame.iloc[asked],
                y=y[asked],
                members=len(request.design.sets[j]),
                test=request.test_columns,
                classes=request.classes,
                target=target[asked],
                scale=scale,
                advice=advice,
            )
        )
    return tasks
