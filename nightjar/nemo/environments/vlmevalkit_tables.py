"""Data sets of VLMEvalKit: tables of questions about images, from the package or as it keeps them on disk.

A table is a TSV: ``index``, ``image`` (base64, a list of such, or the index of the row that has it) or ``image_path``,
``question``, ``answer``, and perhaps ``A`` to ``Z``, ``hint``, ``category``, ``l2-category``, ``split``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from nightjar.envs.seeded.images import image_in, image_of_base64
from nightjar.envs.seeded.rows import load_rows
from nightjar.errors import ConfigError, DatasetError
from nightjar.syntax import read_literal

Row: TypeAlias = Mapping[str, Any]
Part: TypeAlias = dict[str, str]

VARIABLE = "LMUData"
MCQ, VQA, YES_OR_NO = "MCQ", "VQA", "Y/N"
INSTALL = "pip install git+https://github.com/open-compass/VLMEvalKit"

_LONGEST_INDEX = 64
_IMAGE_PLACE = re.compile(r"<image (\d+)>")
_SELECT = "Please select the correct answer from the options above. \n"
_SHORTLY = "\nAnswer the question using a single word or phrase."
_YES_OR_NO = "\nPlease answer yes or no."


class VisualTable(Protocol):
    """The questions of a data set.

    Attributes:
        rows: one a question; what is missing in a row is not in it.
        kind: how it is asked and scored, in VLMEvalKit's words: ``MCQ``, ``VQA``, ``Y/N``, and others.
        scored_by: the class that scores it there; None where that is not known.
    """

    rows: list[dict[str, Any]]
    kind: str
    scored_by: str | None

    def parts(self, idx: int) -> list[Part]:
        """Returns a question as VLMEvalKit asks it: parts of a ``type``, ``image`` or ``text``, and a ``value``."""


def open_table(name: str, data: str | None, data_dir: str | None, kind: str | None) -> VisualTable:
    """Returns the table of a data set.

    Args:
        name: what VLMEvalKit calls it.
        data: the table's file.
        data_dir: the folder that ``NAME.tsv`` is in.
        kind: ``MCQ``, ``VQA`` or ``Y/N``; None for what it is to VLMEvalKit, or looks like.

    With neither file nor folder it is the installed package's, and else that of the folder that ``LMUData`` names.

    Raises:
        ConfigError: VLMEvalKit is not here, or does not know it.
        DatasetError: the file is broken, or not there.
    """
    if not data and not data_dir and importlib.util.find_spec("vlmeval"):
        return KitTable(name)
    path = Path(data) if data else _folder(data_dir) / f"{name}.tsv"
    if not path.is_file() and not data and not data_dir:
        raise ConfigError(
            f"VLMEvalKit is not here, and {path} neither. Install it: {INSTALL}. Or name a table: "
            f"vlmevalkit://{name}?data=FILE.tsv, or data_dir=FOLDER, or {VARIABLE}"
        )
    return TsvTable(name, path, kind)


class TsvTable:
    """A table in a file.

    Args:
        name: of the data set.
        path: the file.
        kind: how it is asked; None for what it looks like.
    """

    scored_by: str | None = None

    def __init__(self, name: str, path: Path, kind: str | None = None) -> None:
        self._name, self._path = name, path
        rows = [{column: value for column, value in row.items() if value != ""} for row in load_rows(path)]
        columns = {column for row in rows for column in row}
        if missing := {"index", "question"} - columns:
            raise DatasetError(f"{path} is no table of VLMEvalKit: it has no column {min(missing)!r}")
        self._images = {row["index"]: row["image"] for row in rows if "image" in row}
        self.rows = [row for row in rows if "image" in row] if self._images else rows
        self.kind = kind or _looks_like(self.rows, columns)

    def parts(self, idx: int) -> list[Part]:
        """Returns a question: its images, and then its text; of MMMU the images where the text has them."""
        row = self.rows[idx]
        images, text = self._images_of(row), self._text(row)
        places = _IMAGE_PLACE.split(text) if "MMMU" in self._name else [text]
        if len(places) == 1:
            return [*(_part("image", image) for image in images), _part("text", text)]
        parts = [_part("text", places[0])]
        for number, after in zip(places[1::2], places[2::2], strict=True):
            if not 0 < int(number) <= len(images):
                raise DatasetError(f"{self._path}, index {row['index']}: there is no image {number}")
            parts += [_part("image", images[int(number) - 1]), _part("text", after)]
        return [part for part in parts if part["value"]]

    def _text(self, row: Row) -> str:
        if self.kind == MCQ:
            hint = f"Hint: {row['hint']}\n" if "hint" in row else ""
            options = "".join(f"{letter}. {option}\n" for letter, option in choices_of(row).items())
            return f"{hint}Question: {row['question']}\n" + (f"Options:\n{options}{_SELECT}" if options else "")
        if self.kind == VQA and not any(name in self._name for name in ("VizWiz", "OCRBench")):
            return f"{row['question']}{_SHORTLY}"
        return f"{row['question']}{_YES_OR_NO}" if self._name == "AMBER" else str(row["question"])

    def _images_of(self, row: Row) -> list[str]:
        """Returns the images of a row, which are images, and the data set's own: it may come from a stranger."""
        try:
            if "image" not in row:
                return [image_in(self._place_of(path), self._path.parent) for path in listed(row.get("image_path", ""))]
            image = str(row["image"])
            if len(image) <= _LONGEST_INDEX and image in self._images:
                image = self._images[image]
            return [image_of_base64(each) for each in listed(image)]
        except DatasetError as error:
            raise DatasetError(f"{self._path}, index {row['index']}: {error}") from error

    def _place_of(self, path: str) -> Path:
        folder = self._path.parent
        places = (folder / path, folder / "images" / self._name / path)
        return next((place for place in places if place.is_file()), places[0])


