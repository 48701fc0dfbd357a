"""Releases keep the types and ranges of their records, and attackers see them as written."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from privnets.adversarial import release_check
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import load_pool
from privnets.adversarial.released_columns import CategoryColumn
from privnets.adversarial.trained_releaser import (
    ReleaserDescription,
    load_releaser,
    save_releaser,
)
from privnets.adversarial.training.game import Game
from privnets.data import UserFormError
from privnets.references.table_files import read_frame
from privnets.references.user_files import set_folder

RECORDS = 400
FORM = {"table": "people.parquet", "secret": "sex", "ignore": ["id"], "categorical": ["floor"]}


@pytest.fixture
def people(tmp_path):
    """Writes columns of every kind; `floor` has numbers that are categories."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": range(RECORDS),
            "age": random.integers(18, 80, RECORDS),
            "children": random.poisson(0.5, RECORDS),
            "price": (1000 * random.random(RECORDS)).round(2),
            "weight": random.normal(70, 9, RECORDS),
            "member": random.random(RECORDS) < 0.3,
            "floor": random.integers(8, 12, RECORDS),
            "town": pd.Categorical(random.choice(["Bonn", "Aachen"], RECORDS)),
            "hand": random.choice(["left", "right"], RECORDS),
            "sex": random.choice(["F", "M"], RECORDS),
        }
    )
    frame.to_parquet(tmp_path / "people.parquet", index=False)
    set_folder(tmp_path)
    return frame


def config_of(noise_std: float = 2.0, **changes) -> AdversarialConfig:
    """A linear filter, which without noise and training copies its input."""
    values = {"releaser": "linear", "noise_std": noise_std, "panel": "quick", "steps": 1}
    return AdversarialConfig.model_validate({"problem": {**FORM, **changes}, **values})


def stored(config: AdversarialConfig, theta: torch.Tensor | None = None):
    problem = problem_of(config)
    parameters = torch.eye(problem.encoding.shape[0]) if theta is None else theta
    return load_releaser(save_releaser(problem, config, [parameters]))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_written_columns_have_the_types_decimals_and_ranges_of_the_original(
    people, tmp_path, suffix
) -> None:
    target = tmp_path / f"out{suffix}"
    stored(config_of()).release_files(tmp_path / "people.parquet", target, seed=1)
    released = read_frame(target)
    original = people.drop(columns=["id", "sex"])
    assert released.columns.tolist() == original.columns.tolist()
    types = released.dtypes.astype(str).to_dict()
    integers = dict.fromkeys(("age", "children", "floor"), "int64")
    numbers = dict.fromkeys(("price", "weight"), "float64")
    assert {**types, **integers, **numbers, "member": "bool"} == types
    for name in ("age", "children", "price", "weight"):
        assert released[name].min() == original[name].min()  # noise of two deviations reaches both
        assert released[name].max() == original[name].max()
    assert (released["price"].round(2) == released["price"]).all()
    assert (released["weight"].round(6) != released["weight"]).mean() > 0.5
    for name in ("member", "floor", "town", "hand"):
        assert set(released[name]) == set(original[name])
        assert 0.2 < (released[name] != original[name]).mean() < 0.9
    if suffix == ".parquet":
        assert str(pq.read_schema(target).field("town").type).startswith("dictionary<values=string")


def test_a_release_without_noise_is_the_table(people, tmp_path) -> None:
    report = stored(config_of(noise_std=0.0)).release_files(
        tmp_path / "people.parquet", tmp_path / "out.parquet", keep=["id"]
    )
    released = pd.read_parquet(tmp_path / "out.parquet")
    assert [(c.change, c.clipped) for c in report.columns if c.name != "weight"] == [(0, 0)] * 7
    expected = people[released.columns]
    pd.testing.assert_frame_equal(released, expected, check_dtype=False, rtol=1e-6)
    assert released["member"].dtype == bool


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_attackers_of_a_check_see_exactly_the_file(people, tmp_path, suffix, monkeypatch) -> None:
    releaser, target = stored(config_of()), tmp_path / f"out{suffix}"
    releaser.release_files(tmp_path / "people.parquet", target, seed=1)
    seen = []

    def stop(problem, config, evidence):
        seen.append(evidence)
        yield None
        raise InterruptedError

    monkeypatch.setattr(release_check, "_score", stop)
    with pytest.raises(InterruptedError):
        release_check.check_release(releaser, tmp_path / "people.parquet", target, "quick")
    problem = problem_of(config_of())
    written = problem.encoding.encode(read_frame(target))
    z = problem.encoding.reencode(releaser.release(problem.x, 1))
    np.testing.assert_array_equal(written, z)
    rows = {row.tobytes() for row in written}
    assert {row.tobytes() for row in seen[0].test.z.numpy()} <= rows
    redrawn = seen[0].redraw("another").numpy()
    np.testing.assert_array_equal(problem.encoding.reencode(redrawn), redrawn)


