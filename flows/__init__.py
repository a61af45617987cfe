"""Prefect flows: the order of the tasks, nothing else; names load on first use.

>>> from nightjar.flows import evaluate, query
>>> evaluate.name, query.name
('evaluate', 'query')

No module here is named like a flow, which it would hide.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
