"""The user's own table as a problem: labels, encoding, splits, and clear errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import privnets
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import TableEncoding
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.releasers import build_releaser
from privnets.config import flatten, nest
from privnets.data import UserFormError
from privnets.randomness import generator
from privnets.references.user_files import set_folder
from tests.privnets.adversarial.releases import split_parts

FORM = {"table": "people.csv", "secret": "sex", "utility": "income", "ignore": ["id"]}
RECORDS = 400


@pytest.fixture
def people(tmp_path):
    """Writes a table: height depends on sex, and the three classes of income on age."""
    random = np.random.default_rng(0)
    sex, age = random.choice(["F", "M"], RECORDS), random.integers(18, 80, RECORDS)
    frame = pd.DataFrame(
        {
            "id": range(RECORDS),
            "height": 165 + 10 * (sex == "M") + random.standard_normal(RECORDS),
            "age": age,
            "town": random.choice(["Bonn", "Aachen"], RECORDS),
            "sex": sex,
            "hand": random.choice(["left", "right"], RECORDS),
            "income": np.digitize(age, [35, 60]),
        }
    )
    frame.to_csv(tmp_path / "people.csv", index=False)
    set_folder(tmp_path)
    return frame


def config_of(**changes) -> AdversarialConfig:
    return AdversarialConfig.model_validate({"problem": {**FORM, **changes}, "panel": "quick"})


def test_attributes_are_scaled_and_labels_are_no_attributes(people) -> None:
    problem = problem_of(config_of())
    records, (splits,) = problem.load_records([config_of()])
    assert problem.encoding.names == ["height", "age", "town", "hand"]
    assert records.x.shape == (RECORDS, 2 + 2 + 2)
    np.testing.assert_allclose(records.x[:, :2].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(records.x[:, :2].std(0), 1, atol=1e-6)
    np.testing.assert_array_equal(records.x[:, 2:4].argmax(1), people["town"] == "Bonn")
    np.testing.assert_array_equal(records.secret, people["sex"] == "M")
    np.testing.assert_array_equal(records.utility, people["income"])
    parts = np.concatenate(split_parts(splits))
    np.testing.assert_array_equal(np.sort(parts), np.arange(RECORDS))


@pytest.mark.parametrize("index", [range(RECORDS)[::-1], [7] * RECORDS])
def test_an_index_of_pandas_is_no_position(people, tmp_path, index) -> None:
    people.loc[3, "sex"] = None
    people.set_axis(index).to_parquet(tmp_path / "people.parquet")
    problem = problem_of(config_of(table="people.parquet", missing="replace"))
    expected = people.drop(3)["height"]
    decoded = problem.encoding.decode(problem.encode_release(people), expected.to_frame())
    np.testing.assert_allclose(decoded["height"], expected, rtol=1e-5)


def test_several_secrets_are_one_of_all_combinations(people) -> None:
    config = config_of(secret=["sex", "hand"], utility=None)
    problem = problem_of(config)
    records, (splits,) = problem.load_records([config])
    assert (problem.spec.secret_classes, problem.spec.utility_classes) == (4, 0)
    expected = 2 * (people["sex"] == "M") + (people["hand"] == "right")
    np.testing.assert_array_equal(records.secret, expected)
    for part in split_parts(splits):
        assert set(records.secret[part]) == {0, 1, 2, 3}


def test_every_part_of_every_seed_knows_every_secret(people) -> None:
    problem = problem_of(config_of(secret="income", utility="sex"))
    configs = [config_of().model_copy(update={"seed": seed}) for seed in range(5)]
    records, splits = problem.load_records(configs)
    for split in splits:
        for part in split_parts(split):
            assert set(records.secret[part]) == {0, 1, 2}


def test_the_fingerprint_follows_the_content_and_the_reading(people, tmp_path) -> None:
    experiment = privnets.experiment("adversarial")
    first, other = config_of(), config_of(columns=["height", "age"])
    identity = experiment.fingerprint(first)
    assert experiment.fingerprint(first) == identity
    assert experiment.fingerprint(other) != identity
    people.assign(age=people["age"] + 1).to_csv(tmp_path / "people.csv", index=False)
    assert experiment.fingerprint(first) != identity


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"secret": "sxe"}, "secret", "did you mean sex"),
        ({"secret": "id"}, "secret", "400 classes; expected 2 to 100"),
        ({"utility": "sox"}, "utility", "columns of the table"),
        ({"columns": ["height", "sex"]}, "columns", "attributes only"),
        ({"table": "absent.csv"}, "table", "cannot be read"),
        ({"secret": ["sex", "age"]}, "secret", "2 to 100 classes"),
    ],
)
def test_a_mistake_is_named_with_its_entry(people, changes, field, words) -> None:
    with pytest.raises(UserFormError, match=words) as raised:
        problem_of(config_of(**changes))
    assert raised.value.field == field


def test_a_rare_class_is_refused(people, tmp_path) -> None:
    people.loc[:9, "sex"] = "X"
    people.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(UserFormError, match=r"X has 10 records; expected at least 20"):
        problem_of(config_of())


def test_missing_values_are_refused_dropped_or_replaced(people, tmp_path) -> None:
    people["age"] = people["age"].astype(float)
    people.loc[:4, "age"] = np.nan
    people.loc[2:5, "town"] = None
    people.loc[6, "sex"] = None
    people.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(UserFormError, match="10 missing values"):
        problem_of(config_of())
    assert len(problem_of(config_of(missing="drop")).x) == RECORDS - 7
    replaced = problem_of(config_of(missing="replace"))
    records, _ = replaced.load_records([config_of()])
    assert len(records.x) == RECORDS - 1
    frame = replaced.encoding.decode(records.x, people.drop(6))
    assert set(frame.loc[:4, "age"].round(3)) == {people.drop(6)["age"].median()}
    assert set(frame.loc[2:5, "town"]) == {"missing"}


def test_a_release_leaves_out_incomplete_records_if_training_did(people, tmp_path) -> None:
    people.loc[2:5, "town"] = None
    people.loc[7, "sex"] = None  # released, although the check cannot use it
    people.to_csv(tmp_path / "people.csv", index=False)
    config = config_of(missing="drop").model_copy(update={"releaser": "linear", "noise_std": 0.0})
    problem = problem_of(config)
    releaser = load_releaser(save_releaser(problem, config, [torch.eye(6)]))
    source, target = tmp_path / "people.csv", tmp_path / "out.csv"
    assert releaser.release_files(source, target, keep=["id"])[:2] == (RECORDS - 4, 4)
    released = pd.read_csv(target)
    assert released["id"].tolist() == people.drop(range(2, 6))["id"].tolist()
    np.testing.assert_allclose(problem.encode_release(released), problem.x, atol=1e-5)


def test_a_problem_without_use_for_a_field_says_so(people) -> None:
    experiment = privnets.experiment("adversarial")
    config = config_of(utility=None).model_copy(
        update={"objective": "squared-kl", "releaser": "recurrent", "utility_weight": 2.0}
    )
    errors = {error.field: error.expected for error in experiment.invalid_fields(config)}
    assert errors.keys() == {"objective", "releaser", "utility_weight"}
    assert errors["releaser"] == "linear or mlp with people.csv"


def test_dotted_names_describe_the_same_problem(people) -> None:
    resolved = config_of().resolved()
    assert resolved["problem.secret"] == "sex"
    nested = nest(flatten({"problem": FORM}))
    assert nested["problem"]["secret"] == "sex"


def test_encoding_and_decoding_return_the_table(people) -> None:
    attributes = people[["height", "age", "town", "income"]]
    encoding = TableEncoding.fit(attributes, ["income"], "error")
    decoded = encoding.decode(encoding.encode(attributes), attributes)
    np.testing.assert_allclose(decoded["height"], people["height"], rtol=1e-5)
    assert decoded["town"].tolist() == people["town"].tolist()
    assert decoded["income"].tolist() == people["income"].tolist()
    assert TableEncoding.model_validate_json(encoding.model_dump_json()) == encoding


def test_new_records_are_read_and_releases_written_by_the_settings_of_the_study(
    people, tmp_path
) -> None:
    settings = {"separator": ";", "decimal": ",", "encoding": "utf-16", "table": "s.csv"}
    people.to_csv(tmp_path / "s.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    config, plain = config_of(**settings), config_of()
    np.testing.assert_array_equal(problem_of(config).x, problem_of(plain).x)
    problem = problem_of(config)
    parameters = build_releaser(problem, config).initial(generator(0, "releaser"))
    releaser = load_releaser(save_releaser(problem, config, parameters))
    releaser.release_files(tmp_path / "s.csv", tmp_path / "out.csv", seed=1)
    released = pd.read_csv(tmp_path / "out.csv", sep=";", decimal=",", encoding="utf-16")
    expected = releaser(people, seed=1)
    np.testing.assert_allclose(released["height"], expected["height"])
    assert released["town"].tolist() == expected["town"].tolist()


def test_a_table_without_a_header_is_released_with_the_names_of_its_columns(
    people, tmp_path
) -> None:
    people.to_csv(tmp_path / "s.csv", index=False, header=False)
    labels = {"secret": "column_5", "utility": "column_7", "ignore": ["column_1"]}
    config = config_of(table="s.csv", header=False, **labels)
    problem = problem_of(config)
    np.testing.assert_array_equal(problem.x, problem_of(config_of()).x)
    parameters = build_releaser(problem, config).initial(generator(0, "releaser"))
    releaser = load_releaser(save_releaser(problem, config, parameters))
    releaser.release_files(tmp_path / "s.csv", tmp_path / "out.csv", seed=1)
    released = pd.read_csv(tmp_path / "out.csv")
    assert released.columns.tolist() == ["column_2", "column_3", "column_4", "column_6"]
    assert len(released) == RECORDS
    read = releaser.description.encoding.read_release(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(read, released, check_dtype=False)


def test_new_records_with_names_like_numbers_are_read(people, tmp_path) -> None:
    people = people.rename(columns={"height": "2001", "age": "2002"})
    people.to_csv(tmp_path / "s.csv", index=False)
    config = config_of(table="s.csv", columns=["2001", "2002"])
    problem = problem_of(config)
    parameters = build_releaser(problem, config).initial(generator(0, "releaser"))
    releaser = load_releaser(save_releaser(problem, config, parameters))
    people[["2001", "2002"]].to_csv(tmp_path / "new.csv", index=False)
    assert releaser.release_files(tmp_path / "new.csv", tmp_path / "out.csv")[0] == RECORDS


def test_classes_of_a_secret_that_differ_in_blanks_are_refused(people, tmp_path) -> None:
    assert any(
        remark.startswith("secret has 2 classes; ") for remark in problem_of(config_of()).remarks
    )
    people.loc[::3, "sex"] += " "
    people.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(UserFormError, match=r"secret: got 'sex' with values .* 'F' and 'F '"):
        problem_of(config_of())


SCORERS = """
import numpy as np

