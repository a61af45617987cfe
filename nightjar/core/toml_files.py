"""Reads configuration files in TOML. Errors name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from nightjar.core.text import nearest
from nightjar.errors import ConfigError

_TABLE = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(#.*)?")
_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


@dataclass(frozen=True)
class TomlFile:
    path: Path
    text: str
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            text = path.read_text("utf-8")
            return cls(path, text, tomllib.loads(text))
        except FileNotFoundError:
            raise ConfigError(f"There is no file {str(path)!r}") from None
        except tomllib.TOMLDecodeError as error:
            place = _PLACE.fullmatch(str(error))
            where = f"{path}, line {place[2]}: {place[1]}" if place else f"{path}: {error}"
            raise ConfigError(where) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None

    @property
    def top(self) -> TomlTable:
        return TomlTable(self, "", 0, self.content)

    def tables(self, name: str) -> list[TomlTable]:
        found = self.content.get(name, [])
        if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
            raise self.top.error(f"write {name!r} as tables: [[{name}]]", name)
        return [TomlTable(self, name, number, table) for number, table in enumerate(found)]

    def line(self, table: str = "", number: int = 0, key: str = "") -> int:
        """Returns the line of a key (perhaps ``table.key``), or else of its table. ``number`` counts tables from 0."""
        here, seen, beginning = "", -1, 1
        wanted = _dotted(table, key)
        for line_number, line in enumerate(self.text.splitlines(), start=1):
            if header := _TABLE.fullmatch(line):
                name = here = _plain(header[1])
                seen += here == table
                beginning = line_number if here == table and seen == number else beginning
            else:
                key_there, equals, _ = line.partition("=")
                name = _dotted(here, _plain(key_there)) if equals else ""
            if name == wanted and (not table or seen == number):
                return line_number
        return beginning


class TomlTable(NamedTuple):
    """A table of an array. Errors name the line. For the keys before the first table, ``array`` is empty."""

    file: TomlFile
    array: str
    number: int
    content: dict[str, Any]

    def error(self, message: str, key: str = "") -> ConfigError:
        return ConfigError(f"{self.file.path}, line {self.file.line(self.array, self.number, key)}: {message}")

    def fields(
        self, known: Collection[str], spellings: Mapping[str, str], below: str = "", ignored: Collection[str] = ()
    ) -> Iterator[tuple[str, str]]:
        """Yields the keys of the table, or of the table ``below`` it. Each key comes with the name of its field."""
        seen: set[str] = set()
        for key in self.content[below] if below else self.content:
            field, place = spellings.get(key, key), _dotted(below, key)
            if field in ignored:
                continue
            if field not in known:
                raise self.error(f"Unknown field {key!r}. {nearest(key, {*known, *spellings})}", place)
            if field in seen:
                raise self.error(f"{key!r} repeats the field {field}", place)
            seen.add(field)
            yield key, field


def _dotted(*names: str) -> str:
    return ".".join(filter(None, names))


def _plain(name: str) -> str:
    return re.sub(r"[\s\"']", "", name)
