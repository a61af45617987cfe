"""Reward functions: what they are given, how they are called in the records, and those that score whole groups."""

import functools
import logging

import pytest

from nightjar.core.messages import AssistantMessage
from nightjar.environments.parsers import Parser
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ModelError, ScoringError


def correct(completion, answer):
    return float(completion[-1].content == answer)


def length(completion):
    return len(completion[-1].content)


class TestArguments:
    async def given_to(self, func, state, **class_objects):
        rubric = Rubric([func], parser=Parser(str.strip))
        for name, value in class_objects.items():
            rubric.add_class_object(name, value)
        await rubric.score_rollout(state)
        assert state["error"] is None, state["error"]
        return rubric

    async def test_by_name_in_any_order(self, answered):
        seen = []
        state = answered("x", info={"a": 1}, task="t", difficulty=3)

        def reward(difficulty, judge, task, info, state, answer, completion, prompt, parser):
            seen.append((difficulty, judge, task, info, state, answer, completion, prompt, parser))
            return 1

        rubric = await self.given_to(reward, state, judge="Dredd")
        expected = (3, "Dredd", "t", {"a": 1}, state, "4", state["completion"], state["prompt"], rubric.parser)
        assert seen == [expected]

    async def test_columns_that_the_example_lacks_are_empty_and_its_task_is_the_input(self, make_state):
        seen = []

        def reward(answer, info, task):
            seen.append((answer, info, task))
            return 1

        state = make_state(completion=[])
        await self.given_to(reward, state)
        assert seen == [("", {}, state["input"])]

    async def test_all_of_them_for_a_function_that_takes_all(self, answered):
        seen = {}

        def reward(**everything):
            seen.update(everything)
            return 1

        await self.given_to(reward, answered(difficulty=3))
        assert {"prompt", "completion", "answer", "info", "task", "state", "parser", "difficulty"} <= set(seen)

    async def test_bound_arguments_of_a_partial_stay(self, answered):
        state = answered("5")
        await self.given_to(functools.partial(correct, answer="5"), state)
        assert state["reward"] == 1.0

    async def test_bound_arguments_of_a_partial_with_kwargs_stay(self, answered):
        def reward(**everything):
            return float(everything["answer"])

        state = answered("5")
        await self.given_to(functools.partial(reward, answer="9"), state)
        assert state["reward"] == 9.0

    async def test_an_unknown_argument_costs_the_rollout_and_lists_the_known_ones(self, answered):
        def reward(colour, answer, shade):
            return 1

        state = answered()
        await Rubric([reward]).score_rollout(state)
        named = str(state["error"])
        assert all(word in named for word in ("'reward'", "'colour', 'shade'", "answer, completion, example_id, info"))

    async def test_an_argument_with_a_default_need_not_be_provided(self, answered):
        def reward(answer, colour="blue", *names, shade="dark"):
            return len(f"{answer} {colour} {names} {shade}")

        state = answered()
        await self.given_to(reward, state)
        assert state["reward"] == len("4 blue () dark")

    async def test_positional_arguments_go_by_their_names_too(self, answered):
        seen = []

        def reward(answer, colour="blue", /, completion=None):
            seen.append((answer, colour, completion))
            return 1

        state = answered()
        await self.given_to(reward, state)
        assert seen == [("4", "blue", state["completion"])]

    async def test_the_fields_of_a_task_by_their_names(self, answered):
        def reward(difficulty, task, answer):
            return difficulty + len(task) + len(answer)

        state = answered(task={"difficulty": 3, "answer": "not this one"})
        await self.given_to(reward, state)
        assert state["reward"] == 3 + 2 + len("4")

    async def test_objects_of_a_provider(self, answered):
        def reward(length):
            return length

        rubric, state = Rubric([reward]), answered("seven")
        rubric.add_score_object_provider(lambda state: {"length": len(state["completion"][0].content)})
        await rubric.score_rollout(state)
        assert state["reward"] == 5.0

    async def test_a_provider_that_raises_costs_the_rollout(self, answered):
        rubric, state = Rubric([length]), answered()
        rubric.add_score_object_provider(lambda state: state["nothing"])
        await rubric.score_rollout(state)
        assert str(state["error"]) == "Reward function 'length': 'nothing'"

    async def test_a_state_may_be_a_plain_dict(self):
        state = {"prompt": "2+2?", "completion": [AssistantMessage(content="4")], "answer": "4", "trajectory": []}
        await Rubric([correct]).score_rollout(state)
        assert state["reward"] == 1.0