def cost(y_true, y_pred):
    assert y_true.dtype == y_pred.dtype == np.int64
    return np.abs(y_true - y_pred).mean()

def share(y_true, y_prob):
    return y_prob[np.arange(len(y_true)), y_true].mean()

def same(y_true, y_pred):
    return (y_true == y_pred).mean()

def broken(y_true, y_pred):
    return np.nan if len(set(y_pred)) > 1 else 0
"""


def own_metrics(tmp_path, **scorers: str) -> AdversarialConfig:
    (tmp_path / "judges.py").write_text(SCORERS)
    metrics = {f"utility/{name}": location for name, location in scorers.items()}
    return AdversarialConfig.model_validate(
        {"problem": FORM, "panel": "quick", "steps": 2, "metrics": metrics}
    )


def test_own_scorers_judge_the_refitted_utility_network(people, tmp_path) -> None:
    experiment = privnets.experiment("adversarial")
    config = own_metrics(
        tmp_path, cost="judges:cost", same="judges:same", p="judges:share", auc="roc_auc_ovr"
    )
    assert not experiment.invalid_fields(config)
    experiment.fingerprint(config)
    replicate = experiment.run([config])[0].replicates[0]
    metrics, errors = replicate.metrics, replicate.standard_errors
    assert set(metrics) == set(experiment.metric_keys(config))
    assert metrics["utility/same"] == pytest.approx(metrics["utility/refitted_accuracy"])
    assert metrics["utility/auc"] == pytest.approx(metrics["utility/refitted_auc"], abs=1e-6)
    assert metrics["floor/utility_same"] == pytest.approx(metrics["floor/utility_accuracy"])
    error = errors["utility/refitted_accuracy"]
    assert errors["utility/same"] == pytest.approx(error, rel=0.6)
    wrong = 1 - metrics["utility/same"]  # by one class of income or by two
    assert wrong <= metrics["utility/cost"] <= 2 * wrong
    assert 0 < metrics["utility/p"] < 1
    broken = experiment.run([own_metrics(tmp_path, broken="judges:broken")])[0].replicates[0]
    assert broken.failure == "utility/broken: judges:broken returned nan for a model"


def test_own_scorers_need_a_utility_label_and_a_name_of_their_own(people, tmp_path) -> None:
    experiment = privnets.experiment("adversarial")
    config = own_metrics(tmp_path, refitted_auc="roc_auc_ovr")
    assert [e.field for e in experiment.invalid_fields(config)] == ["metrics.utility/refitted_auc"]
    config = own_metrics(tmp_path, cost="judges:absent")
    with pytest.raises(UserFormError, match="judges:absent"):
        experiment.fingerprint(config)
    problem = config_of(utility=None).problem
    unlabelled = config.model_copy(update={"problem": problem})
    assert "metrics" in [error.field for error in experiment.invalid_fields(unlabelled)]
