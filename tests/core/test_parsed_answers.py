"""What a parser finds is kept of every rollout that is scored."""

import asyncio

from nightjar.core.rollout.state import new_state
from nightjar.environments import SingleTurnEnv
from nightjar.environments.parsers import Parser, ThinkParser, XMLParser, extract_hash_answer
from nightjar.environments.rubrics import Rubric
from nightjar.evaluation.preparation import keep_parsed_answers


def kept(parser, said, **known):
    env = SingleTurnEnv(dataset=[{"question": "2 + 2?", "answer": "4"}], rubric=Rubric(parser=parser))
    assert keep_parsed_answers(env) == ["parsed_answer"]
    completion = [{"role": "assistant", "content": said}]
    state = new_state({"prompt": [], "example_id": 0, "rollout_index": 0}, completion=completion, **known)
    asyncio.run(env.rubric.score_group([state]))
    asyncio.run(env.rubric.cleanup(state))
    return state


def test_the_answer_is_kept():
    for parser, said, answer in [
        (Parser(extract_hash_answer), "so #### 4", "4"), (Parser(extract_hash_answer), "so 4", None),
        (XMLParser(["answer"]), "<answer>4</answer>", "4"), (ThinkParser(), "<think>2 + 2</think> 4", "4"),
        (Parser(lambda text: text[99]), "4", None), (Parser(lambda text: text * 5_000), "4", "4" * 4_000 + "…"),
    ]:  # fmt: skip
        state = kept(parser, said)
        assert (state["parsed_answer"], state["error"]) == (answer, None)


def test_nothing_is_kept_of_a_rollout_that_failed_nor_is_what_the_environment_set_replaced():
    assert "parsed_answer" not in kept(Parser(extract_hash_answer), "#### 4", error=ValueError("broken"))
    assert kept(Parser(extract_hash_answer), "#### 4", parsed_answer="four")["parsed_answer"] == "four"


def test_a_whole_text_is_no_column_but_of_several_rubrics_that_counts_whose_parser_takes_something_out():
    env = SingleTurnEnv(dataset=[{"question": "2 + 2?"}])
    assert keep_parsed_answers(env) == []
    env.add_rubric(Rubric(parser=Parser(extract_hash_answer)))
    assert keep_parsed_answers(env) == ["parsed_answer"]
    env.score_rollouts = False
    assert keep_parsed_answers(env) == []
