# The public names and where they live: read by type checkers, and by __init__.py to load them on first use.
from .comparing import compare_runs as compare_runs
from .judging import judge_night as judge_night
from .pairs import Compared as Compared
from .pairs import compare_run as compare_run
from .records import Comparison as Comparison
from .records import Decision as Decision
from .records import Difference as Difference
from .records import Flip as Flip
from .records import Side as Side
from .selecting import selected as selected
from .summary import RunStatistics as RunStatistics
from .summary import describe_run as describe_run
