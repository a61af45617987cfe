"""Runs environments written for ``verifiers`` unmodified: ``import verifiers`` gives Nightjar's own classes.

A run installs the alias for its environment. ``load_environment`` installs it if verifiers is not installed, or with
``NIGHTJAR_ALIAS_VERIFIERS=1``.

Example:
    >>> from nightjar.compat.verifiers import install
    >>> install()
    >>> import verifiers as vf
    >>> import nightjar
    >>> vf.SingleTurnEnv is nightjar.SingleTurnEnv
    True
"""

from nightjar.environments.packages.aliases import install, is_installed

__all__ = ["install", "is_installed"]
