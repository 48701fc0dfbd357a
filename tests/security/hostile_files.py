"""Files that try to run code, to lead to other files, or to fill the memory."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from audit_guard import MARK

from privnets.points import Replicate, TradeoffPoint
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load


class Payload:
    """Unpickled, it makes a file: the sign that code was run."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"echo {MARK} > {self._sign}",)


def pickle_payload(sign: Path) -> bytes:
    """A pickle that runs a command."""
    return pickle.dumps(Payload(sign))


def torch_payload(sign: Path) -> bytes:
    """Returns a file of `torch.save` with the same payload."""
    sink = io.BytesIO()
    torch.save({"state": Payload(sign)}, sink)
    return sink.getvalue()


def objects(sign: Path) -> bytes:
    """An .npz of pickled objects."""
    sink = io.BytesIO()
    np.savez(sink, x=np.array([Payload(sign)], dtype=object), allow_pickle=True)
    return sink.getvalue()


def safetensors_with(header: bytes, body: bytes = b"") -> bytes:
    """A safetensors file of any header."""
    return struct.pack("<Q", len(header)) + header + body


def parquet_of(columns: dict[str, pa.Array], **options: Any) -> bytes:
    """A parquet file of any columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def pack_columns(rows: int = 1, **changes: pa.Array) -> dict[str, pa.Array]:
    """The columns of a pack's file, some of them others."""
    columns = {
        "point_id": pa.array([f"h{i}" for i in range(rows)]),
        "seed": pa.array([0] * rows, pa.int64()),
        "experiment": pa.array(["membership"] * rows),
        "config": pa.array(["{}"] * rows),
        "failure": pa.nulls(rows, pa.string()),
        "stopped": pa.nulls(rows, pa.string()),
        "finished_at": pa.array([1.0] * rows),
        "notes": pa.nulls(rows, pa.string()),
        "artifacts": pa.nulls(rows, pa.list_(pa.string())),
        "metric/utility/x": pa.array([1.0] * rows),
    }
    return columns | changes


def point(point_id: str = "kept", seed: int = 0, **changes: Any) -> TradeoffPoint:
    """A small point."""
    said = {"metrics": {"utility/x": 0.5}, "finished_at": 1.7e9, **changes}
    return TradeoffPoint(point_id, "membership", {"a": 1}, (Replicate(seed, **said),))


def kept_ledger(storage: Path, sweep: str = "sweep") -> Ledger:
    """A ledger with one intact point, and a manifest."""
    ledger = Ledger(str(storage), sweep)
    manifest = create_manifest(
        make_plan(load("quickstart")), sweep, command="c", tracking_uri="sqlite:////x"
    )
    write_manifest(ledger, manifest)
    ledger.write_pack("whole", [point()])
    return ledger


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar file of any members."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def zip_of(name: str, content: bytes) -> bytes:
    """A packed zip file of one member."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return sink.getvalue()
