"""The names of NeMo Evaluator, listed in ``__init__.pyi`` and loaded on first use; see docs/coming-from/nemo.md."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
