"""The names of NeMo Evaluator: a program runs after ``import nemo_evaluator`` becomes ``import nightjar.compat.nemo``.

The names are listed in ``__init__.pyi`` and load on first use. docs/nemo.md describes their implementation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
