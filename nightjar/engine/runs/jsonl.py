"""A file of JSON lines that survives crashes. It is written line by line and repaired on opening.

A second file has the checksum of each line, so that changed lines are found.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.core.files import replace_file
from nightjar.core.rollout.records import Key
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


class RawLine(NamedTuple):
    """A line that is not parsed yet, and the checksums that it may have. None means any checksum."""

    number: int
    place: Place
    text: bytes
    checksums: Collection[bytes] = ()

    @property
    def is_changed(self) -> bool:
        return bool(self.checksums) and _checksum(self.text) not in self.checksums


class Line(NamedTuple):
    number: int
    place: Place
    row: dict[str, Any]

    @property
    def key(self) -> Key:
        return Key(self.row["example_id"], self.row["rollout_index"])


class AppendOnlyFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RunDirectoryError(f"Cannot write {str(path)!r}: {error.strerror}") from error
        self._size = os.fstat(self._file).st_size

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes) -> None:
        """Appends all data. If the disk refuses a part, appends nothing and raises ``RunDirectoryError``."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self.cut(self._size)
            raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
        self._size += len(data)

    def cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        self._size = size

    def close(self) -> None:
        os.close(self._file)


class JsonLines(AppendOnlyFile):
    """An append-only file of JSON lines. On opening, an incomplete last line is cut off with a warning.

    If it ``is_guarded``, the checksum of each line is written first, so that no complete line is without a checksum.
    """

    def __init__(self, path: Path, *, is_guarded: bool = False) -> None:
        super().__init__(path)
        self._cut_torn_line()
        self._synced_size = self._size
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._checksums: AppendOnlyFile | None = None
        if is_guarded:
            before = len(read_checksums(path))
            write_checksums(path)
            if (missing := before - len(read_checksums(path))) > 0:
                logger.warning("%s: the last %d lines are missing; their work is repeated", path, missing)
            self._checksums = AppendOnlyFile(checksums_of(path))

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Appends rows with one write, and returns their positions.

        Values that JSON cannot hold are written as text.
        """
        places = self.add(rows)
        self.flush()
        return places

    def add(self, rows: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Does the same as ``append``, but the rows are written by ``flush``."""
        lines = [encoded(row) for row in rows]
        start, places = self._size + self._unwritten_bytes, []
        for line in lines:
            places.append(Place(start, len(line)))
            start += len(line)
        self._unwritten += lines
        self._unwritten_bytes = start - self._size
        return places

    def flush(self) -> None:
        """Writes the added rows with one write. After an error, they are lost."""
        if not self._unwritten:
            return
        lines, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        if self._checksums is None:
            self.write(b"".join(lines))
        else:
            self._write_guarded(lines, self._checksums)

    def read_line(self, place: Place) -> bytes:
        self.flush()
        return os.pread(self._file, place.length, place.offset)

    def read_row(self, place: Place) -> dict[str, Any]:
        row: dict[str, Any] = orjson.loads(self.read_line(place))
        return row

    def sync(self) -> None:
        size = self._size
        if self._synced_size != size:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise RunDirectoryError(f"Cannot write {str(self.path)!r}: {error.strerror}") from error
            self._synced_size = size

    def close(self) -> None:
        try:
            self.flush()
        finally:
            super().close()
        if self._checksums is not None:
            self._checksums.close()

    def _write_guarded(self, lines: Sequence[bytes], checksums: AppendOnlyFile) -> None:
        before = checksums.size
        checksums.write(b"".join(b"%s\n" % _checksum(line) for line in lines))
        try:
            self.write(b"".join(lines))
        except RunDirectoryError:
            checksums.cut(before)
            raise

    def _cut_torn_line(self) -> None:
        end = size = self._size
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            logger.warning("%s: cut off an incomplete last line of %d bytes", self.path, size - end)
            self.cut(end)


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


def checksums_of(path: Path) -> Path:
    """Returns the file that has one checksum for each line of a file, in the same order."""
    return path.with_suffix(".checksums")


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=DIGEST_BYTES).hexdigest().encode()


def write_checksums(path: Path) -> None:
    replace_file(checksums_of(path), (b"%s\n" % _checksum(raw.text) for raw in whole_lines(path)))


def drop_checksums(path: Path) -> None:
    """Drops the checksums of a file whose lines are about to change."""
    try:
        checksums_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"Cannot remove {str(checksums_of(path))!r}: {error.strerror}") from error


def scan_lines(path: Path) -> Iterator[Line]:
    """Yields the complete lines of a file, which may still grow. If the file is missing, yields no line."""
    for raw in whole_lines(path):
        yield Line(raw.number, raw.place, parse_line(raw.text, path, raw.number))


def whole_lines(path: Path, *, is_guarded: bool = False) -> Iterator[RawLine]:
    """Yields the complete lines without parsing them, with their checksums if the file ``is_guarded``."""
    offset = 0
    try:
        with path.open("rb") as file:
            checksums = read_checksums(path) if is_guarded else []
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield RawLine(number, Place(offset, len(line)), line, checksums[number - 1 : number])
                offset += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"Cannot read {str(path)!r}: {error.strerror}") from error


def read_checksums(path: Path) -> list[bytes]:
    """Returns the checksums of a file's lines. A crash of the machine may leave too few, and zeros at the end."""
    try:
        written = checksums_of(path).read_bytes().partition(b"\0")[0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDirectoryError(f"Cannot read {str(checksums_of(path))!r}: {error.strerror}") from error
    return written.split(b"\n")[:-1]


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

    If Nightjar wrote the text and nobody changed it, encoding its content gives the same text. Only other texts are
    parsed again.
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
