"""The scorers of ``nightjar.compat.nemo``, and the originals' defects the other way round."""

import asyncio

import pytest

from nightjar.compat.nemo.observability import ModelResponse
from nightjar.compat.nemo.scoring import (
    JudgeScoringConfig,
    ScorerInput,
    answer_line,
    build_judge_prompt,
    exact_match,
    extract_json,
    fuzzy_match,
    get_scorer,
    judge_score,
    list_scorers,
    mcq_extract,
    multichoice_regex,
    numeric_match,
    parse_judge_response,
    validate_json_schema,
)
from nightjar.errors import ConfigError, JudgeVerdictError, ScoringError


def is_right(scorer, response, target, **how):
    return scorer(ScorerInput(response, target), **how)["correct"]


@pytest.mark.parametrize(
    ("scorer", "response", "target", "correct"),
    [
        (exact_match, "The Hague.", "hague", True), (exact_match, "!!", "??", False),
        (exact_match, "the", "a", False), (exact_match, "", "", False),
        (fuzzy_match, "It is Paris, in France.", "Paris", True), (fuzzy_match, "Paris", "Paris, France", True),
        (fuzzy_match, "", "Paris", False), (fuzzy_match, "13 goals", "3", False),
        (fuzzy_match, "two", ["2", "two"], True), (multichoice_regex, "**Answer:** B", "b", True),
        (multichoice_regex, "Answer: because of C.\nAnswer: (D)", "D", True),
        (multichoice_regex, "Answer: I think C", "I", False), (multichoice_regex, "", "", False),
        (mcq_extract, r"So \boxed{T}", "T", True), (mcq_extract, "I would say\n\nC.", "C", True),
        (answer_line, "answer: think.\nAnswer: **1,234**", "1234", True),
        (answer_line, "Answer: 24 nuts", "24", True), (answer_line, "Answer: 24.00", "24", True),
        (answer_line, "Answer: 124", "24", False), (answer_line, "Answer: 1, 2", "12", False),
        (answer_line, "It is\nblue", "Blue", True), (answer_line, "", "", False),
        (answer_line, "So } ) ].\nSo the answer is ] ) }.", "] ) }", True),
        (answer_line, "So the answer is invalid.", "valid", False),
        (answer_line, "So the answer is 12.", "-12", False),
        (answer_line, "3 words. So the answer is apple banana.", "apple banana", True),
        (answer_line, "First we look.\nSo the answer is True. Hence we are done.", "True", True),
        (answer_line, "Answer: 5 + 6 = 11", "11", True), (answer_line, "Answer: 5 + 6 = 11", "5", False),
        (answer_line, "Answer: 10-4=6", "10", False), (answer_line, "Answer: 2^10", "2", False),
        (answer_line, "Answer: 2^10", "1024", True), (answer_line, "Answer: 12 or 13", "12", False),
        (answer_line, "Answer: 1, 2, 3", "1", False), (answer_line, "Answer: 5 is wrong, 6 is right", "5", False),
        (answer_line, "Answer: $18.00. It took 5 steps.", "18", True), (answer_line, "Answer: 25%", "25", True),
        (answer_line, "Answer: 1,200 dollars", "1200", True), (answer_line, "Answer: 24 (3 bags of 8)", "24", True),
        (answer_line, "Answer: 72 clips in 2 months", "72", True),
        (answer_line, "Answer: \N{MINUS SIGN}5", "-5", True), (answer_line, "Answer: 5", "-5", False),
        (fuzzy_match, "It is \N{MINUS SIGN}5 degrees", "-5", True),
        (fuzzy_match, "It costs 1,200 dollars", "200", False), (fuzzy_match, "It costs 1,200 dollars", "1200", True),
        (fuzzy_match, "It is 1.5", "5", False), (fuzzy_match, "1, 2", "2", True),
        (fuzzy_match, "It is in the U.S.A. today", "USA", True),
        (fuzzy_match, "J. R. R. Tolkien wrote it", "J.R.R. Tolkien", True), (fuzzy_match, "I like C++", "C", False),
        (fuzzy_match, "Plan B. I am sure", "Plan B", True), (exact_match, "1 5", "1.5", False),
        (exact_match, ".5", "5", False), (exact_match, "1,200", "1200", True), (exact_match, "12-24", "12 24", True),
        (exact_match, "(A).", "(A)", True), (exact_match, "(B)", "(A)", False), (exact_match, "12", "-12", False),
        (exact_match, "] ) }", "] ) >", False),
        (multichoice_regex, "(A) is tempting. So the answer is (R).", "(R)", True),
        (multichoice_regex, "(B) is tempting. So the answer is (R).", "(B)", False),
        (multichoice_regex, "The answer is T cells (C).", "C", True),
        (mcq_extract, "The answer is X chromosome, option C", "C", True),
        (mcq_extract, "So the answer is (B).", "(A)", False), (mcq_extract, "", "()", False),
        (numeric_match, "So the answer is \N{MINUS SIGN}12.", "-12", True),
        (numeric_match, "So the answer is 12.", "-12", False), (numeric_match, "1", "100", False),
        (numeric_match, "180.0 is it", "180", True), (numeric_match, "It costs $1,200", "1200", True),
        (numeric_match, "0", "0", True), (numeric_match, "none", "none", False),
    ],
)  # fmt: skip
def test_texts_are_scored(scorer, response, target, correct):
    assert is_right(scorer, response, target) is correct


