"""Networks that release records: their inputs, their noise, and their outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import Minibatch
from privnets.adversarial.training.inference_networks import cross_entropy
from privnets.adversarial.training.releaser import OBFUSCATIONS, Releaser
from privnets.adversarial.training.user_networks import (
    Factory,
    UserModules,
    describe_shapes,
    import_factory,
)
from privnets.data import UserFormError
from privnets.networks import mlp
from privnets.networks.convolution import encode, encoded_side, initial_encoder
from privnets.networks.layers import GAINS, dense, gaussian_weights, initial_dense
from privnets.networks.mlp import Perceptron
from privnets.networks.module_stacks import ConvolutionStack, draw_parameters
from privnets.networks.recurrent import initial_lstm, lstm
from privnets.networks.streams import uniform
from privnets.networks.unet import Fader, FaderTraining, UNet, UNetClassifier, noise_shape
from privnets.references.models import NetworkReference

_MODULE_NOISE = 16  # noise inputs of a user's module
_DARK_LOGIT = -2.0
"""Initial logit of a pixel: most pixels of a drawn digit are black."""


def build_releaser(problem: Problem, config: AdversarialConfig) -> Releaser:
    """The releaser that a configuration asks for, fitting its problem's records."""
    spec, shape = problem.spec, problem.split_sizes(config).record_shape
    if config.obfuscation != "none":
        return OBFUSCATIONS[config.obfuscation](spec.pixels)
    if isinstance(config.releaser, NetworkReference):
        factory = import_factory(config.releaser.torch, "releaser.torch")
        return module_releaser(factory, shape, config.releaser.params)
    if config.releaser == "linear":
        return LinearFilter(math.prod(shape))
    if config.releaser == "convolutional":
        return EncoderDecoder(shape[-1], config.releaser_width, channels=shape[0])
    if config.releaser == "recurrent":
        side = spec.side_features if config.settings.shows_side_information else 0
        return RecurrentReleaser(spec.secret_classes, side, config.releaser_width)
    if config.releaser == "unet":
        classes = max(1, spec.utility_classes)
        return UNetReleaser(shape[-1], config.releaser_width, shape[0], classes)
    if config.releaser == "fader":
        return FaderReleaser(shape[-1], config.releaser_width, shape[0], spec.secret_classes)
    return PerceptronReleaser(shape, config.releaser_width, pixels=spec.pixels)


@dataclass(frozen=True)
class LinearFilter(Releaser):
    """q = theta x + noise, with Gaussian noise on each dimension of x."""

    dimensions: int

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Theta [d, d], Gaussian with variance 1 / d."""
        d = self.dimensions
        return [gaussian_weights(random, (d, d), 1 / math.sqrt(d))]

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases vectors [S, n, d]; see `Releaser.release`."""
        (theta,) = parameters
        return torch.baddbmm(batch.noise, batch.x, theta.mT)


@dataclass(frozen=True)
class PerceptronReleaser(Releaser):
    """A perceptron with two hidden layers; its inputs are the record and Gaussian noise.

    Releases are pixels in [0, 1] by a sigmoid, or else unbounded.
    """

    record_shape: tuple[int, ...]
    width: int
    noise: int = 16
    pixels: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of a `Perceptron`; pixels start dark."""
        parameters = self._network.initial(random)
        parameters[-1] += _DARK_LOGIT if self.pixels else 0.0
        return parameters

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """One number per noise input."""
        return (self.noise,)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases records of any shape; see `Releaser.release`."""
        inputs = torch.cat([batch.x.flatten(2), batch.noise], -1)
        outputs = self._network.forward(parameters, inputs)
        return (outputs.sigmoid() if self.pixels else outputs).view(batch.x.shape)

    @property
    def _network(self) -> Perceptron:
        size = math.prod(self.record_shape)
        return Perceptron((size + self.noise, self.width, self.width, size))


