# The names of this package and where they live: read by type checkers, and by __init__.py to load them on first use.
from .comparisons import ComparisonResult as ComparisonResult
from .comparisons import compare as compare
from .evaluating import evaluate as evaluate
from .evaluating import evaluate_async as evaluate_async
from .queries import SqlResult as SqlResult
from .queries import sql as sql
from .run import Run as Run
from .run import RunSummary as RunSummary
from .run import open_run as open_run
from .run_list import Runs as Runs
from .run_list import runs as runs
from .settings import RunSettings as RunSettings
from .trends import TrendResult as TrendResult
from .trends import trend as trend
