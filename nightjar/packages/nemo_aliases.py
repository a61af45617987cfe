"""The import hook that lets files which import ``nemo_evaluator`` run where that is not installed.

A module of that name stands for the one of the same name in ``nightjar.nemo``, where its names are looked up when they
are asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ROOT, _TARGET = "nemo_evaluator", "nightjar.nemo"


def install_where_needed() -> None:
    """Makes ``import nemo_evaluator`` give Nightjar's names, unless the real package is here; once is enough.

    Example:
        >>> install_where_needed()
        >>> from nemo_evaluator.environments import EvalEnvironment
        >>> EvalEnvironment.__module__
        'nightjar.envs.seeded.eval_environment'
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path) and importlib.util.find_spec(ROOT) is None:
        sys.meta_path.append(_Finder())


class _Alias(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        return getattr(importlib.import_module(_target(self.__name__)), name)


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != ROOT or importlib.util.find_spec(_target(fullname)) is None:
            return None
        return ModuleSpec(fullname, self, origin="nightjar", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, f"Nightjar in the place of {spec.name!r}.")

    def exec_module(self, module: ModuleType) -> None:
        """Has nothing to run: names are looked up when they are asked for."""


def _target(name: str) -> str:
    return _TARGET + name.removeprefix(ROOT)
