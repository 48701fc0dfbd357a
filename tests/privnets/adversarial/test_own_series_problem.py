"""The user's own series as a problem: windows, secrets, splits, releases, and clear errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.opening import problem_of
from privnets.adversarial.records import load_pool
from privnets.adversarial.trained_releaser import load_releaser, save_releaser
from privnets.adversarial.training.game import Game
from privnets.adversarial.training.releasers import build_releaser
from privnets.data import UserFormError
from privnets.randomness import generator
from privnets.references.user_files import set_folder
from tests.privnets.adversarial.releases import split_parts

SERIES, STEPS, WINDOW = 30, 23, 8
FORM = {
    "series": "readings.csv",
    "id": "house",
    "time": "hour",
    "value": "watts",
    "secret": "home",
    "window": WINDOW,
}


@pytest.fixture
def readings(tmp_path):
    """Writes readings in random order; a few secrets are unknown."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "house": np.repeat([f"h{i:02}" for i in range(SERIES)], STEPS),
            "hour": np.tile(np.arange(STEPS), SERIES),
        }
    )
    home = (frame["hour"] + random.integers(0, 3, len(frame))) % 8 < 4
    frame["watts"] = 100.0 + 200 * home + random.normal(0, 20, len(frame))
    frame["home"] = np.where(home, "yes", "no")
    frame.loc[::50, "home"] = None
    frame["day"] = frame["hour"].astype(str) + ":00"  # 10:00 would sort before 8:00
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    frame.to_csv(tmp_path / "readings.csv", index=False)
    set_folder(tmp_path)
    return frame


def config_of(**changes) -> AdversarialConfig:
    problem = {**FORM, **changes}
    return AdversarialConfig.model_validate(
        {"problem": problem, "steps": 2, "releaser_width": 4, "adversary_width": 4}
    )


def test_windows_are_successive_readings_of_one_series(readings) -> None:
    config = config_of()
    problem = problem_of(config)
    records, (splits,) = problem.load_records([config])
    assert records.x.shape == (SERIES * 3, WINDOW, 1)
    assert records.present.sum() == len(readings)
    mean, std = problem.original_units(config)
    ordered = readings.sort_values(["house", "hour"])
    watts = mean + std * records.x[..., 0][records.present]
    np.testing.assert_allclose(watts, ordered["watts"], rtol=1e-5)
    known = ordered["home"].map({"no": 0, "yes": 1}).fillna(-1)
    np.testing.assert_array_equal(records.secret[records.present], known)
    assert (records.secret[~records.present] == -1).all()
    parts = split_parts(splits)
    houses = [set(records.group[part].tolist()) for part in parts]
    assert sum(map(len, houses)) == len(set.union(*houses)) == SERIES
    sizes = problem.split_sizes(config)
    assert [len(p) for p in parts] == [sizes.train, sizes.attack, sizes.validation, sizes.test]


def test_few_series_are_cut_into_blocks(readings, tmp_path) -> None:
    readings = readings[readings["house"] < "h10"]
    readings.to_csv(tmp_path / "readings.csv", index=False)
    problem = problem_of(config_of(window=4))
    records, (splits,) = problem.load_records([config_of(window=4)])
    blocks = len(set(records.group.tolist()))
    assert blocks >= 20
    assert sum(len(part) for part in split_parts(splits)) == len(records.x)


def test_a_game_trains_on_them(readings) -> None:
    config = config_of()
    problem = problem_of(config)
    pool, splits = load_pool(problem, [config], "cpu")
    game = Game(problem, [config], pool, splits)
    assert not game.advance(2)
    released = game.record_releaser(0).release(splits[0].test, "test")
    assert released.shape == (len(splits[0].test), WINDOW, 1)


def test_a_stored_releaser_returns_every_reading_in_its_place(readings, tmp_path) -> None:
    """An untrained recurrent releaser copies its input, whatever the noise."""
    config = config_of()
    problem = problem_of(config)
    weights = build_releaser(problem, config).initial(generator(0, "releaser"))
    (tmp_path / "r.safetensors").write_bytes(save_releaser(problem, config, weights))
    releaser = load_releaser(tmp_path / "r.safetensors")
    released = releaser(readings, seed=1)
    assert released.columns.tolist() == ["house", "hour", "watts"]
    np.testing.assert_allclose(released["watts"], readings["watts"], rtol=1e-5)
    weights[-1] += 1.0  # one standard deviation, everywhere
    (tmp_path / "r.safetensors").write_bytes(save_releaser(problem, config, weights))
    moved = load_releaser(tmp_path / "r.safetensors")(readings, seed=1)
    expected = (readings["watts"] + problem.encoding.value.std).clip(upper=readings["watts"].max())
    np.testing.assert_allclose(moved["watts"], expected, rtol=1e-5)


