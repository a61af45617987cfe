# The names of this package and where they live: read by type checkers, and by __init__.py to load them on first use.
from .engine import Engine as Engine
from .engine import EngineOptions as EngineOptions
from .engine import Recorder as Recorder
from .engine import Rollouts as Rollouts
from .engine import run_groups as run_groups
from .limits import Budget as Budget
from .limits import RetryPolicy as RetryPolicy
from .plan import Finished as Finished
from .plan import Group as Group
from .plan import GroupQueue as GroupQueue
from .plan import Plan as Plan
from .plan import Shard as Shard
from .progress import Progress as Progress
from .run import Run as Run
from .run import open_runs as open_runs
from .tasks import rare_garbage_collection as rare_garbage_collection
from .tasks import task_group as task_group
