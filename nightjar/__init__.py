"""Nightjar: LLM evaluations as Prefect flows, every result in DuckDB.

``import nightjar as vf`` gives the environments API under the names of verifiers 0.1. They are listed in
``__init__.pyi`` and load on first use, so that importing the package costs nothing.
"""

from functools import cache
from typing import Any

import lazy_loader

__version__ = "0.2.0"


@cache
def _names() -> tuple[Any, Any, list[str]]:
    """Reads ``__init__.pyi``, which most commands never need."""
    return lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    load, _, names = _names()
    return names if name == "__all__" else load(name)


def __dir__() -> Any:
    return _names()[1]()
