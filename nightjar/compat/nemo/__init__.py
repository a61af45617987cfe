"""The names of NeMo Evaluator: replace ``import nemo_evaluator`` by ``import nightjar.compat.nemo``.

``__init__.pyi`` lists the names, which load on first use. docs/nemo.md describes them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
