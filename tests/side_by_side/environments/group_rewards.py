"""Group reward functions, recognised by a plural parameter: they see all rollouts of an example and return a list.

``setup_state`` numbers the rollouts of an example, so that they differ.
"""

import itertools
from collections import defaultdict

import verifiers as vf
from datasets import Dataset

ROWS = [
    {"question": "What is 2 + 3?", "answer": "5", "info": {"bonus": 1}},
    {"question": "What is 4 + 4?", "answer": "9", "info": {"bonus": 2}},
]


class NumberedTrials(vf.SingleTurnEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.trials = defaultdict(itertools.count)

    async def setup_state(self, state):
        state["trial"] = next(self.trials[state["example_id"]])
        return state


def last_trial_wins(states):
    last = max(state["trial"] for state in states)
    return [float(state["trial"] == last) for state in states]


async def rank(states, infos) -> list[float]:
    return [state["trial"] * info["bonus"] / len(states) for state, info in zip(states, infos, strict=True)]


def all_correct(completions, answers):
    right = [f"{{{answer}}}" in said[-1]["content"] for said, answer in zip(completions, answers, strict=True)]
    return [float(all(right))] * len(right)


def sees_the_group(prompts, completions, answers, states, infos, tasks, parser):
    lengths = {len(prompts), len(completions), len(answers), len(states), len(infos), len(tasks)}
    return [float(lengths == {len(states)} and parser is not None) for _ in states]


def by_itself(completion, answer):
    return float(f"{{{answer}}}" in completion[-1]["content"])


def load_environment():
    rubric = vf.Rubric(
        funcs=[last_trial_wins, by_itself, rank, all_correct, sees_the_group], weights=[0.5, 1.0, 0.1, 0.25, 0.0]
    )
    return NumberedTrials(dataset=Dataset.from_list(ROWS), rubric=rubric)
