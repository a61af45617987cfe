"""A file of JSON lines that survives crashes. It is written line by line and repaired on opening."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.core.secrecy import hide_bytes
from nightjar.errors import RunDirectoryError

logger = logging.getLogger(__name__)

DIGEST_BYTES = 8
# The end of a file is searched for its last newline in blocks of this size.
_TAIL_BYTES = 1 << 16
_LARGEST_INTEGER = 1 << 63
_DEEPEST = 100


class Place(NamedTuple):
    """The position of a line in its file, in bytes. The length includes the newline."""

    offset: int
    length: int


class Line(NamedTuple):
    number: int
    place: Place
    row: dict[str, Any]


class JsonLines:
    """An append-only file of JSON lines. On opening, an incomplete last line is cut off with a warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(path)!r}: {error.strerror}") from error
        self._size = self._cut_torn_line()
        self._synced_size = self._size

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Appends rows with one write, and returns their positions.

        Values that JSON cannot hold are written as text.
        """
        lines = [encoded(row) for row in rows]
        start = self._size
        self._write(b"".join(lines))
        places = []
        for line in lines:
            places.append(Place(start, len(line)))
            start += len(line)
        return places

    def read_line(self, place: Place) -> bytes:
        return os.pread(self._file, place.length, place.offset)

    def read_row(self, place: Place) -> dict[str, Any]:
        row: dict[str, Any] = orjson.loads(self.read_line(place))
        return row

    @property
    def size(self) -> int:
        return self._size

    def sync(self) -> None:
        size = self._size
        if self._synced_size != size:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
            self._synced_size = size

    def close(self) -> None:
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
        self._size += len(data)

    def _cut_torn_line(self) -> int:
        size = os.fstat(self._file).st_size
        end = size
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            logger.warning("%s: cut off an incomplete last line of %d bytes", self.path, size - end)
            os.ftruncate(self._file, end)
        return end


def encoded(content: Any, option: int = 0) -> bytes:
    """Returns a value as one line of JSON without secrets."""
    option |= orjson.OPT_APPEND_NEWLINE
    try:
        text = orjson.dumps(content, default=str, option=option)
    except TypeError:  # values of user code: keys that are not texts, huge integers, lone surrogates, cycles
        text = orjson.dumps(_plain(content), default=_text, option=option)
    return hide_bytes(text)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - user code
        return type(value).__name__


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {_plain(_text(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    is_huge = isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER
    return str(value) if is_huge else value


def scan_lines(path: Path) -> Iterator[Line]:
    """Yields the complete lines of a file, which may still grow. If the file is missing, yields no line."""
    for number, place, line in whole_lines(path):
        yield Line(number, place, parse_line(line, path, number))


def whole_lines(path: Path) -> Iterator[tuple[int, Place, bytes]]:
    """Yields number, position and bytes of the complete lines, without parsing them. Otherwise like ``scan_lines``."""
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield number, Place(offset, len(line)), line
                offset += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"Cannot read {str(path)!r}: {error.strerror}") from error


def parse_line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    text = line.rstrip(b"\n")
    try:
        row = orjson.loads(text)
        check_strict(row, text)
    except orjson.JSONDecodeError as error:
        raise RunDirectoryError(f"{path}, line {number} is damaged: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise RunDirectoryError(f"{path}, line {number} is damaged: {error}") from error
    if not isinstance(row, dict):
        raise RunDirectoryError(f"{path}, line {number} is damaged: not a JSON object")
    return row


def check_strict(content: object, text: bytes) -> None:
    """Raises ``ValueError`` if an object in the text has a name twice, or if the text is nested too deeply.

    A text that Nightjar wrote, and nobody changed, equals the text of its content. Only other texts are read again.
    """
    try:
        if orjson.dumps(content) == text:
            return
        json.loads(text, object_pairs_hook=_without_repeated_names)
    except (RecursionError, TypeError):
        raise ValueError("the nesting is too deep") from None


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> None:
    names = Counter(name for name, _ in pairs)
    if len(names) < len(pairs):
        raise ValueError(f"the name {names.most_common(1)[0][0]!r} occurs twice in an object")


def digest_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, partial(blake2b, digest_size=DIGEST_BYTES)).hexdigest()
    except OSError as error:
        raise RunDirectoryError(f"Cannot read {str(path)!r}: {error.strerror}") from error
