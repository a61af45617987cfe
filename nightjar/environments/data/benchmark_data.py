"""Describes a benchmark's data (source, size, licence), and shuffles the choices of a question with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from nightjar.core.secrecy import error_text
from nightjar.environments.data.hub import fetch_hub_dataset, hub_dataset_path, load_hub_dataset
from nightjar.environments.data.sources import read_nested, read_rows
from nightjar.errors import DatasetError


@dataclass(frozen=True)
class BenchmarkData:
    """A dataset on the Hugging Face Hub, or a file with the same rows.

    ``configs`` names the repository's configurations to load; ``(None,)`` if the repository has none. ``others`` lists
    variants, each as the attributes that differ. ``nested`` maps a column to the type of its values, ``list`` or
    ``dict``; a table holds such values as text.
    """

    repository: str
    num_examples: int | None
    license: str
    columns: tuple[str, ...]
    configs: Sequence[str | None] = (None,)
    split: str = "test"
    data_file: str | None = None
    is_gated: bool = False
    others: Sequence[Mapping[str, Any]] = ()
    nested: Mapping[str, type] = field(default_factory=dict)

    def variants(self) -> list[BenchmarkData]:
        """Returns all variants that the benchmark can read, starting with this one."""
        return [self, *(replace(self, others=(), **other) for other in self.others)]

    def rows(self, dataset: str | None = None, split: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows of the file ``dataset``. If None, returns the rows of the hub's dataset, which are cached.

        ``dataset`` is a file of JSON lines, or a ``.csv`` or ``.tsv`` file with a header; ``.gz`` files are also read.
        Lists and mappings may be written as text in JSON or Python syntax. Raises ``DatasetError``.
        """
        rows = self._of_hub(split or self.split) if dataset is None else read_rows(dataset, self.columns)
        source = dataset or self.repository
        return [read_nested(row, self.nested, f"{source}, row {number}") for number, row in enumerate(rows, start=1)]

    def examples(
        self,
        make: Callable[[dict[str, Any]], dict[str, Any] | None],
        dataset: str | None = None,
        split: str | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the examples that ``make`` creates from ``rows``; skips a row if ``make`` returns None."""
        return examples_of(self.rows(dataset, split), make, dataset or self.repository, self.columns)

    def fetch(self) -> None:
        """Downloads the configurations that are not on this machine."""
        for config, path in zip(self.configs, self.paths(), strict=True):
            try:
                if not path.is_file():
                    fetch_hub_dataset(self.repository, config, self.split, self.data_file)
            except DatasetError as error:
                raise DatasetError(f"{error}.{self._terms()}") from error

    def is_here(self) -> bool:
        """Returns whether the data of all configurations is on this machine."""
        return all(path.is_file() for path in self.paths())

    def paths(self) -> list[Path]:
        """Returns the files that hold the data on this machine, whether they exist or not."""
        return [hub_dataset_path(self.repository, config, self.data_file or self.split) for config in self.configs]

    def _of_hub(self, split: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        try:
            for config in self.configs:
                part = load_hub_dataset(self.repository, config, split, self.data_file)
                rows += [{**row, "config": config} for row in part] if len(self.configs) > 1 else part
        except DatasetError as error:
            hint = 'Without a network, pass a file: -a \'{"dataset": "path.jsonl"}\''
            raise DatasetError(f"{error}.{self._terms()} {hint}") from error
        return rows

    def _terms(self) -> str:
        if not self.is_gated:
            return ""
        return (
            f" Its authors require consent: accept the terms on the hub's page of {self.repository}, and set HF_TOKEN "
            "to a token of that account."
        )


def examples_of(
    rows: Sequence[dict[str, Any]],
    make: Callable[[dict[str, Any]], dict[str, Any] | None],
    source: str,
    columns: Sequence[str] = (),
) -> list[dict[str, Any]]:
    made = []
    for number, row in enumerate(rows, start=1):
        if empty := [column for column in columns if row.get(column) in (None, "")]:
            raise DatasetError(f"{source}, row {number}: no value for {' and '.join(map(repr, empty))}")
        try:
            made.append(make(row))
        except Exception as error:
            kind = "" if isinstance(error, DatasetError) else f"{type(error).__name__}: "
            raise DatasetError(f"{source}, row {number} is invalid: {kind}{error_text(error)}") from error
    return [example for example in made if example is not None]


def lettered(choices: Sequence[str]) -> str:
    r"""Returns choices as lettered lines.

    Example:
        >>> lettered(["four", " five"])
        'A) four\nB) five'
    """
    return "\n".join(f"{letter}) {choice.strip()}" for letter, choice in zip(ascii_uppercase, choices, strict=False))


def shuffled(choices: Sequence[str], right: int, seed: int | None, question: str) -> tuple[list[str], str]:
    """Returns choices in an order set only by seed and question; also returns the letter of the choice at ``right``.

    Example:
        >>> shuffled(["four", "five"], 1, None, "2+3?")  # no seed: their own order
        (['four', 'five'], 'B')
    """
    if not 0 <= right < len(choices):
        raise DatasetError(f"the answer {right} is not one of {len(choices)} choices, counted from 0")
    order = list(range(len(choices)))
    if seed is not None:
        random.Random(f"{seed}:{question}").shuffle(order)  # noqa: S311 - no secret is made of it
    return [choices[position] for position in order], ascii_uppercase[order.index(right)]
