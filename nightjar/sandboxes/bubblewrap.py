"""The command line of ``bwrap``, which puts a process into namespaces of its own.

Inside there are: the programs and libraries of ``/usr``, ``/usr/local`` and Python's installation, read-only, without
any Python packages and without what else may lie there (``/usr/src/app``); the packages asked for;
``/proc`` of its own processes; ``/dev`` with the harmless devices; and ``/workspace``, ``/tmp``, ``/dev/shm`` and the
folders that environments commonly write to in memory, with a size. Nothing else of this machine: no home, no ``/etc``
but what programs need to start, no network.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

WORKSPACE = "/workspace"
SUPERVISOR = "/opt/nightjar/supervisor.py"
PACKAGES = "/opt/nightjar/packages"
USER_ID = 1000
STORAGE = (WORKSPACE, "/tmp", "/dev/shm", "/mnt")  # noqa: S108 - inside the sandbox, where nobody else is
_SHARES = (0.5625, 0.1875, 0.0625, 0.1875)
_WRITABLE = ("app", "data", "home", "logs", "outputs", "repo", "root", "solution", "srv", "testbed", "tests")
"""Folders beside the workspace that environments for containers write to; they share ``/mnt``."""
_OLDEST = (0, 7)  # --size
_OPTIONS = ("info-fd", "userns-block-fd", "seccomp")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_PREFIXES = ("/usr", "/usr/local")
_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "mime.types", "magic")
_BASE = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
SMALL_FILES: Mapping[str, bytes] = {
    "/etc/passwd": b"user:x:%d:%d::%s:/bin/sh\n" % (USER_ID, USER_ID, WORKSPACE.encode()),
    "/etc/group": b"user:x:%d:\n" % USER_ID,
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
"""Files that are made for a sandbox, by path."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The ``bwrap`` of this machine."""

    path: str
    version: tuple[int, ...]


