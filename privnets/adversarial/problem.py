"""Interface of problems: records with a secret, their static description, and exact measures.

A problem is one module in `privnets.adversarial.problems` and one entry of its registry. Studies
are planned from problems, so these modules load without torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers import ATTACKERS, SIDE
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import ArrayEncoding, RecordEncoding
from privnets.adversarial.evidence import AttackerGuesses, KnownRows, Parameters, Release
from privnets.contract import InvalidField, State
from privnets.points import Scalar
from privnets.randomness import generator
from privnets.references.problems import ProblemSettings
from privnets.statistics.estimates import Estimate

NetworkKind = Literal["perceptron", "convolutional", "separable", "recurrent"]

SHARES: Final = (8, 7, 2, 3)
"""Of train, attack, validation and test in records without a published split: 40, 35, 10, 15%."""


@dataclass(frozen=True)
class ProblemSpec:
    """Static description of a problem, known without its records.

    Attributes:
        name: The problem's name in study files.
        secret_classes: Number of classes of the secret, at least 2.
        releasers: Releaser networks that fit its records.
        defaults: Configuration fields whose default differs from the experiment's.
        attacker_width: Units or channels of the attackers' networks, whatever the game's are.
        utility_classes: Number of classes of the utility label; 0 without a label.
        network: Inference networks for its records: `perceptron` for vectors and small images,
            `convolutional` or `separable` for square images, `recurrent` for sequences.
        pixels: Whether records are images with pixels in [0, 1], and releases too.
        shows_labels: Whether a record shows secret and utility label, so that I(U;S|X) is 0.
        side_features: Columns of public side information; 0 without any.
        copies_input: Whether a release should resemble its record.
        extra_metrics: Metric keys that only this problem reports.
        has_judge: Whether the small attacker of a rung ranks releases as the panel does.
        has_either_label: Whether a record has a secret or a utility label, never both.
    """

    name: str
    secret_classes: int
    releasers: tuple[str, ...]
    defaults: Mapping[str, Scalar]
    attacker_width: int = 64
    utility_classes: int = 0
    network: NetworkKind = "perceptron"
    pixels: bool = False
    shows_labels: bool = False
    side_features: int = 0
    copies_input: bool = True
    extra_metrics: tuple[str, ...] = ()
    has_judge: bool = True
    has_either_label: bool = False

    @property
    def obfuscations(self) -> tuple[str, ...]:
        """Trivial obfuscations that fit its records."""
        if self.is_sequential:
            return ("noise", "rounding", "average")
        return ("noise", "blur", "box") if self.pixels else ("noise", "rounding")

    @property
    def attackers(self) -> dict[str, str]:
        """Registered names of the panel's attackers, by name in metric keys; loads no attacker."""
        names = ATTACKERS.names()
        general = [name for name in names if "." not in name]
        informed = {name + SIDE: name for name in general} if self.side_features else {}
        own = [name for name in names if name.startswith(f"{self.name}.")]
        specific = {name.split(".", 1)[1]: name for name in own}
        return {name: name for name in general} | informed | specific

    @property
    def is_sequential(self) -> bool:
        """Whether records are sequences with a secret at each step."""
        return self.network == "recurrent"


@dataclass(frozen=True)
class SplitSizes:
    """Numbers of records in each split, and the shape of one record."""

    train: int
    attack: int
    validation: int
    test: int
    record_shape: tuple[int, ...]

    @classmethod
    def from_counts(cls, counts: Iterable[int], record_shape: tuple[int, ...]) -> SplitSizes:
        """Four numbers of records, in the order of the fields."""
        train, attack, validation, test = counts
        return cls(train, attack, validation, test, record_shape)


