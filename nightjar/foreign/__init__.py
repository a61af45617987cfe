"""Results that other programs wrote, as run directories that the warehouse can publish.

>>> with TemporaryDirectory() as scratch:                      # doctest: +SKIP
...     for found in find_results(Path("outputs/evals")):
...         warehouse.publish(convert(found, Path(scratch)))

``verifiers``: ``results.jsonl`` and ``metadata.json``. NeMo Evaluator: a bundle ``eval-*.json`` and ``results.jsonl``,
also in shards. What is read of each is told in :mod:`~nightjar.foreign.verifiers` and
:mod:`~nightjar.foreign.nemo`. Nothing is asked of a model and nothing is scored again; aggregates are
Nightjar's own, over what was scored. The other way goes :mod:`~nightjar.foreign.inspect_log`.
"""

from nightjar.foreign.discovery import FoundResults, Kind, default_paths, find_results, find_run_directories
from nightjar.foreign.importing import Imported, convert, import_all

__all__ = [
    "FoundResults",
    "Imported",
    "Kind",
    "convert",
    "default_paths",
    "find_results",
    "find_run_directories",
    "import_all",
]