def test_attackers_of_a_sweep_see_the_release_as_a_file_has_it(people, tmp_path) -> None:
    config = config_of()
    problem = problem_of(config)
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    game.advance(1)
    released = release_records(game, 0, pool, splits[0]).released
    for z in (*(part.z for part in released.splits), released.redraw("other")):
        frame = problem.encoding.decode(z.numpy(), pd.DataFrame(index=range(len(z))))
        frame.to_csv(tmp_path / "written.csv", index=False)
        read = read_frame(tmp_path / "written.csv")
        np.testing.assert_array_equal(problem.encoding.encode(read), z.numpy())
        assert set(read["age"]) <= set(range(18, 80))


def test_a_secret_in_the_decimals_is_not_released(people, tmp_path) -> None:
    """The filter adds 0.2 to the age of men: attackers of the scores would be certain of it."""
    people["man"] = (people["sex"] == "M").astype(int)
    people.to_parquet(tmp_path / "people.parquet", index=False)
    config = config_of(noise_std=0.0, columns=["age", "man"], categorical=[])
    problem = problem_of(config)
    age, man = problem.encoding.columns
    theta = torch.tensor([[1.0, 0.2 * man.std / age.std], [0.0, 0.0]])  # of (x - mean) / std
    z = stored(config, theta).release(problem.x)
    continuous = age.mean + age.std * z[:, 0].astype(float)
    hidden = (continuous - people["age"]).to_numpy()
    is_man = people["man"].to_numpy() == 1
    assert hidden[is_man].min() > hidden[~is_man].max()
    decoded = problem.encoding.decode(z, people)
    np.testing.assert_array_equal(decoded["age"], people["age"])
    ages = problem.encoding.reencode(z)[:, 0]
    np.testing.assert_array_equal(ages, problem.x[:, 0])


def test_a_report_tells_change_clipping_and_rounding(people, tmp_path) -> None:
    """One column is moved by a constant, another has every category changed."""
    people["age"] = np.repeat([20, 30], RECORDS // 2)
    people["hand"] = np.tile(["left", "right"], RECORDS // 2)
    people.to_parquet(tmp_path / "people.parquet", index=False)
    config = config_of(noise_std=0.0, columns=["age", "price", "hand"], categorical=[])
    theta = torch.eye(4)
    theta[0, 2:] = 1.5  # one of both is 1: 1.5 deviations of 5 years
    theta[2:, 2:] = theta[2:, 2:].flip(0)
    report = stored(config, theta).release_files(tmp_path / "people.parquet", tmp_path / "out.csv")
    age, price, hand = report.columns
    # 20 + 7.5 rounds to 28 (to even) and stays; 30 + 7.5 becomes 30.
    assert age == ("age", "integers", 4.0, 0.5, 0)
    assert price == ("price", "numbers", 0.0, 0.0, 2)
    assert hand == ("hand", "categories", 1.0, 0.0, None)
    assert age.description == "age: integers, mean absolute change 4, 50.0% clipped to the range"
    assert price.description.startswith("price: numbers, rounded to 2 decimals, mean")
    assert hand.description == "hand: categories, 100.0% of records have another one"


def test_a_column_of_truth_values_keeps_its_name_in_the_changes() -> None:
    column = CategoryColumn.fit("remote", pd.Series([True, False]))
    change = column.change(pd.Series([True, False]), pd.Series([True, True]), np.eye(2))
    assert change.description == "remote: truth values, 50.0% of records have another one"


def test_a_declared_range_replaces_the_observed_one(people, tmp_path) -> None:
    ranges = {"age": [0, 120], "price": [100.5, 200]}
    config = config_of(noise_std=50.0, ranges=ranges)
    assert config.resolved()["problem.ranges.age"] == "[0.0, 120.0]"
    stored(config).release_files(tmp_path / "people.parquet", tmp_path / "out.csv", seed=0)
    released = pd.read_csv(tmp_path / "out.csv")
    assert (released["age"].min(), released["age"].max()) == (0, 120)
    assert (released["price"].min(), released["price"].max()) == (100.5, 200)
    assert released["children"].min() == 0
    assert problem_of(config_of(ranges={})) is problem_of(config_of())
    assert problem_of(config_of(ranges=ranges)) is problem_of(config)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"town": [0, 1]}, "got 'town'; expected released columns of numbers: age"),
        ({"sex": [0, 1]}, "got 'sex'; expected released columns"),
        ({"floor": [0, 1]}, "got 'floor'; expected released columns"),
        ({"age": [0, 99.5]}, r"age: \[0, 99.5\]; expected ends with at most 0 decimals"),
    ],
)
def test_a_range_that_does_not_fit_its_column_is_refused(people, ranges, words) -> None:
    with pytest.raises(UserFormError, match=words):
        problem_of(config_of(ranges=ranges))


