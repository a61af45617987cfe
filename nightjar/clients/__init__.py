"""Clients of model endpoints; ``__init__.pyi`` lists them. They load on first use: the SDKs take half a second."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
