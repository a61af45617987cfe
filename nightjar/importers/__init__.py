"""Converts results of ``verifiers`` and NeMo Evaluator to run directories, which the warehouse can publish.

>>> with TemporaryDirectory() as scratch:                      # doctest: +SKIP
...     for found in find_results(Path("outputs/evals")):
...         warehouse.publish(convert(found, Path(scratch)))

Nothing is scored again; aggregates are Nightjar's own, over the scored rollouts.
"""

from nightjar.importers.discovery import FoundResults, Kind, default_paths, find_results, find_run_directories
from nightjar.importers.importing import Imported, convert, import_all

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
