"""Inputs of audits in every form: right figures, or one error that names what to change."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from audit_support import many_models
from scipy.special import expit, softmax
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import privnets
from privnets import AuditError
from privnets.audit.model_outputs import ModelOutputs, interpret

RECORDS = 120
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(RECORDS, 6))
Y = (X[:, 0] + RANDOM.normal(size=RECORDS) > 0).astype(int)
MEMBER = RANDOM.permutation(RECORDS) < RECORDS // 2
LOGITS = 3 * RANDOM.normal(size=(RECORDS, 3))
BINARY = np.stack([expit(-LOGITS[:, 0]), expit(LOGITS[:, 0])], axis=1)


class Net(torch.nn.Module):
    """Linear module whose logits go through a function of the test."""

    def __init__(self, change=lambda logits: logits, outputs=2, seed=0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.linear, self.change = torch.nn.Linear(6, outputs), change

    def forward(self, x):
        return self.change(self.linear(x))


def audit(model, x=X, y=Y, member=MEMBER, **options) -> privnets.AuditResult:
    return privnets.audit_model(model, x, y, member, references=4, map=map, **options)


def audit_net(change, x=X, y=Y, outputs=2, meaning=None) -> privnets.AuditResult:
    return audit(
        Net(change, outputs), x, y, outputs=meaning,
        fit=lambda x, y, seed: Net(change, outputs, seed),
    )  # fmt: skip


def tree_audit(x=X, y=Y, member=MEMBER) -> privnets.AuditResult:
    model = DecisionTreeClassifier(random_state=0).fit(X[MEMBER], Y[MEMBER])
    return audit(model, x, y, member)


def assert_equal(one: privnets.AuditResult, two: privnets.AuditResult, rtol=1e-9) -> None:
    pd.testing.assert_frame_equal(one.table, two.table, rtol=rtol)


# One decision for all models about the meaning of outputs.


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_probabilities_of_low_precision_are_probabilities(kind) -> None:
    probabilities = torch.softmax(torch.tensor(LOGITS).to(kind), 1).double().numpy()
    (found,) = interpret([ModelOutputs("outputs", probabilities)], Y, None)
    np.testing.assert_array_equal(found.values, probabilities)
    exact = softmax(LOGITS, axis=1)
    signals = privnets.audit_signals({"probabilities": found.values}, MEMBER, labels=Y)
    confidence = signals.models.values["confidence"][0]
    np.testing.assert_allclose(confidence, exact[np.arange(RECORDS), Y], atol=0.01)
    note = "are divided by their sum"
    assert (note in signals.basis) == (kind != torch.float32)


@pytest.mark.parametrize(
    ("values", "meaning", "expected"),
    [
        (LOGITS, None, softmax(LOGITS, axis=1)),
        (LOGITS, "logits", softmax(LOGITS, axis=1)),
        (softmax(LOGITS, axis=1), None, softmax(LOGITS, axis=1)),
        (np.log(softmax(LOGITS, axis=1)), None, softmax(LOGITS, axis=1)),
        (LOGITS[:, 0], None, BINARY),
        (expit(LOGITS[:, 0]), "probabilities", BINARY),
        (expit(LOGITS), "logits", softmax(expit(LOGITS), axis=1)),
        (LOGITS[:, 0], "predictions", LOGITS[:, 0]),
    ],
)  # fmt: skip
def test_outputs_mean_what_is_stated_or_certain(values, meaning, expected) -> None:
    (found,) = interpret([ModelOutputs("outputs", values)], Y, meaning)
    np.testing.assert_allclose(found.values, expected, atol=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        expit(LOGITS[:, 0]),  # of class 1, or logits of a weak model
        expit(LOGITS),  # one sigmoid for each class
        100 * softmax(LOGITS, axis=1),  # percentages
        np.stack([np.arange(RECORDS), RECORDS - np.arange(RECORDS)], axis=1),  # votes
        np.full((RECORDS, 2), 0.4),
    ],
)
def test_ambiguous_outputs_are_refused(values) -> None:
    with pytest.raises(AuditError, match="pass outputs= to audit_model: one of 'probabilities'"):
        interpret([ModelOutputs("outputs", values)], Y, None)


def test_all_models_of_an_audit_have_one_meaning() -> None:
    models = [ModelOutputs("outputs", LOGITS), ModelOutputs("outputs", softmax(LOGITS, axis=1))]
    with pytest.raises(AuditError, match="may be probabilities, logits or others"):
        interpret(models, Y, None)
    weak = ModelOutputs("outputs", expit(LOGITS[:, 0]))
    both = interpret([weak, ModelOutputs("outputs", LOGITS[:, 0])], Y, None)
    np.testing.assert_allclose(both[0].values[:, 1], expit(expit(LOGITS[:, 0])))


def test_a_stated_meaning_gives_the_figures_of_the_module_s_logits() -> None:
    plain = audit_net(lambda z: z)
    assert_equal(audit_net(lambda z: torch.softmax(z, 1)), plain, rtol=1e-4)
    sigmoid = audit_net(torch.sigmoid, outputs=1, meaning="probabilities")
    assert_equal(sigmoid, audit_net(lambda z: z, outputs=1, meaning="logits"), rtol=1e-4)


class Booster:
    """Model with `predict` alone, as those of Keras and LightGBM."""

    def __init__(self, predict) -> None:
        self.predict = predict


def test_predict_alone_may_return_probabilities_or_numbers() -> None:
    def probabilities(x):
        return np.stack([expit(-x[:, 0]), expit(x[:, 0])], axis=1)

    expected = audit(probabilities, fit=lambda x, y, seed: probabilities)
    booster = Booster(probabilities)
    assert_equal(audit(booster, fit=lambda x, y, seed: booster), expected)
    one = Booster(lambda x: expit(x[:, :1]))
    with pytest.raises(AuditError, match="may be probabilities of class 1, logits or predicted"):
        audit(one, fit=lambda x, y, seed: one)
    stated = audit(one, fit=lambda x, y, seed: one, outputs="probabilities")
    confidence = expected.models.values["confidence"]
    np.testing.assert_allclose(stated.models.values["confidence"], confidence, rtol=1e-9)
    flat = Booster(lambda x: x[:, 0])
    numbers = audit(Booster(lambda x: x[:, :1]), y=X[:, 1], fit=lambda *_: flat)
    ratio = numbers.models.values["loss"][0] / np.square(X[:, 0] - X[:, 1])
    assert ratio == pytest.approx(np.full(RECORDS, ratio[0]))
    assert "answer exactly as the audited one" in numbers.basis


# The user's data are never changed, and models never share them.


class Greedy:
    """Classifier that overwrites what it gets."""

    def __init__(self, is_greedy: bool) -> None:
        self.is_greedy, self.tree = is_greedy, DecisionTreeClassifier(random_state=0)

    def fit(self, x, y):
        self.tree.fit(np.asarray(x).copy(), np.asarray(y).copy())
        return self.spoil(x, y)

    def predict_proba(self, x):
        answer = self.tree.predict_proba(np.asarray(x).copy())
        self.spoil(x)
        return answer

    def spoil(self, *values):
        for value in values if self.is_greedy else ():
            if isinstance(value, pd.DataFrame):
                value.loc[:, :] = 0
            elif isinstance(value, list):
                value.clear()
            else:
                value[:] = 0
        return self

    @property
    def classes_(self):
        return self.tree.classes_


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, torch.tensor, np.ndarray.tolist])
def test_models_that_work_in_place_change_nothing(form) -> None:
    x, y = form(X), Y.copy()
    fitted = [Greedy(is_greedy) for is_greedy in (False, True)]
    for each in fitted:
        each.fit(np.array(X)[MEMBER], Y[MEMBER])
    polite, greedy = (
        audit(each, x, y, fit=lambda x, y, seed, g=each.is_greedy: Greedy(g).fit(x, y))
        for each in fitted
    )
    assert_equal(polite, greedy)
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(y, Y)


def test_a_module_that_works_in_place_changes_nothing() -> None:
    class InPlace(Net):
        def forward(self, x):
            return self.linear(x.mul_(0.5))

    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    before = x.detach().clone()
    changed = audit(InPlace(), x, torch.tensor(Y), fit=lambda x, y, seed: InPlace(seed=seed))
    plain = audit(Net(), before / 2, fit=lambda x, y, seed: Net(seed=seed))
    assert_equal(changed, plain)
    assert torch.equal(x.detach(), before)


# Pandas objects are matched by index.


def test_one_index_in_other_orders_is_aligned() -> None:
    index = pd.Index([f"r{i}" for i in range(RECORDS)])
    x, y, member = pd.DataFrame(X, index), pd.Series(Y, index), pd.Series(MEMBER, index)
    expected = tree_audit()
    assert_equal(tree_audit(x, y.sample(frac=1, random_state=0), member.sample(frac=1)), expected)
    shuffled = x.sample(frac=1, random_state=2)
    found = tree_audit(shuffled, y, member)
    assert found.table.loc["loss", "auc"] == pytest.approx(expected.table.loc["loss", "auc"])
    assert found.models.member[0].tolist() == member[shuffled.index].tolist()


@pytest.mark.parametrize(
    ("x", "member"),
    [
        (pd.DataFrame(X), pd.Series(MEMBER, range(1, RECORDS + 1))),
        (pd.DataFrame(X), pd.Series(MEMBER, [*range(60), *range(60)])),
        (X, pd.Series(MEMBER)[::-1]),
        (pd.DataFrame(X, [str(i) for i in range(RECORDS)]), pd.Series(MEMBER)),
    ],
)
def test_other_indices_are_refused(x, member) -> None:
    with pytest.raises(AuditError, match=r"have different indices.*\.to_numpy\(\)"):
        tree_audit(x, pd.Series(Y), member)


def test_signals_are_matched_by_index() -> None:
    signal, member = many_models(1.0, 5, records=40)
    names = [f"r{i}" for i in range(40)]
    expected = privnets.audit_signals({"logit": signal}, member)
    frame, truth = pd.DataFrame(signal, columns=names), pd.DataFrame(member, columns=names)
    shuffled = truth.sample(frac=1, axis=1, random_state=0).sample(frac=1, random_state=0)
    assert_equal(privnets.audit_signals({"logit": frame}, shuffled), expected)
    one = privnets.audit_signals({"logit": signal[0]}, member[0])
    series, truth = pd.Series(signal[0], names), pd.Series(member[0], names).sort_index()
    assert_equal(privnets.audit_signals({"logit": series}, truth), one)
    assert_equal(privnets.audit_signals(pd.DataFrame({"logit": series}), truth), one)
    with pytest.raises(AuditError, match="logit and member have different indices"):
        privnets.audit_signals({"logit": series}, truth.rename({"r3": "s3"}))


# Records on both sides.


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, scipy.sparse.csr_array, torch.tensor])
def test_copies_of_members_among_non_members_are_counted(form) -> None:
    x, y = X.copy(), Y.copy()
    inside, outside = np.flatnonzero(MEMBER), np.flatnonzero(~MEMBER)
    assert "cop" not in audit(DecisionTreeClassifier().fit(X, Y), form(x)).basis
    x[outside[:20]], y[outside[:20]] = x[inside[:20]], y[inside[:20]]
    y[outside[5]] = 1 - y[outside[5]]
    x[outside[30]], y[outside[30]] = x[outside[31]], y[outside[31]]
    basis = audit(DecisionTreeClassifier().fit(x, y), form(x), y).basis
    assert "19 of the 60 non-members are copies of members" in basis
    assert "2 records have a copy on their own side" in basis


# Forms of records, targets, membership and answers.


@pytest.mark.parametrize(
    ("x", "y", "member"),
    [
        (X.tolist(), Y.tolist(), MEMBER.tolist()),
        (torch.tensor(X), torch.tensor(Y), torch.tensor(MEMBER)),
        (torch.tensor(X), torch.tensor(Y).bfloat16(), torch.tensor(MEMBER)),
        (X.astype(object), Y.astype(object), MEMBER.astype(float)),
        (pd.DataFrame(X), pd.Series(Y.astype(bool)), pd.Series(MEMBER, dtype="boolean")),
        (X, Y.astype(float), MEMBER.astype(int)),
    ],
)
def test_forms_of_the_same_records_give_the_same_audit(x, y, member) -> None:
    assert_equal(tree_audit(x, y, member), tree_audit())


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_sparse_records_give_the_audit_of_dense_ones(form) -> None:
    assert_equal(tree_audit(scipy.sparse.coo_array(X).asformat(form)), tree_audit())


def test_classes_in_any_order_are_those_of_their_labels() -> None:
    class Reversed(DecisionTreeClassifier):
        def predict_proba(self, x):
            return super().predict_proba(x)[:, ::-1]

        def fit(self, x, y):
            super().fit(x, y)
            self.classes_ = self.classes_[::-1]
            return self

    names = np.array(["no", "yes"])[Y]
    reverse = Reversed(random_state=0)
    reverse.fit(X[MEMBER], names[MEMBER])
    model = privnets.audit_model(
        reverse, X, names, MEMBER, references=4, map=map,
        fit=lambda x, y, seed: Reversed(random_state=seed).fit(x, y),
    )  # fmt: skip
    assert_equal(model, tree_audit())


def test_a_regressor_may_return_a_column() -> None:
    class Column(DecisionTreeRegressor):
        def predict(self, x):
            return super().predict(x)[:, None]

    y = X[:, 1]
    flat = audit(DecisionTreeRegressor(random_state=0).fit(X[MEMBER], y[MEMBER]), y=y)
    assert_equal(audit(Column(random_state=0).fit(X[MEMBER], y[MEMBER]), y=y), flat)


def test_results_of_an_unordered_map_belong_to_their_halves() -> None:
    def backwards(train, tasks):
        return reversed(list(map(train, tasks)))

    model = DecisionTreeClassifier(random_state=0).fit(X[MEMBER], Y[MEMBER])
    found = privnets.audit_model(model, X, Y, MEMBER, references=4, map=backwards)
    assert_equal(found, tree_audit())


RARE = pd.DataFrame({"c": np.where(np.arange(RECORDS) == 0, "rare", "xyz")})
TWO = np.stack([Y, 1 - Y], axis=1)
TREE = DecisionTreeClassifier().fit(X, Y)


def failing(*arguments):
    raise ValueError("no luck")


def leaving(*arguments):
    sys.exit("not today")


REFUSED = {
    "tuple": (
        lambda: audit_net(lambda z: (z, z)),
        "module Net must return one array .*a tuple of 2",
    ),
    "dict": (lambda: audit_net(lambda z: {"logits": z}), "got a dict of 1. Wrap the model"),
    "nan": (lambda: audit_net(lambda z: z.log()), "returns nan for .* of 120 records, at first"),
    "shuffled rows": (
        lambda: audit(lambda x: pd.DataFrame(BINARY)[::-1], fit=failing),
        r"rows with the index \[119, 118, 117\] first, .* return an array",
    ),
    "descending columns": (
        lambda: audit(lambda x: pd.DataFrame(BINARY)[[1, 0]], fit=failing),
        r"the columns \[1, 0\] first; return classes in ascending order",
    ),
    "three axes": (lambda: audit_net(lambda z: z[..., None]), r"\[120, classes\] or \[120\]; got"),
    "transposed": (lambda: audit(lambda x: LOGITS.T, fit=failing), r"got \[3, 120\]"),
    "texts": (
        lambda: audit_net(lambda z: z, pd.DataFrame(X).assign(s="a")),
        "x must be numbers for a torch module; column 's' is not",
    ),
    "category": (
        lambda: audit(make_pipeline(OneHotEncoder(), DecisionTreeClassifier()).fit(RARE, Y), RARE),
        r"reference model \d, trained on half .*'rare'.*handle_unknown='ignore'",
    ),
    "two outputs": (
        lambda: audit(RandomForestClassifier(3).fit(X, TWO)),
        "must return one array .* got a list of 2",
    ),
    "texts of a regression": (
        lambda: audit(DecisionTreeRegressor().fit(X, X[:, 0]), y=X[:, 0].astype(str)),
        "y must be numbers for a regression; got '",
    ),
    "one-hot y": (lambda: audit(TREE, y=TWO), r"y and member shape \[120\]; got \[120, 2\]"),
    "member column": (lambda: audit(TREE, member=MEMBER[:, None]), r"got \[120\] and \[120, 1\]"),
    "labels as text": (
        lambda: audit(TREE, y=Y.astype(str)),
        "y holds '.', which is not among .*: 0, 1",
    ),
    "masked": (
        lambda: audit(TREE, y=np.ma.masked_array(Y, mask=MEMBER)),
        "y must not have masked entries",
    ),
    "no records": (lambda: audit(TREE, 3), "x must be an array, DataFrame or list of records"),
    "unfitted": (lambda: audit(DecisionTreeClassifier()), "fails: NotFittedError"),
    "fit fails": (lambda: audit(TREE, fit=failing), r"model 1 fails: ValueError: no luck \(.*line"),
    "fit leaves": (lambda: audit(TREE, fit=leaving), "fails: SystemExit: not today"),
    "fit returns nothing": (lambda: audit(TREE, fit=lambda *_: None), "model 1.*got NoneType"),
    "fit is no function": (lambda: audit(TREE, fit=TREE), "fit must be a function; got Decision"),
    "map fails": (
        lambda: privnets.audit_model(TREE, X, Y, MEMBER, map=failing),
        "map fails: ValueError: no luck",
    ),
    "map loses": (
        lambda: privnets.audit_model(TREE, X, Y, MEMBER, 4, map=lambda f, i: map(f, i[:2])),
        "map must return 4 results; got 2",
    ),
    "references": (
        lambda: privnets.audit_model(TREE, X, Y, MEMBER, references=8.5),
        "at least 4; got 8.5",
    ),
    "meaning": (lambda: audit(TREE, outputs="logits"), "outputs must be None for a model that has"),
    "unknown meaning": (lambda: audit(TREE, outputs="odds"), "outputs must be one of"),
    "frozen": (lambda: audit(FrozenEstimator(TREE)), "FrozenEstimator is never trained again"),
    "counts": (
        lambda: audit_net(lambda z: 9 * z, y=np.arange(RECORDS), outputs=1),
        "a regression needs outputs='predictions'",
    ),
    "confidence": (lambda: audit(TREE, confidence="95"), "confidence must be above 0"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_gets_one_error(call, message) -> None:
    with pytest.raises(AuditError, match=message):
        call()


def test_a_model_that_needs_columns_gets_them() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(g=np.where(X[:, 0] > 0, "u", "v"))
    encoder = make_column_transformer((OneHotEncoder(), ["g"]), remainder="passthrough")
    model = make_pipeline(encoder, DecisionTreeClassifier(random_state=0))
    assert len(audit(model.fit(frame[MEMBER], Y[MEMBER]), frame).records) == RECORDS


SCORE = RANDOM.random(RECORDS)
P = softmax(LOGITS, axis=1)
L = RANDOM.integers(0, 3, RECORDS)
SHAPES = {
    "column": ({"loss": SCORE[:, None]}, MEMBER, {}, r"got \[120, 1\], which is one record"),
    "columns": ({"loss": SCORE[:, None]}, MEMBER[:, None], {}, "which is one record"),
    "row": ({"loss": SCORE[None]}, MEMBER, {}, r"member must have shape \[models, records\]"),
    "member column": ({"loss": SCORE}, MEMBER[:, None], {}, r"shape \[records\], as the signals"),
    "transposed": (
        {"loss": np.tile(SCORE[:, None], 8)},
        np.tile(MEMBER[:, None], 8),
        {},
        "records and 120 models",
    ),
    "one-hot": ({"probabilities": P}, MEMBER, {"labels": np.eye(3)[L]}, r"\.argmax\(1\)"),
    "labels": (
        {"probabilities": P},
        MEMBER,
        {"labels": L[:, None]},
        r"labels must have shape \[120\]",
    ),
    "float target": (
        {"loss": SCORE[None]},
        MEMBER[None],
        {"target": 0.0},
        "target must be a model",
    ),
    "target": ({"loss": SCORE[None]}, MEMBER[None], {"target": -1}, "from 0 to 0; got -1"),
    "names": (
        pd.DataFrame([[1, 2]], columns=["loss", "loss"]),
        MEMBER,
        {},
        "several columns 'loss'",
    ),
    "twice": (
        pd.DataFrame({"loss": SCORE, "record": 0}),
        MEMBER,
        {},
        "one row for each record; got 0 twice",
    ),
    "other confidence": (
        {"probabilities": P, "confidence": P.max(1)},
        MEMBER,
        {"labels": L},
        "the true class; it differs",
    ),
    "seed": ({"loss": SCORE}, MEMBER, {"seed": "a"}, "seed must be a whole number"),
    "above": ({"confidence": np.where(MEMBER, 1.001, SCORE)}, MEMBER, {}, r"fractions in \[0, 1\]"),
}


@pytest.mark.parametrize(("signals", "member", "options", "message"), SHAPES.values(), ids=SHAPES)
def test_signals_of_other_shapes_are_refused(signals, member, options, message) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals(signals, member, **options)


def test_columns_of_probabilities_are_in_the_order_of_labels() -> None:
    expected = privnets.audit_signals({"probabilities": P}, MEMBER, labels=L)
    frame = pd.DataFrame(P)[[2, 0, 1]]
    assert_equal(privnets.audit_signals({"probabilities": frame}, MEMBER, labels=L), expected)


def test_rounding_below_0_is_0() -> None:
    rounded = np.where(SCORE < 0.1, -1e-9, SCORE)
    exact = privnets.audit_signals({"confidence": np.maximum(rounded, 0)}, MEMBER)
    assert_equal(privnets.audit_signals({"confidence": rounded}, MEMBER), exact)