@pytest.mark.parametrize("ends", [[2, 1], [1], [0, 1, 2], [0, float("inf")], ["a", 1], 3, None])
def test_a_range_is_two_finite_numbers_in_order(people, ends) -> None:
    with pytest.raises(ValueError, match="ranges"):
        config_of(ranges={"age": ends})


def test_missing_values_do_not_change_the_types(people, tmp_path) -> None:
    """A release has no missing number; a missing truth value or code is a category."""
    for name in ("age", "member", "floor", "hand", "id"):
        people[name] = people[name].astype(object)
        people.loc[people.sample(30, random_state=1).index, name] = None
    people.to_csv(tmp_path / "people.csv", index=False)
    config = config_of(table="people.csv", missing="replace")
    for target in (tmp_path / "out.csv", tmp_path / "out.parquet"):
        releaser = stored(config)
        releaser.release_files(tmp_path / "people.csv", target, seed=1, keep=["id"])
        released = read_frame(target)
        assert released["age"].dtype == "int64"
        assert set(released["member"].dropna()) == {True, False}
        assert set(released["floor"].dropna()) == {8, 9, 10, 11}
        assert set(released["hand"]) == {"left", "right", "missing"}
        assert released[["member", "floor"]].isna().any().all()
        assert not released["age"].isna().any()
        encoding = problem_of(config).encoding
        z = encoding.reencode(releaser.release(encoding.encode(people_of(tmp_path)), 1))
        np.testing.assert_array_equal(encoding.encode(released), z)
    assert ".0" not in "".join(pd.read_csv(tmp_path / "out.csv", dtype=str)["id"].dropna())


def people_of(folder):
    return read_frame(folder / "people.csv")


