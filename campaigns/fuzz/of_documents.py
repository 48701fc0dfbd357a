"""Study files, `--set` and `spec.yaml`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

import sweeps
from campaigns.fuzz.edits import Strategy, edited_inputs
from campaigns.fuzz.targets import Target
from sweeps.errors import InputError, StudyError, make_printable
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.study.loader import load
from sweeps.study.yaml_reader import YamlError, dump_yaml, parse_yaml

_WORDS = tuple(
    word.encode()
    for word in (
        *(
            "!!python/object/apply:os.system [id]",
            "!!python/name:os.system",
            "!!binary aGk=",
            "!!set",
        ),
        *(
            "&a",
            "*a",
            "<<: *a",
            "? ",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            "|",
            ">",
            "%YAML 1.1\n",
            "---",
        ),
        *(
            ".inf",
            ".nan",
            "1e400",
            "-0",
            "0x10",
            "1_0",
            "2001-01-01",
            "null",
            "true",
            "~",
            "9" * 400,
        ),
        *(
            '"\\ud800"',
            '"\\U99999999"',
            '"\\e[31m"',
            "\ufeff",
            "\u202e",
            "grid: ",
            "choice: ",
            "range: ",
        ),
        *(
            "fixed: ",
            "space: ",
            "loguniform: ",
            "objectives: ",
            "claims: ",
            "search: ",
            "replicates: ",
        ),
    )
)
_MAX_POINTS = 64


def documents(folder: Path) -> Target:
    """Any YAML: parsed, dumped and parsed again."""

    def read(content: bytes) -> bool:
        try:
            found = parse_yaml(content.decode(errors="replace"))
        except YamlError:
            return False
        if isinstance(found.value, dict):
            again = parse_yaml(dump_yaml(found.value), 2**22).value
            assert repr(again) == repr(found.value)
        return True

    return Target(
        "documents", folder, read, _studies, lambda: edited_inputs(_studies(), _WORDS) | _any_yaml()
    )


def studies(folder: Path) -> Target:
    """A study file, planned if it is small."""

    def read(content: bytes) -> bool:
        path = folder / "study.yaml"
        path.write_bytes(content)
        return _plan(str(path), ())

    return Target(
        "studies",
        folder,
        read,
        _studies,
        lambda: edited_inputs(_studies(), _WORDS) | _plausible_studies(),
    )


def overrides(folder: Path) -> Target:
    """`--set` on a packaged study, one argument per line."""
    corpus = [
        b"fixed.train_size=100\nspace.weight_decay.grid=[0, 1]",
        b"space.weight_decay=null\nreplicates=2\nobjectives.utility/test_mse=min",
        b"search.algorithm=random\nsearch.num_points=4\nname=other\nclaims=[]",
    ]

    def read(content: bytes) -> bool:
        changes = content.decode(errors="surrogateescape").replace("\0", "").split("\n")
        return _plan("quickstart", tuple(changes))

    return Target("overrides", folder, read, lambda: corpus, lambda: edited_inputs(corpus, _WORDS))


def manifests(folder: Path) -> Target:
    """`spec.yaml`: read, or refused with one message."""
    ledger = Ledger(str(folder), "sweep")
    manifest = create_manifest(
        make_plan(load("quickstart")),
        "sweep",
        command="sweeps run",
        tracking_uri="http://a",
    )
    valid = dump_yaml(manifest.model_dump(mode="json")).encode()
    ledger.directory.create()

    def read(content: bytes) -> bool:
        (folder / "sweep" / "spec.yaml").write_bytes(content)
        try:
            read_manifest(ledger)
        except InputError:
            return False
        return True

    return Target(
        "manifests", folder, read, lambda: [valid], lambda: edited_inputs([valid], _WORDS)
    )


def _plan(study: str, changes: tuple[str, ...]) -> bool:
    try:
        found = load(study, changes)
        size = 1
        for axis in found.space.values():
            members = axis.values()
            size *= 1 if members is None else len(members)
        if max(size, found.search.num_points or 1) <= _MAX_POINTS:
            make_plan(found)
        return True
    except (StudyError, InputError) as error:
        message = str(error)
    assert make_printable(message) == message
    return False


def _studies() -> list[bytes]:
    folder = Path(sweeps.__file__).parent / "studies"
    return [path.read_bytes() for path in sorted(folder.glob("*.yaml"))]


def _any_yaml() -> Strategy:
    """Nested plain values as YAML or JSON."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
    written = st.sampled_from([yaml.safe_dump, json.dumps])
    return st.tuples(values, written).map(lambda drawn: _encode(drawn[1](drawn[0])))


_NAMES = st.sampled_from(
    [
        "dataset",
        "model",
        "train_size",
        "weight_decay",
        "features",
        "noise_std",
        "seed",
        "alpha",
        "privacy_weight",
        "problem",
        "objective",
        "steps",
        "draws",
        "records",
        "nonsense",
    ]
)
_VALUES = st.sampled_from(
    [
        "digits",
        "diabetes",
        "logistic",
        "ridge",
        "linear",
        "network",
        0,
        1,
        2,
        10,
        1.5,
        0.0,
        -1,
        1e308,
        5e-324,
        2**63,
        True,
        None,
        "",
        "x" * 300,
        float("inf"),
        float("nan"),
        [],
        {},
    ]
)


def _plausible_studies() -> Strategy:
    """Studies of keys and values that may each be valid."""
    axes = st.one_of(
        st.fixed_dictionaries({kind: st.lists(_VALUES, max_size=4)})
        for kind in ("grid", "choice", "uniform", "loguniform", "range", "other")
    )
    parts: dict[str, st.SearchStrategy[Any]] = {
        "name": st.sampled_from(["a", "", "../x", "x" * 101, None, 3]),
        "experiment": st.sampled_from(["membership", "adversarial", "nothing", None, []]),
        "fixed": st.dictionaries(_NAMES, _VALUES, max_size=6) | _VALUES,
        "space": st.dictionaries(_NAMES, axes | _VALUES, max_size=3) | _VALUES,
        "replicates": _VALUES,
        "search": st.dictionaries(
            st.sampled_from(["algorithm", "num_points", "seed", "other"]),
            st.sampled_from(["grid", "random", "sobol", "tpe"]) | _VALUES,
            max_size=3,
        )
        | _VALUES,
        "objectives": st.dictionaries(
            st.sampled_from(["privacy/membership_advantage", "utility/test_mse", "x", ""]),
            st.sampled_from(["min", "max", "mean", 3]),
            max_size=3,
        )
        | _VALUES,
        "resources": st.dictionaries(
            st.sampled_from(["cpus", "gpus", "pack", "concurrency", "other"]), _VALUES, max_size=3
        ),
        "claims": st.lists(
            st.dictionaries(
                st.sampled_from(
                    [
                        *("statement", "metric", "axis", "trend", "where", "caveat"),
                        *("at_least", "at_most", "above", "by", "elsewhere", "given"),
                    ]
                ),
                _VALUES | st.sampled_from(["decreasing", "privacy/rho_kl"]),
            ),
            max_size=2,
        )
        | _VALUES,
        "early_stopping": st.dictionaries(
            st.sampled_from(["reduction", "rungs", "confidence"]), _VALUES, max_size=2
        )
        | _VALUES,
        "reproduces": _VALUES,
    }
    drawn = st.fixed_dictionaries({}, optional=parts)
    return drawn.map(lambda study: _encode(yaml.safe_dump(study)))


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")
