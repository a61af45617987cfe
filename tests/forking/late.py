"""Modules that a test file names at its top and imports when a test first uses them, so that collection stays cheap."""

from importlib import import_module


class Late:
    """Has the public attributes of a module, which it imports when the first of them is asked for."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest asks each object for such names while it collects
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


def late(*modules):
    """Returns a module that is not imported yet, or several."""
    return Late(*modules) if len(modules) == 1 else map(Late, modules)
