"""Reads datasets from their sources and turns their rows into examples."""

from nightjar.core.files import cache_folder
from nightjar.environments.data.benchmark_data import BenchmarkData, lettered, shuffled
from nightjar.environments.data.example_datasets import (
    BOXED_SYSTEM_PROMPT,
    EXAMPLE_DATASETS,
    THINK_BOXED_SYSTEM_PROMPT,
    get_preprocess_fn,
    load_example_dataset,
)
from nightjar.environments.data.examples import DatasetBuilder, Examples, example_hash
from nightjar.environments.data.hub import load_hub_dataset
from nightjar.environments.data.sources import read_rows

__all__ = [
    "BOXED_SYSTEM_PROMPT",
    "EXAMPLE_DATASETS",
    "THINK_BOXED_SYSTEM_PROMPT",
    "BenchmarkData",
    "DatasetBuilder",
    "Examples",
    "cache_folder",
    "example_hash",
    "get_preprocess_fn",
    "lettered",
    "load_example_dataset",
    "load_hub_dataset",
    "read_rows",
    "shuffled",
]
