"""The import hook behind ``nightjar.adapters.verifiers``: modules called ``verifiers`` that give Nightjar's names.

A module of verifiers stands for one or several modules of Nightjar, where its names are looked up when they are
asked for: nothing is imported before, and nothing is copied.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from nightjar.errors import ConfigError

ROOT = "verifiers"
ALIAS_HINT = " of Nightjar: verifiers is installed here. Set NIGHTJAR_ALIAS_VERIFIERS=1 to have Nightjar in its place"

_TABLE = "nightjar.adapters.verifiers.modules"
_is_preferred: ContextVar[bool] = ContextVar("is_preferred", default=False)


def install() -> None:
    """Makes ``import verifiers`` give Nightjar's classes, in this process; once is enough.

    Raises:
        ConfigError: the real package is imported already, so some code would use its classes and some Nightjar's.

    Example:
        >>> install()
        >>> from verifiers.rubrics.judge_rubric import JudgeRubric
        >>> JudgeRubric.__module__
        'nightjar.rubrics.judge_rubric'
    """
    if is_installed():
        return
    imported = sys.modules.get(ROOT)
    if imported is not None:
        raise ConfigError(
            f"The package 'verifiers' is imported already, from {getattr(imported, '__file__', None)}. "
            "Call nightjar.adapters.verifiers.install() before anything imports it."
        )
    sys.meta_path.insert(0, _Finder())


@contextmanager
def preferred() -> Iterator[None]:
    """Has environments that are loaded in the block given Nightjar's classes, also where verifiers is installed.

    A run does so: it could do nothing with an environment of the other package.
    """
    token = _is_preferred.set(True)
    try:
        yield
    finally:
        _is_preferred.reset(token)


def install_where_needed() -> None:
    """Installs the alias where verifiers is not installed, or for a run, or where ``NIGHTJAR_ALIAS_VERIFIERS=1`` asks.

    Raises:
        ConfigError: it is asked for, and the real package is imported already.
    """
    if is_installed():
        return
    is_preferred = _is_preferred.get() and ROOT not in sys.modules
    if is_preferred or os.environ.get("NIGHTJAR_ALIAS_VERIFIERS") == "1" or not _is_real_one_there():
        install()


def _is_real_one_there() -> bool:
    """Says whether verifiers is imported, or can be; a folder of that name without code is no package."""
    if ROOT in sys.modules:
        return True
    spec = importlib.util.find_spec(ROOT)
    return spec is not None and spec.origin is not None


def is_installed() -> bool:
    """Says whether ``import verifiers`` gives Nightjar's classes in this process.

    Example:
        >>> install()
        >>> is_installed()
        True
    """
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Alias(ModuleType):
    """A module of verifiers, whose names are Nightjar's."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"Nightjar in the place of {name!r}.")
        table = _table()
        own = table.SOURCES[name.removeprefix(ROOT).removeprefix(".")]
        self.__dict__["_sources"] = (*own, table.NAMES, table.PUBLIC)

    def __setattr__(self, name: str, value: Any) -> None:
        """Replaces a name here and in the module it comes from, as tests do with what they stand in for."""
        super().__setattr__(name, value)
        if name.startswith("__") or isinstance(value, ModuleType):  # what the import system sets
            return
        for source in self._sources:
            module = sys.modules.get(source)
            if module is not None and name in vars(module):
                setattr(module, name, value)
                return

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__public_names()
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if f"{self.__name__}.{name}".removeprefix(f"{ROOT}.") in _table().SOURCES:
            return importlib.import_module(f"{self.__name__}.{name}")
        for source in self._sources:
            value = _lookup(source, name)
            if value is not None:
                self.__dict__[name] = value
                return value
        raise AttributeError(f"Nightjar stands in for {self.__name__!r} here and has no {name!r}")

    def __public_names(self) -> list[str]:
        """Returns what ``from ... import *`` gives: the names of the modules that this one stands for."""
        public = _table().PUBLIC
        sources = [public] if self.__name__ == ROOT else [source for source in self._sources if source != public]
        modules = [importlib.import_module(source) for source in sources]
        names = [getattr(module, "__all__", None) or vars(module) for module in modules]
        return sorted({name for some in names for name in some if not name.startswith("_")})


def _table() -> Any:
    """Returns the module with the names: above this one, so it is loaded like what it names, when it is asked for."""
    return importlib.import_module(_TABLE)


def _lookup(source: str, name: str) -> Any:
    try:
        module = importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name == source:
            return None
        raise
    return getattr(module, name, None)


class _Finder(MetaPathFinder, Loader):
    """Finds ``verifiers`` and its submodules."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        root, _, submodule = fullname.partition(".")
        if root != ROOT:
            return None
        if submodule not in _table().SOURCES:
            raise ModuleNotFoundError(f"Nightjar stands in for verifiers here and has no {fullname!r}", name=fullname)
        return ModuleSpec(fullname, self, origin="nightjar", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Has nothing to run: names are looked up when they are asked for."""
