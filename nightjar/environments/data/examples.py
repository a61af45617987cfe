"""Turns rows of a dataset into inputs of rollouts. A row is formatted when it is read, so unread rows cost no time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import orjson

from nightjar.core.extras import import_extra
from nightjar.core.json_bytes import json_bytes
from nightjar.core.messages import dump_messages, normalize_messages
from nightjar.errors import DatasetError

DatasetBuilder: TypeAlias = Callable[[], Any]

_BLOCK = 256
_HASH_CHARACTERS = 16


class Examples:
    """The examples of an environment, formatted on reading.

    A dataset is a list of dicts, a ``datasets.Dataset``, or a function that builds either. A row with ``prompt``
    ignores ``few_shot``. If its prompt starts with a system message, the row also ignores ``system_prompt``.

    Example:
        >>> Examples([{"question": "What is 2+2?", "answer": "4"}])[0]["prompt"]
        [{'role': 'user', 'content': 'What is 2+2?'}]
    """

    def __init__(self, dataset: Any, system_prompt: str | None = None, few_shot: Sequence[Any] | None = None) -> None:
        self._dataset = dataset
        self._rows: Any = None
        self._block: tuple[int, list[dict[str, Any]]] = (0, [])
        self.set_messages_before(system_prompt, few_shot)

    def set_messages_before(self, system_prompt: str | None, few_shot: Sequence[Any] | None) -> None:
        """Replaces the system prompt and the few-shot messages."""
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._few_shot = dump_messages(normalize_messages(few_shot or [], field_name="few_shot"))
        self._formatted: Any = None

    def to_dataset(self) -> Any:
        """Returns all examples as a ``datasets.Dataset``. An ``info`` column of mixed types becomes JSON text."""
        if self._formatted is None:
            rows = [self.formatted(position) for position in range(len(self))]
            try:
                self._formatted = _to_dataset(rows)
            except DatasetError:
                self._formatted = _to_dataset([_with_info_as_text(row) for row in rows])
        return self._formatted

    @property
    def rows(self) -> Any:
        """The unformatted dataset, built on first use."""
        if self._rows is None:
            built = self._dataset() if callable(self._dataset) else self._dataset
            is_sequence = hasattr(built, "__len__") and hasattr(built, "__getitem__")
            if not is_sequence or isinstance(built, Mapping):
                raise DatasetError(f"A dataset must be a list of dicts or a Dataset, found {type(built).__name__}")
            self._rows = built
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, example_id: int) -> dict[str, Any]:
        """Returns a new rollout input for one example: ``prompt`` (a list of dicts), ``example_id``, other columns."""
        row = self.formatted(example_id)
        if isinstance(row.get("info"), str):
            try:
                row["info"] = orjson.loads(row["info"])
            except orjson.JSONDecodeError as error:
                raise DatasetError(f"The 'info' of example {example_id} is a text, but not JSON: {error}") from error
        return row

    def formatted(self, example_id: int) -> dict[str, Any]:
        """Does the same as ``__getitem__``, but does not parse an ``info`` that is JSON text."""
        row = {
            key: deepcopy(value) if isinstance(value, dict | list) else value
            for key, value in self._row(example_id).items()
            if value is not None
        }
        if "example_id" in row:
            row["src_id"] = row.pop("example_id")
        row.pop("env_id", None)
        row["prompt"] = self._prompt(row, example_id)
        row["example_id"] = example_id
        return row

    def _row(self, example_id: int) -> Mapping[str, Any]:
        if isinstance(self.rows, Sequence):
            row = self.rows[example_id]
            if not isinstance(row, Mapping):
                raise DatasetError(f"Example {example_id} of the dataset is not a dict: {row!r}")
            return row
        start, rows = self._block  # replaced as a whole, because several threads may read
        if not start <= example_id < start + len(rows):
            follows = example_id == start + len(rows)
            start, rows = example_id, _read(self.rows, example_id, _BLOCK if follows else 1)
            self._block = (start, rows)
        return rows[example_id - start]

    def _prompt(self, row: Mapping[str, Any], example_id: int) -> list[Any]:
        if "prompt" in row:
            prompt = dump_messages(normalize_messages(row["prompt"], field_name="prompt"))
            starts_with_system = bool(prompt) and prompt[0]["role"] == "system"
            return prompt if starts_with_system else [*map(dict, self._system), *prompt]
        if "question" not in row:
            raise DatasetError(
                f"Example {example_id} has neither 'prompt' nor 'question'; its columns are {sorted(row)}"
            )
        before = [dict(message) for message in (*self._system, *self._few_shot)]
        return [*before, {"role": "user", "content": row["question"]}]


def _to_dataset(rows: list[dict[str, Any]]) -> Any:
    datasets = import_extra("datasets", "datasets", "A datasets.Dataset")
    try:
        return datasets.Dataset.from_list(rows)
    except (ValueError, TypeError) as error:  # what pyarrow raises
        raise DatasetError(f"A column of the dataset holds values of different types: {error}") from error


def _with_info_as_text(row: dict[str, Any]) -> dict[str, Any]:
    info = row.get("info")
    is_text = info is None or isinstance(info, str)
    return row if is_text else {**row, "info": json_bytes(info).decode()}


def _read(dataset: Any, start: int, count: int) -> list[dict[str, Any]]:
    """Reads many rows of a ``datasets.Dataset`` at once, which costs little more than reading one."""
    columns = dataset[start : start + count]
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def example_hash(example: Mapping[str, Any]) -> str:
    """Returns a hash (16 hex digits) of an example's prompt, answer and info.

    Example:
        >>> examples = Examples([{"question": "2+2?"}, {"question": "1+2?"}, {"question": "2+2?"}])
        >>> example_hash(examples[0]) == example_hash(examples[2])
        True
    """
    content = [example["prompt"], example.get("answer", ""), example.get("info", {})]
    return hashlib.sha256(json_bytes(content, orjson.OPT_SORT_KEYS)).hexdigest()[:_HASH_CHARACTERS]
