"""The import hook that gives Nightjar's classes to code that imports ``verifiers`` or ``nemo_evaluator``.

A table in ``nightjar.compat`` maps their modules to Nightjar's modules. Names are looked up on first use.
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

VERIFIERS = "verifiers"
ALIAS_HINT = " of Nightjar, because verifiers is installed. To use Nightjar instead, set NIGHTJAR_ALIAS_VERIFIERS=1"

# The tables are above this module in the layers, so they are imported by name and only when they are needed.
_TABLES = {VERIFIERS: "nightjar.compat.verifiers.modules", "nemo_evaluator": "nightjar.compat.nemo.modules"}
_is_preferred: ContextVar[bool] = ContextVar("is_preferred", default=False)


def install(package: str = VERIFIERS) -> None:
    """Makes ``import verifiers`` give Nightjar's classes in this process.

    Raises ``ConfigError`` if the real package is already imported.

    Example:
        >>> install()
        >>> from verifiers.rubrics.judge_rubric import JudgeRubric
        >>> JudgeRubric.__module__
        'nightjar.environments.rubrics.judge_rubric'
    """
    if is_installed(package):
        return
    imported = sys.modules.get(package)
    if imported is not None:
        raise ConfigError(
            f"The package {package!r} is already imported, from {getattr(imported, '__file__', None)}. "
            "Call nightjar.compat.verifiers.install() before anything imports it."
        )
    sys.meta_path.insert(0, _Finder(package))


@contextmanager
def preferred() -> Iterator[None]:
    """Makes environments in the block use Nightjar's classes even if verifiers is installed; runs need this."""
    token = _is_preferred.set(True)
    try:
        yield
    finally:
        _is_preferred.reset(token)


def install_where_needed() -> None:
    """Installs an alias for each package that is not installed.

    The alias of verifiers is also installed within ``preferred``, or if ``NIGHTJAR_ALIAS_VERIFIERS`` is 1.
    """
    for package in _TABLES:
        if not is_installed(package) and (_is_wanted(package) or not _is_available(package)):
            install(package)


def _is_wanted(package: str) -> bool:
    if package != VERIFIERS:
        return False
    return (_is_preferred.get() and package not in sys.modules) or os.environ.get("NIGHTJAR_ALIAS_VERIFIERS") == "1"


def _is_available(package: str) -> bool:
    """Returns whether the real package is imported or installed. A folder with this name but no code does not count."""
    if package in sys.modules:
        return True
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def is_installed(package: str = VERIFIERS) -> bool:
    """Returns whether ``import verifiers`` gives Nightjar's classes in this process.

    Example:
        >>> install()
        >>> is_installed()
        True
    """
    return any(isinstance(finder, _Finder) and finder.package == package for finder in sys.meta_path)


class _Alias(ModuleType):
    def __init__(self, name: str, table: Any) -> None:
        super().__init__(name, f"Nightjar in the place of {name!r}.")
        package, _, submodule = name.partition(".")
        own = table.SOURCES[submodule]
        public = [*own, *table.EVERYWHERE] if submodule else [table.PUBLIC]
        self.__dict__.update(_package=package, _table=table, _public=public)
        self.__dict__["_sources"] = dict.fromkeys((*own, *table.EVERYWHERE, table.PUBLIC))

    def __setattr__(self, name: str, value: Any) -> None:
        """Replaces a name in the alias and in the module that defines it, so that monkeypatching works."""
        super().__setattr__(name, value)
        if name.startswith("__") or isinstance(value, ModuleType):  # the import system sets these
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
        if f"{self.__name__}.{name}".removeprefix(f"{self._package}.") in self._table.SOURCES:
            return importlib.import_module(f"{self.__name__}.{name}")
        for source in self._sources:
            value = _lookup(source, name)
            if value is not None:
                self.__dict__[name] = value
                return value
        raise AttributeError(f"Nightjar replaces {self.__name__!r} in this process and has no {name!r}")

    def __public_names(self) -> list[str]:
        modules = [importlib.import_module(source) for source in self._public]
        names = [getattr(module, "__all__", None) or vars(module) for module in modules]
        return sorted({name for some in names for name in some if not name.startswith("_")})


def _lookup(source: str, name: str) -> Any:
    try:
        module = importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name == source:
            return None
        raise
    return getattr(module, name, None)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        package, _, submodule = fullname.partition(".")
        if package != self.package:
            return None
        if submodule not in self._table().SOURCES:
            raise ModuleNotFoundError(
                f"Nightjar replaces {package} in this process and has no {fullname!r}", name=fullname
            )
        return ModuleSpec(fullname, self, origin="nightjar", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, self._table())

    def exec_module(self, module: ModuleType) -> None:
        """Prepares Nightjar's classes when the package itself is imported. Names are looked up on first use."""
        prepare = getattr(self._table(), "prepare", None)
        if module.__name__ == self.package and prepare is not None:
            prepare()

    def _table(self) -> Any:
        return importlib.import_module(_TABLES[self.package])
