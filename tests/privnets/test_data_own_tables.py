"""The user's own tables: encoding, tasks, missing values, fingerprints and errors."""

import numpy as np
import pandas as pd
import pytest

from privnets import data
from privnets.references.columns import identifier_remarks
from privnets.references.data import RawTableReference, TableReference
from privnets.references.tables import encode_classes
from privnets.references.user_files import set_folder

FRAME = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "age": [20.5, 30.5, 40.5, 50.5],
        "ward": ["b", "a", "b", "c"],
        "smoker": [True, False, True, True],
        "grade": [3, 1, 2, 1],
        "outcome": ["yes", "no", "no", "yes"],
    }
)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """Folder of a study, with the table in it."""
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    set_folder(tmp_path)
    return tmp_path


def table(target="outcome", path="t.csv", **settings):
    return TableReference(table=path, target=target, **settings)


def test_categories_become_columns_of_zeros_and_ones():
    loaded = data.load(table(ignore=("id",)))
    assert loaded.feature_names == (
        "age", "ward=a", "ward=b", "ward=c", "smoker=False", "smoker=True", "grade",
    )  # fmt: skip
    np.testing.assert_array_equal(loaded.x[:, 1:4], [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(loaded.y, [1.0, 0.0, 0.0, 1.0])
    assert (loaded.task, loaded.classes) == ("binary", 2)


def test_categories_become_whole_numbers_in_alphabetical_order():
    loaded = data.load(
        table(columns=("ward", "grade"), categorical=("grade",), categories="integer")
    )
    np.testing.assert_array_equal(loaded.x, [[1, 2], [0, 0], [1, 1], [2, 0]])


def test_values_of_several_types_are_classes_as_texts():
    codes, classes = encode_classes(pd.Series(["a", 1, "a", True], dtype=object))
    assert (codes.tolist(), classes) == ([2, 0, 2, 1], ("1", "True", "a"))


@pytest.mark.parametrize(
    ("target", "task", "expected"),
    [
        ("age", None, ("regression", 0)),
        ("grade", None, ("multiclass", 3)),
        ("grade", "regression", ("regression", 0)),
        ("smoker", None, ("binary", 2)),
    ],
)
def test_the_task_follows_from_the_target_unless_it_is_given(target, task, expected):
    info = data.info(table(target, task=task, columns=("id",)))
    assert (info.task, info.classes) == expected


def test_scaled_attributes_have_mean_0_and_deviation_1_and_others_are_unchanged():
    scaled = data.prepare(table(columns=("age",)))
    np.testing.assert_allclose(scaled.x[:, 0], [-1.3416408, -0.4472136, 0.4472136, 1.3416408])
    plain = data.prepare(table(columns=("age",), scale="none"))
    np.testing.assert_array_equal(plain.x[:, 0], FRAME["age"])


def test_features_keep_the_leading_principal_components():
    whole = data.prepare(table(columns=("age", "grade", "id")))
    part = data.prepare(table(columns=("age", "grade", "id")), features=1)
    values, vectors = np.linalg.eigh(np.cov(whole.x.T, bias=True))
    np.testing.assert_allclose(np.abs(part.x[:, 0]), np.abs(whole.x @ vectors[:, -1]))
    np.testing.assert_allclose(part.explained_variance, values[-1])


def test_a_missing_value_is_an_error_or_drops_its_record_or_is_replaced(folder):
    frame = FRAME.assign(age=[20.0, None, 40.0, 60.0], ward=["b", "a", None, "c"])
    frame.to_parquet(folder / "m.parquet")
    columns = ("age", "ward")
    with pytest.raises(data.UserFormError, match=r"2 missing values: age \(1\), ward \(1\)"):
        data.info(table(path="m.parquet", columns=columns))
    dropped = data.load(table("id", "m.parquet", columns=columns, missing="drop"))
    np.testing.assert_array_equal(dropped.x, [[20, 1, 0], [60, 0, 1]])
    replaced = data.load(table(path="m.parquet", columns=columns, missing="replace"))
    np.testing.assert_array_equal(replaced.x[:, 0], [20, 40, 40, 60])
    assert replaced.feature_names[1:] == ("ward=a", "ward=b", "ward=c", "ward=missing")


def test_the_fingerprint_changes_with_the_content_and_with_the_way_it_is_read(folder):
    first = data.fingerprint(table(columns=("age",)))
    assert data.fingerprint(table(columns=("age",), scale="none")) != first
    FRAME.assign(age=[20.0, 30.0, 40.0, 51.0]).to_csv(folder / "t.csv", index=False)
    assert data.fingerprint(table(columns=("age",))) != first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "outcom"}, r"target: got 'outcom'; .* \(did you mean outcome\?\)"),
        ({"path": "absent.csv"}, "table: got .*absent.csv, which cannot be read"),
        ({"path": "t.txt"}, r"table: got .*t.txt; expected a file that ends in .csv"),
        ({"columns": ("age", "outcome")}, "columns: got the target 'outcome'"),
        ({"target": "grade", "task": "binary"}, "task: got binary and 3 classes"),
        ({"task": "regression"}, "target: got 'outcome', which holds other values"),
    ],
)
def test_a_description_that_does_not_fit_the_table_names_the_entry(folder, settings, message):
    (folder / "t.txt").write_text("a")
    with pytest.raises(data.UserFormError, match=message):
        data.info(table(**settings))


