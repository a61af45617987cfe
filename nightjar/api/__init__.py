"""Runs and results from Python and notebooks: the names that ``import nightjar`` adds to the environments API.

Each result prints as text, and as HTML in a notebook. Names load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
