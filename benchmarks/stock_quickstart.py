"""The quickstart study as one would write it with stock Ray Tune and its MLflow callback.

scikit-learn's logistic regression in a loop over training sets. Ray Tune, its callback and
scikit-learn are at their defaults, tracking goes straight into SQLite. Training sets, attacks and
metrics are this platform's, so that both sides do and record the same; only training, scheduling
and logging differ. Ray itself is started as this platform starts it, on loopback alone.

`main(folder, how)` runs it; `how` is one of
- `per-replicate`: one point per trial, one report per replicate;
- `once`: one point per trial, one report of the means over replicates;
- `seeds`: one replicate per trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

import cluster
import sweeps


def train(parameters: dict[str, Any], seed: int) -> dict[str, float]:
    """One replicate of one point."""
    import torch
    from sklearn.linear_model import LogisticRegression

    import privnets
    from privnets import data
    from privnets.membership.evaluation import evaluate
    from privnets.membership.models.logistic import LogisticTrainer
    from privnets.membership.observations import Universe, add_noise
    from privnets.membership.outputs import TrainingDesign

    torch.set_num_threads(1)
    config = privnets.experiment("membership").Config(**parameters, seed=seed)
    prepared = data.prepare(config.dataset, config.features)
    universe = Universe.load(config, "cpu")
    design = TrainingDesign.draw(config, universe.size)
    fitted = []
    for chosen in design.sets:
        model = LogisticRegression(
            C=1 / (2 * config.train_size * config.weight_decay),
            fit_intercept=False,
            max_iter=1000,
        ).fit(prepared.x[chosen], prepared.y[chosen])
        weights = torch.zeros(prepared.x.shape[1], prepared.classes, dtype=torch.float64)
        weights[:, model.classes_] = torch.from_numpy(model.coef_.T)
        fitted.append(weights.flatten())
    released = add_noise(config, torch.stack(fitted), config.noise_std)
    observed = LogisticTrainer().observe(design, released, 0, universe)
    return dict(evaluate(config, observed).metrics)


def point(parameters: dict[str, Any]) -> None:
    """A trial of all replicates of one point."""
    seeds = range(parameters.pop("replicates"))
    reports = parameters.pop("reports")
    made = []
    for seed in seeds:
        made.append(train(parameters, seed))
        if reports == "per-replicate":
            tune.report(made[-1])
    if reports == "once":
        tune.report({key: sum(m[key] for m in made) / len(made) for key in made[0]})


def single(parameters: dict[str, Any]) -> None:
    """A trial of one replicate."""
    tune.report(train(parameters, parameters.pop("seed")))


def main(folder: Path, how: str) -> None:
    """Run every point of the quickstart study."""
    study = sweeps.load("quickstart")
    space: dict[str, Any] = dict(study.fixed)
    for field, axis in study.space.items():
        space[field] = tune.grid_search(list(axis.values()))
    if how == "seeds":
        space["seed"] = tune.grid_search(list(range(study.replicates)))
    else:
        space |= {"replicates": study.replicates, "reports": how}
    store = f"sqlite:///{folder / 'stock.db'}"
    tuner = tune.Tuner(
        single if how == "seeds" else point,
        param_space=space,
        run_config=tune.RunConfig(
            name="quickstart",
            storage_path=str(folder / "tune"),
            callbacks=[MLflowLoggerCallback(tracking_uri=store, experiment_name="quickstart")],
            verbose=0,
        ),
    )
    with cluster.connect():
        if tuner.fit().errors:
            raise RuntimeError("a trial failed")