def test_categories_of_decimal_numbers_are_read_again(people, tmp_path) -> None:
    people["floor"] = np.tile([0.5, 1.0, 1.5, 2.0], RECORDS // 4)
    people.to_parquet(tmp_path / "people.parquet", index=False)
    encoding = problem_of(config_of()).encoding
    whole = people[people["floor"] % 1 == 0].drop(columns=["id", "sex"])
    decoded = encoding.decode(encoding.encode(whole), whole)
    assert decoded["floor"].tolist() == whole["floor"].tolist()
    decoded.to_csv(tmp_path / "whole.csv", index=False)
    again = encoding.encode(read_frame(tmp_path / "whole.csv"))
    np.testing.assert_array_equal(again, encoding.encode(whole))


@pytest.mark.parametrize(
    ("values", "decimals", "dtype"),
    [
        ([2**53, 0, -5], 0, "int64"),
        ([1e100, 0.0, 3.0], 0, "float64"),
        ([-1.0, -2.0, 4.0], 0, "int64"),
        ([0.1, 0.25, 3.0], 2, "float64"),
        ([1e-7, 0.5, 1.0], None, "float64"),
        ([0.1 + 0.2, 0.5, 1.0], None, "float64"),
        ([7, 7, 7], 0, "int64"),
    ],
)
def test_numbers_of_any_size_are_released_in_their_type(
    people, tmp_path, values, decimals, dtype
) -> None:
    people["age"] = np.resize(np.array(values), RECORDS)
    people.to_parquet(tmp_path / "people.parquet", index=False)
    problem = problem_of(config_of(columns=["age"], categorical=[]))
    (column,) = problem.encoding.columns
    assert column.decimals == decimals
    extreme = np.array([[-1e30], [0.0], [1e30]], dtype=np.float32)
    released = problem.encoding.decode(extreme, pd.DataFrame(index=range(3)))["age"]
    assert str(released.dtype) == dtype
    assert (released.min(), released.max()) == (min(values), max(values))
    again = problem.encoding.encode(released.to_frame())
    np.testing.assert_array_equal(again, problem.encoding.reencode(extreme))


def test_zero_has_no_sign(people) -> None:
    """A sign would be in a CSV file, but not in what attackers see."""
    encoding = problem_of(config_of(columns=["price"], ranges={"price": [-5, 5]})).encoding
    (column,) = encoding.columns
    z = np.array([[(-0.001 - column.mean) / column.std]])
    assert str(column.decode(z)[0]) == "0.0"


def test_a_release_that_is_infinite_is_refused(people, tmp_path) -> None:
    releaser = stored(config_of(), torch.full((14, 14), 3e38))
    with pytest.raises(UserFormError, match="input: got records whose release is infinite"):
        releaser.release_files(tmp_path / "people.parquet", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.fixture
def readings(tmp_path):
    random, houses, steps = np.random.default_rng(0), 24, 20
    frame = pd.DataFrame(
        {
            "house": np.repeat(np.arange(houses), steps),
            "hour": np.tile(np.arange(steps), houses),
            "watts": random.integers(0, 500, houses * steps),
            "home": random.integers(0, 2, houses * steps),
        }
    ).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "readings.csv", index=False)
    set_folder(tmp_path)
    return frame


def series_config(**ranges) -> AdversarialConfig:
    form = {"series": "readings.csv", "id": "house", "time": "hour", "value": "watts"}
    problem = {**form, "secret": "home", "window": 8, "ranges": ranges}
    sizes = {"steps": 1, "releaser_width": 4, "adversary_width": 4}
    return AdversarialConfig.model_validate({"problem": problem, **sizes})


@pytest.mark.parametrize("ranges", [{}, {"watts": [100, 300]}])
def test_readings_are_integers_in_their_range(readings, tmp_path, ranges) -> None:
    """A recurrent releaser copies most of its input, so that releases reach both ends."""
    config = series_config(**ranges)
    problem, watts = problem_of(config), readings["watts"]
    ends = tuple(ranges.get("watts", (watts.min(), watts.max())))
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    game.advance(1)
    releaser = load_releaser(save_releaser(problem, config, game.parameters(0)))
    report = releaser.release_files(tmp_path / "readings.csv", tmp_path / "out.csv", seed=1)
    released = read_frame(tmp_path / "out.csv")
    assert released["watts"].dtype == "int64"
    assert (released["watts"].min(), released["watts"].max()) == ends
    moved = (released["watts"] - watts.to_numpy()).abs().mean()
    assert [c[:3] for c in report.columns] == [("watts", "integers", pytest.approx(moved))]
    encoding = problem.encoding
    z = releaser.release(encoding.encode(readings), 1, encoding.secret_classes(readings))
    present = encoding.encode(readings.assign(watts=10_000))[..., 0] > 1
    written, seen = encoding.encode(released), encoding.reencode(z)
    np.testing.assert_array_equal(written[present], seen[present])
    test = release_records(game, 0, pool, splits[0]).released.test
    numbers = encoding.value.mean + encoding.value.std * test.z[test.present].numpy()
    np.testing.assert_allclose(numbers, numbers.round(), atol=1e-3)
    assert ends[0] - 0.01 < numbers.min() < numbers.max() < ends[1] + 0.01


def test_the_range_of_a_column_that_is_not_released_is_refused(readings) -> None:
    with pytest.raises(UserFormError, match="got 'hour'; expected released columns of numbers"):
        problem_of(series_config(hour=[0, 1]))


def test_a_description_of_other_values_is_refused(people) -> None:
    config = config_of()
    description = stored(config).description.model_dump(mode="json")
    (floor,) = (c for c in description["encoding"]["columns"] if c["name"] == "floor")
    assert floor["dtype"] == "Int64"
    floor["categories"][0] = "high"
    with pytest.raises(ValueError, match="high"):
        ReleaserDescription.model_validate(description)
