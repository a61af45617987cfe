"""Reads the rows of a benchmark, and makes their prompts and images."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from nightjar.core.text import shortened
from nightjar.environments.data import load_hub_dataset, read_rows
from nightjar.environments.data.sources import TABLES
from nightjar.errors import ConfigError, DatasetError

Prompt: TypeAlias = Callable[[Mapping[str, Any]], str]

_JINJA = frozenset({".jinja", ".jinja2", ".j2"})
_TEXT = frozenset({".txt", ".md"})
_LONGEST_NAME = 1000
Row: TypeAlias = dict[str, Any]
Source: TypeAlias = str | Path | Sequence[Mapping[str, Any]] | Callable[..., Any]
_HUB = "hf://"
_BEGINNINGS = {"/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
"""The first base64 characters of each image format. Any other characters are taken for a PNG."""
_FIRST_BYTES = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"II*\0": "tiff",
    b"MM\0*": "tiff",
}
_SHOWN = 40
_KINDS = "PNG, JPEG, GIF, WebP, BMP, TIFF"


def prompt_of(template: str, folder: Path | None = None) -> Prompt:
    """Returns the function that makes the prompt of a row.

    ``template`` is a text with ``{fields}``, or a file with such a text (``.txt``, ``.md``) or a Jinja template
    (``.jinja``, ``.jinja2``, ``.j2``), in the current folder or in ``folder``.
    """
    suffix = Path(template).suffix if "\n" not in template else ""
    if suffix not in _JINJA | _TEXT or " " in template.strip():
        return lambda row: _formatted(template, row)
    path = found_file(template, folder)
    if path is None:
        raise DatasetError(f"There is no prompt file {template!r}")
    if suffix in _JINJA:
        return _jinja(path)
    text = path.read_text(encoding="utf-8")
    return lambda row: _formatted(text, row)


def found_file(name: str, folder: Path | None) -> Path | None:
    if len(name) > _LONGEST_NAME:
        return None
    for path in (Path(name).expanduser(), *([folder / name] if folder else [])):
        with suppress(OSError):  # the text is too long for a file name
            if path.is_file():
                return path
    return None


def _formatted(template: str, row: Mapping[str, Any]) -> str:
    try:
        return Formatter().vformat(template, (), row)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise _problem(f"{type(error).__name__}: {error}", row) from error


def _jinja(path: Path) -> Prompt:
    # the text goes to a model, not into a page: escaping would change it
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(path.parent), undefined=StrictUndefined, keep_trailing_newline=False
    )
    try:
        template = environment.get_template(path.name)
    except TemplateError as error:
        raise DatasetError(f"{path} is not a Jinja template: {error}") from error

    def render(row: Mapping[str, Any]) -> str:
        try:
            return template.render(row)
        except TemplateError as error:
            raise _problem(str(error), row) from error

    return render


def _problem(what: str, row: Mapping[str, Any]) -> DatasetError:
    return DatasetError(f"Cannot fill the prompt from a row: {what}. The row has: {', '.join(map(str, row))}")


def load_rows(source: Source, num_examples: int | None = None, folder: Path | None = None) -> list[Row]:
    """Returns the first ``num_examples`` rows of a benchmark; None means all rows.

    ``source`` is a list; a function that returns a list; ``hf://owner/name?split=&config=`` (split ``test`` by
    default); a file of JSON lines, ``.csv`` or ``.tsv`` in the current folder or in ``folder``; or a hub name.
    """
    rows = _named(str(source), folder) if isinstance(source, str | Path) else _given(source, num_examples)
    found = [dict(row) for row in islice(rows, num_examples)]
    if not found:
        shown = repr(str(source)) if isinstance(source, str | Path) else getattr(source, "__name__", "given")
        raise DatasetError(f"The dataset {shown} has no rows")
    return found


def _given(source: Sequence[Mapping[str, Any]] | Callable[..., Any], num_examples: int | None) -> Any:
    if not callable(source):
        return source
    takes_number = "num_examples" in inspect.signature(source).parameters
    rows = source(num_examples=num_examples) if takes_number else source()
    return rows.to_list() if hasattr(rows, "to_list") else rows


def _named(source: str, folder: Path | None) -> list[Row]:
    if source.startswith(_HUB):
        return _from_hub(source)
    path = found_file(source, folder)
    if path is not None:
        return read_rows(path)
    if Path(source).suffix.lower() in {*TABLES, ".jsonl", ".json"}:
        raise DatasetError(f"Cannot read dataset {source!r}: there is no such file")
    return _from_hub(_HUB + source)


def _from_hub(uri: str) -> list[Row]:
    parts = urlsplit(uri)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := query.keys() - {"split", "config"}:
        raise DatasetError(f"{uri!r} has an unknown part {min(unknown)!r}. Choose one of: split, config")
    return load_hub_dataset(f"{parts.netloc}{parts.path}".strip("/"), query.get("config"), query.get("split", "test"))


def image_url(image: str) -> str:
    """Returns an image as a URL; files and plain base64 become ``data:`` URLs."""
    if image.startswith(("http://", "https://", "data:")):
        return image
    path = found_file(image, None)
    if path is not None:
        content = path.read_bytes()
        if (kind := kind_of(content)) is None:
            raise ConfigError(f"The file {image!r} is not an image ({_KINDS})")
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    if Path(image).suffix:
        raise ConfigError(f"There is no image {image!r}")
    kind = next((kind for beginning, kind in _BEGINNINGS.items() if image.startswith(beginning)), "png")
    return f"data:image/{kind};base64,{image}"


def kind_of(content: bytes) -> str | None:
    """Returns the image format of some bytes, from their signature; None if they are not an image."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    if content[:2] == b"BM" and content[6:10] == bytes(4):  # two reserved fields
        return "bmp"
    return next((kind for first, kind in _FIRST_BYTES.items() if content.startswith(first)), None)


def image_in(path: Path, folder: Path) -> str:
    """Returns the path of a dataset's image, after checking that it is an image inside the dataset's folder."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DatasetError(f"the image {str(path)!r} is outside of the dataset's folder, {str(folder)!r}")
    try:
        with path.open("rb") as file:
            kind = kind_of(file.read(16))
    except OSError as error:
        raise DatasetError(f"the image {str(path)!r} cannot be read: {error.strerror}") from error
    if kind is None:
        raise DatasetError(f"the file {str(path)!r} is not an image ({_KINDS})")
    return str(path)


def image_of_base64(text: str) -> str:
    """Returns an image in base64 without white space, after checking it."""
    image = "".join(text.split())
    shown = repr(shortened(text, _SHOWN))
    try:
        kind = kind_of(base64.b64decode(image, validate=True))
    except ValueError as error:
        raise DatasetError(f"the image {shown} is not base64") from error
    if kind is None:
        raise DatasetError(f"{shown} is not an image ({_KINDS}) in base64")
    return image
