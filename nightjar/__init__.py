"""Nightjar: LLM evaluations as Prefect flows, every result in DuckDB.

``import nightjar as vf`` gives the environments API under the names of verifiers 0.1. They are listed in
``__init__.pyi`` and load on first use, so that importing the package costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
