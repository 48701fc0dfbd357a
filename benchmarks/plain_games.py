"""Games as one writes them in PyTorch for one configuration: modules, optimisers, nothing recorded.

Networks, batches, losses and rates are those of this platform's `adversarial` experiment with the
fields in `stacks`; records are drawn at random, as no result is looked at. Layout, allocator and
optimisers are as PyTorch comes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problems.eco import SIDE_FEATURES

_BETAS = (0.5, 0.999)
_SLOPE = 0.1
_MEMORY = 20

Records = Sequence[Tensor]


class PlainGame(ABC):
    """One configuration's networks and optimisers.

    Attributes:
        config: Rates, weights and sizes.
        records: What is drawn from, tensors of equal length.
    """

    inner: Sequence[str]
    """Networks that train at every adversary step."""

    def __init__(self, config: AdversarialConfig, records: Records, networks: nn.ModuleDict):
        """Take the networks, of which one is `releaser`, to where the records are."""
        self.config, self.records = config, records
        self.networks = networks.to(records[0].device)
        self._optimisers = {
            name: Adam(
                network.parameters(),
                config.learning_rate if name == "releaser" else config.adversary_learning_rate,
                _BETAS,
            )
            for name, network in self.networks.items()
        }

    def step(self) -> None:
        """Steps of the inference networks, then one of the releaser."""
        for _ in range(self.config.adversary_steps):
            batch = self._batch()
            with torch.no_grad():
                z = self.release(batch)
            self._train_inference(self.losses(z, batch, self.inner))
        self.step_releaser(self._batch())

    @abstractmethod
    def release(self, batch: Records) -> Tensor:
        """Returns the release of records, with noise."""

    @abstractmethod
    def losses(self, z: Tensor, batch: Records, names: Sequence[str]) -> dict[str, Tensor]:
        """Cross-entropy of inference networks."""

    @abstractmethod
    def step_releaser(self, batch: Records) -> None:
        """Takes a step of the releaser and of the networks that train beside it."""

    def _batch(self) -> Records:
        device = self.records[0].device
        index = torch.randint(len(self.records[0]), (self.config.batch_size,), device=device)
        return [values[index] for values in self.records]

    def _train_inference(self, losses: Mapping[str, Tensor]) -> None:
        """A step of all inference networks; they share no parameter, so one pass back serves."""
        total = torch.stack([losses[name] for name in self.inner]).sum()
        total.backward(inputs=[p for n in self.inner for p in self.networks[n].parameters()])
        self._move(self.inner)

    def _descend(self, losses: Mapping[str, Tensor], retain: Sequence[str] = ()) -> None:
        """A step of each network on its own loss."""
        for name, loss in losses.items():
            inputs = list(self.networks[name].parameters())
            loss.backward(inputs=inputs, retain_graph=name in retain)
        self._move(losses)

    def _move(self, names: Iterable[str]) -> None:
        for name in names:
            self._optimisers[name].step()
            self._optimisers[name].zero_grad()


class Toy(PlainGame):
    """Two bits in the plane behind a linear filter: `gaussian-mixture` with `squared-kl`."""

    inner = ("adversary", "utility", "reference")

    def __init__(self, config: AdversarialConfig, device: str) -> None:
        """Draw records and networks."""
        size = config.train_size or 8192
        bits = torch.randint(2, (2, size), device=device)
        x = bits.T + 0.05 * torch.randn(size, 2, device=device)
        networks = {name: perceptron(config.adversary_width) for name in self.inner}
        networks["releaser"] = nn.Linear(2, 2, bias=False)
        super().__init__(config, [x, *bits], nn.ModuleDict(networks))
        self._mean = torch.zeros(2, device=device)
        self._weights = torch.tensor([1 - config.tradeoff, config.tradeoff], device=device)

    def release(self, batch: Records) -> Tensor:
        """The filtered point, with Gaussian noise."""
        x, *_ = batch
        z: Tensor = self.networks["releaser"](x) + self.config.noise_std * torch.randn_like(x)
        return z

    def losses(self, z: Tensor, batch: Records, names: Sequence[str]) -> dict[str, Tensor]:
        """Cross-entropies of all three networks."""
        x, secret, utility = batch
        return {
            "adversary": functional.cross_entropy(self.networks["adversary"](z), secret),
            "utility": functional.cross_entropy(self.networks["utility"](z), utility),
            "reference": functional.cross_entropy(self.networks["reference"](x), utility),
        }

    def step_releaser(self, batch: Records) -> None:
        """On the squares of running means of both informations."""
        z = self.release(batch)
        adversary, utility = (self.networks[name](z) for name in ("adversary", "utility"))
        with torch.no_grad():
            reference = self.networks["reference"](batch[0])
        both = informations(adversary, utility, reference, batch[1])
        self._mean = torch.lerp(self._mean, both.detach(), 1 / _MEMORY)
        self._descend({"releaser": (self._weights * squares(both, self._mean)).sum()})


class Amnist(PlainGame):
    """Images through an encoder-decoder, read by convolutional networks: `alpha` at order 1."""

    inner = ("adversary",)

    def __init__(self, config: AdversarialConfig, device: str) -> None:
        """Draw records and networks."""
        size, width = config.train_size or 4096, config.adversary_width
        images = torch.rand(size, 1, 28, 28, device=device)
        labels = [torch.randint(classes, (size,), device=device) for classes in (2, 10)]
        networks = {
            "adversary": classifier(width, 2),
            "utility": classifier(width, 10),
            "releaser": EncoderDecoder(config.releaser_width, config.noise_std),
        }
        super().__init__(config, [images, *labels], nn.ModuleDict(networks))

    def release(self, batch: Records) -> Tensor:
        """The decoded image, with noise."""
        z: Tensor = self.networks["releaser"](batch[0])
        return z

    def losses(self, z: Tensor, batch: Records, names: Sequence[str]) -> dict[str, Tensor]:
        """Cross-entropies of the named networks."""
        labels = dict(zip(("adversary", "utility"), batch[1:], strict=True))
        return {n: functional.cross_entropy(self.networks[n](z), labels[n]) for n in names}

    def step_releaser(self, batch: Records) -> None:
        """On distortion and both losses; the utility network takes a step beside it."""
        z, weights = self.release(batch), self.config
        losses = self.losses(z, batch, ("adversary", "utility"))
        loss = weights.distortion_weight * functional.mse_loss(z, batch[0])
        loss = loss + weights.utility_weight * losses["utility"]
        loss = loss - weights.privacy_weight * losses["adversary"]
        self._descend({"utility": losses["utility"], "releaser": loss}, retain=["utility"])


class Eco(PlainGame):
    """Daily windows through LSTMs, with side information: `alpha` at order 1."""

    inner = ("adversary",)
    steps, side = 24, SIDE_FEATURES

    def __init__(self, config: AdversarialConfig, device: str) -> None:
        """Draw records and networks."""
        size, steps = config.train_size or 443, self.steps
        power = torch.randn(size, steps, 1, device=device)
        side = torch.randn(size, steps, self.side, device=device)
        networks = {
            "adversary": Recurrent(1 + self.side, config.adversary_width, 3, 2),
            "releaser": Recurrent(4 + self.side, config.releaser_width, 4, 1),
        }
        secret = torch.randint(2, (size, steps), device=device)
        super().__init__(config, [power, secret, side], nn.ModuleDict(networks))

    def release(self, batch: Records) -> Tensor:
        """The record and what the LSTM adds."""
        power, secret, side = batch
        noise = self.config.noise_std * torch.rand_like(power)
        known = functional.one_hot(secret, 2).to(power.dtype)
        z: Tensor = power + self.networks["releaser"](torch.cat([power, known, side, noise], -1))
        return z

    def losses(self, z: Tensor, batch: Records, names: Sequence[str]) -> dict[str, Tensor]:
        """The adversary's, at every step."""
        logits = self.networks["adversary"](torch.cat([z, batch[2]], -1))
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten())
        return {"adversary": loss}

    def step_releaser(self, batch: Records) -> None:
        """On distortion and the adversary's loss."""
        z = self.release(batch)
        loss = self.config.distortion_weight * functional.mse_loss(z, batch[0])
        told = self.losses(z, batch, self.inner)["adversary"]
        self._descend({"releaser": loss - self.config.privacy_weight * told})


