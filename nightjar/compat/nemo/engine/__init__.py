"""Runs benchmarks and writes their results; the names load on first use, because comparisons need SciPy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
