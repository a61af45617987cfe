"""Datasets: where they come from, and their rows as examples."""

from nightjar.data.examples import DatasetBuilder, Examples, example_hash, fingerprint
from nightjar.data.sources import cache_folder, load_hub_dataset, read_jsonl

__all__ = [
    "DatasetBuilder",
    "Examples",
    "cache_folder",
    "example_hash",
    "fingerprint",
    "load_hub_dataset",
    "read_jsonl",
]