@functools.cache
def find_bubblewrap() -> Installed | str:
    """Returns the ``bwrap`` on the path, or what to do about there being none."""
    if sys.platform != "linux":
        return "Local sandboxes need Linux. Use containers: sandbox_provider='docker'."
    path = shutil.which("bwrap")
    if path is None:
        return "Local sandboxes need bubblewrap. Install it: apt-get install bubblewrap."
    asked = [path, "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10).stdout  # noqa: S603
    version = tuple(int(part) for part in said.split()[-1].split(".") if part.isdigit()) if said.split() else ()
    if version < _OLDEST:
        return f"Local sandboxes need bubblewrap 0.7 or newer, found {said.strip()!r} at {path}."
    return Installed(path, version)


def command_line(
    bubblewrap: Installed,
    storage_bytes: int,
    packages: Mapping[str, Path],
    descriptors: Mapping[str, int],
    program: Iterable[str],
) -> list[str]:
    """Returns the arguments that start ``program`` as the first process of a sandbox.

    ``storage_bytes`` are those of all file systems in memory together. ``descriptors`` are by option: ``info-fd``,
    ``userns-block-fd`` (root only), ``seccomp``; and by path, those of the small files.
    """
    return [
        bubblewrap.path,
        *_namespaces(bubblewrap, is_root="userns-block-fd" in descriptors),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--dev-bind-try", "/dev/full", "/dev/zero"),  # as endless, but of no use for memory that no process owns
        *_storage(storage_bytes),
        *_files(packages),
        *(word for path in SMALL_FILES for word in ("--perms", "0644", "--ro-bind-data", str(descriptors[path]), path)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *(word for name in _OPTIONS if name in descriptors for word in (f"--{name}", str(descriptors[name]))),
        "--",
        *program,
    ]


def python_path() -> str:
    """Returns the Python that runs inside: the one below a virtual environment, also where that has a copy of it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def variables() -> dict[str, str]:
    """Returns the variables that programs need to be found and to start; nothing else of this environment."""
    folders = [str(Path(python_path()).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    found = {"PATH": ":".join(dict.fromkeys(folders)), "LANG": "C.UTF-8", "TERM": "dumb"}
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if own := [place for place in places if place and Path(sys.base_prefix) in (Path(place), *Path(place).parents)]:
        found["LD_LIBRARY_PATH"] = ":".join(own)  # where this Python cannot start without it
    return found


def _namespaces(bubblewrap: Installed, *, is_root: bool) -> list[str]:
    arguments = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--clearenv", "--cap-drop", "ALL"]
    arguments += [part for name, value in variables().items() for part in ("--setenv", name, value)]
    if is_root:  # the supervisor gives these up with its user
        return [*arguments, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    arguments += ["--uid", str(USER_ID), "--gid", str(USER_ID)]
    return [*arguments, "--disable-userns"] if bubblewrap.version >= (0, 8) else arguments


def _files(packages: Mapping[str, Path]) -> list[str]:
    arguments = _parents("/usr/local/any")
    shown = _shown()
    for place in shown:
        if place.is_symlink():
            arguments += [*_parents(str(place)), "--symlink", str(place.readlink()), str(place)]
        else:
            arguments += _read_only(str(place), str(place))
    for path in _covered(shown):
        arguments += ["--perms", "0755", "--tmpfs", path, "--remount-ro", path]
    arguments += _parents("/etc/any")
    for name in _ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += _read_only(str(Path(__file__).with_name("supervisor.py")), SUPERVISOR)
    arguments += _parents(f"{PACKAGES}/any")
    for name, source in packages.items():
        arguments += ["--ro-bind", str(source), f"{PACKAGES}/{name}"]
    return arguments


def _prefixes() -> set[str]:
    """Returns the folders that programs and libraries are installed in: the system's and this Python's."""
    return {*_PREFIXES, sys.base_prefix, str(Path(python_path()).parents[1])}


def _shown() -> list[Path]:
    """Returns the folders of this machine that are to be seen inside, and the links that lead to them."""
    places = [Path(path) for path in _SYSTEM] + [
        Path(prefix, part) for prefix in sorted(_prefixes()) for part in _PARTS
    ]
    return [place for place in places if place.is_dir()]


def _covered(shown: Iterable[Path]) -> list[str]:
    """Returns the folders below those that are empty inside: they may hold the answers of an environment.

    That is all that a Python of this machine imports but its standard library, this process's folder and its home.
    """
    found = {Path(sysconfig.get_path(name, vars=_BASE)) for name in ("purelib", "platlib")}
    for prefix in _prefixes():
        found.update(Path(prefix).glob("lib*/python3*/*-packages"))
    library = Path(sysconfig.get_path("stdlib", vars=_BASE)).resolve()
    own = {Path(path).resolve() for path in (*sys.path, str(Path.home()), ".")}
    found.update(path for path in own if library not in (path, *path.parents) and path not in library.parents)
    places = {place.resolve() for place in shown}
    real = {path.resolve() for path in found if path.is_dir()}
    return sorted(str(path) for path in real if path not in places and not places.isdisjoint(path.parents))


def _storage(total_bytes: int) -> list[str]:
    arguments = []
    for path, share in zip(STORAGE, _SHARES, strict=True):
        mode = "0777" if path == WORKSPACE else "1777"
        arguments += ["--perms", mode, "--size", str(max(65536, int(total_bytes * share))), "--tmpfs", path]
    occupied = Path(sys.base_prefix).parts[1]  # where Python's own installation is shown
    for name in sorted(set(_WRITABLE) - {occupied}):
        arguments += ["--perms", "0777", "--dir", f"/mnt/{name}", "--symlink", f"/mnt/{name}", f"/{name}"]
    return arguments


def _read_only(source: str, target: str) -> list[str]:
    return [*_parents(target), "--ro-bind", source, target]


def _parents(path: str) -> list[str]:
    """Makes the directories above a path such that everybody may pass."""
    above = [str(parent) for parent in reversed(Path(path).parents) if str(parent) != "/"]
    return [part for parent in above for part in ("--perms", "0755", "--dir", parent)]