@dataclass(frozen=True, eq=False)
class Splits:
    """Disjoint splits of one configuration's records, as indices, int64.

    Attributes:
        train: The releaser, its adversary and its utility network train on these.
        attack: Attackers train on the release of these, or of as many as the panel takes; fresh
            utility networks on all.
        validation: Attackers are tuned on the release of these.
        test: All reported metrics are measured on these.
        other_test: Test records labelled by the rule `Problem.other_labels`; may repeat `test`.
    """

    train: NDArray[np.int64]
    attack: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    other_test: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class RecordArrays:
    """A problem's records; shapes and units are those of `privnets.adversarial.records.Pool`."""

    x: NDArray[np.float32]
    secret: NDArray[np.int64]
    utility: NDArray[np.int64] | None = None
    side: NDArray[np.float32] | None = None
    present: NDArray[np.bool_] | None = None
    group: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class ReleaseDetails:
    """Measures and files of one trained releaser that only its problem provides.

    Attributes:
        metrics: By key; with `Problem.reference_metrics` all of `ProblemSpec.extra_metrics`.
        notes: Metric key to the reason why it is undefined.
        artifacts: File name to content.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)

    def with_estimates(self, found: Mapping[str, Estimate]) -> ReleaseDetails:
        """Adds measures with their standard errors."""
        metrics = {key: estimate.value for key, estimate in found.items()}
        errors = {key: estimate.error for key, estimate in found.items()}
        return replace(self, metrics={**self.metrics, **metrics}, errors={**self.errors, **errors})


class Problem(ABC):
    """A source of records with a secret to hide and something useful to keep.

    Attributes:
        spec: Static description.
        Settings: Type of the settings that a study gives below the problem's name, each with a
            default.
        remarks: Sentences on the records for the author of a study.
    """

    spec: ProblemSpec
    Settings: ClassVar[type[ProblemSettings]] = ProblemSettings
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in the registry and in study files."""
        return self.spec.name

    @property
    def utility_labels(self) -> NDArray[Any]:
        """Classes of the utility label as the user knows them, sorted."""
        return np.arange(self.spec.utility_classes)

    def configured(self, settings: ProblemSettings) -> Problem:
        """The problem with some settings, if they change more than its configurations."""
        return self

    @abstractmethod
    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of records in whole splits, and their shape; reads no file if it can."""

    def split_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of records, of which `train_size` may leave fewer to train on."""
        whole = self.whole_sizes(config)
        return replace(whole, train=config.train_size or whole.train)

    def largest_train_size(self, config: AdversarialConfig) -> int | None:
        """Largest value of `train_size`; None if only reading can tell."""
        return self.whole_sizes(config).train

    @abstractmethod
    def fingerprint(self, config: AdversarialConfig) -> str:
        """Identity of the records and of the way they are read.

        Raises:
            DataError: If the data set is absent or altered.
        """

    @abstractmethod
    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """Reads or draws the records of a stack, and splits them for each configuration.

        A configuration's records and splits depend on its own fields alone, not on the stack.
        Splits have equal sizes in all configurations, and are whole: `train_size` is applied later.
        """

    def describe_labels(self, config: AdversarialConfig) -> tuple[str, ...]:
        """Sentences on the classes of secret and utility label; reads the records."""
        from privnets.references.columns import describe_classes  # pandas takes half a second

        records, _ = self.load_records([config])
        labels = {"secret": records.secret, "utility": records.utility}
        counts = {
            name: np.bincount(codes[codes >= 0]).tolist()
            for name, codes in labels.items()
            if codes is not None
        }
        return tuple(
            describe_classes(name, {str(code): count for code, count in enumerate(own)})
            for name, own in counts.items()
        )

    def invalid_fields(self, config: AdversarialConfig) -> list[InvalidField]:
        """Values that the problem cannot serve; reads no file."""
        spec = self.spec
        errors: list[InvalidField] = []
        is_own = not isinstance(config.releaser, str) and not spec.is_sequential
        if not is_own and config.releaser not in spec.releasers:
            allowed = f"{' or '.join(spec.releasers)} with {spec.name}"
            errors.append(InvalidField("releaser", str(config.releaser), allowed))
        if config.obfuscation not in ("none", *spec.obfuscations):
            allowed = f"{', '.join(spec.obfuscations)} or none with {spec.name}"
            errors.append(InvalidField("obfuscation", config.obfuscation, allowed))
        if spec.is_sequential and not isinstance(config.inference_network, str):
            given, allowed = str(config.inference_network), f"problem with {spec.name}"
            errors.append(InvalidField("inference_network", given, allowed))
        if config.scenario == "fixed-utility" and not spec.utility_classes:
            allowed = f"joint or fixed-both, as {spec.name} has no utility label"
            errors.append(InvalidField("scenario", config.scenario, allowed))
        if (size := config.train_size) is not None:
            limit = self.largest_train_size(config)
            if limit is not None and size > limit:
                allowed = f"at most {limit} with {spec.name}"
                errors.append(InvalidField("train_size", str(size), allowed))
        return errors

    def has_exact_information(self, config: AdversarialConfig) -> bool:
        """Whether the exact information in releases is known, so that no attacker is needed."""
        return False

    def original_units(self, config: AdversarialConfig) -> tuple[float, float]:
        """Offset and scale of `x` in original units: original = offset + scale * x."""
        return 0.0, 1.0

    def dependence_bound(self, config: AdversarialConfig) -> float:
        """K = I(U;S) - I(U;S|X) in nats (ICLR 2019 submission, Lemma 3.1); NaN if unknown.

        Where `ProblemSpec.shows_labels`, it is measured on the test split instead.
        """
        return float("nan")

    def test_set(self, config: AdversarialConfig) -> tuple[str, float] | None:
        """Name of the test records, and the share of them that other seeds use under this name.

        By default all seeds share all test records. None means that each seed has its own.
        """
        return self.name, 1.0

    def other_labels(self, config: AdversarialConfig) -> str | None:
        """Name of the rule that labels `Splits.other_test`; None if records have one rule."""
        return None

    def exact_curves(self, configs: Sequence[AdversarialConfig], parameters: Parameters) -> State:
        """Exact measures [S] of a stack's releasers in training, by curve key."""
        return {}

    def reference_metrics(
        self, configs: Sequence[AdversarialConfig]
    ) -> Generator[None, None, Sequence[Mapping[str, float]]]:
        """Optima and bounds that hold for any releaser; metrics by key, per configuration.

        Yields:
            None, wherever the work may pause.
        """
        yield from ()
        return [{} for _ in configs]

    def record_encoding(self, config: AdversarialConfig) -> RecordEncoding | None:
        """Form of new records that a trained releaser accepts; None if it accepts none."""
        if self.spec.is_sequential:
            return None
        return ArrayEncoding(record_shape=self.split_sizes(config).record_shape)

    def release_details(self, release: Release) -> ReleaseDetails:
        """Measures one trained releaser and shows examples of its test release."""
        return ReleaseDetails()

    def attacker_details(
        self, guesses: AttackerGuesses, rows: KnownRows, prior: NDArray[np.float64]
    ) -> Mapping[str, Estimate]:
        """Measures of the strongest attacker's guesses of the known secrets of test.

        `prior` has the class frequencies in the attack split, shape [C]. Keys begin with
        `attacker_`. `ProblemSpec.extra_metrics` has them below `privacy/`, for the release, and
        below `baseline/`, for raw records.
        """
        return {}


