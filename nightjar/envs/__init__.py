"""Environments: what a model is asked, how the exchange goes on, what an answer is worth."""

from nightjar.envs.environment import Environment
from nightjar.envs.games.episodes import EpisodicSumRubric
from nightjar.envs.games.gym_env import GymEnv
from nightjar.envs.games.reasoninggym_env import ReasoningGymEnv
from nightjar.envs.games.textarena_env import TextArenaEnv
from nightjar.envs.group.env_group import EnvGroup
from nightjar.envs.group.env_group_rubric import EnvGroupRubric
from nightjar.envs.loading import load_environment
from nightjar.envs.mcp.mcp_env import MCPEnv, MCPServerConfig
from nightjar.envs.multiturn import MultiTurnEnv, MultiTurnMonitorRubric
from nightjar.envs.rollouts import EnvironmentRollouts
from nightjar.envs.singleturn import SingleTurnEnv
from nightjar.envs.teardown import tear_down
from nightjar.envs.tools.schema import convert_func_to_tool_def, filter_signature, is_valid_tool_content_parts
from nightjar.envs.tools.stateful_tool_env import StatefulToolEnv
from nightjar.envs.tools.tool_env import ToolEnv, ToolMonitorRubric
from nightjar.packages import environment_commit, environment_version, environments_in, installed_environments

__all__ = [
    "EnvGroup",
    "EnvGroupRubric",
    "Environment",
    "EnvironmentRollouts",
    "EpisodicSumRubric",
    "GymEnv",
    "MCPEnv",
    "MCPServerConfig",
    "MultiTurnEnv",
    "MultiTurnMonitorRubric",
    "ReasoningGymEnv",
    "SingleTurnEnv",
    "StatefulToolEnv",
    "TextArenaEnv",
    "ToolEnv",
    "ToolMonitorRubric",
    "convert_func_to_tool_def",
    "environment_commit",
    "environment_version",
    "environments_in",
    "filter_signature",
    "installed_environments",
    "is_valid_tool_content_parts",
    "load_environment",
    "tear_down",
]
