"""One question, one answer: weighted reward functions, synchronous and asynchronous, a metric, and all they may ask.

A reward function names what it wants: prompt, completion, answer, state, info, parser, a class object, any other
column of the dataset, everything (``**kwargs``); a parameter that nobody provides keeps its default.
"""

import verifiers as vf
from datasets import Dataset

ROWS = [
    {"question": "What is 2 + 3?", "answer": "5", "info": {"unit": "apples"}, "difficulty": 1},
    {"question": "What is 12 x (3 + 4)?", "answer": "84", "info": {"unit": "pears"}, "difficulty": 3},
    {"question": "What is 9 - 10?", "answer": "1", "info": {"unit": "plums"}, "difficulty": 2},
]
FRUIT = {"apples", "plums"}


def boxed_answer(text):
    return text.rpartition("{")[2].partition("}")[0]


def correct(completion, answer, parser):
    return parser.parse_answer(completion) == answer


async def is_short(completion):
    return 1.0 if len(completion[-1]["content"].split()) < 12 else 0.0


def known_fruit(info, fruit):
    return info["unit"] in fruit


def difficulty_met(difficulty, answer, completion, parser):
    return difficulty if parser.parse_answer(completion) == answer else 0


def sees_the_rollout(prompt, completion, state):
    same = state["prompt"] == prompt and state["completion"] == completion
    return float(same and prompt[-1].role == "user" and completion[-1].role == "assistant")


def sees_everything(**kwargs):
    names = {"prompt", "completion", "answer", "state", "info", "task", "parser", "fruit", "difficulty"}
    return float(names <= kwargs.keys())


def keeps_its_default(completion, bonus=0.25):
    return bonus


def load_environment():
    parser = vf.Parser(extract_fn=boxed_answer)
    rubric = vf.Rubric(
        funcs=[correct, is_short, known_fruit, difficulty_met], weights=[1.0, 0.5, -0.25, 0.1], parser=parser
    )
    rubric.add_class_object("fruit", FRUIT)
    rubric.add_reward_func(sees_the_rollout, weight=2)
    rubric.add_reward_func(sees_everything, weight=0.0)
    rubric.add_metric(keeps_its_default)
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), parser=parser, rubric=rubric)
