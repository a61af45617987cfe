"""The data of a benchmark: where it is, how much there is, and what its licence allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nightjar.data.files import read_rows
from nightjar.data.nested_columns import read_nested
from nightjar.data.sources import fetch_hub_dataset, hub_dataset_path, load_hub_dataset
from nightjar.errors import DatasetError, error_text


@dataclass(frozen=True)
class BenchmarkData:
    """A data set on the Hugging Face Hub, or a file of the same rows.

    Attributes:
        repository: on the hub.
        num_examples: how many rows it has; None where that is not known.
        license: of the data.
        columns: those that every row must have.
        configs: parts of the repository that are taken one after another; None for one that has no parts.
        split: that which is evaluated.
        data_file: the file of the repository to take, where it has several that differ.
        is_gated: who wants it has to accept the authors' terms first.
        others: what else of it the benchmark can be asked to read, each as the attributes that differ.
        nested: column to ``list`` or ``dict``, where its values are such; a table may have them as texts.
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
        """Returns all that the benchmark can be asked to read: this first, then the others."""
        return [self, *(replace(self, others=(), **other) for other in self.others)]

    def rows(self, dataset: str | None = None, split: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows: of a file, or of the hub, and from then on of what is kept of it on this machine.

        Args:
            dataset: a file with the hub's columns: JSON lines, a ``.csv`` or ``.tsv`` with a header, also with ``.gz``;
                what is a list or a mapping on the hub may be a text here, in JSON or as Python writes it.
            split: of the hub's data set; that which is evaluated unless given.

        Raises:
            DatasetError: it is missing, broken, or not to be had; what to do is said.
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
        """Returns the rows as examples.

        Args:
            make: from a row to an example, or to None where there is none to be made of it.
            dataset, split: as for ``rows``.

        Raises:
            DatasetError: as ``rows``; or a row is not as it should be: which one, and why, is said.
        """
        return examples_of(self.rows(dataset, split), make, dataset or self.repository, self.columns)

    def fetch(self) -> None:
        """Fetches from the hub what of it is not kept on this machine.

        Raises:
            DatasetError: it is not to be had, or cannot be kept; what to do is said.
        """
        for config, path in zip(self.configs, self.paths(), strict=True):
            if not path.is_file():
                self._fetch_part(config)

    def is_here(self) -> bool:
        """Says whether it is kept on this machine, so that no network is needed."""
        return all(path.is_file() for path in self.paths())

    def paths(self) -> list[Path]:
        """Returns the files in which it is kept, whether they are there or not."""
        return [hub_dataset_path(self.repository, config, self.data_file or self.split) for config in self.configs]

    def _of_hub(self, split: str) -> list[dict[str, Any]]:
        try:
            return [row for config in self.configs for row in self._part(config, split)]
        except DatasetError as error:
            hint = 'Without network, name a file: -a \'{"dataset": "path.jsonl"}\''
            raise DatasetError(f"{error}.{self._terms()} {hint}") from error

    def _part(self, config: str | None, split: str) -> list[dict[str, Any]]:
        rows = load_hub_dataset(self.repository, config, split, self.data_file)
        return [{**row, "config": config} for row in rows] if len(self.configs) > 1 else rows

    def _fetch_part(self, config: str | None) -> None:
        try:
            fetch_hub_dataset(self.repository, config, self.split, self.data_file)
        except DatasetError as error:
            raise DatasetError(f"{error}.{self._terms()}") from error

    def _terms(self) -> str:
        terms = (
            f" Its authors ask for consent: accept the terms on the hub's page of {self.repository}, and set HF_TOKEN "
            "to a token of that account."
        )
        return terms if self.is_gated else ""


def examples_of(
    rows: Sequence[dict[str, Any]],
    make: Callable[[dict[str, Any]], dict[str, Any] | None],
    source: str,
    columns: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Returns what ``make`` makes of rows, less None.

    Args:
        rows: of a data set.
        make: from a row to an example, or to None.
        source: whose rows they are, for the message.
        columns: those that must have a value.

    Raises:
        DatasetError: a row has no value where it must have one, or ``make`` failed.
    """
    made = []
    for number, row in enumerate(rows, start=1):
        if empty := [column for column in columns if row.get(column) in (None, "")]:
            raise DatasetError(f"{source}, row {number}: {' and '.join(map(repr, empty))} without a value")
        try:
            made.append(make(row))
        except Exception as error:
            raise DatasetError(f"{source}, row {number} is not as it should be: {_reason(error)}") from error
    return [example for example in made if example is not None]


def _reason(error: Exception) -> str:
    known = isinstance(error, DatasetError)
    return error_text(error) if known else f"{type(error).__name__}: {error_text(error)}"
