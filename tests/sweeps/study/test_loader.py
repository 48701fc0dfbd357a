from copy import deepcopy
from pathlib import Path

import pytest

from sweeps.errors import StudyError
from sweeps.study.loader import load, study_names

VALID = """\
name: mine
experiment: membership
fixed:
  dataset: digits
  model: logistic
  train_size: 50
space:
  weight_decay: {grid: [0, 1e-6, 1.0e-2]}
replicates: 2
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str | bytes) -> Path:
        path = tmp_path / "study.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def load_errors(path: Path | str, *overrides: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        load(path, overrides)
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.errors]
    return str(caught.value).replace(str(path), "FILE").splitlines()


def test_one_error_lists_every_mistake_with_line_given_and_expected_values(write):
    text = """\
name: my study
experiment: membership
replicate: 3
fixed:
  dataset: digits
  model: linear
  train_size: 5000
  trainsize: 3
  draws: 401
space:
  weight_decay:
    grid:
      - 0
      - -1
      - -2
  noise_std: {uniform: [0, 1]}
  features: {gird: [3]}
  records: {range: [1, 10]}
  seed: {range: [0, 3]}
objectives: {privacy/rho: min, utility/test_mse: down}
search: {algorithm: sobool}
resources: {cpus: -1, pack: 0}
claims:
  - {statement: a, metric: privacy/rho_kl, axis: lambda, trend: decreasing}
  - {statement: b, metric: privacy/rho_kl, axis: weight_decay, trend: falling}
replicates: many
replicates: 4
"""
    errors = load_errors(write(text))
    expected = [
        ('FILE:1 name: got "my study"; expected up to 100 letters', ""),
        ("FILE:3 replicate: got an unknown key; expected one of", "(did you mean replicates?)"),
        ("FILE:6 fixed.model: got linear; expected logistic, mlp, cnn or resnet with digits", ""),
        ("FILE:7 fixed.train_size: got 5000; expected at most 1796 with digits", ""),
        ("FILE:8 fixed.trainsize: got an unknown field; expected", "(did you mean train_size?)"),
        ("FILE:9 fixed.draws: got 401; expected a value that is even", ""),
        ("FILE:11 space.weight_decay: got -1, -2; expected at least 0", ""),
        ("FILE:17 space.features: got a mapping with the keys gird", "(did you mean grid?)"),
        ("FILE:18 space.records: got 1, 2, 3; expected at least 4", ""),
        ("FILE:19 space.seed: got an axis; expected replicates: N", ""),
        ("FILE:20 objectives.privacy/rho: got privacy/rho, which not every", ""),
        ('FILE:20 objectives.utility/test_mse: got "down"; expected min or max', ""),
        ('FILE:21 search.algorithm: got "sobool"; expected', "(did you mean sobol?)"),
        ("FILE:22 resources.cpus: got -1; expected auto, a whole number from 0 to 4096, or", ""),
        ("FILE:22 resources.pack: got 0; expected auto, or a whole number", ""),
        ('FILE:24 claims.0.axis: got "lambda"; expected one of', ""),
        ('FILE:25 claims.1.trend: got "falling"; expected decreasing, increasing or', ""),
        ('FILE:26 replicates: got "many"; expected a whole number', ""),
        (
            "FILE:27 replicates: got a second value (the first is in line 26)",
            "expected each key once",
        ),
    ]
    for beginning, part in expected:
        assert [line for line in errors if line.startswith(beginning) and part in line], beginning
    assert len(errors) == len(expected), errors


def test_an_invalid_axis_causes_no_other_errors(write):
    text = """\
name: a
experiment: membership
fixed: {dataset: digits, model: logistic, draws: 64, records: 20}
space: {train_size: [40, 80]}
replicates: 2
search: {algorithm: frontier, num_points: 8}
"""
    (line,) = load_errors(write(text))
    assert line.startswith("FILE:4 space.train_size: got [40, 80]; expected a mapping")


def test_mistyped_names_have_a_suggestion(write):
    text = VALID.replace("digits", "digitss").replace("replicates: 2", "replicates: many")
    line, _ = load_errors(write(text))
    assert line.endswith("(did you mean digits?)")
    with pytest.raises(StudyError, match=r"fields are set as fixed\.draws"):
        load(write(VALID), ["draws=128"])


def test_a_percentage_in_a_constraint_gets_its_number(write):
    (line,) = load_errors(write(VALID + "constraints: {utility/test_accuracy: '>= 60%'}\n"))
    assert line.endswith('as ">= 0.9" or "<= 0.1"; write 60% as 0.6')


def test_errors_in_claims_have_their_lines(write):
    claims = """
