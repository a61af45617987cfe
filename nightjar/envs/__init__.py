"""Environments: what a model is asked, how the exchange goes on, what an answer is worth."""

from nightjar.envs.environment import Environment
from nightjar.envs.loading import environment_version, installed_environments, load_environment
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.envs.rollouts import EnvironmentRollouts
from nightjar.envs.singleturn import SingleTurnEnv

__all__ = [
    "Environment",
    "EnvironmentRollouts",
    "MultiTurnEnv",
    "SingleTurnEnv",
    "environment_version",
    "installed_environments",
    "load_environment",
]
