"""Reads configuration files in TOML and YAML. Errors name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import yaml
from yaml.constructor import ConstructorError

from nightjar.core.text import nearest
from nightjar.errors import ConfigError

_TABLE = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(#.*)?")
_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)

_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers of YAML 1.2, such as 1e-3, that PyYAML reads as text."""
_MOST_REPEATED = 100_000
"""The maximum number of values that aliases may repeat, because aliases of aliases multiply."""


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


def read_yaml(path: Path) -> Any:
    """Returns the content of a file, or None if the file is empty. Raises ``ConfigError``, which names the line."""
    try:
        with path.open("rb") as stream:  # an error of YAML names the file of a stream
            return _read(stream)
    except FileNotFoundError:
        raise ConfigError(f"There is no file {str(path)!r}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: values are nested too deeply") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def _read(stream: BinaryIO) -> Any:
    loader = _Loader(stream)
    try:
        if (node := loader.get_single_node()) is None:
            return None
        sizes: dict[int, int] = {}
        if _size(node, sizes) - len(sizes) > _MOST_REPEATED:
            raise ConstructorError(
                None, None, "aliases of aliases expand to too much data: write the values out", node.start_mark
            )
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Returns the number of values in a node with its aliases expanded. ``sizes`` caches the sizes of earlier nodes."""
    if id(node) not in sizes:
        sizes[id(node)] = 0
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = chain.from_iterable(parts) if isinstance(node, yaml.MappingNode) else parts
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in inner)
    if not sizes[id(node)]:
        raise ConstructorError(None, None, "an alias refers to a value that contains the alias", node.start_mark)
    return sizes[id(node)]


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # which SafeLoader refuses itself
            if key.value in seen:
                raise ConstructorError(None, None, f"{key.value!r} stands there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))
