"""Rubrics: what a rollout is worth."""

from nightjar.rollout.state import GroupRewardFunc, IndividualRewardFunc, RewardFunc
from nightjar.rubrics.judge_rubric import JudgeRubric
from nightjar.rubrics.math_rubric import MathRubric
from nightjar.rubrics.rubric import Rubric
from nightjar.rubrics.rubric_group import RubricGroup

__all__ = [
    "GroupRewardFunc",
    "IndividualRewardFunc",
    "JudgeRubric",
    "MathRubric",
    "RewardFunc",
    "Rubric",
    "RubricGroup",
]
