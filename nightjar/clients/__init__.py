"""Clients: one protocol for every kind of model endpoint.

They are listed in ``__init__.pyi`` and load on first use, because the SDKs take half a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
