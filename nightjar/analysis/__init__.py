"""Analysis of published runs: statistics, comparisons, gates, nights, trends, plans and leaderboards.

Arguments that many functions share:

- ``warehouse``: None for the warehouse that runs are published to; ``WarehouseError`` if it cannot be queried.
- ``metric``: ``reward``, ``correct`` (pass@1, the share of correct rollouts) or the name of a metric.
- ``alpha``: chance that an interval misses the true value, or that a test finds a difference where there is none.
- ``cluster``, ``by``: a field of an example's ``info``, or ``task``, that dependent examples share, or that
  results are broken down by.
- ``model``, ``since``: only runs of this model, or begun on this day or later.

Names load on first use: a night is judged without SciPy, which takes 0.8 s to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
