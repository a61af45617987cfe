"""A process that imports what a hosted run needs, and waits for its run: ``python -m nightjar.hosting.spare_process``.

It reads one request from stdin: a JSON object with ``command``, ``environment`` and ``folder``. If the request needs
another folder or other variables than this process has, or if an imported file has changed, the command replaces the
process and keeps its id. If stdin ends without a request, the process ends.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_MODULES = ("prefect.flow_engine", "prefect._internal.metrics", "nightjar.engine.run", "nightjar.flows.evaluation")
"""What a run imports first. These modules import nearly all others."""
_OF_A_RUN = "PREFECT__"
"""The prefix of variables that Prefect's engine reads when a run starts."""


def main() -> None:
    folder, environment = Path.cwd(), _lasting(os.environ)
    for module in _MODULES:
        import_module(module)
    changed_at = _changed_at()
    request = json.loads(sys.stdin.buffer.read() or b"null")
    if request is None:
        return
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.environ.clear()
    os.environ.update(request["environment"])
    wanted = Path(request["folder"])
    if wanted.resolve() != folder or _lasting(os.environ) != environment or _changed_at() != changed_at:
        os.chdir(wanted)
        os.execv(request["command"][0], request["command"])  # noqa: S606 - the worker's own command
    sys.argv = ["prefect.engine"]
    sys.modules.pop("prefect.engine", None)
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_OF_A_RUN)}


def _changed_at() -> dict[str, int]:
    """Returns for each imported file the time of its last change, in ns."""
    found = {}
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            with suppress(OSError):
                found[file] = Path(file).stat().st_mtime_ns
    return found


if __name__ == "__main__":
    main()
