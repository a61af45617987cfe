"""Reads log files of Inspect, ``.eval`` and ``.json``, without Inspect. Only one sample at a time is in memory.

An ``.eval`` file is a zip with zstd, deflate or stored entries::

    _journal/start.json              version, eval (the settings) and plan; written before the first sample
    samples/ID_epoch_EPOCH.json      a sample; if Inspect wrote it several times, the last entry counts
    header.json                      status, results, stats and error as well; only at the end of an evaluation

A ``.json`` file is one object with the fields of ``header.json`` and, after them, the list ``samples``. Both kinds may
contain NaN, which is no JSON, so libraries that parse JSON in pieces cannot read them.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import crc32
from zlib import error as DeflateError  # noqa: N812 - the module names its error like a function

from nightjar.errors import WarehouseError
from nightjar.importers.reading import Line, parse_object

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SUFFIXES = frozenset({".eval", ".json"})
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
_START_OF_JSON = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"\w+",\s*"eval":\s*\{')
_ZIP_MAGIC = b"PK\x03\x04"
_BEGINNING_BYTES = 512
_ZSTD = 93
_LOCAL_HEADER = struct.Struct("<26xHH")  # the lengths of the name and of the extra field, which precede the content
_CHUNK_CHARACTERS = 1 << 20
_LONGEST_TOKEN = 16  # characters of a literal or an escape that may be cut at the end of a chunk
_DAMAGE = (BadZipFile, DeflateError, EOFError, OSError, RuntimeError, ValueError, WarehouseError, zstd.ZstdError)


@dataclass
class InspectLog:
    """A log: its fields without samples, and its samples, which can be read once.

    ``unreadable`` names each part that is damaged, with the reason; it is complete after the last sample.
    """

    path: Path
    header: dict[str, Any]
    samples: Iterator[Line]
    unreadable: list[str] = field(default_factory=list)


def is_log(path: Path) -> bool:
    """Returns whether a file looks like a log, by its suffix and first bytes. An unreadable ``.eval`` file counts."""
    if path.suffix not in SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING_BYTES)
    except OSError:
        return path.suffix == ".eval"
    if path.suffix == ".eval":
        return beginning.startswith(_ZIP_MAGIC) or not beginning
    return _START_OF_JSON.match(beginning) is not None


@contextmanager
def open_log(path: Path) -> Iterator[InspectLog]:
    """Opens a log. Raises WarehouseError if not even its settings can be read."""
    try:
        if path.suffix == ".eval":
            with path.open("rb") as file:
                yield _zipped(path, file)
        else:
            with path.open(encoding="utf-8") as text:
                yield _plain(path, _JsonStream(text))
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def _zipped(path: Path, file: IO[bytes]) -> InspectLog:
    try:
        archive = ZipFile(file)
    except (BadZipFile, EOFError, ValueError) as error:
        raise WarehouseError(f"{path} is damaged or incomplete: it has no list of entries ({error})") from error
    entries = {entry.filename: entry for entry in archive.infolist()}
    log = InspectLog(path, {}, iter(()))

    def read(name: str) -> Line | None:
        place = f"{path}, entry {name}"
        try:
            return Line(place, parse_object(_content(file, archive, entries[name]), place))
        except _DAMAGE as error:
            reason = str(error)
            log.unreadable.append(reason if reason.startswith(place) else f"{place} is damaged: {reason}")
            return None

    headers = (read(name) for name in _HEADERS if name in entries)
    header = next((line.content for line in headers if line), None)
    if header is None:
        raise WarehouseError("; ".join(log.unreadable) or f"{path} is not a log of Inspect: it has no {_HEADERS[1]}")
    log.header = header
    log.samples = (line for name in entries if _SAMPLE.fullmatch(name) and (line := read(name)))
    return log


def _content(file: IO[bytes], archive: ZipFile, entry: ZipInfo) -> bytes:
    """Returns the content of an entry. Large zstd entries have several frames, for which ``zipfile`` has no support."""
    if entry.compress_type != _ZSTD:
        return archive.read(entry)
    file.seek(entry.header_offset)
    lengths = file.read(_LOCAL_HEADER.size)
    if len(lengths) < _LOCAL_HEADER.size:
        raise BadZipFile("it is cut off")
    file.seek(sum(_LOCAL_HEADER.unpack(lengths)), 1)
    content: bytes = zstd.decompress(file.read(entry.compress_size))
    if crc32(content) != entry.CRC:
        raise BadZipFile("its checksum is wrong")
    return content


def _plain(path: Path, stream: _JsonStream) -> InspectLog:
    log = InspectLog(path, {}, iter(()))
    try:
        stream.take("{")
        while (name := stream.value()) != "samples":
            stream.take(":")
            log.header[name] = stream.value()
            if stream.take(",}") == "}":
                return log
        stream.take(":")
        log.samples = _samples(stream, log)
    except ValueError as error:
        if "eval" not in log.header:
            raise WarehouseError(f"{path}, line {stream.line} is damaged: {error}") from error
        log.unreadable.append(f"{path}, line {stream.line} is damaged: {error}. No sample is read")
    return log


def _samples(stream: _JsonStream, log: InspectLog) -> Iterator[Line]:
    try:
        if stream.take("[n") == "n" or stream.peek() == "]":  # null, or an empty list
            return
        while True:
            stream.peek()
            place, sample = f"{log.path}, line {stream.line}", stream.value()
            if isinstance(sample, dict):
                yield Line(place, sample)
            else:
                log.unreadable.append(f"{place} is damaged: not a JSON object")
            if stream.take(",]") == "]":
                return
    except ValueError as error:
        log.unreadable.append(f"{log.path}, line {stream.line} is damaged: {error}. Later samples are not read")


class _JsonStream:
    """A text with JSON from which values are taken one by one. Damage raises ValueError."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decode = json.JSONDecoder().raw_decode
        self._buffer, self._position, self._is_whole = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """Moves to the next character that is no space, and returns it; an empty text at the end."""
        while True:
            start = self._position
            rest = self._buffer[start : start + 1]
            while rest and rest.isspace():
                start += 1
                rest = self._buffer[start : start + 1]
            self._move(start)
            if rest or not self._read_on():
                return rest

    def take(self, expected: str) -> str:
        """Takes one of the expected characters."""
        found = self.peek()
        if not found or found not in expected:
            raise ValueError(f"expected {' or '.join(expected)}, found {found or 'the end of the file'}")
        self._move(self._position + 1)
        return found

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self._decode(self._buffer, self._position)
                if end < len(self._buffer) or not self._read_on():  # a number may go on
                    self._move(end)
                    return value
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos > len(self._buffer) - _LONGEST_TOKEN
                if not (is_cut and self._read_on()):
                    raise ValueError(f"{error.msg} in the value that starts here") from error
            except RecursionError:
                raise ValueError("the value that starts here is nested too deeply") from None

    def _move(self, position: int) -> None:
        self.line += self._buffer.count("\n", self._position, position)
        self._position = position

    def _read_on(self) -> bool:
        """Adds as much as the buffer holds, so that a long value is decoded only a few times."""
        rest = self._buffer[self._position :]
        more = "" if self._is_whole else self._file.read(max(_CHUNK_CHARACTERS, len(rest)))
        self._is_whole = not more
        self._buffer, self._position = rest + more, 0
        return bool(more)
