"""The toy game in ordinary PyTorch for one configuration: modules, optimisers, a loop.

Section 7.2 of "Learning data-derived privacy preserving representations" (ICLR 2019 submission):
X ~ N((U, S), 0.05^2 I), a linear filter and noise hide S and keep U. An adversary infers S from the
release, one network infers U from it and another U from X; the filter minimises
(1 - a) I(U;X|Q)^2 + a I(S;Q)^2. Law, sizes, networks, losses, rates and what is measured are those
of this platform's `adversarial` experiment with `evaluation: exact`; only exact information, which
is no training, comes from `privnets.measures`.

`privnets.adversarial` says why the game is as it is: `squared_kl` for the running means of the two
informations, `game` for the rates. A test holds that both end alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.toy import CURVES, EVERY
from privnets import measures

_DATA_STD = 0.05
_TEST_SIZE = 16_384
_LAST_RATE = 0.02
_BETAS = (0.5, 0.999)
_SLOPE = 0.1
_MEMORY = 20

# What is averaged over steps, in the order in which `Game` measures it, and what is known exactly.
_MEANS, _EXACT = CURVES[:-2], CURVES[-2:]

Report = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Settings:
    """One configuration.

    Attributes:
        tradeoff: a, the weight on privacy.
        dependence: k, P(U=1, S=1) = k/4.
        steps: Of the releaser.
        seed: Of all draws.
        train_size: Records.
        batch_size: Records of a step.
        adversary_width: Units of the two hidden layers.
        adversary_steps: Steps of the inference networks for each of the releaser.
        noise_std: Of the release.
        learning_rate: Of the releaser, at the start.
        adversary_learning_rate: Of the inference networks, at the start.
        fused: Whether the inference networks share one optimiser, a fused one, in place of one
            ordinary optimiser each: quicker, and the same to rounding.
    """

    tradeoff: float
    dependence: float
    steps: int
    seed: int
    train_size: int
    batch_size: int
    adversary_width: int
    adversary_steps: int
    noise_std: float
    learning_rate: float
    adversary_learning_rate: float
    fused: bool = False


@dataclass(frozen=True)
class Records:
    """Data with secret and utility bits, shapes [n, 2], [n] and [n]."""

    x: Tensor
    secret: Tensor
    utility: Tensor

    def batch(self, size: int) -> Records:
        """Draws a random subset."""
        index = torch.randint(len(self.x), (size,))
        return Records(self.x[index], self.secret[index], self.utility[index])


def play(settings: Settings, report: Report) -> None:
    """Train and measure.

    Args:
        settings: The configuration; its steps are a multiple of 20.
        report: Called every 20 steps with the step and, as `curve/<name>`, means since the call
            before; the last time with the metrics of the finished release beside them.
    """
    torch.manual_seed(settings.seed)
    game = Game(settings)
    for step in range(1, settings.steps + 1):
        game.step()
        if step % EVERY == 0:
            values = {f"curve/{name}": value for name, value in game.means().items()}
            report(step, values if step < settings.steps else values | game.metrics())


class Game:
    """A releaser, its opponents and their optimisers."""

    def __init__(self, settings: Settings) -> None:
        """Draw data and networks."""
        self.settings = settings
        self.records = draw(settings.train_size, settings.dependence)
        self.releaser = nn.Linear(2, 2, bias=False)
        nn.init.normal_(self.releaser.weight, std=1 / math.sqrt(2))
        self.adversary, self.utility, self.reference = (
            perceptron(settings.adversary_width) for _ in range(3)
        )
        self.inference = self._optimisers()
        self.outer = Adam(
            self.releaser.parameters(), settings.learning_rate, _BETAS, fused=self._use_fused_adam
        )
        self.schedules = [LambdaLR(o, self._scale) for o in (*self.inference, self.outer)]
        counts = torch.bincount(self.records.secret, minlength=2) + 0.5
        self.log_prior = (counts / counts.sum()).log()
        self.running, self.weight = torch.zeros(2), 0.0
        self.weights = torch.tensor([1 - settings.tradeoff, settings.tradeoff])
        self.sums = torch.zeros(len(_MEANS))

    def step(self) -> None:
        """Steps of the inference networks, then one of the releaser."""
        for _ in range(self.settings.adversary_steps):
            self._infer(self.records.batch(self.settings.batch_size))
        self._release_better(self.records.batch(self.settings.batch_size))
        for schedule in self.schedules:
            schedule.step()

    def means(self) -> dict[str, float]:
        """Curves: means since the last call, and the filter's exact information now."""
        found = dict(zip(_MEANS, (self.sums / EVERY).tolist(), strict=True))
        self.sums.zero_()
        return found | dict(zip(_EXACT, self._exact(), strict=True))

    def metrics(self) -> dict[str, float]:
        """Exact leakage and censored utility of the final filter, with the best possible values."""
        k, a, noise = self.settings.dependence, self.settings.tradeoff, self.settings.noise_std
        leakage, censored = self._exact()
        least = float(measures.mutual_information(measures.joint_us(k)))
        return {
            **self._test(),
            "exact/leakage": leakage,
            "exact/censored": censored,
            "exact/loss": (1 - a) * censored**2 + a * leakage**2,
            "bound/release": least,
            "bound/gap": leakage + censored - least,
            "bound/loss": measures.best_loss(k, a),
            "optimum/linear_loss": float(measures.best_linear_loss(k, a, noise)[0]),
        }

    @torch.no_grad()
    def _test(self) -> dict[str, float]:
        """Accuracies of the game's own networks on unseen records."""
        test = draw(_TEST_SIZE, self.settings.dependence)
        z = self._release(test.x)
        guess = self.adversary(z).argmax(-1)
        recalls = [float((guess[test.secret == c] == c).double().mean()) for c in (0, 1)]
        return {
            "diagnostic/adversary_balanced_accuracy": sum(recalls) / 2,
            "utility/accuracy": float(accuracy(self.utility(z), test.utility)),
        }

    @property
    def _use_fused_adam(self) -> bool | None:
        return self.settings.fused or None

    def _optimisers(self) -> list[Optimizer]:
        rate = self.settings.adversary_learning_rate
        networks = (self.adversary, self.utility, self.reference)
        if self.settings.fused:
            return [Adam(nn.ModuleList(networks).parameters(), rate, _BETAS, fused=True)]
        return [Adam(network.parameters(), rate, _BETAS) for network in networks]

    def _scale(self, step: int) -> float:
        cosine = math.cos(math.pi * step / self.settings.steps)
        return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + cosine)

    def _release(self, x: Tensor) -> Tensor:
        z: Tensor = self.releaser(x) + self.settings.noise_std * torch.randn_like(x)
        return z

    def _infer(self, batch: Records) -> None:
        with torch.no_grad():
            z = self._release(batch.x)
        loss = functional.cross_entropy(self.adversary(z), batch.secret)
        loss = loss + functional.cross_entropy(self.utility(z), batch.utility)
        loss = loss + functional.cross_entropy(self.reference(batch.x), batch.utility)
        loss.backward()
        _step(self.inference)

    def _release_better(self, batch: Records) -> None:
        z = self._release(batch.x)
        adversary, utility = self.adversary(z), self.utility(z)
        with torch.no_grad():
            reference = self.reference(batch.x)
        known = reference.log_softmax(-1)
        lost = (known.exp() * (known - utility.log_softmax(-1))).sum(-1).mean()
        ratio = adversary.log_softmax(-1) - self.log_prior
        leaked = ratio.gather(1, batch.secret[:, None]).mean()
        loss = (self.weights * self._square_running_means(torch.stack([lost, leaked]))).sum()
        loss.backward(inputs=list(self.releaser.parameters()))
        _step([self.outer])
        self._measure(batch, z, loss, adversary, utility, reference)

    def _square_running_means(self, both: Tensor) -> Tensor:
        """Squares of the informations' running means, with the batch's gradient."""
        self.running = torch.lerp(self.running, both.detach(), 1 / _MEMORY)
        self.weight += (1 - self.weight) / _MEMORY
        mean = (self.running / self.weight).clamp_min(0)
        return mean.square() + 2 * mean * (both - both.detach())

    @torch.no_grad()
    def _measure(
        self,
        batch: Records,
        z: Tensor,
        loss: Tensor,
        adversary: Tensor,
        utility: Tensor,
        reference: Tensor,
    ) -> None:
        """Add to the sums from which curves are drawn."""
        adversary_loss = functional.cross_entropy(adversary, batch.secret)
        utility_loss = functional.cross_entropy(utility, batch.utility)
        known = functional.cross_entropy(reference, batch.utility)
        values = [
            loss,
            adversary_loss,
            utility_loss,
            accuracy(adversary, batch.secret),
            accuracy(utility, batch.utility),
            functional.mse_loss(z, batch.x),
            -self.log_prior[batch.secret].mean() - adversary_loss,
            utility_loss - known,
        ]
        self.sums += torch.stack(values)

    def _exact(self) -> tuple[float, float]:
        joint = measures.joint_us(self.settings.dependence)
        theta = self.releaser.weight.detach().double()
        found = measures.filter_information(theta, self.settings.noise_std, joint)
        return float(found.leakage), float(found.censored)


def draw(count: int, dependence: float) -> Records:
    """Records of the mixture."""
    utility = torch.randint(2, (count,))
    likely = torch.where(utility == 1, dependence / 2, 1 - dependence / 2)
    secret = (torch.rand(count) < likely).long()
    bits = torch.stack([utility, secret], 1)
    return Records(bits + _DATA_STD * torch.randn(count, 2), secret, utility)


def perceptron(width: int) -> nn.Sequential:
    """An inference network, from a release to a bit."""
    network = nn.Sequential(
        nn.Linear(2, width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, 2),
    )
    for layer in (network[0], network[2]):
        nn.init.kaiming_normal_(layer.weight, _SLOPE)
    nn.init.kaiming_normal_(network[4].weight, nonlinearity="linear")
    for layer in (network[0], network[2], network[4]):
        nn.init.zeros_(layer.bias)
    return network


def accuracy(logits: Tensor, label: Tensor) -> Tensor:
    """Share of labels that have the larger logit."""
    return (logits.argmax(-1) == label).float().mean()


def _step(optimisers: Iterable[Optimizer]) -> None:
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad()
