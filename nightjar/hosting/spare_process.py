"""A process that imports what a hosted run needs, and waits for its run: ``python -m nightjar.hosting.spare_process``.

It reads one request from stdin: a JSON object with ``command``, ``environment`` and ``folder``. If the request needs
another folder or other variables than this process has, or if an imported file has changed, the process replaces
itself by the command; its id stays the same. If stdin ends without a request, the process ends.
"""

from __future__ import annotations

import json
import os
import runpy
import site
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_MODULES = ("prefect.flow_engine", "prefect._internal.metrics", "nightjar.engine.run", "nightjar.flows.evaluation")
"""What a run imports first. These modules import nearly all others that it needs."""
_OF_A_RUN = "PREFECT__"
"""The prefix of variables that Prefect's engine reads when a run starts."""


def main() -> None:
    started_ns, folder, environment = time.time_ns(), Path.cwd(), _lasting(os.environ)
    is_complete = _import()
    changed_at = _changed_at()
    request = json.loads(sys.stdin.buffer.read() or b"null")
    if request is None:
        return
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    is_as_asked = Path.cwd() == folder and _lasting(os.environ) == environment
    is_current = _changed_at() == changed_at and max(changed_at.values()) < started_ns
    if not (is_complete and is_as_asked and is_current):
        os.execv(request["command"][0], request["command"])  # noqa: S606 - the worker's own command
    sys.argv = ["prefect.engine"]
    sys.modules.pop("prefect.engine", None)
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


def _import() -> bool:
    """Imports the modules. Returns False if one fails; then the run itself reports the error."""
    try:
        for module in _MODULES:
            import_module(module)
    except Exception:  # noqa: BLE001 - whatever a module raises
        traceback.print_exc()
        return False
    return True


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_OF_A_RUN)}


def _changed_at() -> dict[str, int]:
    """Returns when each imported file, and each folder of packages with its path files, was changed, in ns."""
    paths = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for folder in map(Path, site.getsitepackages()):
        paths |= {str(folder), *map(str, folder.glob("*.pth"))}
    found = {}
    for path in paths:
        with suppress(OSError):
            found[path] = Path(path).stat().st_mtime_ns
    return found


if __name__ == "__main__":
    main()
