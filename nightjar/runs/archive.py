"""A run directory as one file, to be handed on: a ZIP, whose checksums tell whether it arrived whole."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.runs.directory import RunDirectory
from nightjar.runs.jsonl import replace_file

_FILES = ("attempts.jsonl", "results.jsonl", "config.json", "metadata.json")
_FAST = 1
_CHUNK_BYTES = 1 << 20


def pack_run(directory: RunDirectory, archive: Path) -> None:
    """Writes the files of a run directory into an archive.

    Raises:
        RunDirectoryError: a file cannot be read, or the disk is full.
    """
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=_FAST) as packed:
            for name in _FILES:
                if (directory.path / name).exists():
                    packed.write(directory.path / name, name)
    except OSError as error:
        raise RunDirectoryError(f"Run {directory.run_id!r} cannot be packed: {error.strerror}") from error


def unpack_run(archive: Path, folder: Path) -> RunDirectory:
    """Makes the files of a run directory anew, all of them checked.

    Args:
        archive: as ``pack_run`` wrote it.
        folder: where to; it is made.

    Raises:
        RunDirectoryError: the archive is damaged, or the disk is full.
    """
    try:
        folder.mkdir(parents=True)
        with zipfile.ZipFile(archive) as packed:
            for name in {*_FILES} & {*packed.namelist()}:
                with packed.open(name) as content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        directory = RunDirectory(folder)
        directory.read_config()
        directory.read_metadata()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RunDirectoryError) as damage:
        raise RunDirectoryError(f"{archive.name} is damaged: {damage}") from damage
    except OSError as error:
        raise RunDirectoryError(f"{archive.name} cannot be unpacked: {error.strerror}") from error
    return directory


def copy_files(source: RunDirectory, target: RunDirectory) -> None:
    """Replaces the files of a run directory by those of another, the metadata last.

    Raises:
        RunDirectoryError: the disk is full or broken.
    """
    for name in _FILES:
        if (source.path / name).exists():
            with (source.path / name).open("rb") as content:
                replace_file(target.path / name, iter(lambda: content.read(_CHUNK_BYTES), b""))
