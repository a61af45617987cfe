# The flows and where they live: read by type checkers, and by __init__.py to load them on first use.
from .evaluation import evaluate as evaluate
from .gating import gate as gate
from .maintenance import upkeep as upkeep
from .nights import benchmark as benchmark
from .pruning import prune as prune
from .publishing import publish_run as publish_run
from .querying import query as query
from .rescoring import rescore as rescore
from .retrying import retry_failed as retry_failed
