"""Prefect flows, which only put tasks in order. Names load on first use.

>>> from nightjar.flows import evaluate, query
>>> evaluate.name, query.name
('evaluate', 'query')

No module in this package has the name of a flow, because the module would hide the flow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