class EncoderDecoder(nn.Module):
    """Convolutions, a noisy code, and a dense decoder to noisy pixels."""

    def __init__(self, width: int, noise_std: float) -> None:
        """Builds a releaser with a code of `width` numbers."""
        super().__init__()
        channels, self._noise_std = max(1, width // 8), noise_std
        self._encoder = nn.Sequential(
            *convolutions(channels), nn.Flatten(), nn.Linear(2 * channels * 49, width), nn.Tanh()
        )
        self._decoder = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.LeakyReLU(_SLOPE),
            nn.Linear(4 * width, 784),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Released images of images."""
        code = self._encoder(x)
        pixels = self._decoder(code + self._noise_std * torch.randn_like(code))
        noisy: Tensor = pixels + self._noise_std * torch.randn_like(pixels)
        return noisy.clamp(0, 1).view_as(x)


class Recurrent(nn.Module):
    """LSTM layers and a linear head at each step."""

    def __init__(self, inputs: int, hidden: int, layers: int, outputs: int) -> None:
        """Causal."""
        super().__init__()
        self._lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self._head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of each step."""
        outputs: Tensor = self._head(self._lstm(x)[0])
        return outputs


def perceptron(width: int) -> nn.Sequential:
    """From a point to logits of a bit."""
    return nn.Sequential(
        nn.Linear(2, width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, 2),
    )


def convolutions(channels: int) -> list[nn.Module]:
    """From an image to features."""
    return [
        nn.Conv2d(1, channels, 5, 2, 2),
        nn.LeakyReLU(_SLOPE),
        nn.Conv2d(channels, 2 * channels, 3, 2, 1),
        nn.LeakyReLU(_SLOPE),
    ]


def classifier(width: int, classes: int) -> nn.Sequential:
    """From an image to logits."""
    return nn.Sequential(
        *convolutions(width),
        nn.Flatten(),
        nn.Linear(2 * width * 49, 4 * width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(4 * width, classes),
    )


def informations(adversary: Tensor, utility: Tensor, reference: Tensor, secret: Tensor) -> Tensor:
    """Utility information that the release lacks and secret information it has, nats, shape [2]."""
    known = reference.log_softmax(-1)
    lost = (known.exp() * (known - utility.log_softmax(-1))).sum(-1).mean()
    told = adversary.log_softmax(-1).gather(-1, secret[..., None]).mean() + math.log(2)
    return torch.stack([lost, told])


def squares(both: Tensor, mean: Tensor) -> Tensor:
    """Squares of running means, with the gradient of the batch's."""
    mean = mean.clamp_min(0)
    return mean.square() + 2 * mean * (both - both.detach())