@dataclass(frozen=True)
class EncoderDecoder(Releaser):
    """A convolutional encoder and a dense decoder for square images, with Gaussian noise.

    A 5x5 and a 3x3 convolution of stride 2 and a dense layer give a code of `width` numbers in
    (-1, 1), to which noise is added. A hidden layer of 4 `width` units and a sigmoid turn it into
    pixels. These get noise too and are clipped to [0, 1]: behind noise on the code alone, a secret
    remains that the adversary overlooks and a fresh attacker finds. The published sizes are lost.
    The first convolution has an eighth as many channels as the code has numbers. `pixel_noise` is
    relative to the noise on the code.
    """

    side: int
    width: int
    pixel_noise: float = 1.0
    channels: int = 1

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Weight and bias of each layer: He's Gaussian weights, biases 0; grey starts dark."""
        maps, size = max(1, self.width // 8), self._pixels
        flat, hidden = 2 * maps * encoded_side(self.side) ** 2, 4 * self.width
        parameters = [
            *initial_encoder(random, maps, self.channels),
            *initial_dense(random, flat, self.width, GAINS["tanh"]),
            *initial_dense(random, self.width, hidden, GAINS["leaky"]),
            *initial_dense(random, hidden, size, 1.0),
        ]
        parameters[-1] += _DARK_LOGIT if self.channels == 1 else 0.0
        return parameters

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """Size of the code, and of the pixels if they get noise."""
        return (self.width + (self._pixels if self.pixel_noise else 0),)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases images [S, n, channels, side, side] in [0, 1]; see `Releaser.release`."""
        convolutions, (weight, bias), decoder = parameters[:4], parameters[4:6], parameters[6:]
        code = dense(encode(convolutions, batch.x, (2, 2)), weight, bias).tanh()
        pixels = mlp.forward(decoder, code + batch.noise[..., : self.width], "leaky").sigmoid()
        if self.pixel_noise:
            pixels = (pixels + self.pixel_noise * batch.noise[..., self.width :]).clamp(0, 1)
        return pixels.view(batch.x.shape)

    @property
    def _pixels(self) -> int:
        """Numbers in an image."""
        return self.channels * self.side**2


@dataclass(frozen=True)
class CopyingReleaser(Releaser):
    """A convolutional network with Gaussian noise on its features of lowest resolution.

    Before the game it learns to copy images.

    Attributes:
        side: Height and width of the images, in pixels.
        width: Channels of the first layer.
        channels: Channels of an image.
        classes: Classes of the label that it learns beside copying; 1 without one.
        network: Module that releases images.
        learner: The same layers with the outputs of `copying_loss`.
    """

    copies_first: ClassVar[bool] = True
    network: ClassVar[type[torch.nn.Module]]
    learner: ClassVar[type[torch.nn.Module]]

    side: int
    width: int
    channels: int = 3
    classes: int = 1

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of the module, as PyTorch draws them."""
        return draw_parameters(lambda: self.network(*self._sizes), random)

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the features of lowest resolution."""
        return noise_shape(self.side, self.width)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases images [S, n, channels, side, side] in [0, 1]; see `Releaser.release`."""
        return self._released(parameters, batch.x, batch.noise)

    @cached_property
    def _released(self) -> ConvolutionStack:
        with torch.device("meta"):  # its own parameters are not used
            return ConvolutionStack(self.network(*self._sizes))

    @cached_property
    def _learned(self) -> ConvolutionStack:
        with torch.device("meta"):
            return ConvolutionStack(self.learner(*self._sizes))

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.channels, self.width, self.classes, self.side


class UNetReleaser(CopyingReleaser):
    """A U-Net (ICLR 2019 submission).

    Its classes, of the utility label, serve copying alone: they keep the label in the features to
    which noise is added.
    """

    network, learner = UNet, UNetClassifier

    def copying_loss(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Root of the mean squared error, plus the cross-entropy of the classes."""
        loss = (self.release(parameters, batch) - batch.x).square().flatten(1).mean(1).sqrt()
        if batch.utility is None:
            return loss
        logits = self._learned(parameters, batch.x).float()
        return loss + cross_entropy(logits, batch.utility)


@dataclass(frozen=True)
class FaderReleaser(CopyingReleaser):
    """A fader network that replaces the secret, whose classes it learns.

    It learns to copy images from the secret and from features that do not show it, and releases
    them without the secret. The game then trains it on as a filter. Without steps of the game and
    without noise it is a fader network alone, the paper's baseline.
    """

    network, learner = Fader, FaderTraining
    classes: int = 2

    def copying_loss(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Root of the mean squared error by the true secret, plus the classifier's loss."""
        classes = torch.arange(self.classes, device=batch.x.device)
        attribute = (batch.secret[..., None] == classes).to(batch.x.dtype)
        outputs = self._learned(parameters, batch.x, batch.noise, attribute).float()
        copy, logits = outputs[..., : -self.classes], outputs[..., -self.classes :]
        loss = (copy - batch.x.flatten(2)).square().flatten(1).mean(1).sqrt()
        return loss + cross_entropy(logits, batch.secret)


@dataclass(frozen=True)
class RecurrentReleaser(Releaser):
    """Causal LSTM layers on power, secret, side information and uniform noise of each step.

    z_t = a y_t + b h_t + c, with h the states of the last layer. It starts at a = 1, b = c = 0,
    which releases y itself, and reaches full privacy as a goes to 0. The secret enters one-hot, as
    zeros where it is missing. `side` counts the columns of side information.
    """

    classes: int
    side: int = 0
    hidden: int = 64
    layers: int = 4

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of the layers (see `initial_lstm`), then the head's weight and bias."""
        weight = torch.zeros(self.hidden + 1, 1)
        weight[-1] = 1
        body = initial_lstm(random, 2 + self.classes + self.side, self.hidden, self.layers)
        return [*body, weight, torch.zeros(1, 1)]

    def draw_noise(self, words: Tensor) -> Tensor:
        """Noise uniform on [0, 1); see `Releaser.draw_noise`."""
        return uniform(words)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases sequences [S, n, T, 1]; see `Releaser.release`."""
        *body, weight, bias = parameters
        x, classes = batch.x, torch.arange(self.classes, device=batch.x.device)
        one_hot = (batch.secret[..., None] == classes).to(x.dtype)
        inputs = [x, one_hot, *([] if batch.side is None else [batch.side]), batch.noise]
        states = torch.cat([lstm(torch.cat(inputs, -1), body), x], -1)
        return dense(states.flatten(1, 2), weight, bias).view(x.shape)


class ModuleReleaser(Releaser):
    """A module `forward(x, noise)` that maps records and Gaussian noise [n, 16] to releases."""

    def __init__(self, make: Callable[[], torch.nn.Module], record_shape: tuple[int, ...]) -> None:
        """Makes a module.

        Raises:
            UserFormError: If its output has another shape than its input, or nothing trains.
        """
        self._modules = UserModules(make, "releaser", [record_shape, (_MODULE_NOISE,)])
        self.trained, self.captures = self._modules.trained, self._modules.captures
        if not self.trained:
            given = "a module whose parameters are all frozen"
            raise UserFormError("releaser.torch", given, "one with parameters to train")
        if tuple(self._modules.output) != record_shape:
            shape = describe_shapes([self._modules.output])
            given = f"a module whose releases have the shape {shape}"
            raise UserFormError("releaser.torch", given, describe_shapes([record_shape]))

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of one module; see `Releaser.initial`."""
        return self._modules.initial(random)

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """One number per noise input."""
        return (_MODULE_NOISE,)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases records of any shape; see `Releaser.release`."""
        return self._modules(parameters, batch.x, batch.noise)

    def set_training(self, training: bool) -> None:
        """See `Releaser.set_training`."""
        self._modules.set_training(training)


def module_releaser(
    factory: Factory, record_shape: tuple[int, ...], params: Mapping[str, Any]
) -> ModuleReleaser:
    """The releaser of a user's factory, called as `factory(record_shape, noise, **params)`."""
    return ModuleReleaser(lambda: factory(record_shape, _MODULE_NOISE, **params), record_shape)


RELEASERS: Final[Mapping[str, type[Releaser]]] = {
    "linear": LinearFilter,
    "mlp": PerceptronReleaser,
    "convolutional": EncoderDecoder,
    "recurrent": RecurrentReleaser,
    "unet": UNetReleaser,
    "fader": FaderReleaser,
    **OBFUSCATIONS,
}
"""Releaser of each value of the fields `releaser` and `obfuscation`."""
