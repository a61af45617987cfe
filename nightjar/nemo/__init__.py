"""The names of NeMo Evaluator: a program that imports ``nemo_evaluator`` runs when it imports ``nightjar.nemo``.

They are listed in ``__init__.pyi`` and load on first use. What stands behind them is told in docs/nemo.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
