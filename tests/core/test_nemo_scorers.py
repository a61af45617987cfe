"""The scorers of ``nightjar.compat.nemo``, and the originals' defects the other way round."""

import asyncio

import pytest
from late import late

from nightjar.compat.nemo.observability import ModelResponse
from nightjar.errors import ConfigError, JudgeVerdictError, ScoringError

scoring = late("nightjar.compat.nemo.scoring")


CASES = {
    "exact_match": [
        ("The Hague.", "hague", True), ("!!", "??", False), ("the", "a", False), ("", "", False), ("1 5", "1.5", False),
        (".5", "5", False), ("1,200", "1200", True), ("12-24", "12 24", True), ("(A).", "(A)", True),
        ("(B)", "(A)", False), ("12", "-12", False), ("] ) }", "] ) >", False),
    ],
    "fuzzy_match": [
        ("It is Paris, in France.", "Paris", True), ("Paris", "Paris, France", True), ("", "Paris", False),
        ("13 goals", "3", False), ("two", ["2", "two"], True), ("It is \N{MINUS SIGN}5 degrees", "-5", True),
        ("It costs 1,200 dollars", "200", False), ("It costs 1,200 dollars", "1200", True), ("It is 1.5", "5", False),
        ("1, 2", "2", True), ("It is in the U.S.A. today", "USA", True),
        ("J. R. R. Tolkien wrote it", "J.R.R. Tolkien", True), ("I like C++", "C", False),
        ("Plan B. I am sure", "Plan B", True),
    ],
    "multichoice_regex": [
        ("**Answer:** B", "b", True), ("Answer: because of C.\nAnswer: (D)", "D", True),
        ("Answer: I think C", "I", False), ("", "", False), ("(A) is tempting. So the answer is (R).", "(R)", True),
        ("(B) is tempting. So the answer is (R).", "(B)", False), ("The answer is T cells (C).", "C", True),
    ],
    "mcq_extract": [
        (r"So \boxed{T}", "T", True), ("I would say\n\nC.", "C", True),
        ("The answer is X chromosome, option C", "C", True), ("So the answer is (B).", "(A)", False), ("", "()", False),
    ],
    "answer_line": [
        ("answer: think.\nAnswer: **1,234**", "1234", True), ("Answer: 24 nuts", "24", True),
        ("Answer: 24.00", "24", True), ("Answer: 124", "24", False), ("Answer: 1, 2", "12", False),
        ("It is\nblue", "Blue", True), ("", "", False), ("So } ) ].\nSo the answer is ] ) }.", "] ) }", True),
        ("So the answer is invalid.", "valid", False), ("So the answer is 12.", "-12", False),
        ("3 words. So the answer is apple banana.", "apple banana", True),
        ("First we look.\nSo the answer is True. Hence we are done.", "True", True), ("Answer: 5 + 6 = 11", "11", True),
        ("Answer: 5 + 6 = 11", "5", False), ("Answer: 10-4=6", "10", False), ("Answer: 2^10", "2", False),
        ("Answer: 2^10", "1024", True), ("Answer: 12 or 13", "12", False), ("Answer: 1, 2, 3", "1", False),
        ("Answer: 5 is wrong, 6 is right", "5", False), ("Answer: $18.00. It took 5 steps.", "18", True),
        ("Answer: 25%", "25", True), ("Answer: 1,200 dollars", "1200", True), ("Answer: 24 (3 bags of 8)", "24", True),
        ("Answer: 72 clips in 2 months", "72", True), ("Answer: \N{MINUS SIGN}5", "-5", True),
        ("Answer: 5", "-5", False),
    ],
    "numeric_match": [
        ("So the answer is \N{MINUS SIGN}12.", "-12", True), ("So the answer is 12.", "-12", False),
        ("1", "100", False), ("180.0 is it", "180", True), ("It costs $1,200", "1200", True), ("0", "0", True),
        ("none", "none", False),
    ],
}  # fmt: skip
"""Responses and targets of each scorer, with whether the response is right."""


