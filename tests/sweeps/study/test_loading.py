from itertools import pairwise
from pathlib import Path
from time import process_time

import pytest
import yaml

from sweeps.errors import StudyError
from sweeps.study.loader import load, study_names

SOUND = """\
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

LAUGHS = f"a: &a [{'x,' * 9}]\n" + "".join(
    f"{new}: &{new} [{f'*{old}, ' * 9}]\n" for old, new in pairwise("abcdefghi")
)


@pytest.fixture
def write(tmp_path):
    def written(text: str | bytes) -> Path:
        path = tmp_path / "study.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return written


def refused(path: Path | str, *overrides: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        load(path, overrides)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.errors]
    return str(caught.value).replace(str(path), "FILE").splitlines()


def test_a_file_becomes_a_study(write):
    study = load(write(SOUND))
    assert study.name == "mine"
    assert study.fixed == {"dataset": "digits", "model": "logistic", "train_size": 50}
    assert study.space["weight_decay"].members() == (0, 1e-6, 1e-2)
    assert study.replicates == 2


def test_a_resolved_study_written_as_yaml_loads_as_the_same_study(write):
    study = load(write(SOUND))
    assert load(write(yaml.safe_dump(study.to_dict()))) == study


def test_every_mistake_is_told_at_once_with_its_line_what_was_found_and_what_is_allowed(write):
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
    found = refused(write(text))
    expected = [
        ('FILE:1 name: found "my study"; allowed up to 100 letters', ""),
        ("FILE:3 replicate: found an unknown key; allowed one of", "(did you mean replicates?)"),
        ("FILE:6 fixed.model: found linear; allowed logistic or mlp with digits", ""),
        ("FILE:7 fixed.train_size: found 5000; allowed at most 1796 with digits", ""),
        ("FILE:8 fixed.trainsize: found an unknown field; allowed", "(did you mean train_size?)"),
        ("FILE:9 fixed.draws: found 401; allowed only what is even", ""),
        ("FILE:11 space.weight_decay: found -1, -2; allowed at least 0", ""),
        ("FILE:17 space.features: found the keys gird; allowed", "(did you mean grid?)"),
        ("FILE:18 space.records: found 1, 2, 3; allowed at least 4", ""),
        ("FILE:19 space.seed: found an axis; allowed replicates: N", ""),
        ("FILE:20 objectives.privacy/rho: found privacy/rho, which not every", ""),
        ('FILE:20 objectives.utility/test_mse: found "down"; allowed min or max', ""),
        ('FILE:21 search.algorithm: found "sobool"; allowed', "not available yet: tpe, nsga2, gp"),
        ("FILE:22 resources.cpus: found -1; allowed at least 0", ""),
        ("FILE:22 resources.pack: found 0; allowed auto, or a whole number", ""),
        ('FILE:24 claims.0.axis: found "lambda"; allowed one of', ""),
        ('FILE:25 claims.1.trend: found "falling"; allowed decreasing, increasing or', ""),
        ('FILE:26 replicates: found "many"; allowed a whole number', ""),
        ("FILE:27 replicates: found it again (first in line 26); allowed each key once", ""),
    ]
    for beginning, part in expected:
        assert [line for line in found if line.startswith(beginning) and part in line], beginning
    assert len(found) == len(expected), found


def test_a_mistake_in_a_nested_list_has_the_line_of_its_element(write):
    text = SOUND.replace("{grid: [0, 1e-6, 1.0e-2]}", "\n    grid:\n    - 0\n    - [1]")
    assert refused(write(text)) == [
        "FILE:11 space.weight_decay.grid.1: found [1]; "
        "allowed a number, a text, true, false or null"
    ]


def test_what_is_required_is_missed(write):
    assert refused(write("replicates: 2\n")) == [
        "FILE name: found nothing; allowed a value, which is required",
        "FILE experiment: found nothing; allowed a value, which is required",
    ]


def test_an_unknown_experiment_is_told_with_those_there_are(write):
    (line,) = refused(write("name: a\nreplicates: x\nexperiment: membershop\n"))[1:]
    assert line == (
        'FILE:3 experiment: found "membershop"; allowed one of adversarial, membership '
        "(did you mean membership?)"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "FILE: found nothing; allowed a mapping that describes a study"),
        ("# only a comment\n", "FILE: found nothing; allowed a mapping that describes a study"),
        ("- a\n- b\n", 'FILE: found ["a", "b"]; allowed a mapping that describes a study'),
        ("name: a\nname: [\n", "FILE:3: found '<stream end>' in place of the node content"),
        ("a: 1\nb: x: y\n", "FILE:2: found a mistake (mapping values are not allowed here)"),
        ("a: [1:2, [3:]\n", "FILE:2: found '<stream end>' in place of ',' or ']'"),
        ("a: 1\n--- \nb: 2\n", "FILE:2: found another document"),
        ("a: b\n1: c\n", "FILE:2: found the key int '1'; allowed a text as key"),
        ("a: *nothing\n", "FILE:1: found undefined alias"),
        ("a: &a [*a]\n", "FILE:1: found deeper nesting; allowed at most 20 levels"),
        ("a: !!python/object/apply:os.system [ls]\n", "FILE:1: found a python/object/apply"),
        ("a: !!python/name:os.system x\n", "FILE:1: found python/name:os.system 'x'; allowed"),
        ("a: " + "9" * 400, "FILE:1: found int '9999"),
        ("a: \x07\n", "FILE: found unacceptable character #x0007"),
        (b"name: \xff\n", "FILE: found bytes that are not UTF-8 text (at 6); allowed"),
        ("#" * 300_000, "FILE: found a longer text; allowed at most"),
    ],
)
def test_a_text_that_is_no_study_is_refused_in_one_line(write, text, line):
    found = refused(write(text))
    assert found[0].startswith(line), found


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "{a: " * 50_000,
        "- " * 100_000,
        LAUGHS,
    ],
    ids=["brackets", "braces", "dashes", "laughs"],
)
def test_a_hostile_file_is_refused_quickly(write, text):
    path, before = write(text), process_time()
    refused(path)
    assert process_time() - before < 5


def test_control_sequences_of_a_file_do_not_reach_the_terminal(write):
    (line, *_) = refused(write(SOUND + '"\\e[31mred": 1\n'))
    assert "\x1b" not in line
    assert "?[31mred: found an unknown key" in line


def test_scalars_are_read_as_yaml_1_2_has_them(write):
    study = load(write(SOUND.replace("[0, 1e-6, 1.0e-2]", "[no, 010, 1e3, 1:30, 2020-01-01, ~]")))
    assert study.space["weight_decay"].members() == ("no", 10, 1e3, "1:30", "2020-01-01", None)


def test_an_unknown_study_is_told_with_those_there_are():
    (line,) = refused("quikstart")
    assert line.startswith("FILE: found no such study; allowed a path to a YAML file, or one of")
    assert all(name in line for name in study_names())
    assert line.endswith("(did you mean quickstart?)")


def test_an_absent_file_and_a_directory_are_told(tmp_path):
    assert refused(tmp_path / "none.yaml")[0].startswith("FILE: found No such file")
    assert refused(tmp_path)[0].startswith("FILE: found Is a directory")


def test_overrides_replace_add_and_take_away(write):
    study = load(
        write(SOUND),
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
    assert study.space["noise_std"].members() == (0, 1)
    assert study.search.num_points == 8
    assert study.replicates == 4
    assert study.objectives == {"privacy/attack/white_box/tpr_at_fpr_0.1": "min"}
    assert not load(write(SOUND), ["space.weight_decay=null"]).space


def test_a_mistake_in_an_override_is_told_as_such(write):
    path = write(SOUND)
    assert refused(path, "replicates=0", "train_size=3", "fixed.train_size", "name.x=1") == [
        '--set: found "fixed.train_size"; allowed key=value, as fixed.train_size=100 or '
        "space.weight_decay.grid=[0, 1]",
        '--set name.x: found "mine" above it; allowed a mapping there',
        "--set replicates: found 0; allowed at least 1",
        "--set train_size: found an unknown key; allowed one of claims, description, "
        "early_stopping, experiment, fixed, name, objectives, replicates, reproduces, resources, "
        "search, space",
    ]
    assert refused(path, "fixed.model=[") == [
        "--set fixed.model: found '<stream end>' in place of the node content while parsing a flow "
        "node; allowed valid YAML"
    ]
    assert refused(path, "fixed.train_size=99999", "x")[1:] == [
        "--set fixed.train_size: found 99999; allowed at most 1796 with digits"
    ]
