"""Lets environments that are written for ``verifiers`` run unmodified.

After ``install()``, ``import verifiers`` and its submodules give Nightjar's classes: the same objects as under their
names. A run does it by itself for its environment; ``load_environment`` does where verifiers is not installed, and with
``NIGHTJAR_ALIAS_VERIFIERS=1`` also where it is.

Example:
    >>> from nightjar.adapters.verifiers import install
    >>> install()
    >>> import verifiers as vf
    >>> import nightjar
    >>> vf.SingleTurnEnv is nightjar.SingleTurnEnv
    True
"""

from nightjar.packages.aliases import install, is_installed

__all__ = ["install", "is_installed"]