def test_own_patterns_and_names_of_scorers():
    assert is_right(multichoice_regex, "Choose A. Choose E", "E", pattern=r"Choose ([A-E])")
    assert is_right(multichoice_regex, "Choose (e)", "(E)", pattern=r"Choose (\(\w\))")
    assert is_right(answer_line, "So: 4\nSo: 5", "5", pattern=r"So: (\d)")
    assert get_scorer("exact_match") is exact_match
    assert len(list_scorers()) == 6
    with pytest.raises(ConfigError, match=r"Unknown scorer 'exact'\. Choose one of: answer_line"):
        get_scorer("exact")


def test_json_is_validated_against_a_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    assert validate_json_schema('Here: ```json\n{"n": 4}\n```', schema)["correct"]
    assert validate_json_schema('{"n": true}', schema)["error"] == "$.n: True is not of type 'integer'"
    assert validate_json_schema('{"n": 2}', schema)["error"] == "$.n: 2 is less than the minimum of 3"
    assert validate_json_schema("nothing", schema)["error"] == "the response contains no JSON"
    assert extract_json("a [1, 2] b") == [1, 2]
    with pytest.raises(ConfigError, match="Invalid JSON schema"):
        validate_json_schema("{}", {"type": "no such"})


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["[", '{"a":', "[1,", "```json\n["])
def test_a_reply_in_an_endless_loop_has_no_json(loop):
    assert extract_json(loop * 20_000) is None
    assert validate_json_schema(loop * 20_000, {"type": "array"})["correct"] is False
    assert extract_json(f'{{"score": 4}} {loop * 20_000}') == {"score": 4}


def test_a_judges_reply_without_a_score_is_an_error():
    assert parse_judge_response('```json\n{"score": 5, "reason": "x"}\n```')["normalized_score"] == 1.0
    assert parse_judge_response("I give it 4/5.")["score"] == 4.0
    assert parse_judge_response('<think>{"score": 5}?</think>{"score": 1}')["score"] == 1.0
    for reply in ("7/10", "fine", '{"score": 9}', '{"score": true}', '<think>{"score": 5}', "", "[" * 20_000):
        with pytest.raises(JudgeVerdictError, match="from 0 to 5"):
            parse_judge_response(reply)
    assert "Use {braces}" in build_judge_prompt("Use {braces}", "r", "e")


def test_a_judge_whose_score_depends_on_the_order_is_detected():
    class Judge:
        async def chat(self, prompt):
            first = prompt.index("ANSWER") < prompt.index("REFERENCE")
            return ModelResponse(f'{{"score": {5 if first else 3}, "reason": "fine"}}')

    once = asyncio.run(judge_score("q", "ANSWER", "REFERENCE", Judge()))
    assert once == {"score": 5.0, "normalized_score": 1.0, "reason": "fine", "correct": True}
    config = JudgeScoringConfig(swap_check=True)
    found = asyncio.run(judge_score("q", "ANSWER", "REFERENCE", Judge(), config))
    assert (found["normalized_score"], found["swap_differs"]) == (0.8, True)
    with pytest.raises(ScoringError, match="needs a judge"):
        asyncio.run(judge_score("q", "a"))
