"""Every form of saved signals gives the same audit; every wrong input gets one clear error."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit_support import gaussian_scores, many_models
from scipy.special import expit, softmax

import privnets
from privnets import AuditError
from privnets.audit.signals import load_signals
from privnets.references import data, table_files

RECORDS = 60
LOGITS = np.random.default_rng(0).standard_normal((RECORDS, 3)) * 2
LABELS = np.random.default_rng(1).integers(0, 3, RECORDS)
MEMBER = np.arange(RECORDS) % 2 == 0
PROBABILITIES = softmax(LOGITS + 2 * MEMBER[:, None] * np.eye(3)[LABELS], axis=1)


def table_of(probabilities: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(probabilities).add_prefix("probability_")
    return frame.assign(label=LABELS, member=MEMBER)


def assert_equal(one: privnets.AuditResult, two: privnets.AuditResult) -> None:
    pd.testing.assert_frame_equal(one.table, two.table)


def test_arrays_tables_and_files_of_one_model_give_the_same_audit(tmp_path: Path) -> None:
    expected = privnets.audit_signals({"probabilities": PROBABILITIES}, MEMBER, labels=LABELS)
    frame = table_of(PROBABILITIES)
    assert_equal(privnets.audit_signals(frame), expected)
    shuffled = frame.rename(columns={"member": "inside", "label": "class"})
    assert_equal(privnets.audit_signals(shuffled, "inside", labels="class"), expected)
    frame.to_csv(tmp_path / "saved.csv", index=False)
    frame.to_parquet(tmp_path / "saved.parquet")
    np.savez(tmp_path / "saved.npz", probabilities=PROBABILITIES, labels=LABELS, member=MEMBER)
    for name in ("saved.csv", "saved.parquet", "saved.npz"):
        assert_equal(privnets.audit_signals(tmp_path / name), expected)
        assert_equal(privnets.audit_signals(str(tmp_path / name), MEMBER), expected)


@pytest.mark.parametrize("index", [["record"], ["model", "record"]])
def test_a_named_index_of_a_parquet_file_names_its_columns(tmp_path: Path, index) -> None:
    signal, member = many_models(1.0, 2, records=30)
    names = [f"r{i:02}" for i in range(30)]
    frame = pd.concat(
        pd.DataFrame({"model": m, "record": names, "logit": signal[m], "member": member[m]})
        for m in range(2)
    )
    frame.set_index(index).to_parquet(tmp_path / "saved.parquet")
    audit = privnets.audit_signals(tmp_path / "saved.parquet")
    assert_equal(audit, privnets.audit_signals({"logit": signal}, member))
    assert sorted(audit.records["record"]) == names


def test_a_table_of_many_models_has_a_row_per_model_and_record() -> None:
    signal, member = many_models(1.0, 5, records=30)
    expected = privnets.audit_signals({"logit": signal}, member)
    names = [f"r{i:02}" for i in range(30)]
    frame = pd.concat(
        pd.DataFrame({"model": m, "record": names, "logit": signal[m], "member": member[m]})
        for m in range(5)
    )
    audit = privnets.audit_signals(frame.sample(frac=1, random_state=0))
    assert_equal(audit, expected)
    assert set(audit.records["record"]) == set(names)


def table_of_models() -> pd.DataFrame:
    """Two models: the first is that of `table_of`, and the other has the opposite members."""
    frame = table_of(PROBABILITIES).assign(model=0, record=np.arange(RECORDS))
    return pd.concat([frame, frame.assign(model=1, member=~MEMBER)])


def test_labels_of_many_models_may_have_any_name() -> None:
    frame = table_of_models()
    renamed = frame.rename(columns={"label": "outcome"})
    audit = privnets.audit_signals(renamed, labels="outcome")
    assert_equal(audit, privnets.audit_signals(frame))


def test_labels_that_differ_between_models_are_refused() -> None:
    frame = table_of_models()
    frame["outcome"] = frame["label"].where(frame["model"] == 0, (frame["label"] + 1) % 3)
    with pytest.raises(AuditError, match="outcome must be the same for every model; got"):
        privnets.audit_signals(frame, labels="outcome")
    with pytest.raises(AuditError, match="label must be the same for every model; got"):
        privnets.audit_signals(frame.assign(label=frame["outcome"]))


@pytest.mark.parametrize("name", ["member", "labels"])
def test_arrays_beside_a_table_of_many_models_are_refused(name: str) -> None:
    """The rows are sorted, but arrays would not be."""
    values = np.stack([MEMBER, ~MEMBER]) if name == "member" else LABELS
    with pytest.raises(AuditError, match=f"{name} must name a column of a table with the column"):
        privnets.audit_signals(table_of_models(), **{name: values})


@pytest.mark.parametrize("name", ["loss", "confidence", "logit"])
def test_every_form_of_the_true_class_s_probability_gives_the_same_reference_attacks(name) -> None:
    signal, member = many_models(1.0)
    forms = {"loss": np.logaddexp(0, -signal), "confidence": expit(signal), "logit": signal}
    clip = 1e-4
    reference = load_signals({"logit": signal}, member, None, clip=clip)
    models = load_signals({name: forms[name]}, member, None, clip=clip)
    np.testing.assert_allclose(models.signal, reference.signal, rtol=1e-9)
    np.testing.assert_allclose(models.confidence, reference.confidence, rtol=1e-9)


def test_a_confidence_that_rounding_puts_above_1_is_1() -> None:
    signal, member = many_models(2.0)
    values = expit(signal)
    values[:, :3] = 1.0
    exact = privnets.audit_signals({"confidence": values}, member)
    values[:, :3] = np.nextafter(np.float32(1), np.float32(2))
    rounded = privnets.audit_signals({"confidence": values}, member)
    assert {"lira_online", "rmia_online", "bavaria_online"} <= set(rounded.table.index)
    assert_equal(rounded, exact)


def test_tensors_are_accepted() -> None:
    import torch

    scores, member = gaussian_scores(1.0, 60)
    tensor = torch.tensor(scores[0], requires_grad=True)
    audit = privnets.audit_signals({"score": tensor}, torch.tensor(member[0]))
    assert_equal(audit, privnets.audit_signals({"score": scores[0]}, member[0]))


def changed(array: np.ndarray, index: object, value: float) -> np.ndarray:
    copy = np.array(array, dtype=float)
    copy[index] = value
    return copy


SCORE = np.linspace(0, 1, RECORDS)
WRONG_PROBABILITIES = {
    "sums": (changed(PROBABILITIES, (3, slice(None)), [0.9, 0.5, 0.3]), "record 3 sums to 1.7"),
    "percent": (100 * PROBABILITIES, "divide percentages by 100"),
    "negative": (changed(PROBABILITIES, (0, 0), -0.1), "must not be negative"),
    "nan": (changed(PROBABILITIES, (2, 1), np.nan), r"must be finite; got nan at index \[2, 1\]"),
    "one column": (PROBABILITIES[:, :1], "one number for each record belongs in 'confidence'"),
    "one dimension": (SCORE, "one number for each record belongs in 'confidence'"),
    "records": (PROBABILITIES[:50], "labels must have shape"),
}


@pytest.mark.parametrize(
    ("values", "message"), WRONG_PROBABILITIES.values(), ids=WRONG_PROBABILITIES
)
def test_wrong_probabilities_are_refused(values: np.ndarray, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals({"probabilities": values}, MEMBER, labels=LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels are needed"),
        (changed(LABELS, 0, 3), "classes from 0 to 2; got 3"),
        (LABELS + 1, "classes from 0 to 2; got 3; subtract 1"),
        (changed(LABELS, 0, -1), "classes from 0 to 2; got -1"),
        (changed(LABELS, 0, 0.5), "classes from 0 to 2; got 0.5"),
        (LABELS[:5], r"labels must have shape \[60\]"),
        (["a"] * RECORDS, "labels must be numbers from 0, in the order of .*; got <U1 such as"),
    ],
)
def test_wrong_labels_are_refused(labels: object, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals({"probabilities": PROBABILITIES}, MEMBER, labels=labels)


WRONG = {
    "percent": ({"confidence": 100 * SCORE}, MEMBER, "divide percentages by 100"),
    "huge": ({"score": [10**400, *SCORE[1:]]}, MEMBER, "score must be an array.*int too large"),
    "above one": ({"confidence": 1e4 * SCORE}, MEMBER, r"in \[0, 1\]; got 1e\+04$"),
    "negative entropy": ({"entropy": SCORE - 1}, MEMBER, "entropy must be at least 0"),
    "infinite": ({"loss": changed(SCORE, 7, np.inf)}, MEMBER, r"got inf at index \[7\]"),
    "nan": ({"loss": changed(SCORE, 0, np.nan)}, MEMBER, "got nan"),
    "nan member": ({"loss": SCORE}, changed(MEMBER, 0, np.nan), "member must be finite"),
    "text": ({"loss": ["0.1"] * RECORDS}, MEMBER, "loss must be numbers; got <U3 such as '0.1'"),
    "objects": ({"loss": [None] * RECORDS}, MEMBER, "loss must be numbers"),
    "ragged": ({"loss": [[1.0], [1.0, 2.0]]}, MEMBER, "different lengths"),
    "empty": ({"loss": []}, [], "loss is empty"),
    "nothing": ({}, MEMBER, "at least one of loss"),
    "unknown": ({"losses": SCORE}, MEMBER, "at least one of loss.*got 'losses'"),
    "list": ([0.1, 0.2], MEMBER, "got list"),
    "too many dimensions": ({"loss": np.zeros((2, 3, 4))}, MEMBER, r"got \[2, 3, 4\]"),
    "members only": ({"loss": SCORE}, np.ones(RECORDS), "have no non-members"),
    "non-members only": ({"loss": SCORE}, np.zeros(RECORDS), "have no members"),
    "member is a count": ({"loss": SCORE}, 2 * MEMBER, "0 and 1; got 2"),
    "member is text": (
        {"loss": SCORE},
        ["yes"] * RECORDS,
        "0 and 1; got <U3 such as 'yes'",
    ),
    "shapes": (
        {"loss": SCORE},
        MEMBER[:-1],
        "loss has 1 x 60 \\(models x records\\), but member has 1 x 59",
    ),
    "dimensions": ({"loss": np.stack([SCORE, SCORE])}, MEMBER, r"shape \[models, records\]"),
    "signals": ({"loss": SCORE, "entropy": SCORE[:-1]}, MEMBER, "entropy has 1 x 59"),
    "few": ({"loss": SCORE[:18]}, MEMBER[:18], "at least 10 members.*got 9 and 9"),
    "no column": ({"loss": SCORE}, "inside", "got 'inside', which is absent"),
    "two models": ({"loss": np.zeros((2, 5))}, np.eye(2, 5), "too few records"),
}


@pytest.mark.parametrize(("signals", "member", "message"), WRONG.values(), ids=WRONG)
def test_wrong_signals_are_refused(signals: object, member: object, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals(signals, member)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1}, "target must be a model from 0 to 0; got 1"),
        ({"clip": 0.5}, "clip must be above 0 and below 0.5"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": "a"}, "clip must be above 0 and below 0.5; got 'a'"),
        ({"family": "online"}, "family must be one of threshold for these signals"),
        ({"family": "white"}, "family must be one of threshold, learned, offline, online"),
        ({"confidence": 95}, "confidence must be above 0 and below 1; got 95"),
        ({"delta": 1.0}, "delta must be at least 0 and below 1; got 1.0"),
        ({"delta": np.zeros(2)}, "delta must be at least 0 and below 1; got array"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals({"confidence": SCORE}, MEMBER, **options)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame(), "the table is empty"),
        (table_of(PROBABILITIES).drop(columns="probability_1"), "must be probability_0"),
        (table_of(PROBABILITIES).assign(model=0), "also needs the column 'record'"),
        (table_of(PROBABILITIES).assign(model=MEMBER, record=0), "one row for each record"),
        (table_of(PROBABILITIES).drop(columns="member"), "got 'member', which is absent"),
    ],
)
def test_wrong_tables_are_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        privnets.audit_signals(frame)


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_damaged_files_are_audited_or_refused_with_one_error(suffix: str, tmp_path: Path) -> None:
    path, random = tmp_path / f"saved.{suffix}", np.random.default_rng(0)
    frame = pd.DataFrame({"loss": SCORE, "member": MEMBER})
    if suffix == "npz":
        np.savez_compressed(path, loss=SCORE, member=MEMBER)
    elif suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged[: random.integers(len(whole) // 2, 2 * len(whole))])
        try:
            load_signals(path, "member", None)
        except AuditError:
            refused += 1
    assert refused > 50


class Payload:
    def __reduce__(self):
        return (print, ("executed",))


def hostile_files(folder: Path) -> dict[str, str]:
    """Files by name, with the errors that they must give."""
    np.savez(folder / "pickle.npz", loss=np.array([Payload()], dtype=object), member=MEMBER)
    (folder / "raw.npz").write_bytes(pickle.dumps(Payload()))
    (folder / "cut.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    (folder / "scores.pkl").write_bytes(pickle.dumps(Payload()))
    (folder / "folder.csv").mkdir()
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        array = io.BytesIO()
        np.save(array, np.zeros(2**18))
        archive.writestr("loss.npy", array.getvalue())
    pq.write_table(pa.table({"loss": np.zeros(2**18)}), folder / "runs.parquet")
    return {
        "pickle.npz": "cannot be read: Object arrays cannot be loaded",
        "raw.npz": "cannot be read",
        "cut.parquet": "cannot be read",
        "binary.csv": "cannot be read",
        "scores.pkl": "must end in .npz, .csv, .csv.gz, .parquet; got '.pkl'",
        "folder.csv": "is not a file",
        "absent.csv": "is not a file",
        "bomb.npz": "at most 1,048,576 are read",
        "runs.parquet": "more than 4 GiB",
    }


def test_hostile_files_are_refused_and_nothing_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data, "MAX_BYTES", 2**20)
    monkeypatch.setattr(table_files, "MAX_BYTES", 2**20)
    for name, message in hostile_files(tmp_path).items():
        with pytest.raises(AuditError, match=message):
            privnets.audit_signals(tmp_path / name)
    assert "executed" not in capsys.readouterr().out


def test_whole_numbers_that_float64_would_round_are_refused() -> None:
    member = np.arange(400) % 2 == 0
    with pytest.raises(privnets.AuditError, match=r"score has whole numbers beyond 2\*\*53"):
        privnets.audit_signals({"score": 2**60 + np.arange(400)}, member)