def unused_field_errors(
    config: AdversarialConfig,
    fields: Sequence[str],
    defaults: Mapping[str, Scalar],
    choice: str = "problem",
) -> list[InvalidField]:
    """Errors for fields without effect, because of a `choice`, that differ from their default."""
    errors = []
    for name in fields:
        value: Any = getattr(config, name)
        default = defaults[name] if name in defaults else config.field_defaults[name]
        if value != default:
            allowed = f"{default}, as {choice} {getattr(config, choice)} has no use for it"
            errors.append(InvalidField(name, str(value), allowed))
    return errors


def stratified_split(
    strata: NDArray[np.int64], shares: Sequence[int], seed: int
) -> list[NDArray[np.int64]]:
    """Splits records so that every stratum has about the same share in every part.

    Records are shuffled, sorted by their stratum [n] and assigned to the parts in turn: of
    `sum(shares)` consecutive ones, each part gets its share. So the sizes of the parts depend on
    the number of records alone. Every record is in one part; indices are sorted by stratum.
    """
    shuffled = generator(seed, "splits").permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    part = _turns(shares)[np.arange(len(strata)) % sum(shares)]
    return [order[part == i].astype(np.int64) for i in range(len(shares))]


def split_records(strata: NDArray[np.int64], configs: Sequence[AdversarialConfig]) -> list[Splits]:
    """Splits records by `SHARES` for each configuration; see `stratified_split`."""
    return [Splits(*stratified_split(strata, SHARES, config.seed)) for config in configs]


def stratified_sizes(records: int, shares: Sequence[int]) -> list[int]:
    """Sizes of the parts that `stratified_split` returns."""
    rounds, rest = divmod(records, sum(shares))
    turns = _turns(shares)[:rest]
    return [rounds * share + int((turns == i).sum()) for i, share in enumerate(shares)]


def subsample(part: NDArray[np.int64], size: int | None) -> NDArray[np.int64]:
    """`size` evenly spaced records of a part, so that all strata stay; all if None."""
    return part if size is None else part[np.arange(size) * len(part) // max(size, 1)]


def class_frequencies(secret: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Class shares [C], with half a count added to each (Krichevsky and Trofimov, 1981)."""
    counts = np.bincount(secret, minlength=classes) + 0.5
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def _turns(shares: Sequence[int]) -> NDArray[np.int64]:
    """Part of each of `sum(shares)` consecutive records, spread evenly, shape [sum(shares)]."""
    turns = [((k + 0.5) / share, i) for i, share in enumerate(shares) for k in range(share)]
    return np.array([i for _, i in sorted(turns)])
