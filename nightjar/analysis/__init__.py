"""Analysis of published runs: statistics, comparisons, gates, nights, trends, plans and leaderboards.

Arguments that many functions share:

- ``warehouse``: None means the warehouse that runs are published to. A failed query raises ``WarehouseError``.
- ``metric``: ``reward``, ``correct`` (pass@1, the share of correct rollouts) or the name of a metric.
- ``alpha``: the chance that an interval misses the true value, or that a test reports a difference that does not exist.
- ``cluster``, ``by``: a field of an example's ``info``, or ``task``. Examples with the same ``cluster`` are dependent;
  results are broken down by ``by``.
- ``model``, ``since``: only runs of this model, and only runs that started on this day or later.

Names load on first use, so that a night is judged without SciPy, which takes 0.8 s to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
