"""Reads configuration files in YAML. Errors name the line."""

from __future__ import annotations

import re
from collections.abc import Hashable
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from yaml.constructor import ConstructorError

from nightjar.errors import ConfigError

_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers of YAML 1.2, such as 1e-3, that PyYAML reads as text."""
_MOST_REPEATED = 100_000
"""The maximum number of values that aliases may repeat, because aliases of aliases multiply."""


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
