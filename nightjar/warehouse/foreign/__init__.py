"""Results that other programs wrote, as run directories that the warehouse can publish.

>>> with TemporaryDirectory() as scratch:                      # doctest: +SKIP
...     for found in find_results(Path("outputs/evals")):
...         warehouse.publish(convert(found, Path(scratch)))

``verifiers``: ``results.jsonl`` and ``metadata.json``. NeMo Evaluator: a bundle ``eval-*.json`` and ``results.jsonl``,
also in shards. What is read of each is told in :mod:`~nightjar.warehouse.foreign.verifiers` and
:mod:`~nightjar.warehouse.foreign.nemo`. Nothing is asked of a model and nothing is scored again; aggregates are
Nightjar's own, over what was scored.
"""

from nightjar.warehouse.foreign.conversion import convert
from nightjar.warehouse.foreign.discovery import FoundResults, Kind, find_results

__all__ = ["FoundResults", "Kind", "convert", "find_results"]
