"""The parts of a machine that Nightjar uses. A check is a function that returns a ``Part`` and prints nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement

from nightjar import __version__
from nightjar.clients.providers import PROVIDERS
from nightjar.core.extras import installation
from nightjar.core.home import read_config
from nightjar.core.text import counted
from nightjar.hosting.server import configured_prefect_api, prefect_answers
from nightjar.hosting.state import read_state
from nightjar.sandboxes.bubblewrap import Bubblewrap, find_bubblewrap
from nightjar.sandboxes.engine import connect
from nightjar.sandboxes.request import SandboxRefusedError
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.location import shown

ANSWER_SECONDS = 3.0
"""How long an engine, a server or a warehouse may take to answer."""

_SCARCE_BYTES = 2_000_000_000
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OF_DEVELOPERS = frozenset({"dev", "docs", "screenshots"})
_OTHER_KEYS = ("HF_TOKEN", "WANDB_API_KEY")


class State(StrEnum):
    READY = "ready"
    ABSENT = "absent"
    """The part is optional, and is not there."""
    BROKEN = "broken"
    """The part is there or configured, but does not work."""


@dataclass(frozen=True)
class Part:
    """A part of the machine. ``disables`` says what does not work without it, ``advice`` what to do."""

    state: State
    found: str
    disables: str = ""
    advice: str = ""


def python() -> Part:
    return Part(State.READY, f"{platform.python_version()} at {sys.prefix}, Nightjar {__version__}")


def extras() -> Part:
    packages = _packages_of_extras()
    found = [extra for extra, names in packages.items() if all(map(_is_installed, names))]
    missing = [extra for extra in packages if extra not in found]
    listed = f"installed: {', '.join(found) or 'none'}"
    if not missing:
        return Part(State.READY, listed)
    return Part(State.ABSENT, listed, f"the features of {', '.join(missing)}", installation("NAME"))


def _packages_of_extras() -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in requires("nightjar-evals") or ():
        requirement = Requirement(line)
        extra = str(requirement.marker or "").partition('extra == "')[2].partition('"')[0]
        if extra and extra not in _OF_DEVELOPERS:
            found.setdefault(extra, []).append(requirement.name)
    return found


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def bubblewrap() -> Part:
    found = find_bubblewrap()
    if isinstance(found, Bubblewrap):
        return Part(State.READY, f"{'.'.join(map(str, found.version))} at {found.path}")
    return Part(State.ABSENT, "none", "local sandboxes for code that a model writes", found)


def engine() -> Part:
    try:
        with closing(connect(ANSWER_SECONDS)) as client:
            version = client.version()
    except SandboxRefusedError as error:
        advice = "Start docker or podman's service, or set DOCKER_HOST to its socket"
        if isinstance(error.__cause__, ImportError):
            advice = str(error)
        host = os.environ.get("DOCKER_HOST")
        state, found = (State.BROKEN, f"none at {shown(host)} (DOCKER_HOST)") if host else (State.ABSENT, "none")
        return Part(state, found, "sandboxes and runs in containers", advice)
    name = next((part["Name"] for part in version.get("Components") or ()), "engine")
    return Part(State.READY, f"{name} {version['Version']}")


def browser() -> Part:
    for name in _BROWSERS:
        if path := shutil.which(name):
            return Part(State.READY, path)
    return Part(State.ABSENT, "none", "'make screenshots' and tests of the web view", "apt-get install chromium")


def server() -> Part:
    configured = configured_prefect_api()
    up = read_state()
    url = configured or (up.api_url if up else None)
    if url is None:
        disables = "schedules, the UI, runs on workers; 'nightjar eval run' works without it"
        return Part(State.ABSENT, "none", disables, "nightjar up --detach")
    if prefect_answers(url, ANSWER_SECONDS):
        return Part(State.READY, shown(url))
    advice = "Start it, or unset PREFECT_API_URL" if configured else "nightjar down, then nightjar up --detach"
    return Part(State.BROKEN, f"{shown(url)} does not answer", "schedules, the UI, and runs without --direct", advice)


def keys() -> Part:
    names = [*dict.fromkeys(provider.api_key_var for provider in PROVIDERS.values()), *_OTHER_KEYS]
    own = (read_config().get(table, {}).get("api_key_var") for table in ("eval", "judge"))
    known = dict.fromkeys(name for name in [*own, *names] if isinstance(name, str))
    found = [name for name in known if os.environ.get(name)]
    if found:
        return Part(State.READY, f"{', '.join(found)} (set; the values are not shown)")
    advice = f"export one of {', '.join(known)}"
    return Part(State.ABSENT, "none", "runs with hosted models; endpoints on this machine need no key", advice)


def warehouse() -> Part:
    house = Warehouse(resolve_warehouse())
    if house.folder is not None and not house.folder.exists():
        return Part(State.READY, f"{house.location} (created by the first run)")
    [(runs,)] = house.query("SELECT count(*) FROM runs", timeout_seconds=ANSWER_SECONDS).rows
    found = f"{house.location}, {counted(runs, 'run')}"
    if house.folder is not None and not os.access(house.folder, os.W_OK):
        return Part(State.BROKEN, f"{found}, not writable", "publishing runs", f"chown or chmod {house.folder}")
    return Part(State.READY, found)


def disk() -> Part:
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / 1e9:,.1f} GB free in this folder"
    if free < _SCARCE_BYTES:
        return Part(State.BROKEN, found, "long runs: a run stops when the disk is full", "Free some space")
    return Part(State.READY, found)


CHECKS: Mapping[str, Callable[[], Part]] = {
    "Python": python,
    "Extras": extras,
    "bubblewrap": bubblewrap,
    "Container engine": engine,
    "Chromium": browser,
    "Prefect server": server,
    "Keys": keys,
    "Warehouse": warehouse,
    "Disk": disk,
}
