"""Holds the training and evaluation datasets of an environment; rows are formatted when they are read."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from nightjar.core.extras import import_extra
from nightjar.core.messages import Messages
from nightjar.environments.data import Examples

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_LONGEST_HUB_NAME = 96


class EnvironmentDatasets:
    train_examples: Examples | None

    def __init__(self, dataset: Any, eval_dataset: Any, system_prompt: str | None, few_shot: Messages | None) -> None:
        if dataset is None and eval_dataset is None:
            raise ValueError("Either dataset or eval_dataset must be provided")
        self.system_prompt = system_prompt
        self.few_shot = few_shot
        self.dataset = dataset
        self.eval_dataset = eval_dataset

    def set_system_prompt(self, system_prompt: str | None) -> None:
        """Replaces the system prompt that is added to prompts without a system prompt; None adds nothing."""
        self._set_messages_before(system_prompt, self.few_shot)

    def set_few_shot(self, few_shot: Messages | None) -> None:
        """Replaces the messages between the system prompt and the question; None removes these messages."""
        self._set_messages_before(self.system_prompt, few_shot)

    def _set_messages_before(self, system_prompt: str | None, few_shot: Messages | None) -> None:
        self.system_prompt, self.few_shot = system_prompt, few_shot
        for examples in (self.train_examples, self._eval):
            if examples is not None:
                examples.set_messages_before(system_prompt, few_shot)

    def _examples(self, dataset: Any) -> Examples | None:
        if dataset is None or isinstance(dataset, Examples):
            return dataset
        return Examples(dataset, getattr(self, "system_prompt", None), getattr(self, "few_shot", None))

    @property
    def examples(self) -> Examples:
        """The evaluation dataset, or the only dataset."""
        return cast("Examples", self._eval or self.train_examples)

    @property
    def has_eval_examples(self) -> bool:
        return self._eval is not None

    @property
    def dataset(self) -> Dataset | None:
        return self.build_dataset()

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self.train_examples = self._examples(dataset)

    @property
    def eval_dataset(self) -> Dataset | None:
        return self.build_eval_dataset()

    @eval_dataset.setter
    def eval_dataset(self, dataset: Any) -> None:
        self._eval = self._examples(dataset)

    def build_dataset(self) -> Dataset | None:
        return None if self.train_examples is None else self.train_examples.to_dataset()

    def build_eval_dataset(self) -> Dataset | None:
        return None if self._eval is None else self._eval.to_dataset()

    def get_dataset(self, n: int = -1, seed: int | None = None) -> Dataset:
        """Returns the first n formatted training rows (all if n < 1). With a ``seed``, rows are shuffled first."""
        if self.train_examples is None:
            raise ValueError("dataset is not set: there is only an eval_dataset")
        return _first(self.train_examples.to_dataset(), n, seed)

    def get_eval_dataset(self, n: int = -1, seed: int | None = None) -> Dataset:
        """Does the same for evaluation rows. Without an evaluation dataset, uses the training rows, with a warning."""
        if self._eval is None:
            logger.warning("eval_dataset is not set: using the training dataset")
        return _first(self.examples.to_dataset(), n, seed)


def _first(dataset: Dataset, n: int, seed: int | None) -> Dataset:
    shuffled = dataset if seed is None else dataset.shuffle(seed=seed)
    return shuffled.select(range(min(n, len(shuffled)))) if n > 0 else shuffled


def hub_dataset_name(metadata: Mapping[str, Any]) -> str:
    """Returns the default name of a run's results on the Hugging Face Hub, such as ``me_sums_a_b_n5_r3``."""
    of, count = f"{metadata['env_id']}_{metadata['model']}", f"n{metadata['num_examples']}"
    name = re.sub(r"[^\w.-]|--+|\.\.+", "_", f"{of}_{count}_r{metadata['rollouts_per_example']}", flags=re.ASCII)
    return name[-_LONGEST_HUB_NAME:].strip("-.")


def results_dataset(results: Mapping[str, Any]) -> Dataset:
    """Returns the rows of a ``generate`` result. Columns with mixed types, such as ``info``, become JSON text."""
    datasets = import_extra("datasets", "datasets", "A datasets.Dataset")
    rows = results["outputs"]
    names = dict.fromkeys(name for row in rows for name in row)
    return datasets.Dataset.from_dict({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> list[Any]:
    pa = import_extra("pyarrow", "datasets", "A datasets.Dataset")
    try:
        pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return [orjson.dumps(value, default=repr).decode() for value in values]
    return values


def rows_of(dataset: Any) -> Sequence[Any]:
    return dataset.to_list() if hasattr(dataset, "to_list") else list(dataset)
