"""A training step of a stack against the steps of its networks one by one, and other forms.

Forward, backward and Adam in processor time of one core, in rounds that alternate. For each
network the form that the platform takes, the same code on every network by itself, and what else
could have been done.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from benchmarks.harness import alternate, publish
from privnets.adversarial.records import Minibatch
from privnets.adversarial.training.releaser import Releaser
from privnets.adversarial.training.releasers import (
    EncoderDecoder,
    FaderReleaser,
    RecurrentReleaser,
    UNetReleaser,
)
from privnets.networks.convolution import ConvolutionalClassifier
from privnets.networks.image_classifiers import wide_resnet, xception
from privnets.networks.layers import dense, leaky, stack_parameters
from privnets.networks.mlp import Perceptron
from privnets.networks.module_stacks import ImageClassifier, ModuleStack
from privnets.networks.recurrent import Recurrent, step_by_step
from privnets.networks.training import StackedAdam
from privnets.randomness import stream_key

_SIZES = (2, 8, 16)
_ROUNDS = 11

Run = Callable[[Sequence[Tensor], Tensor], Tensor]
Convolve = Callable[[Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class _Subject:
    """A network, the records of a batch, and other ways to run it than the platform's."""

    name: str
    initial: Callable[[np.random.Generator], list[Tensor]]
    run: Run
    batch: tuple[int, ...]
    others: Mapping[str, Run]


