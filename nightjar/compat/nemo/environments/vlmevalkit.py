"""Datasets of VLMEvalKit, and ``vlmevalkit://``; see docs/guides/vlmevalkit.md.

A table is a TSV with ``index``, ``question``, ``answer``, and ``image`` (base64, a list of base64 texts, or the index
of the row with the image) or ``image_path``. It may also have ``A`` to ``Z``, ``hint``, ``category``, ``l2-category``
and ``split``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import string
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from nightjar.compat.nemo.environments.uris import count_of, taken_apart
from nightjar.compat.nemo.environments.vlmevalkit_scoring import MEASURES, chosen_option, measure_of, yes_or_no
from nightjar.core.syntax import read_literal
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.rows import image_in, image_of_base64, image_url, load_rows
from nightjar.errors import ConfigError, DatasetError

MCQ, VQA, YES_OR_NO = "MCQ", "VQA", "Y/N"
_TYPES = (MCQ, VQA, YES_OR_NO)
_SCORED_ALIKE = frozenset({"ImageVQADataset", "VizWiz", "OCRBench"})
_SCORED_OTHERWISE = re.compile(
    "COCO|MathVista|MathVerse|MathVision|MMVet|LLaVABench|LogicVista|DynaMath|WeMath|Olympiad|MMLongBench|SlideVQA|"
    "DUDE|CharXiv|SimpleVQA|OCRBench_v2|CC-?OCR|MTVQA|TableVQA|VCR|Screenspot|WildVision|MIA-Bench|MMDU|HLE"
)
_KEPT = ("l2-category", "l2_category", "split")
_ROTATION = 1_000_000
_OF_URI = {"data": "data", "data_dir": "data_dir", "limit": "limit", "type": "dataset_type", "metric": "metric"}
Row: TypeAlias = Mapping[str, Any]
Part: TypeAlias = dict[str, str]
VARIABLE = "LMUData"
INSTALL = "pip install git+https://github.com/open-compass/VLMEvalKit"
_LONGEST_INDEX = 64
_IMAGE_PLACE = re.compile(r"<image (\d+)>")
_SELECT = "Please select the correct answer from the options above. \n"
_SHORTLY = "\nAnswer the question using a single word or phrase."
_YES_OR_NO = "\nPlease answer yes or no."


class VLMEvalKitEnvironment(EvalEnvironment):
    """A dataset of VLMEvalKit: multiple choice, yes or no, and short answers about images.

    Args:
        data: the table's file; None means VLMEvalKit's own file.
        data_dir: the folder of ``NAME.tsv``; None means the package's folder or ``LMUData``.
        dataset_type: ``MCQ``, ``VQA`` or ``Y/N``; if None, the type is detected.
        metric: the comparison of short answers; None means VLMEvalKit's comparison for this dataset.
    """

    def __init__(
        self,
        dataset_name: str,
        limit: int | None = None,
        data: str | None = None,
        data_dir: str | None = None,
        dataset_type: str | None = None,
        metric: str | None = None,
    ) -> None:
        super().__init__()
        self.name = f"vlmevalkit:{dataset_name}"
        self.dataset_name = dataset_name
        if metric is not None and metric not in MEASURES:
            raise ConfigError(f"Unknown metric {metric!r}. Choose one of: {', '.join(MEASURES)}")
        self._table = open_table(dataset_name, data, data_dir, dataset_type)
        self.dataset_type = dataset_type or self._table.kind
        self._metric = metric or measure_of(dataset_name)
        self._check(is_forced=metric is not None)
        self.dataset = self._table.rows[:limit]

    async def seed(self, idx: int) -> SeedResult:
        """Returns a question with its images. If the images are within the text, the question is a list of messages."""
        row, parts = self.dataset[idx], self._table.parts(idx)
        answer = row.get("answer", row.get("answers"))
        if answer is None:
            raise DatasetError(f"{self.name}, index {row['index']}: there is no reference answer")
        kinds = [kind for kind, _ in groupby(part["type"] for part in parts)]
        images = [part["value"] for part in parts if part["type"] == "image"]
        return SeedResult(
            prompt="\n".join(part["value"] for part in parts if part["type"] == "text"),
            expected_answer=str(answer),
            images=images or None,
            messages=None if kinds in (["image", "text"], ["text"]) else [_message(parts)],
            metadata=self._metadata(row),
        )

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:  # noqa: ARG002
        answer = response.rpartition("</think>")[2].strip()
        if self.dataset_type == VQA:
            reward = MEASURES[self._metric](answer, listed(expected)) if answer else 0.0
            return VerifyResult(reward, answer[:500], {"method": f"vlmevalkit_{self._metric}"})
        is_choice = self.dataset_type == MCQ
        found = chosen_option(answer, metadata.get("choices") or {}) if is_choice else yes_or_no(answer)
        is_right = found is not None and found.lower() == expected.strip().lower()
        return VerifyResult(float(is_right), found, {"method": "vlmevalkit_mcq" if is_choice else "vlmevalkit_yorn"})

    def _check(self, *, is_forced: bool) -> None:
        if self.dataset_type not in _TYPES:
            raise ConfigError(
                f"{self.dataset_name!r} is of type {self.dataset_type!r}, which Nightjar does not score. "
                f"Supported types: {', '.join(_TYPES)}"
            )
        scored_by = self._table.scored_by
        is_other = _SCORED_OTHERWISE.search(self.dataset_name) if scored_by is None else scored_by not in _SCORED_ALIKE
        if self.dataset_type == VQA and is_other and not is_forced:
            raise ConfigError(
                f"VLMEvalKit scores {self.dataset_name!r} with a judge or in its own way, unlike Nightjar. "
                f"To score it anyway, set metric to one of: {', '.join(MEASURES)}"
            )

    def _metadata(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the metadata of a question; ``g_index`` is the same for all rotations of its options."""
        index = str(row["index"])
        rotated = {"g_index": str(int(index) % _ROTATION)} if index.isdecimal() else {}
        category = next((row[name] for name in ("category", *_KEPT) if name in row), None)
        return {
            "source": "vlmevalkit",
            "dataset": self.dataset_name,
            "dataset_type": self.dataset_type,
            "index": index,
            **rotated,
            **({} if category is None else {"category": str(category)}),
            **{name: str(row[name]) for name in _KEPT if name in row},
            "choices": choices_of(row),
        }


