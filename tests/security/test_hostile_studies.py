"""Hostile study files are refused quickly, without side effects."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from audit_guard import MARK
from watched import run_watched

from sweeps.errors import StudyError, make_printable
from sweeps.planning.plan import make_plan
from sweeps.study import loader as loading
from sweeps.study.loader import load
from sweeps.study.yaml_reader import YamlError, dump_yaml, parse_yaml

STUDY = """
name: {name}
experiment: membership
fixed: {{dataset: digits, model: logistic, train_size: 40}}
space: {{weight_decay: {{grid: [0.1]}}}}
"""
TAGS = [
    f"!!python/object/apply:os.system ['echo {MARK}']",
    f"!!python/object/new:subprocess.Popen [['{MARK}']]",
    f"!!python/name:builtins.{MARK}",
    f"!!python/module:{MARK}",
    f"!!python/object:types.{MARK} {{}}",
    f"!<tag:yaml.org,2002:python/object/apply:exec> ['{MARK}']",
    f"!{MARK} x",
    "!!binary aGk=",
    "!!set {a, b}",
    "!!timestamp 2001-01-01",
    "!!omap [a: 1]",
]
EXPANDING = {
    "aliases": "".join(
        f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n"
        for p, n in zip("zabcdefg", "abcdefgh", strict=True)
    ).replace("*z", "lol"),
    "mappings": "a: &a {b: &b {c: &c {d: x}}}\ne: {f: *a, g: *a, h: {i: *b}}\n" + "x" * 10,
    "deep list": "[" * 50_000,
    "deep mapping": "".join(f"{' ' * n}a:\n" for n in range(500)),
    "deep flow": "{a: " * 20_000,
    "recursive alias": "&a [*a]",
    "long": "x" * 300_000,
    "keys": "{" + ", ".join(f"k{i}: 1" for i in range(30_000)) + "}",
    "questions": "? " * 20_000,
    "dashes": "- " * 20_000,
    "quotes": '"' * 200_000,
    "anchors": "".join(f"&a{i} " for i in range(20_000)),
    "digits": "a: " + "9" * 100_000,
    "version": "%YAML " + "9" * 5000 + ".1\n---\na: 1",
    "character": 'a: "\\U7fffffff"',
    "half": 'a: "\\ud800"',
    "half key": '"\\udfff": a',
    "bytes": "a: \x00",
    "documents": "a: 1\n---\nb: 2",
    "nothing": "",
    "mark": "\ufeff\ufeffa: 1",
}


def test_tags_run_no_code(tmp_path: Path) -> None:
    for number, tag in enumerate(TAGS):
        (tmp_path / f"{number}.yaml").write_text(f"name: {tag}\nexperiment: membership\n")
    result = run_watched("studies", tmp_path)
    assert result.seen == []
    assert result.said.count("StudyError: ") == len(TAGS)


@pytest.mark.parametrize("text", EXPANDING.values(), ids=EXPANDING)
def test_files_that_expand_are_refused_quickly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    start = time.monotonic()
    with pytest.raises(StudyError):
        load(path)
    assert time.monotonic() - start < 60


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(StudyError):
        load(path)


@pytest.mark.parametrize("name", ["../x", "/etc", "a/b", "a\\b", "..", "", ".a", "a" * 200, "a b"])
def test_names_that_are_paths_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(name=yaml.safe_dump(name).strip().removesuffix("...")))
    with pytest.raises(StudyError, match="name"):
        load(path)


def test_messages_contain_no_control_sequences(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text('"\\e]0;title\\a": 1\nname: "\\e[31mred\\u202e"\nexperiment: "\\x9b2J"\n')
    with pytest.raises(StudyError) as caught:
        load(path)
    assert make_printable(str(caught.value)) == str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_too_many_trainings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        STUDY.format(name="large").replace("0.1]}", "0.1]}, noise_std: {uniform: [0.1, 0.9]}")
        + "replicates: 10000\nsearch: {algorithm: random, num_points: 2000}\n"
    )
    with pytest.raises(StudyError, match="replicates: got 20,000,000 trainings"):
        make_plan(load(path))


def test_a_long_misspelling_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    metric = "privacy/" + "ab" * 100_000
    path.write_text(STUDY.format(name="a") + f"objectives:\n  ? {metric}\n  : min\n")
    start = time.monotonic()
    with pytest.raises(StudyError, match="not every point reports"):
        make_plan(load(path))
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "value",
    [
        "1e5",
        "1e-6",
        "1.5e3",
        ".5",
        "+.5e3",
        "yes",
        "no",
        "0x1F",
        "0o17",
        "1_000",
        "~",
        "null",
        "true",
        "2001-01-01",
        "<<",
        "=",
        "",
        " a",
        "a: b",
        "[",
        "*a",
        "&a",
        "!a",
        "1:30",
        "λ",
        "\x85",
        "a\u2028b",
        "x " * 39 + "  y  z",
        "x " * 39 + "\n\n  y\n",
        "\u2029",
    ],
)
def test_yaml_1_1_and_1_2_read_dumped_texts_alike(value: str) -> None:
    written = dump_yaml({"a": value, value: [value]})
    assert parse_yaml(written).value == {"a": value, value: [value]}
    assert yaml.safe_load(written) == {"a": value, value: [value]}


def test_packaged_studies_survive_dumping_and_parsing() -> None:
    for name in loading.study_names():
        study = load(name)
        assert loading.read_study(parse_yaml(dump_yaml(study.to_dict())).value) == study


def test_a_tag_must_agree_with_its_text() -> None:
    with pytest.raises(YamlError, match="yes"):
        parse_yaml("a: !!bool yes")
    assert parse_yaml("a: !!bool True").value == {"a": True}
