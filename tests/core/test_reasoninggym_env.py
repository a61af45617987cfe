"""ReasoningGymEnv: problems and scores of the real package."""

import doctest

import pytest

from nightjar.environments.games import reasoninggym_env as module
from nightjar.environments.games.reasoninggym_env import ReasoningGymEnv
from nightjar.environments.parsers import Parser


@pytest.fixture(scope="module", autouse=True)
def rg():
    return pytest.importorskip("reasoning_gym", reason="needs the extra 'reasoning-gym'")


def legs(**kwargs):
    return ReasoningGymEnv("leg_counting", **{"num_train_examples": 2, "num_eval_examples": 3} | kwargs)


def test_evaluation_problems_come_after_training_problems_also_in_datasets(rg):
    env, expected = legs(seed=4), rg.create_dataset("leg_counting", size=5, seed=4)
    assert [env.examples[n]["question"] for n in range(3)] == [expected[n]["question"] for n in (2, 3, 4)]
    assert [env.examples[n]["answer"] for n in range(3)] == ["2", "3", "4"]
    assert env.examples[0]["info"] == {"source_dataset": "leg_counting"}
    env = legs()
    train, evaluate = env.rg_to_hf(env.rg_dataset)
    assert (train["answer"], evaluate["answer"]) == (["0", "1"], ["2", "3", "4"])


def test_problems_of_several_generators_are_mixed():
    env = ReasoningGymEnv(["leg_counting", {"name": "chain_sum", "weight": 2.0, "config": {"max_terms": 3}}], 0, 30)
    sources = [env.examples[n]["info"]["source_dataset"] for n in range(30)]
    assert set(sources) == {"leg_counting", "chain_sum"}
    assert sources.count("chain_sum") > sources.count("leg_counting")


@pytest.mark.parametrize("gym", ["no_such_generator", ["no_such_generator"], [3]])
def test_problems_of_an_unknown_kind_are_refused(gym):
    with pytest.raises(ValueError, match=r"no_such_generator|Invalid dataset config: 3"):
        ReasoningGymEnv(gym, 1, 1)


@pytest.mark.parametrize(
    ("answer", "reward", "format_reward"),
    [
        ("<answer> 500 </answer>", 1.0, 1.0), ("so <answer>500</answer>", 1.0, 0.8),
        ("<answer>7</answer>", None, 1.0), ("500", 0.0, 0.2),
    ],
)  # fmt: skip
async def test_answers_are_scored_by_the_generator(play, answer, reward, format_reward):
    """The first problem of leg_counting with seed 0 has the answer 500."""
    env = legs(num_train_examples=0)
    state, _ = await play(env, answer)
    wrong = env.rg_dataset.score_answer("7", env.rg_dataset[0])
    assert state["reward"] == (wrong if reward is None else reward)
    assert state["metrics"] == {
        "check_answer_reward_func": state["reward"],
        "format_reward_func": pytest.approx(format_reward),
        "num_turns": 1.0,
    }


async def test_an_answer_may_be_found_in_another_way(play):
    state, _ = await play(legs(num_train_examples=0, parser=Parser()), "500")
    assert state["reward"] == 1.0


async def test_prompts_start_with_the_package_s_own_words_or_as_they_are_asked_to(play, rg):
    _, client = await play(legs(), "7")
    assert client.asked[0][0][0].content == rg.utils.SYSTEM_PROMPTS["default"] == module.DEFAULT_SYSTEM_PROMPT
    for given, roles in ((None, ["user"]), ("Be brief.", ["system", "user"])):
        _, client = await play(legs(system_prompt=given), "7")
        assert [message.role for message in client.asked[0][0]] == roles


def test_the_example_in_the_documentation_is_true():
    text = ReasoningGymEnv.__doc__.replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {"ReasoningGymEnv": ReasoningGymEnv}, "example", None, 0)
    assert doctest.DocTestRunner().run(example) == (0, 3)