def vlmevalkit_environment(uri: str, **kwargs: Any) -> EvalEnvironment:
    name, options = taken_apart(uri, _OF_URI, kwargs, numbers={"limit": count_of})
    return VLMEvalKitEnvironment(name, **{_OF_URI[option]: value for option, value in options.items()})


def _message(parts: list[Part]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": image_url(part["value"])}}
        if part["type"] == "image"
        else {"type": "text", "text": part["value"]}
        for part in parts
    ]
    return {"role": "user", "content": content}


def open_table(name: str, data: str | None, data_dir: str | None, kind: str | None) -> TsvTable | KitTable:
    """Returns the table of a dataset, by default from the installed package, otherwise from the folder ``LMUData``."""
    if not data and not data_dir and importlib.util.find_spec("vlmeval"):
        return KitTable(name)
    path = Path(data) if data else _folder(data_dir) / f"{name}.tsv"
    if not path.is_file() and not data and not data_dir:
        raise ConfigError(
            f"VLMEvalKit is not installed, and {path} does not exist. Install it: {INSTALL}. Or name a table: "
            f"vlmevalkit://{name}?data=FILE.tsv, or data_dir=FOLDER, or {VARIABLE}"
        )
    return TsvTable(name, path, kind)


class TsvTable:
    """A table in a file. ``kind`` is VLMEvalKit's type, such as ``MCQ``. If it is None, it is detected.

    ``scored_by`` is VLMEvalKit's scoring class; None if unknown.
    """

    scored_by: str | None = None

    def __init__(self, name: str, path: Path, kind: str | None = None) -> None:
        self._name, self._path = name, path
        rows = [{column: value for column, value in row.items() if value != ""} for row in load_rows(path)]
        columns = {column for row in rows for column in row}
        if missing := {"index", "question"} - columns:
            raise DatasetError(f"{path} is not a table of VLMEvalKit: it has no column {min(missing)!r}")
        self._images = {row["index"]: row["image"] for row in rows if "image" in row}
        self.rows = [row for row in rows if "image" in row] if self._images else rows
        self.kind = kind or _looks_like(self.rows, columns)

    def parts(self, idx: int) -> list[Part]:
        """Returns a question as parts with a ``type``, ``image`` or ``text``, and a ``value``.

        Images are first; in MMMU they are at their places in the text.
        """
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
        """Returns the images of a row. A table may be untrusted: only images of its own folder are read."""
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
    def __init__(self, name: str) -> None:
        kit = importlib.import_module("vlmeval.dataset")
        if name not in kit.SUPPORTED_DATASETS:
            raise ConfigError(f"VLMEvalKit has no dataset {name!r}")
        self._dataset = kit.build_dataset(name)
        self.scored_by: str | None = type(self._dataset).__name__
        self.kind = str(kit.DATASET_TYPE(name))
        self.rows = [_without_gaps(row) for row in self._dataset.data.to_dict("records")]

    def parts(self, idx: int) -> list[Part]:
        return [
            _part(part["type"], str(value))
            for part in self._dataset.build_prompt(self._dataset.data.iloc[idx])
            for value in (part["value"] if isinstance(part["value"], list) else [part["value"]])
        ]


def choices_of(row: Row) -> dict[str, str]:
    return {letter: str(row[letter]) for letter in string.ascii_uppercase if letter in row}


def listed(text: str) -> list[str]:
    """Returns the strings of a list in Python's syntax, or the text itself; an empty list for an empty text."""
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
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN, pandas' missing value


def _part(kind: str, value: str) -> Part:
    return {"type": kind, "value": value}