def test_the_releaser_sees_the_secret(readings) -> None:
    config = config_of()
    problem = problem_of(config)
    network = build_releaser(problem, config)
    weights = network.initial(generator(0, "releaser"))
    weights[-2] = torch.full_like(weights[-2], 0.5)
    releaser = load_releaser(save_releaser(problem, config, weights))
    other = readings.assign(home=readings["home"].map({"yes": "no", "no": "yes"}))
    pd.testing.assert_frame_equal(releaser(readings, seed=1), releaser(readings, seed=1))
    assert (releaser(other, seed=1)["watts"] != releaser(readings, seed=1)["watts"]).any()


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"series": "none.csv"}, "series", "cannot be read"),
        ({"id": "hause"}, "id", "did you mean house"),
        ({"value": "home"}, "value", "with texts"),
        ({"secret": "hime"}, "secret", "did you mean home"),
        ({"secret": "watts"}, "secret", "classes; expected 2 to 100"),
        ({"id": "home"}, "time", "missing values"),
        ({"time": "day", "id": "house"}, "time", "numbers, or dates and times"),
    ],
)
def test_a_mistake_is_named_with_its_entry(readings, changes, field, words) -> None:
    with pytest.raises(UserFormError, match=words) as raised:
        problem_of(config_of(**changes))
    assert raised.value.field == field


def test_iso_times_are_ordered_as_instants(readings, tmp_path) -> None:
    expected = problem_of(config_of()).x
    zones = np.where(readings["hour"] % 2, "+02:00", "Z")
    clock = readings["hour"] + 2 * (readings["hour"] % 2)
    days, hours = (1 + clock // 24).astype(str), (clock % 24).astype(str).str.zfill(2)
    readings["hour"] = "2026-01-0" + days + "T" + hours + ":00" + zones
    readings.to_csv(tmp_path / "zones.csv", index=False)
    np.testing.assert_array_equal(problem_of(config_of(series="zones.csv")).x, expected)


def test_a_secret_that_training_did_not_see_is_refused(readings) -> None:
    encoding = problem_of(config_of()).encoding
    with pytest.raises(UserFormError, match="got 'perhaps'; expected a class that"):
        encoding.secret_classes(readings.replace({"home": {"yes": "perhaps"}}))


def test_two_readings_at_one_time_are_refused(readings, tmp_path) -> None:
    pd.concat([readings, readings[:1]]).to_csv(tmp_path / "readings.csv", index=False)
    with pytest.raises(UserFormError, match=r"two readings of house h\d\d at"):
        problem_of(config_of())


def test_windows_that_run_across_gaps_are_counted(readings, tmp_path) -> None:
    assert not any("gaps" in remark for remark in problem_of(config_of()).remarks)
    late = (readings["house"] == "h03") & (readings["hour"] > 10)
    readings["hour"] += 100 * late
    readings.to_csv(tmp_path / "readings.csv", index=False)
    remarks = problem_of(config_of()).remarks
    (gap,) = [remark for remark in remarks if "gaps" in remark]
    assert gap.startswith("readings.csv: 1 of 90 windows run across gaps in hour, as house h03 aft")
    assert "after 10;" in gap
    known = readings["home"].dropna()
    assert remarks[0].startswith(f"readings.csv: secret of {len(known)} readings has 2 classes; ")


def test_a_value_with_a_text_among_numbers_is_refused_by_name(readings, tmp_path) -> None:
    readings["watts"] = readings["watts"].astype(object)
    readings.loc[7, "watts"] = "?"
    readings.to_csv(tmp_path / "readings.csv", index=False)
    with pytest.raises(UserFormError, match=r"value: got 'watts', where 1 of 690 .*'\?'"):
        problem_of(config_of())
