"""Estimators that get the raw columns of a table, as they do in an audit of one model."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import privnets
from privnets import data
from privnets.audit.model_outputs import predict
from privnets.contract import InvalidConfigError
from privnets.membership.observations import Universe
from privnets.membership.user_models.estimator_training import EstimatorTrainer
from privnets.membership.user_models.output_training import OutputRequest
from privnets.references.user_files import import_object, set_folder

EXPERIMENT = privnets.experiment("membership")
OWN = """\
import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

columns = ColumnTransformer([
    ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "dose"]),
    ("texts", OneHotEncoder(handle_unknown="ignore"), ["ward"]),
])
pipeline = Pipeline([("columns", columns), ("clf", LogisticRegression())])
search = GridSearchCV(pipeline, {"clf__C": [0.1, 1.0]}, cv=2)
regression = TransformedTargetRegressor(
    Pipeline([("columns", columns), ("ridge", Ridge())]), func=np.log, inverse_func=np.exp
)
boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=3)
numbers = make_pipeline(StandardScaler(), LogisticRegression())
"""
RECORDS = 160


@pytest.fixture(autouse=True)
def frame(tmp_path):
    """Table in a study's folder, with texts, a missing number, and labels that are texts."""
    (tmp_path / "own_raw.py").write_text(OWN)
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": random.integers(18, 90, RECORDS),
            "dose": random.normal(3, 1, RECORDS),
            "ward": random.choice(["A", "B", "NA"], RECORDS),
        }
    )
    risk = table["age"] / 40 + table["dose"] + random.normal(0, 1, RECORDS)
    table["outcome"] = np.where(risk > risk.median(), "ill", "well")
    table["grade"] = np.digitize(risk, np.quantile(risk, [0.3, 0.6])) + 5
    table["cost"] = np.exp(risk)
    table.loc[3, "dose"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    set_folder(tmp_path)
    return table


def config(location, target="outcome", params=None, columns=None, table=None, **fields):
    ignore = [name for name in ("outcome", "grade", "cost") if name != target]
    values = {
        "dataset": {"table": "t.csv", "target": target, "ignore": ignore, "missing": "keep"}
        | (table or {}),
        "model": {"sklearn": location, "params": params or {}, "columns": columns},
        "train_size": 60,
        "draws": 32,
        "records": 20,
    }
    return EXPERIMENT.Config.model_validate({**values, **fields}, strict=True)


@pytest.mark.parametrize(
    ("location", "target", "params", "threads"),
    [
        ("own_raw:pipeline", "outcome", {"clf__C": 0.3}, 1),
        ("own_raw:pipeline", "grade", {}, 2),
        ("own_raw:search", "outcome", {}, 1),
        ("own_raw:regression", "cost", {"regressor__ridge__alpha": 2.0}, 1),
    ],
)
def test_outputs_are_those_of_the_model_trained_by_hand(frame, location, target, params, threads):
    settings = config(location, target, params)
    request = OutputRequest.draw(settings, Universe.load(settings, "cpu"))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        outputs = EstimatorTrainer().fit(request, range(2), "cpu")
    finally:
        torch.set_num_threads(before)
    x, y = frame[["age", "dose", "ward"]], frame[target].to_numpy()
    for model in range(2):
        members = request.design.sets[model]
        asked = request.asked_records(model)
        own = clone(import_object(location, "model")).set_params(**params)
        own.fit(x.iloc[members], y[members])
        if target == "cost":
            predicted = (own.predict(x.iloc[asked]) - y.mean()) / y.std()
            np.testing.assert_allclose(outputs[model][0][0], predicted)
            continue
        probabilities = predict(own, x.iloc[asked]).values
        right = np.searchsorted(own.classes_, y[asked])
        true = probabilities[np.arange(len(asked)), right]
        np.testing.assert_allclose(outputs[model][0][0], np.log(true / (1 - true)), atol=1e-9)
        np.testing.assert_array_equal(outputs[model][0][1], probabilities.argmax(1) == right)


@pytest.mark.parametrize(
    ("location", "columns", "table", "is_raw"),
    [
        ("own_raw:pipeline", None, {}, True),
        ("own_raw:search", None, {}, True),
        ("own_raw:regression", None, {"target": "cost", "ignore": ["outcome", "grade"]}, True),
        ("own_raw:boosting", None, {"missing": "drop"}, False),
        ("own_raw:boosting", "raw", {"categorical": ["ward"]}, True),
        ("own_raw:numbers", "encoded", {"missing": "drop"}, False),
    ],
)
def test_pipelines_get_raw_columns_unless_the_study_says_otherwise(
    location, columns, table, is_raw
):
    settings = config(location, columns=columns, table=table)
    assert (Universe.load(settings, "cpu").raw is not None) == is_raw
    notes = [note for note in EXPERIMENT.remarks(settings) if "has a pipeline of its own" in note]
    assert len(notes) == (is_raw and columns is None)


def test_a_model_of_typed_columns_is_attacked_with_encoded_ones():
    settings = config("own_raw:boosting", columns="raw", table={"categorical": ["ward"]})
    (point,) = EXPERIMENT.run([settings])
    assert point.replicates[0].failure is None
    assert np.isfinite(point.metrics["privacy/attack/lira_online/auc"])
    assert np.isfinite(point.metrics["privacy/attack/quantile_regression/auc"])


def test_a_swept_parameter_of_a_pipeline_changes_its_points():
    weak, strong = EXPERIMENT.run(
        [config("own_raw:pipeline", params={"clf__C": value}) for value in (1e-4, 1e2)]
    )
    key = "privacy/attack/lira_online/auc"
    assert strong.metrics[key] > weak.metrics[key]
    assert strong.metrics["utility/train_accuracy"] > weak.metrics["utility/train_accuracy"]


def test_a_pipeline_that_cannot_take_texts_fails_with_the_way_out():
    (point,) = EXPERIMENT.run([config("own_raw:numbers", table={"missing": "drop"})])
    assert "could not convert string to float" in point.replicates[0].failure
    assert point.replicates[0].failure.endswith("model.columns: encoded gives it numbers")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"dataset": "digits", "columns": "raw"}, "model.columns must be encoded with digits"),
        ({"features": 2}, "features must be null: raw columns are not rotated"),
    ],
)
def test_raw_columns_are_refused_where_there_are_none(fields, error):
    with pytest.raises(InvalidConfigError, match=error):
        EXPERIMENT.run([config("own_raw:pipeline", **fields)])


@pytest.mark.parametrize(
    ("columns", "missing", "expected"),
    [
        ("encoded", "keep", "error, drop or replace"),
        ("raw", "replace", "error, drop or keep with raw columns"),
        ("raw", "error", r"1 missing values: dose \(1\); expected drop or keep"),
    ],
)
def test_missing_values_are_kept_for_raw_columns_alone(columns, missing, expected):
    with pytest.raises(data.UserFormError, match=expected):
        EXPERIMENT.run([config("own_raw:pipeline", columns=columns, table={"missing": missing})])