class TestNames:
    async def metrics(self, rubric, state):
        await rubric.score_rollout(state)
        return state["metrics"]

    async def test_a_partial_has_the_name_of_what_it_wraps(self, answered):
        assert await self.metrics(Rubric([functools.partial(length)]), answered("5")) == {"length": 1.0}

    async def test_a_callable_has_the_name_of_its_class(self, answered):
        class Politeness:
            async def __call__(self, completion):
                return 0.5

        assert await self.metrics(Rubric([Politeness()]), answered()) == {"Politeness": 0.5}

    async def test_two_of_one_name_are_both_recorded(self, answered, caplog):
        def make(score):
            def style(completion):
                return score

            return style

        state = answered()
        with caplog.at_level(logging.WARNING):
            rubric = Rubric([make(0.25), make(0.5), make(0.125)])
        assert await self.metrics(rubric, state) == {"style": 0.25, "style_2": 0.5, "style_3": 0.125}
        assert state["reward"] == 0.875
        assert "Two reward functions are called 'style': one is recorded as 'style_2'" in caplog.text

    async def test_a_function_called_reward_leaves_the_reward_alone(self, answered):
        def reward(completion):
            return 0.25

        state = answered()
        assert await self.metrics(Rubric([reward, correct]), state) == {"reward": 0.25, "correct": 1.0}
        assert state["reward"] == 1.25


class TestGroups:
    async def test_every_plural_is_a_list_over_the_group(self, answered):
        seen = []

        def group(prompts, completions, answers, infos, tasks, states, difficulty):
            seen.append([len(x) for x in (prompts, completions, answers, infos, tasks, states)] + [difficulty])
            return [0.0, 0.0]

        await Rubric([group]).score_group([answered(difficulty=3), answered("5", 1, difficulty=3)])
        assert seen == [[2, 2, 2, 2, 2, 2, [3, 3]]]

    async def test_an_annotation_does_not_make_a_group_function(self, answered):
        def single(completion) -> list:
            return 1.0

        assert not Rubric([single]).has_group_rewards

    async def test_failed_rollouts_are_not_shown_to_group_functions(self, answered):
        def count(states):
            return [float(len(states))] * len(states)

        states = [answered(), answered("5", 1)]
        states[0]["error"] = ModelError("down")
        await Rubric([count]).score_group(states)
        assert [state["reward"] for state in states] == [None, 1.0]

    async def test_too_few_scores_cost_the_group_with_a_reason(self, answered):
        def short(states):
            return [1.0]

        states = [answered(), answered("5", 1)]
        await Rubric([short]).score_group(states)
        assert [str(state["error"]) for state in states] == [
            "Reward function 'short': returned 1 scores for 2 rollouts"
        ] * 2

    async def test_functions_run_in_their_order_singles_and_groups_mixed(self, answered):
        order = []

        def one(state):
            order.append("one")
            return 0

        async def two(states):
            order.append("two")
            return [0]

        def three(state):
            order.append("three")
            return 0

        await Rubric([one, two, three]).score_group([answered()])
        assert order == ["one", "two", "three"]

    async def test_a_single_rollout_cannot_be_scored_with_group_functions(self, answered):
        with pytest.raises(ScoringError, match="single rollout"):
            await Rubric([lambda states: [1.0]]).score_rollout(answered())
