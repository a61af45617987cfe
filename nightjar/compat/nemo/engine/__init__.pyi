# The public names and where they live: read by type checkers, and by __init__.py to load them on first use.
from .artifacts import build_artifact_bundle as build_artifact_bundle
from .artifacts import write_all as write_all
from .comparison import compare_runs as compare_runs
from .eval_loop import run_evaluation as run_evaluation
from .model_client import ModelClient as ModelClient
from .model_client import RetryConfig as RetryConfig
from .model_client import ToolCallInfo as ToolCallInfo
from .model_client import ToolCallingResponse as ToolCallingResponse
from .results import bundle_of_run as bundle_of_run
from .sharding import get_shard_range as get_shard_range
from .sharding import merge_results as merge_results
from .sharding import shard_from_env as shard_from_env