class KitTable:
    """A table of the installed package.

    Args:
        name: of the data set.

    Raises:
        ConfigError: the package does not know it.
    """

    def __init__(self, name: str) -> None:
        kit = importlib.import_module("vlmeval.dataset")
        if name not in kit.SUPPORTED_DATASETS:
            raise ConfigError(f"VLMEvalKit knows no data set {name!r}")
        self._dataset = kit.build_dataset(name)
        self.scored_by: str | None = type(self._dataset).__name__
        self.kind = str(kit.DATASET_TYPE(name))
        self.rows = [_without_gaps(row) for row in self._dataset.data.to_dict("records")]

    def parts(self, idx: int) -> list[Part]:
        """Returns a question as the package makes it."""
        return [
            _part(part["type"], str(value))
            for part in self._dataset.build_prompt(self._dataset.data.iloc[idx])
            for value in (part["value"] if isinstance(part["value"], list) else [part["value"]])
        ]


def choices_of(row: Row) -> dict[str, str]:
    """Returns the options of a question, by their letters."""
    return {letter: str(row[letter]) for letter in string.ascii_uppercase if letter in row}


def listed(text: str) -> list[str]:
    """Returns the texts of a list in Python's writing, or the one text that it is; of nothing none.

    Example:
        >>> listed("['a', 'b']"), listed("a"), listed("")
        (['a', 'b'], ['a'], [])
    """
    if text.startswith("[") and text.endswith("]"):
        try:
            found = read_literal(text)
        except (SyntaxError, ValueError):
            return [text]
        return [str(each) for each in found] if isinstance(found, list) else [text]
    return [text] if text else []


def _folder(data_dir: str | None) -> Path:
    return Path(data_dir or os.environ.get(VARIABLE) or "~/LMUData").expanduser()


def _looks_like(rows: list[dict[str, Any]], columns: set[str]) -> str:
    if "video" in columns and not columns & {"image", "image_path"}:
        return "Video"
    if {"A", "B"} <= columns:
        return MCQ
    is_yes_or_no = all(str(row.get("answer", "")).strip().lower() in {"yes", "no"} for row in rows)
    return YES_OR_NO if is_yes_or_no else VQA


def _without_gaps(row: Row) -> dict[str, Any]:
    return {str(name): value for name, value in row.items() if value is not None and not _is_nan(value)}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - what pandas has where there is nothing


def _part(kind: str, value: str) -> Part:
    return {"type": kind, "value": value}