def _loop(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """One convolution after another, channels outermost."""
    padding, members = weight.shape[-1] // 2, zip(x, weight, bias, strict=True)
    return torch.stack([conv2d(i, w, b, stride, padding) for i, w, b in members])


def _convolve_grouped(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """One grouped convolution, channels outermost."""
    networks, n = x.shape[:2]
    images = x.transpose(0, 1).reshape(n, -1, *x.shape[3:])
    padding = weight.shape[-1] // 2
    y = conv2d(images, weight.flatten(0, 1), bias.flatten(), stride, padding, groups=networks)
    return y.view(n, networks, -1, *y.shape[2:]).transpose(0, 1)


def _batched_product(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Every patch copied out (im2col), then one batched matrix product."""
    networks, n, channels = x.shape[:3]
    kernel = weight.shape[-1]
    padded = pad(x, [kernel // 2] * 4).transpose(1, 2)
    patches = padded.unfold(3, kernel, stride).unfold(4, kernel, stride)
    height, width = patches.shape[3:5]
    columns = patches.permute(0, 1, 5, 6, 2, 3, 4).reshape(networks, channels * kernel**2, -1)
    y = torch.baddbmm(bias[:, :, None], weight.flatten(2), columns)
    return y.view(networks, -1, n, height, width).transpose(1, 2)


def _classify(convolve: Convolve, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """A convolutional classifier by another convolution."""
    *body, weight, bias, head_weight, head_bias = parameters
    for i in range(0, len(body), 2):
        x = leaky(convolve(x, body[i], body[i + 1], 2))
    return dense(leaky(dense(x.flatten(2), weight, bias)), head_weight, head_bias)


def _perceptrons_in_a_loop(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    outputs = []
    for hidden, *own in zip(x, *(p.unbind() for p in parameters), strict=True):
        for i in range(0, len(own), 2):
            hidden = torch.addmm(own[i + 1], hidden if i == 0 else leaky(hidden), own[i])
        outputs.append(hidden)
    return torch.stack(outputs)


def _recurrent_by_step(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    *body, weight, bias = parameters
    states = step_by_step(body, x, bidirectional=False)
    return dense(states.flatten(1, 2), weight, bias)


def _release(releaser: Releaser) -> Run:
    def run(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        key, records = stream_key(0, "noise"), (x.shape[0] * x.shape[1], *x.shape[2:])
        parts = list(releaser.record_noise([key], torch.ones(1, device=x.device), records))
        noise = torch.cat(parts, 1).unflatten(1, x.shape[:2])[0]
        return releaser.release(parameters, Minibatch(x, torch.zeros(x.shape[:3]), noise=noise))

    return run


def _subjects() -> Iterator[_Subject]:
    for widths, records in (((2, 32, 32, 2), 256), ((784, 128, 64, 2), 128)):
        network = Perceptron(widths)
        yield _Subject(
            "perceptron " + "-".join(map(str, widths)),
            network.initial,
            network.forward,
            (records, widths[0]),
            {"products in a loop": _perceptrons_in_a_loop},
        )
    for width in (8, 32):
        classifier = ConvolutionalClassifier(28, width, 2)
        yield _Subject(
            f"convolutional classifier, width {width}",
            classifier.initial,
            classifier.forward,
            (128, 1, 28, 28),
            {
                "convolutions in a loop": partial(_classify, _loop),
                "grouped, channels outermost": partial(_classify, _convolve_grouped),
                "batched products": partial(_classify, _batched_product),
            },
        )
    encoder = EncoderDecoder(28, 64)
    yield _Subject(
        "encoder-decoder, width 64", encoder.initial, _release(encoder), (128, 1, 28, 28), {}
    )
    for make in (xception, wide_resnet):
        of_images = ImageClassifier(make, (3, 32, 32), 2, 16)
        together = ModuleStack(make((3, 32, 32), 2, 16))
        yield _Subject(
            f"{make.__name__}, width 16",
            of_images.initial,
            of_images.forward,
            (64, 3, 32, 32),
            {"vmap": together},
        )
    for name, images in (("U-Net", UNetReleaser(32, 16)), ("fader network", FaderReleaser(32, 16))):
        title = f"{name}, width 16"
        yield _Subject(title, images.initial, _release(images), (64, 3, 32, 32), {})
    adversary = Recurrent(1, 32, 3, 2)
    others = {"batched loop over time": _recurrent_by_step}
    yield _Subject("LSTM 3 x 32", adversary.initial, adversary.forward, (64, 24, 1), others)
    releaser = RecurrentReleaser(2)
    yield _Subject("releaser, LSTM 4 x 64", releaser.initial, _release(releaser), (64, 24, 1), {})


def _training(run: Run, parameters: Sequence[Tensor], x: Tensor) -> Callable[[], None]:
    """A step of training on x, the parameters' own."""
    leaves = [p.clone().requires_grad_() for p in parameters]
    adam = StackedAdam(leaves, torch.full((len(x),), 1e-4))

    def step() -> None:
        loss = run(leaves, x).square().mean()
        adam.step(torch.autograd.grad(loss, leaves, materialize_grads=True))

    return step


def _one_by_one(run: Run, parameters: Sequence[Tensor], x: Tensor) -> Callable[[], None]:
    """The same step of every network by itself."""
    members = [slice(s, s + 1) for s in range(len(x))]
    steps = [_training(run, [p[own] for p in parameters], x[own]) for own in members]

    def step() -> None:
        for alone in steps:
            alone()

    return step


def _measure_forms(subject: _Subject, networks: int) -> list[dict[str, object]]:
    sources = [np.random.default_rng(seed) for seed in range(networks)]
    parameters = stack_parameters([subject.initial(source) for source in sources])
    x = torch.rand(networks, *subject.batch, generator=torch.Generator().manual_seed(0))
    contestants = {
        "this platform": _training(subject.run, parameters, x),
        "one by one": _one_by_one(subject.run, parameters, x),
        **{name: _training(run, parameters, x) for name, run in subject.others.items()},
    }
    timings = alternate(contestants, _ROUNDS, time.process_time)
    alone = timings["one by one"].median
    return [
        {
            "network": subject.name,
            "networks": networks,
            "contestant": name,
            "rounds": _ROUNDS,
            "ms_per_network_step": round(1e3 * timing.median / networks, 3),
            "times_one_by_one": round(alone / timing.median, 2),
        }
        for name, timing in timings.items()
    ]


def main() -> None:
    """Measure and publish."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    for subject in _subjects():
        for networks in _SIZES:
            rows += _measure_forms(subject, networks)
    publish("network_forms", rows)


if __name__ == "__main__":
    main()
