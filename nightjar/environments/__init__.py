"""Environments: datasets, interaction with the model, and rubrics. ``__init__.pyi`` lists the names, loaded lazily."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
