"""Audits of fitted models: recipes, kinds of models, parallel maps, and one real data set."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import privnets
from privnets import AuditError, data
from privnets.audit.evaluation import draw_halves
from privnets.audit.model_outputs import interpret, predict
from tests.support import requires_data

X, Y = make_classification(400, 8, n_informative=4, flip_y=0.2, random_state=0)
MEMBER = np.random.default_rng(0).permutation(400) < 200


def audit(model: object, y: np.ndarray = Y, **options: object) -> privnets.AuditResult:
    fitted = model.fit(X[MEMBER], y[MEMBER])
    return privnets.audit_model(fitted, X, y, MEMBER, references=8, map=map, **options)


def test_a_tree_that_remembers_its_records_is_exposed() -> None:
    result = audit(DecisionTreeClassifier(random_state=0))
    assert result.family == "online"
    assert result.strongest["auc.ci_low"] > 0.5
    assert result.strongest["advantage.ci_low"] > 0
    assert len(result.records) == 400
    assert result.records["member"].sum() == 200


def test_a_model_of_two_numbers_reveals_nothing() -> None:
    x = X[:, :1]
    model = LogisticRegression(C=0.01).fit(x[MEMBER], Y[MEMBER])
    result = privnets.audit_model(model, x, Y, MEMBER, references=8, map=map)
    assert (result.table["advantage"] < 0.12).all()
    assert (result.table["auc.ci_low"] < 0.53).all()


def test_a_recipe_gives_the_audit_of_a_clone() -> None:
    def fit(x, y, seed):
        return DecisionTreeClassifier(random_state=seed).fit(x, y)

    cloned = audit(DecisionTreeClassifier(random_state=0))
    by_recipe = audit(DecisionTreeClassifier(random_state=0), fit=fit)
    pd.testing.assert_frame_equal(cloned.table, by_recipe.table)


def test_all_cores_give_the_audit_of_one() -> None:
    model = DecisionTreeClassifier(random_state=0).fit(X[MEMBER], Y[MEMBER])
    one = privnets.audit_model(model, X, Y, MEMBER, references=4, map=map, seed=3)
    all_cores = privnets.audit_model(model, X, Y, MEMBER, references=4, seed=3)
    pd.testing.assert_frame_equal(one.table, all_cores.table)
    other = privnets.audit_model(model, X, Y, MEMBER, references=4, map=map, seed=4)
    assert not other.table.equals(one.table)


def test_a_regression_is_attacked_by_its_squared_error() -> None:
    y = X @ np.arange(8) + np.random.default_rng(0).standard_normal(400)
    result = audit(DecisionTreeRegressor(random_state=0), y)
    assert "rmia_online" in result.table.index
    assert result.table.loc["loss", "auc"] > 0.9


def test_a_model_without_probabilities_is_attacked_by_its_margins() -> None:
    many = (X[:, 0] * 2).astype(int).clip(-1, 1) + 1
    for y in (Y, many):
        model = LinearSVC(random_state=0).fit(X[MEMBER], y[MEMBER])
        result = privnets.audit_model(model, X, y, MEMBER, references=4, map=map)
        assert {"score", "lira_online"} <= set(result.table.index)
        assert "rmia_online" in result.unavailable
    margins = LinearSVC(random_state=0).fit(X, Y).decision_function(X)
    assert predict(LinearSVC(random_state=0).fit(X, Y), X).values == pytest.approx(margins)


THREE = (X[:, 0] * 2).astype(int).clip(-1, 1) + 1
FOUR = 2 * Y + (X[:, 1] > 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SVC(decision_function_shape="ovo").fit(X, THREE), "with 3 classes"),
        (make_pipeline(SVC(decision_function_shape="ovo")).fit(X, THREE), "with 3 classes"),
        (SVC(decision_function_shape="ovo").fit(X, FOUR), r"got \[400, 6\] of SVC with 4 classes"),
        (
            IsolationForest(n_estimators=5, random_state=0).fit(X),
            "Forest with 0 classes",
        ),
    ],
)
def test_decision_values_that_belong_to_no_class_are_refused(model, message) -> None:
    with pytest.raises(AuditError, match=message):
        predict(model, X)


def test_decision_values_of_classes_are_accepted() -> None:
    assert predict(SVC(decision_function_shape="ovo").fit(X, Y), X).values.shape == (400,)
    assert predict(SVC().fit(X, FOUR), X).values.shape == (400, 4)


def test_modes_of_submodules_are_restored() -> None:
    import torch

    frozen = torch.nn.Dropout().eval()
    net = torch.nn.Sequential(torch.nn.Linear(8, 2), frozen).train()
    frozen.eval()
    predict(net, X)
    assert net.training
    assert not frozen.training


def test_a_module_that_cannot_take_the_records_gets_one_error() -> None:
    import torch

    with pytest.raises(AuditError, match="the module Linear fails: RuntimeError"):
        predict(torch.nn.Linear(8, 2), X.astype(int))


def test_a_class_that_a_reference_never_saw_has_probability_0() -> None:
    y = Y.copy()
    y[np.flatnonzero(MEMBER)[0]] = 2
    assert len(audit(DecisionTreeClassifier(random_state=0), y).table)


@pytest.mark.parametrize("outputs", [1, 2])
def test_torch_modules_are_audited_by_their_recipe(outputs: int) -> None:
    import torch

    def fit(x, y, seed):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.01),
            torch.nn.Linear(64, outputs),
        )  # fmt: skip
        optimizer = torch.optim.Adam(net.parameters(), 0.03)
        x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
        for _ in range(60):
            optimizer.zero_grad()
            logits = net(x)
            if outputs == 1:
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y.float())
            else:
                loss = torch.nn.functional.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
        return net

    net = fit(X[MEMBER], Y[MEMBER], 0)
    result = privnets.audit_model(net, X, Y, MEMBER, references=4, fit=fit, map=map)
    assert result.strongest["auc"] > 0.6
    assert net.training
    net.eval()
    with torch.no_grad():
        logits = net(torch.as_tensor(X, dtype=torch.float32)).double()
    log_odds = logits[:, 0] if outputs == 1 else logits[:, 1] - logits[:, 0]
    (found,) = interpret([predict(net, X)], Y, None)
    found = found.values[:, 1]
    assert found == pytest.approx(torch.sigmoid(log_odds).numpy(), abs=1e-6)


def test_every_record_is_in_half_of_the_references() -> None:
    halves = draw_halves(101, 8, seed=0)
    assert (halves.sum(0) == 4).all()
    assert set(halves.sum(1)) == {50, 51}


TREE = DecisionTreeClassifier(random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((TREE, X, Y[:-1], MEMBER), {}, r"y and member shape \[400\]; got \[399\] and \[400\]"),
        ((TREE, X, Y, MEMBER[:-1]), {}, "one entry for each record"),
        ((TREE, X, Y, np.ones(400)), {}, "the audited records have no non-members"),
        ((TREE, X, Y, 2 * MEMBER), {}, "member must be booleans"),
        ((TREE, X, Y, np.full(400, "in")), {}, "member must be booleans"),
        ((TREE, X, Y, MEMBER), {"references": 3}, "references must be at least 4; got 3"),
        ((TREE, X, Y + 5, MEMBER), {"map": map}, "not among the model's classes"),
        ((TREE.predict_proba, X, Y, MEMBER), {}, "cannot be cloned; give fit="),
        (
            (TREE.predict_proba, X, Y + 1, MEMBER),
            {"fit": lambda x, y, seed: TREE.predict_proba},
            r"y holds 2, which .* classes: 0, 1; classes count from 0, so subtract 1",
        ),
        ((TREE, X, np.where(MEMBER, Y, np.nan), MEMBER), {}, "y must not hold missing values"),
        (
            (lambda x: Y, X, Y, MEMBER),
            {"fit": len},
            "from 0 to 1, may be probabilities of class 1, logits",
        ),
        ((object(), X, Y, MEMBER), {"fit": len}, "model must have predict_proba"),
        ((DecisionTreeClassifier, X, Y, MEMBER), {}, r"predict_proba of .* fails: TypeError"),
    ],
)
def test_wrong_arguments_get_one_error(arguments, options, message) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_model(*arguments, **options)


@requires_data("adult")
def test_a_forest_on_adult_leaks_to_reference_attacks() -> None:
    table = data.load("adult")
    rows = np.random.default_rng(0).permutation(len(table.y))[:2_000]
    x, y, member = table.x[rows], table.y[rows].astype(int), np.arange(2_000) < 1_000
    model = RandomForestClassifier(50, random_state=0).fit(x[member], y[member])
    result = privnets.audit_model(model, x, y, member, references=12, map=map)
    auc = result.table["auc"]
    assert (auc[result.table["family"].isin(["offline", "online"])] > 0.7).all()
    assert auc["rmia_online"] > 0.8
    assert auc["rmia_online"] > auc["loss"] + 0.1


def test_saved_outputs_keep_groups_and_notes(tmp_path) -> None:
    x, y, member = X.copy(), np.array(["no", "yes"])[Y], MEMBER
    inside, outside = np.flatnonzero(member)[0], np.flatnonzero(~member)[0]
    x[outside], y[outside] = x[inside], y[inside]
    model = DecisionTreeClassifier(random_state=0).fit(x[member], y[member])
    result = privnets.audit_model(
        model, x, y, member, references=4, map=map, groups=np.where(x[:, 0] > 0, "up", "down")
    )
    again = privnets.audit_signals(result.save(tmp_path / "saved.npz"), target=0)
    assert again.basis == result.basis
    assert "1 of the 200 non-members are copies of members" in again.basis
    assert "The target has 2 classes; " in again.basis
    assert f" yes: {(y == 'yes').sum()} (" in again.basis
    pd.testing.assert_frame_equal(again.groups, result.groups)


def test_arrays_of_the_user_named_groups_and_notes_mean_nothing(tmp_path) -> None:
    path, loss = tmp_path / "own.npz", np.random.default_rng(0).random(400)
    np.savez(path, loss=loss, member=MEMBER, groups=np.arange(3), notes=np.arange(3))
    audit = privnets.audit_signals(path)
    assert audit.models.groups is None
    assert audit.basis == privnets.audit_signals({"loss": loss}, MEMBER).basis


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"city": ["Bonn", "Kiel"] * 200}, "Column 'city' has texts: leave it out (--ignore city)"),
        ({"id": range(400)}, "Leave out the columns that the model was not trained on (--ignore"),
    ],
)
def test_columns_that_the_model_does_not_take_are_named(extra, message) -> None:
    frame = pd.DataFrame(X).add_prefix("x")
    model = DecisionTreeClassifier(random_state=0).fit(frame[MEMBER], Y[MEMBER])
    with pytest.raises(AuditError, match=re.escape(message)):
        privnets.audit_model(model, frame.assign(**extra), Y, MEMBER, references=4, map=map)
    with pytest.raises(AuditError, match="Column 'city' has texts"):
        privnets.audit_model(
            model.fit(X[MEMBER], Y[MEMBER]), frame.assign(city="Bonn"), Y, MEMBER, references=4
        )
