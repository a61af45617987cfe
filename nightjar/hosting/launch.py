"""Runs a module of Prefect with Nightjar's flows loaded: ``python -P -m nightjar.hosting.launch prefect.engine``.

Prefect looks for a flow, and its server for blocks, in the working folder first, where a user's own packages ``flows``,
``tasks`` and ``blocks`` may be. What is loaded already is not looked for.
"""

from __future__ import annotations

import runpy
import sys

import flows.benchmark
import flows.gating
import flows.pruning
import flows.publishing
import flows.querying
import flows.rescoring
import flows.retrying
import flows.upkeep  # noqa: F401 - loaded is what it is to be


def main() -> None:
    """Runs the module that the first argument names, with the other arguments."""
    del sys.argv[0]
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
