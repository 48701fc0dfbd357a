"""Trained releasers: safetensors with a description."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import strategies as st

from campaigns.fuzz.edits import Strategy, edited_inputs
from campaigns.fuzz.targets import Target
from privnets.data import DataError

_WORDS = (
    b"mlp",
    b"linear",
    b"recurrent",
    b"torch",
    b"1e400",
    b"NaN",
    b"null",
    b"[]",
    b"-1",
    b"9" * 30,
)


def releasers(folder: Path) -> Target:
    """A releaser of a table, which reading also tries on two records."""
    import torch
    from safetensors.torch import save

    from privnets.adversarial.encodings import TableEncoding
    from privnets.adversarial.released_columns import NumberColumn
    from privnets.adversarial.trained_releaser import load_releaser

    tensors = {"0": torch.eye(2)}
    scale = {"mean": 0.0, "std": 1.0, "low": -9.0, "high": 9.0, "decimals": 2}
    columns = tuple(NumberColumn(name=name, **scale) for name in ("a", "b"))
    description = {
        "format": 2,
        "network": "linear",
        "settings": {"dimensions": 2},
        "noise_std": 1.0,
        "encoding": TableEncoding(columns=columns).model_dump(mode="json"),
        "problem": {"table": "people.csv", "secret": "sex"},
    }
    text = json.dumps(description).encode()

    def stored(own: bytes, tensor: tuple[int, ...] = (2, 2)) -> bytes:
        parameters = {"0": torch.zeros(tensor)} if tensor != (2, 2) else tensors
        return save(parameters, {"releaser": own.decode(errors="replace")})

    valid = stored(text)

    def read(content: bytes) -> bool:
        try:
            releaser = load_releaser(content)
        except DataError as error:
            reason = str(error)
        else:
            return bool(releaser.description.encoding.shape)
        assert len(reason) < 2000
        return False

    def inputs() -> Strategy:
        shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
        described = st.builds(stored, edited_inputs([text], _WORDS), st.just((2, 2)) | shapes)
        return edited_inputs([valid], _WORDS) | described

    return Target("releasers", folder, read, lambda: [valid], inputs)
