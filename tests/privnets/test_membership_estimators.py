"""Scikit-learn estimators as target models of the membership experiment."""

import numpy as np
import pandas as pd
import pytest

import privnets
from privnets import data
from privnets.audit.model_outputs import ModelOutputs
from privnets.contract import InvalidConfigError
from privnets.membership.user_models.estimators import answers
from privnets.references.user_files import set_folder

EXPERIMENT = privnets.experiment("membership")
OWN = """\
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pipeline = make_pipeline(StandardScaler(), LogisticRegression())

class Fragile(DummyClassifier):
    def __init__(self, depth=1):
        super().__init__(strategy="prior")
        self.depth = depth
    def fit(self, x, y):
        if self.depth == 2:
            raise RuntimeError("depth 2 is broken")
        return super().fit(x, y)

class Silent(Fragile):
    def predict_proba(self, x):
        answers = super().predict_proba(x)
        answers[x[:, 0] > self.depth] = float("nan")
        return answers

class Leaving(Fragile):
    def fit(self, x, y):
        raise SystemExit("no licence")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """Folder of a study, with a module of the user and a table."""
    (tmp_path / "own_estimators.py").write_text(OWN)
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 3))
    grade = np.where(x[:, 0] > 1.5, "rare", np.where(x[:, 1] > 0, "high", "low"))
    frame = pd.DataFrame(x, columns=list("abc")).assign(
        grade=grade, sick=x[:, 0] + 2 * random.standard_normal(120) > 0, y=x @ [1, 2, 3]
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    set_folder(tmp_path)
    return tmp_path


def config(location, target="sick", params=None, **fields):
    model = {"sklearn": location, "params": params or {}}
    ignore = [name for name in ("grade", "sick", "y") if name != target]
    table = {"table": "t.csv", "target": target, "ignore": ignore}
    values = {"dataset": table, "model": model, "train_size": 20, "draws": 32, "records": 8}
    return EXPERIMENT.Config.model_validate({**values, **fields}, strict=True)


def test_log_odds_and_merit_of_probabilities_and_of_decision_values():
    probabilities = np.array([[0.2, 0.8, 0.0], [0.5, 0.3, 0.2]])
    every = np.arange(2)
    outputs = ModelOutputs("probabilities", probabilities)
    (value, right), predictions = answers(outputs, np.array([1, 2]), every, 3)
    np.testing.assert_allclose(value, [np.log(4), np.log(0.2 / 0.8)])
    np.testing.assert_array_equal(right, [1, 0])
    np.testing.assert_array_equal(predictions[:, 0], [1, 0])
    np.testing.assert_allclose(np.exp(predictions[:, 1:]), probabilities)
    margins = ModelOutputs("margins", np.array([2.0, -1.0]), np.array([0, 1]))
    (value, right), predictions = answers(margins, np.array([1, 1]), every, 2)
    np.testing.assert_allclose(value, [2, -1])
    np.testing.assert_array_equal(right, [1, 0])
    np.testing.assert_allclose(np.exp(predictions[:, 2]), 1 / (1 + np.exp([-2, 1])))


def test_a_class_that_the_training_set_lacked_has_probability_zero():
    lacking = ModelOutputs("probabilities", np.array([[0.7, 0.3], [1.0, 0.0]]), np.array([0, 2]))
    (value, right), _ = answers(lacking, np.array([1, 0]), np.arange(2), 3)
    np.testing.assert_array_equal(value, [-np.inf, np.inf])
    np.testing.assert_array_equal(right, [0, 1])


@pytest.mark.parametrize(
    ("location", "target", "params", "utility"),
    [
        ("sklearn.tree:DecisionTreeClassifier", "grade", {"max_depth": 3}, "accuracy"),
        ("sklearn.svm:LinearSVC", "sick", {}, "accuracy"),
        ("sklearn.linear_model:Ridge", "y", {"alpha": 0.1}, "mse"),
        ("own_estimators:pipeline", "sick", {"logisticregression__C": 0.1}, "accuracy"),
    ],
)
def test_every_kind_of_estimator_is_attacked(location, target, params, utility):
    (point,) = EXPERIMENT.run([config(location, target, params)])
    (replicate,) = point.replicates
    assert replicate.failure is None
    assert set(replicate.metrics) == set(EXPERIMENT.metric_keys(config(location, target, params)))
    assert np.isfinite(replicate.metrics[f"utility/test_{utility}"])
    assert np.isfinite(replicate.metrics["privacy/attack/lira_offline/auc"])
    assert replicate.metrics["privacy/rho_kl"] != replicate.metrics["privacy/rho_kl"]
    assert "not observed" in replicate.notes["privacy/rho_kl"]


def test_metrics_equal_those_of_the_packaged_logistic_regression():
    """Scikit-learn minimises the same objective: C = 1 / (2 n lambda), without intercept."""
    fields = {"train_size": 40, "paired": True}
    settings = {"C": 1 / (2 * 40 * 0.05), "fit_intercept": False, "tol": 1e-10}
    own = config("sklearn.linear_model:LogisticRegression", params=settings, **fields)
    packaged = own.model_copy(update={"model": "logistic", "weight_decay": 0.05})
    (ours,), (theirs,) = EXPERIMENT.run([own]), EXPERIMENT.run([packaged])
    keys = [k for k in ours.metrics if k.startswith(("utility/", "privacy/attack/lira_online/auc"))]
    for key in [*keys, "privacy/membership_advantage", "privacy/rho_kl_output"]:
        assert ours.metrics[key] == pytest.approx(theirs.metrics[key], rel=1e-3, nan_ok=True)


def test_a_forest_that_memorises_leaks_more_than_a_shallow_one():
    deep, shallow = EXPERIMENT.run(
        [
            config(
                "sklearn.ensemble:RandomForestClassifier",
                params={"n_estimators": 8, "max_depth": depth},
                draws=32,
                records=20,
            )
            for depth in (None, 1)
        ]
    )
    key = "privacy/attack/lira_online/auc"
    assert deep.metrics[key] > shallow.metrics[key] + 0.1
    assert deep.metrics["utility/train_accuracy"] > shallow.metrics["utility/train_accuracy"]


def test_results_depend_on_the_configuration_alone():
    location, params = "sklearn.tree:ExtraTreeClassifier", {"max_depth": 2}
    configs = [config(location, params=params, seed=seed) for seed in (0, 1)]
    alone = [EXPERIMENT.run([each])[0] for each in configs]
    stages = list(EXPERIMENT.stages(configs))
    together = [point for stage in stages for point in stage.points]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, nan_ok=True)
    middle = next(stage for stage in stages if 0 < stage.done < 0.5)
    resumed = [p for s in EXPERIMENT.stages(configs, "cpu", middle.state()) for p in s.points]
    for ours, theirs in zip(resumed, alone, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, nan_ok=True)


def test_parameters_share_a_stack_and_a_failure_fails_its_point_alone(folder):
    configs = [config("own_estimators:Fragile", params={"depth": depth}) for depth in (1, 2, 3)]
    assert len({each.structure() for each in configs}) == 1
    assert len({EXPERIMENT.point_id(each) for each in configs}) == 3
    points = EXPERIMENT.run(configs)
    failures = [point.replicates[0].failure for point in points]
    assert failures[0] is None
    assert failures[2] is None
    assert failures[1] == (
        f"RuntimeError: depth 2 is broken ({folder / 'own_estimators.py'}, line 15)"
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_answer_that_is_nan_anywhere_fails_the_point(seed):
    """Two to four percent of the records have none, so that most attacked ones have an answer."""
    limits = (1.9, 99.0)
    configs = [
        config("own_estimators:Silent", params={"depth": limit}, records=4, seed=seed)
        for limit in limits
    ]
    silent, whole = (point.replicates[0] for point in EXPERIMENT.run(configs))
    assert "predict_proba of Silent returns nan for" in silent.failure
    assert whole.failure is None


def test_code_that_exits_fails_its_point():
    (point,) = EXPERIMENT.run([config("own_estimators:Leaving")])
    assert point.replicates[0].failure.startswith("SystemExit: no licence (")


@pytest.mark.parametrize(
    ("location", "target", "fields", "error"),
    [
        (
            "sklearn.tree:DecisionTreeClassifier",
            "sick",
            {"params": {"max_dept": 3}},
            r"max_dept must be a parameter of \S+ \(did you mean max_depth\?\): max_depth, "
            r"(\w+, ){8}\w+ and 3 others",
        ),
        ("sklearn.linear_model:Ridge", "grade", {}, "model.sklearn must be a classifier"),
        ("sklearn.svm:SVC", "y", {}, "model.sklearn must be a regressor"),
        ("sklearn.svm:SVC", "sick", {"noise_std": 0.1}, "noise_std must be 0"),
        ("own_estimators:pipeline", "sick", {"params": {"C": 1}}, "model.params.C must be"),
    ],
)
def test_models_that_do_not_fit_are_invalid(location, target, fields, error):
    with pytest.raises(InvalidConfigError, match=error):
        EXPERIMENT.run([config(location, target, **fields)])


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("own_estimators", "module:name"),
        ("own_estimators:Absent", "cannot be imported"),
        ("pathlib:Path", "fit and predict"),
    ],
)
def test_a_location_without_an_estimator_is_an_error_of_its_entry(location, error):
    with pytest.raises(data.UserFormError, match=error) as caught:
        EXPERIMENT.run([config(location)])
    assert caught.value.field == "model.sklearn"


def test_changed_code_is_another_point(folder):
    before = EXPERIMENT.point_id(config("own_estimators:Fragile"))
    (folder / "own_estimators.py").write_text(OWN + "\nA = 1\n")
    assert EXPERIMENT.point_id(config("own_estimators:Fragile")) != before
