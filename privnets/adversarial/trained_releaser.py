"""Trained releasers: one safetensors file each, and their use on new records.

The file's metadata describe network, noise and encoding as JSON. They name no code. The file is
not trusted when it is read.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig, ProblemChoice
from privnets.adversarial.encodings import (
    ArrayEncoding,
    ImageEncoding,
    RecordEncoding,
    TableEncoding,
)
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems.own_series import SeriesEncoding
from privnets.adversarial.records import MISSING, Minibatch
from privnets.adversarial.released_columns import ColumnChange
from privnets.adversarial.training.releaser import Releaser
from privnets.adversarial.training.releasers import (
    RELEASERS,
    CopyingReleaser,
    EncoderDecoder,
    build_releaser,
    module_releaser,
)
from privnets.adversarial.training.user_networks import Factory
from privnets.data import DataError, UserFormError
from privnets.randomness import generator, stream_key
from privnets.references.columns import is_number
from privnets.references.models import NetworkReference

RELEASER_FILE: Final = "releaser.safetensors"
"""Name of the artifact."""

_KEY: Final = "releaser"  # of the description in the file's metadata
_MAX_BYTES: Final = 2**30
_MAX_NUMBERS: Final = 2**24  # of one record, and of the noise for one release
_MAX_REASON: Final = 500  # characters
_MAX_INTEGER: Final = 2**63

Encoding = Annotated[
    ArrayEncoding | TableEncoding | ImageEncoding | SeriesEncoding, Field(discriminator="kind")
]


class ReleaserDescription(BaseModel):
    """Everything about a trained releaser but its parameters.

    Attributes:
        network: Value of the field `releaser`, or of `obfuscation`.
        settings: Fields of the network, or keyword arguments of a user's factory.
        noise_std: Scale of the noise, or strength of the obfuscation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal[2] = 2
    network: Literal[
        "linear", "mlp", "convolutional", "recurrent", "unet", "fader", "torch",
        "noise", "blur", "box", "rounding", "average",
    ]  # fmt: skip
    settings: dict[str, Any]
    noise_std: float = Field(ge=0)
    encoding: Encoding
    problem: ProblemChoice


class ReleaseReport(NamedTuple):
    """Difference between released records and those of the file.

    Attributes:
        released: Number of released records.
        left_out: Number of those left out because values are missing.
        columns: Changes of each released column of a table; none for images and arrays.
    """

    released: int
    left_out: int
    columns: tuple[ColumnChange, ...] = ()