def test_absent_columns_of_all_entries_are_reported_together():
    with pytest.raises(data.UserFormError) as refused:
        data.info(table("outcom", ignore=("idd",), dates=("agee",)))
    errors = {error.field: error.expected for error in (refused.value, *refused.value.others)}
    suggested = {field: text.partition("did you mean ")[2] for field, text in errors.items()}
    assert suggested == {"target": "outcome?)", "ignore": "id?)", "dates": "age?)"}


def test_mistakes_of_all_kinds_are_reported_together(folder):
    frame = FRAME.assign(
        empty=None, paid=["5k", "3k", "2k", "1k"], age=[20.0, None, 40.0, 60.0], outcome=["yes"] * 4
    )
    frame.to_csv(folder / "f.csv", index=False)
    with pytest.raises(data.UserFormError) as refused:
        data.info(table("outcome", "f.csv", ignore=("idd",)))
    given = [each.given for each in (refused.value, *refused.value.others)]
    parts = (
        "'idd'",
        "'empty' without",
        "error, which",
        "'paid', where 4",
        "'outcome', which always",
    )
    assert [text[: len(part)] for text, part in zip(given, parts, strict=True)] == list(parts)


def test_what_raw_columns_mean_to_model_and_attacks_is_noted(folder):
    count = 1_200
    frame = pd.DataFrame(
        {
            "customer": [f"C{i}" for i in range(count)],
            "balance": [f"{2000 + i % 30:,}.5" for i in range(count)],
            "since": [f"{1 + i % 28:02}/03/2020" for i in range(count)],
            "ward": ["a", "b"] * (count // 2),
            "outcome": ["yes", "no"] * (count // 2),
        }
    )
    frame.to_csv(folder / "raw.csv", index=False)
    reference = RawTableReference(table="raw.csv", target="outcome")
    assert data.info(reference).remarks[-3:] == (
        "attacks see the 1,200 categories of customer as whole numbers in alphabetical order, not "
        "as columns: there are more than 1,000.",
        "the model gets the texts of 'balance', where 1,200 of 1,200 values are not numbers: "
        "'2,000.5', '2,001.5', '2,002.5' and 27 more; expected numbers (set thousands: \",\"), "
        "unless its own code reads them.",
        "the model gets the texts of 'since', which has dates or times as '01/03/2020'; expected "
        "dates: [since] and date_format, as %d/%m/%Y, unless its own code reads them.",
    )


def test_replaced_values_of_nullable_columns_are_medians_and_truth_values_are_categories(folder):
    frame = FRAME.assign(
        age=pd.array([1, 2, None, 4], dtype="Int64"),
        smoker=pd.array([True, None, False, True], dtype="boolean"),
    )
    frame.to_parquet(folder / "n.parquet")
    columns = ("age", "smoker")
    loaded = data.load(table(path="n.parquet", columns=columns, missing="replace"))
    np.testing.assert_array_equal(loaded.x[:, 0], [1, 2, 2, 4])
    assert loaded.feature_names[1:] == ("smoker=False", "smoker=True", "smoker=missing")


def test_a_column_of_identifiers_is_refused_as_categories(folder):
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(1001)], "y": [0, 1, 1] * 333 + [0, 1]})
    frame.to_csv(folder / "i.csv", index=False)
    with pytest.raises(data.UserFormError, match=r"'name' with 1,001 categories; .* ignore"):
        data.info(table("y", "i.csv"))
    assert data.info(table("y", "i.csv", categories="integer")).attributes == 1


def test_only_texts_and_whole_numbers_that_all_differ_may_identify_records():
    columns = {"id": range(4), "weight": [0.5, 1.5, 2.0, 3.0], "age": [30, 30, 31, 32]}
    frame = pd.DataFrame({**columns, "name": list("abcd"), "sex": list("mfmf")})
    assert [remark.split()[1] for remark in identifier_remarks(frame)] == ["id", "name"]
    gap = pd.DataFrame({"id": [0, 1, None, 3], "weight": [0.5, 1.5, None, 3.0]})
    assert [remark.split()[1] for remark in identifier_remarks(gap)] == ["id"]
