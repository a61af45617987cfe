"""Rubrics compute the reward of a rollout."""

from nightjar.core.rollout.state import GroupRewardFunc, IndividualRewardFunc, RewardFunc
from nightjar.environments.rubrics.judge_rubric import JudgeRubric
from nightjar.environments.rubrics.math_rubric import MathRubric
from nightjar.environments.rubrics.rubric import Rubric
from nightjar.environments.rubrics.rubric_group import RubricGroup

__all__ = [
    "GroupRewardFunc",
    "IndividualRewardFunc",
    "JudgeRubric",
    "MathRubric",
    "RewardFunc",
    "Rubric",
    "RubricGroup",
]
