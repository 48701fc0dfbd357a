"""Registries of extensions: built-in ones, and those that installed packages add.

Each registry belongs to one kind of extension and one group of entry points. A package adds an
extension by an entry point of that group: its name is the extension's name, its object a class
without constructor arguments, or an instance. Built-in names cannot be replaced. Nothing is
imported before it is requested.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class ExtensionError(ImportError):
    """Raised when an installed package offers an extension that cannot be loaded."""


def installed_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Returns the entry points of a group; packages are looked up once for each `sys.path`."""
    return _find_entry_points(group, tuple(sys.path))


@cache
def _find_entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


class Registry(Generic[T]):
    """Extensions of one kind, by name."""

    def __init__(self, kind: str, group: str, base: str, builtin: Mapping[str, str]) -> None:
        """Creates a registry.

        Args:
            group: Group of entry points, such as `privnets.experiments`.
            base: Type of every extension, as `module:class`.
            builtin: Name to location, as `module:object`.
        """
        self.group, self.builtin = group, dict(builtin)
        self._kind, self._base = kind, base
        self._builtin_names = tuple(self.builtin)
        self._loaded: dict[str, T] = {}

    def names(self) -> tuple[str, ...]:
        """Returns the built-in names, in order, then the names that packages add, sorted."""
        installed = installed_entry_points(self.group)
        if not installed:
            return self._builtin_names
        added = {point.name for point in installed if point.name not in self.builtin}
        return (*self.builtin, *sorted(added))

    def added_names(self) -> tuple[str, ...]:
        """Returns the names that packages add, sorted."""
        return self.names()[len(self.builtin) :]

    def get(self, name: str) -> T:
        """Returns the extension with this name; always the same object.

        Raises:
            ValueError: If no extension has this name.
            ExtensionError: If several packages add it, or the one that does cannot be loaded.
        """
        if name in self._loaded:
            return self._loaded[name]
        added = installed_entry_points(self.group)
        offers = {point.value: point for point in added if point.name == name}
        if name in self.builtin:
            offers = {name: EntryPoint(name, self.builtin[name], self.group)}
        if not offers:
            raise ValueError(
                f"{self._kind} must be one of {', '.join(self.names())}; got {name!r}."
            )
        if len(offers) > 1:
            values = ", ".join(sorted(offers))
            raise ExtensionError(f"several packages offer {self._kind} {name!r}: {values}")
        (point,) = offers.values()
        offer = f"{self._kind} {name!r} ({point.value})"
        base: type[T] = EntryPoint("base", self._base, self.group).load()
        try:
            loaded = point.load()
            is_class = isinstance(loaded, type) and issubclass(loaded, base)
            extension = loaded() if is_class else loaded
        except Exception as error:  # any exception of another package's code
            raise ExtensionError(f"cannot load {offer}: {type(error).__name__}: {error}") from error
        if not isinstance(extension, base) or getattr(extension, "name", None) != name:
            raise ExtensionError(
                f"{offer} must be a class or an instance of {self._base.replace(':', '.')} "
                f"with the name {name!r}; got {loaded!r}"
            )
        self._loaded[name] = extension
        return extension


# Of `privnets.contract.Experiment`, whose module loads pydantic and numpy.
EXPERIMENTS: Final[Registry[Any]] = Registry(
    "experiment",
    "privnets.experiments",
    "privnets.contract:Experiment",
    {
        "adversarial": "privnets.adversarial.experiment:Adversarial",
        "membership": "privnets.membership.experiment:Membership",
    },
)


def is_own_experiment(name: str) -> bool:
    """Returns whether an experiment's name is the location of a user's function."""
    return ":" in name


def package_version(package: str) -> str:
    """Version of an installed package; `absent` for none, as where a source tree is run."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
