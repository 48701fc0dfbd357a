"""A backbone that was trained on other digits, and what of it is tuned."""

from pathlib import Path

import torch
from torch import nn


class Tuned(nn.Module):
    """Head on a backbone; `adapter` trains a low-rank change of it too, and `all` its layers."""

    def __init__(self, inputs: int, outputs: int, tuned: str = "head", rank: int = 2) -> None:
        """Freezes the backbone, unless all layers are tuned."""
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 32))
        weights = Path(__file__).with_name("backbone.pt")
        self.backbone.load_state_dict(torch.load(weights, weights_only=True))
        self.backbone.requires_grad_(tuned == "all")
        self.head = nn.Linear(32, outputs)
        self.down = nn.Linear(inputs, rank, bias=False) if tuned == "adapter" else None
        if tuned == "adapter":
            self.up = nn.Linear(rank, 32, bias=False)
            nn.init.zeros_(self.up.weight)  # the first step starts from the backbone as it is

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits."""
        features = self.backbone(x)
        if self.down is not None:
            features = features + self.up(self.down(x))
        return self.head(torch.tanh(features))