def test_texts_are_scored():
    for name, cases in CASES.items():
        scorer = scoring.get_scorer(name)
        found = [(said, target, scorer(scoring.ScorerInput(said, target))["correct"]) for said, target, _ in cases]
        assert found == cases


def test_own_patterns_and_names_of_scorers():
    def is_right(scorer, response, target, pattern):
        return scorer(scoring.ScorerInput(response, target), pattern=pattern)["correct"]

    assert is_right(scoring.multichoice_regex, "Choose A. Choose E", "E", r"Choose ([A-E])")
    assert is_right(scoring.multichoice_regex, "Choose (e)", "(E)", r"Choose (\(\w\))")
    assert is_right(scoring.answer_line, "So: 4\nSo: 5", "5", r"So: (\d)")
    assert sorted(scoring.list_scorers()) == sorted(CASES)
    assert scoring.get_scorer("exact_match") is scoring.exact_match
    with pytest.raises(ConfigError, match=r"Unknown scorer 'exact'\. Choose one of: answer_line"):
        scoring.get_scorer("exact")


def test_json_is_validated_against_a_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    assert scoring.validate_json_schema('Here: ```json\n{"n": 4}\n```', schema)["correct"]
    assert scoring.validate_json_schema('{"n": true}', schema)["error"] == "$.n: True is not of type 'integer'"
    assert scoring.validate_json_schema('{"n": 2}', schema)["error"] == "$.n: 2 is less than the minimum of 3"
    assert scoring.validate_json_schema("nothing", schema)["error"] == "the response contains no JSON"
    assert scoring.extract_json("a [1, 2] b") == [1, 2]
    with pytest.raises(ConfigError, match="Invalid JSON schema"):
        scoring.validate_json_schema("{}", {"type": "no such"})


@pytest.mark.slow
def test_a_reply_in_an_endless_loop_has_no_json():
    for loop in ("[", '{"a":', "[1,", "```json\n["):
        assert scoring.extract_json(loop * 20_000) is None
        assert scoring.validate_json_schema(loop * 20_000, {"type": "array"})["correct"] is False
        assert scoring.extract_json(f'{{"score": 4}} {loop * 20_000}') == {"score": 4}


def test_a_judges_reply_without_a_score_is_an_error():
    assert scoring.parse_judge_response('```json\n{"score": 5, "reason": "x"}\n```')["normalized_score"] == 1.0
    assert scoring.parse_judge_response("I give it 4/5.")["score"] == 4.0
    assert scoring.parse_judge_response('<think>{"score": 5}?</think>{"score": 1}')["score"] == 1.0
    for reply in ("7/10", "fine", '{"score": 9}', '{"score": true}', '<think>{"score": 5}', "", "[" * 20_000):
        with pytest.raises(JudgeVerdictError, match="from 0 to 5"):
            scoring.parse_judge_response(reply)
    assert "Use {braces}" in scoring.build_judge_prompt("Use {braces}", "r", "e")


def test_a_judge_whose_score_depends_on_the_order_is_detected():
    class Judge:
        async def chat(self, prompt):
            first = prompt.index("ANSWER") < prompt.index("REFERENCE")
            return ModelResponse(f'{{"score": {5 if first else 3}, "reason": "fine"}}')

    once = asyncio.run(scoring.judge_score("q", "ANSWER", "REFERENCE", Judge()))
    assert once == {"score": 5.0, "normalized_score": 1.0, "reason": "fine", "correct": True}
    config = scoring.JudgeScoringConfig(swap_check=True)
    found = asyncio.run(scoring.judge_score("q", "ANSWER", "REFERENCE", Judge(), config))
    assert (found["normalized_score"], found["swap_differs"]) == (0.8, True)
    with pytest.raises(ScoringError, match="needs a judge"):
        asyncio.run(scoring.judge_score("q", "a"))