claims:
  - {statement: a, metric: privacy/rho_kl, at_least: high}
  - {statement: b, metric: privacy/rho_kl, above: privacy/rho}
  - statement: c
    metric: privacy/rho_kl
    at_most: 0.1
    where: {weightdecay: 0}
    given:
      utility/accuracy: {at_least: 0.9}
  - {statement: d, metric: privacy/rho_kl, axis: weight_decay}
  - {statement: e, metric: privacy/rho_kl, at_most: 1, given: {utility/x: {at_leest: 0.9}}}
"""
    errors = load_errors(write(VALID + claims))
    first = VALID.count("\n") + 3
    expected = [
        (f"FILE:{first} claims.0.at_least: got", "expected a number"),
        (f"FILE:{first + 1} claims.1.above: got privacy/rho, which not every point", ""),
        (f"FILE:{first + 5} claims.2.where.weightdecay: got an unknown field", "weight_decay"),
        (f"FILE:{first + 7} claims.2.given.utility/accuracy: got utility/accuracy, which", ""),
        (f"FILE:{first + 8} claims.3: got a mapping", "axis and trend; at_least or at_most; above"),
        (f"FILE:{first + 9} claims.4.given.utility/x.at_leest: got an unknown key", "at_least"),
    ]
    for (beginning, part), line in zip(expected, errors, strict=True):
        assert line.startswith(beginning), line
        assert part in line


def test_an_entry_without_a_name_beside_an_invalid_entry_is_an_error(write):
    errors = load_errors(write(VALID + "objectives: {'': mean, utility/test_mse: mean}\n"))
    assert any(error.startswith("FILE:10 objectives.utility/test_mse") for error in errors)


def test_an_error_in_a_nested_list_has_the_line_of_its_element(write):
    text = VALID.replace("{grid: [0, 1e-6, 1.0e-2]}", "\n    grid:\n    - 0\n    - [1]")
    assert load_errors(write(text)) == [
        "FILE:11 space.weight_decay.grid.1: got [1]; expected a number, a text, true, false or null"
    ]


def test_missing_required_keys_are_errors(write):
    assert load_errors(write("replicates: 2\n")) == [
        "FILE name: got nothing; expected a value, which is required",
        "FILE experiment: got nothing; expected a value, which is required",
    ]


def test_an_unknown_experiment_is_an_error_that_lists_the_experiments(write):
    (line,) = load_errors(write("name: a\nreplicates: x\nexperiment: membershop\n"))[1:]
    assert line == (
        'FILE:3 experiment: got "membershop"; expected one of membership '
        "(did you mean membership?), adversarial, or one of a package installed here"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "FILE: got nothing; expected a mapping that describes a study"),
        ("# only a comment\n", "FILE: got nothing; expected a mapping that describes a study"),
        ("- a\n- b\n", 'FILE: got ["a", "b"]; expected a mapping that describes a study'),
        (
            "name: a\nname: [\n",
            "FILE:3: got a syntax error (while parsing a flow node, expected the node",
        ),
        ("a: 1\nb: x: y\n", "FILE:2: got a syntax error (mapping values are not allowed here)"),
        ("a: [1:2, [3:]\n", "FILE:2: got a syntax error (while parsing a flow sequence"),
        ("a: 1\n--- \nb: 2\n", "FILE:2: got a syntax error (expected a single document"),
        ("a: b\n1: c\n", "FILE:2: got the key int '1'; expected a text as key"),
        ("a: *nothing\n", "FILE:1: got a syntax error (found undefined alias 'nothing'"),
        ("a: &a [*a]\n", "FILE:1: got deeper nesting; expected at most 20 levels"),
        ("a: !!python/object/apply:os.system [ls]\n", "FILE:1: got a python/object/apply"),
        ("a: !!python/name:os.system x\n", "FILE:1: got python/name:os.system 'x'; expected"),
        ("a: " + "9" * 400, "FILE:1: got int '9999"),
        ("a: \x07\n", "FILE: got a syntax error (unacceptable character #x0007"),
        (b"name: \xff\n", "FILE: got bytes that are not UTF-8 text (at 6); expected"),
        ("#" * 300_000, "FILE: got a longer text; expected at most"),
    ],
)
def test_text_that_is_not_a_study_is_refused_in_one_line(write, text, line):
    errors = load_errors(write(text))
    assert errors[0].startswith(line), errors


def test_scalars_follow_yaml_1_2(write):
    study = load(write(VALID.replace("[0, 1e-6, 1.0e-2]", "[no, 010, 1e3, 1:30, 2020-01-01, ~]")))
    assert study.space["weight_decay"].values() == ("no", 10, 1e3, "1:30", "2020-01-01", None)


def test_an_unknown_study_is_an_error_that_lists_the_most_similar_studies():
    (line,) = load_errors("quikstart")
    head, listed = line.split("expected a path to a YAML file, or one of ")
    assert head == 'study: got "FILE"; '
    names, rest = listed.split(" and ")
    first, *others = names.split(", ")
    assert first == "quickstart (did you mean quickstart?)"
    assert {*others} < {*study_names()} - {"quickstart"}
    assert rest == f"{len(study_names()) - len(others) - 1} others"


def test_an_absent_file_and_a_directory_are_errors(tmp_path):
    for path, reason in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "Is a directory")):
        (line,) = load_errors(path)
        assert line.startswith(f"FILE: got a file that cannot be read ({reason}")


def test_overrides_replace_add_and_remove_values(write):
    study = load(
        write(VALID),
        [
            "fixed.train_size=100",
            "fixed.features=null",
            "space.weight_decay.loguniform=[1e-6, 1]",
            "space.noise_std.grid=[0,1]",
            "search.num_points=8",
            "replicates=4",
            "objectives.privacy/attack/white_box/tpr_at_fpr_0.1=min",
        ],
    )
    assert study.fixed["train_size"] == 100
    assert study.fixed["features"] is None
    assert study.to_dict()["space"]["weight_decay"] == {"loguniform": [1e-6, 1.0]}
    assert study.space["noise_std"].values() == (0, 1)
    assert study.search.num_points == 8
    assert study.replicates == 4
    assert study.objectives == {"privacy/attack/white_box/tpr_at_fpr_0.1": "min"}
    assert not load(write(VALID), ["space.weight_decay=null"]).space


def test_a_mapping_gives_the_same_study_as_its_file_and_is_not_changed(write):
    values = load(write(VALID)).to_dict()
    before, changes = deepcopy(values), ["fixed.train_size=100"]
    assert load(values, changes) == load(write(VALID), changes)
    assert load(load(values), changes) == load(values, changes)
    assert values == before
    with pytest.raises(StudyError, match="study replicates: got 0; expected at least 1"):
        load({**values, "replicates": 0})


def test_a_text_is_one_override():
    assert load("quickstart", "replicates=3") == load("quickstart", ["replicates=3"])
    with pytest.raises(StudyError, match=r'^--set: got "sqlite:///runs.db"; expected key=value'):
        load("quickstart", "sqlite:///runs.db")


def test_an_override_of_values_keeps_an_axis_paired_and_conditional(write):
    path = write(
        "name: own\nexperiment: adversarial\nfixed: {problem: digits}\nspace:\n"
        "  privacy_weight: {grid: [0.0, 1.0, 2.0]}\n"
        "  noise_std: {grid: [0.1, 0.2, 0.3], along: privacy_weight}\n"
        "  objective: {choice: [alpha, squared-kl]}\n"
        "  tradeoff: {grid: [0.2, 0.5], when: {objective: squared-kl}}\n"
    )
    changes = ["space.privacy_weight.grid=[0.0, 4.0]", "space.noise_std.grid=[0.1, 0.4]"]
    space = load(path, [*changes, "space.tradeoff.uniform=[0.1, 0.9]"]).space
    assert (space["noise_std"].grid, space["noise_std"].along) == ((0.1, 0.4), "privacy_weight")
    assert space["tradeoff"].grid is None
    assert space["tradeoff"].when == {"objective": ("squared-kl",)}
    single = load(path, [*changes, "space.noise_std.uniform=[0.1, 0.4]"]).space["noise_std"]
    assert (single.uniform, single.along) == ((0.1, 0.4), None)


def test_an_error_in_an_override_names_the_option(write):
    path = write(VALID)
    assert load_errors(path, "replicates=0", "train_size=3", "fixed.train_size", "name.x=1") == [
        "--set train_size: got an unknown key; expected one of claims, constraints, description, "
        "early_stopping, experiment, fixed, groups, metrics, name, obfuscation, objectives, "
        "replicates, reproduces, resources, search, space; fields are set as fixed.train_size",
        '--set: got "fixed.train_size"; expected key=value, as fixed.train_size=100 or '
        "space.weight_decay.grid=[0, 1]",
        '--set name.x: got "mine" above it; expected a mapping there',
        "--set replicates: got 0; expected at least 1",
    ]
    assert load_errors(path, "fixed.model=[") == [
        "--set fixed.model: got a syntax error (while parsing a flow node, expected the node "
        "content, but found '<stream end>'); expected valid YAML"
    ]
    assert load_errors(path, "fixed.train_size=99999", "x")[1:] == [
        "--set fixed.train_size: got 99999; expected at most 1796 with digits"
    ]
