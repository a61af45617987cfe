"""Runs beside runs, over the examples that they have scored, too.

>>> compare_runs("0a1b2c3d4e5f", "5f4e3d2c1b0a", max_drop=0.02).decision  # doctest: +SKIP
'PASS'

The names are listed in ``__init__.pyi`` and load on first use: a night is judged without SciPy, which takes 0.8 s.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