@dataclass(frozen=True, eq=False)
class TrainedReleaser:
    """A trained releaser as a function of records; parameters have the shape [1, ...]."""

    network: Releaser
    parameters: Sequence[Tensor]
    description: ReleaserDescription

    def __call__(self, records: Any, seed: int | None = None) -> Any:
        """Releases records, with noise of their own.

        Args:
            records: A table with the columns that the releaser was trained on; a mapping from
                names to Pillow's images, or to their paths; or an array on the network's scale,
                shape [n, ...].
            seed: Makes the noise repeatable; None draws other noise at every call.

        Returns:
            The releases in the form of the records, in the same order. A table has the released
            columns alone, rounded and in the types and ranges of the records of training.

        Raises:
            UserFormError: If the records have another form, or the release is not finite.
        """
        return self.description.encoding.decode(self._release_encoded(records, seed), records)

    def release_files(
        self,
        source: Path,
        target: Path,
        seed: int | None = None,
        keep: Sequence[str] = (),
        *,
        overwrite: bool = False,
    ) -> ReleaseReport:
        """Releases a file or folder of records to another one.

        Args:
            source: CSV or parquet table, folder of images, or `.npy` array.
            target: Written in the same form; neither the source nor a part of it.
            seed: Makes the noise repeatable; None draws fresh noise.
            keep: Columns of a table to copy without protection.
            overwrite: Whether the target may exist, if it is not an empty folder.

        Raises:
            UserFormError: If the records have another form, or the target is refused.
            OSError: If the target cannot be written.
        """
        encoding: RecordEncoding = self.description.encoding
        _require_target(source, target, encoding.suffixes, overwrite)
        records, count = encoding.read(source), 0
        complete = encoding.complete(records)
        changes: tuple[ColumnChange, ...] = ()
        for place, part in enumerate(encoding.parts(complete)):
            own = seed
            if seed is not None and place:  # noise of the first part must not repeat
                own = int(generator(seed, f"part {place}").integers(2**62))
            z = self._release_encoded(part, own)
            released = encoding.decode(z, part)
            encoding.write(_with_columns(released, part, keep) if keep else released, target)
            changes += encoding.changes(part, released, z)
            count += len(released)
        return ReleaseReport(count, len(records) - len(complete), changes)

    def _release_encoded(self, records: Any, seed: int | None) -> NDArray[np.float32]:
        """Releases records of the user's form, before they are decoded."""
        encoding: RecordEncoding = self.description.encoding
        x, secret = encoding.encode(records), encoding.secret_classes(records)
        z = self.release(x, seed, secret)
        if not np.isfinite(z).all():
            raise UserFormError("input", "records whose release is infinite", "usual values")
        return z

    @torch.no_grad()
    def release(
        self,
        x: NDArray[np.float32],
        seed: int | None = None,
        secret: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """Releases encoded records [n, ...]; the result has the same shape.

        Recurrent releasers see the secret of each step, shape [n, T], `MISSING` if unknown.
        """
        key = stream_key(secrets.randbits(128) if seed is None else seed, "release")
        scales = torch.tensor([self.description.noise_std])
        classes = np.full(x.shape[:2], MISSING) if secret is None else secret
        together = self.network.released_together(x.shape[1:], 1, scales.device)
        records, own = (
            torch.split(torch.tensor(array)[None], together, 1) for array in (x, classes)
        )
        noise = self.network.record_noise([key], scales, x.shape)
        released = [
            self.network.release(self.parameters, Minibatch(*part[:2], noise=part[2]))[0]
            for part in zip(records, own, noise, strict=True)
        ]
        z: NDArray[np.float32] = torch.cat(released).numpy()
        return z


def save_releaser(
    problem: Problem, config: AdversarialConfig, parameters: Sequence[Tensor]
) -> bytes:
    """Returns a trained releaser, by parameters without a stack's dimension, as safetensors.

    Without an encoding of new records the file has the parameters alone.
    """
    tensors = {str(i): p.contiguous().cpu() for i, p in enumerate(parameters)}
    encoding = problem.record_encoding(config)
    if encoding is None:
        return save(tensors)
    network = config.releaser_name
    if network == "torch":  # the file must not name code
        assert isinstance(config.releaser, NetworkReference)
        settings = dict(config.releaser.params)
    else:
        settings = asdict(build_releaser(problem, config))  # type: ignore[call-overload]
    description = ReleaserDescription.model_validate(
        {
            "network": network,
            "settings": settings,
            "noise_std": config.noise_scale,
            "encoding": encoding,
            "problem": config.problem,
        }
    )
    return save(tensors, {_KEY: description.model_dump_json()})


def load_releaser(
    source: str | os.PathLike[str] | bytes, factory: Factory | None = None
) -> TrainedReleaser:
    """Reads the releaser that a point of a sweep has stored: its artifact `releaser.safetensors`.

    No code is loaded from the file.

    Args:
        factory: Function that the study named by `releaser: {torch: ...}`, if it did.

    Raises:
        DataError: If the file is absent, malformed, or of a releaser that takes no new records.
    """
    if isinstance(source, bytes):
        return _parse_releaser(source, RELEASER_FILE, factory)
    file = Path(source)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise DataError(f"{file} is larger than {_MAX_BYTES >> 20} MiB.")
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    return _parse_releaser(content, str(file), factory)


def _parse_releaser(content: bytes, name: str, factory: Factory | None) -> TrainedReleaser:
    """Reads a releaser from the content of a file with a name."""
    try:
        tensors = load(content)
        # The line before has checked the header.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        text = header.get("__metadata__", {}).get(_KEY)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error)[:_MAX_REASON]
        raise DataError(f"{name} is not a valid safetensors file: {reason}") from error
    if text is None:
        raise DataError(f"{name} holds no releaser that can be applied to new records.")
    try:
        description = ReleaserDescription.model_validate_json(text)
        if description.network != "torch":
            kind: TypeAdapter[Releaser] = TypeAdapter(RELEASERS[description.network])
            network = kind.validate_python(description.settings)
        elif factory is None:
            reason = "the releaser is a user's own network; name the function that makes it."
            raise DataError(reason)
        else:
            network = module_releaser(factory, description.encoding.shape, description.settings)
        parameters = [tensors[str(i)][None] for i in range(len(tensors))]
        releaser = TrainedReleaser(network, parameters, description)
        _require_consistent(releaser)
    except (ValidationError, ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        raise DataError(f"{name} is not a valid releaser: {str(error)[:_MAX_REASON]}") from error
    return releaser


def _require_consistent(releaser: TrainedReleaser) -> None:
    """Raises an exception if the parameters do not fit the network and the encoding."""
    shape = releaser.description.encoding.shape
    noise_shape = releaser.network.noise_shape(shape)
    if max(math.prod(shape), math.prod(noise_shape)) > _MAX_NUMBERS:
        raise ValueError(f"records of shape {list(shape)} are too large.")
    if not all(bool(p.isfinite().all()) for p in releaser.parameters):
        raise ValueError("parameters must be finite.")
    if isinstance(releaser.network, (EncoderDecoder, CopyingReleaser)):
        network = releaser.network
        if shape != (network.channels, network.side, network.side):
            raise ValueError(f"the network and records of shape {list(shape)} differ in size.")
    if releaser.description.network != "torch":  # shapes that do not fit must take no memory
        with torch.device("meta"):
            secret = torch.zeros(1, 2, *shape[:1], dtype=torch.int64)
            noise = torch.zeros(1, 2, *noise_shape)
            batch = Minibatch(torch.zeros(1, 2, *shape), secret, noise=noise)
            releaser.network.release([p.to("meta") for p in releaser.parameters], batch)
    if releaser.release(np.zeros((2, *shape), dtype=np.float32)).shape != (2, *shape):
        raise ValueError("parameters and encoding differ in shape.")


def _require_target(source: Path, target: Path, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """Raises UserFormError if a release has another form than its file, or overwrites records."""
    if suffixes and not target.name.endswith(suffixes):
        raise UserFormError("output", str(target), f"a file that ends in {' or '.join(suffixes)}")
    if not suffixes and target.exists() and not target.is_dir():
        raise UserFormError("output", str(target), "a folder")
    paths = source.resolve(), target.resolve()
    if any(one.is_relative_to(other) for one, other in (paths, paths[::-1])):
        given = f"{target}, where the records are"
        raise UserFormError("output", given, "a place apart from the records")
    is_used = any(target.iterdir()) if target.is_dir() else target.exists()
    if is_used and not overwrite:
        raise UserFormError("output", f"{target}, which exists", "a new place, or --overwrite")


def _with_columns(released: Any, original: Any, names: Sequence[str]) -> Any:
    """Adds original columns to a released table; whole numbers are integers again."""
    columns, kept = getattr(original, "columns", ()), getattr(released, "columns", ())
    if wrong := [name for name in names if name not in columns or name in kept]:
        raise UserFormError("keep", repr(wrong[0]), "a column of the table that is not released")
    added = {}
    for name in names:
        column = original[name]
        # Missing values make whole numbers floating-point.
        is_whole = is_number(column) and column.hasnans and (column.dropna() % 1 == 0).all()
        is_exact = is_whole and column.abs().max() < _MAX_INTEGER
        added[name] = column.astype("Int64") if is_exact else column
    return released.assign(**added)
