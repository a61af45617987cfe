"""Keeps files of a container: in the folder of the run, and for a verifier in a container of its own."""

from __future__ import annotations

import asyncio
import io
import logging
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from nightjar.environments.agents.harbor_task import Artifact
from nightjar.errors import SandboxError
from nightjar.sandboxes import Sandbox
from nightjar.sandboxes.task_containers import TaskContainer

ALWAYS_KEPT = Artifact(source="/logs/artifacts")
"""What the agent puts there is kept without being named."""

_MOST_BYTES = 100 * 2**20
_MOST_FILES = 1000
_OF_TESTS = tuple(map(PurePosixPath, ("/tests", "/solution", "/logs/verifier")))
logger = logging.getLogger(__name__)


async def packed(sandbox: Sandbox, artifact: Artifact) -> bytes | None:
    """Returns the file or folder of an artifact as a tar archive, or None if the container does not have it."""
    try:
        if isinstance(sandbox, TaskContainer):
            return await sandbox.copy_out(artifact.source, _MOST_BYTES)
        return _archive_of(artifact.source, await sandbox.download(artifact.source, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except SandboxError as error:
        logger.warning("The artifact %r is not kept: %s", artifact.source, error)
        return None


async def keep(sandbox: Sandbox, artifacts: Iterable[Artifact], run: Path, place: str) -> list[dict[str, Any]]:
    """Writes artifacts into the folder ``place`` of a run. Returns their paths, their files in the run and sizes."""
    kept: list[dict[str, Any]] = []
    for artifact in artifacts:
        if (archive := await packed(sandbox, artifact)) is not None:
            kept += await asyncio.to_thread(_extract, archive, artifact, run, place)
    return kept[:_MOST_FILES]


async def hand_over(source: Sandbox, target: TaskContainer, artifacts: Sequence[Artifact]) -> None:
    """Copies artifacts from one container to the same places in another. A folder replaces the folder of the image.

    The agent may have written anything. So nothing goes to the folders of the tests and of their reward.
    """
    for artifact in artifacts:
        place = PurePosixPath("/", artifact.source)
        if _is_of_tests(place) or (archive := await packed(source, artifact)) is None:
            continue
        content, is_folder = await asyncio.to_thread(moved, archive, place, artifact.exclude)
        if is_folder:
            await target.remove([str(place)])
        await target.unpack(content)


def moved(archive: bytes, place: PurePosixPath, exclude: Sequence[str] = ()) -> tuple[bytes, bool]:
    """Returns an engine's archive of ``place`` as an archive to unpack at /, and whether it has a folder.

    Keeps regular files, folders and links that stay inside, with root as their owner and without the setuid bit.
    """
    found, is_folder = io.BytesIO(), False
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=found, mode="w") as new:
        for member, inner in _safe_members(old, exclude):
            is_folder |= not inner.parts and member.isdir()
            content = old.extractfile(member) if member.isreg() else None
            new.addfile(member.replace(name=str(place / inner).lstrip("/"), deep=False), content)
    return found.getvalue(), is_folder


def _extract(archive: bytes, artifact: Artifact, run: Path, place: str) -> list[dict[str, Any]]:
    root = PurePosixPath(artifact.source)
    base = PurePosixPath(place, _relative(artifact.destination or artifact.source))
    kept = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member, inner in _files(tar, artifact.exclude):
            file = tar.extractfile(member)
            inside = base / inner if inner.parts else base
            target = run / inside
            if file is None or run.resolve() not in target.resolve().parents:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())
            kept.append({"path": str(root / inner), "file": str(inside), "bytes": member.size})
    return kept


def _files(tar: tarfile.TarFile, exclude: Sequence[str]) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yields regular files with their paths below the artifact."""
    for member in tar:
        inner = _inner(member)
        if member.isfile() and not _is_excluded(inner, exclude) and ".." not in inner.parts:
            yield member, inner


def _safe_members(tar: tarfile.TarFile, exclude: Sequence[str]) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    for member in tar:
        inner = _inner(member)
        linked = tar.getmember(member.linkname) if member.islnk() else member
        is_safe_link = linked.issym() and _is_inside(inner.parent / linked.linkname)
        is_safe = _is_inside(inner) and (linked.isreg() or linked.isdir() or is_safe_link)
        if is_safe and not _is_excluded(inner, exclude):
            mode = 0o755 if linked.isdir() else linked.mode & 0o755
            yield linked.replace(mode=mode, uid=0, gid=0, uname="", gname="", deep=False), inner


def _inner(member: tarfile.TarInfo) -> PurePosixPath:
    """Returns the path below the artifact. The first part of a member's name is the artifact."""
    return PurePosixPath(*PurePosixPath(member.name).parts[1:])


def _is_inside(path: PurePosixPath) -> bool:
    return not path.is_absolute() and not posixpath.normpath(path).startswith("..")


def _is_of_tests(path: PurePosixPath) -> bool:
    return any(path == each or each in path.parents or path in each.parents for each in _OF_TESTS)


def _is_excluded(inner: PurePosixPath, exclude: Sequence[str]) -> bool:
    """Returns whether a pattern matches the path, a folder that contains it, or the end of one of these."""
    above = [inner, *inner.parents]
    ends = ["/".join(each.parts[start:]) for each in above for start in range(len(each.parts))]
    return any(fnmatch(end, pattern.strip("/")) for end in ends for pattern in exclude)


def _relative(path: str) -> PurePosixPath:
    return PurePosixPath(*(part for part in PurePosixPath(path).parts if part not in {"/", ".", ".."}))


def _archive_of(path: str, content: bytes) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        member = tarfile.TarInfo(PurePosixPath(path).name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return found.getvalue()
