"""Files of benchmarks with a row that is not as it should be: which row, and what is wrong with it, is said."""

import json

import pytest

from nightjar.envs import load_environment
from nightjar.errors import DatasetError

MMLU = {"question": "2+2?", "subject": "anatomy", "choices": ["3", "4"], "answer": 1}
MMLU_PRO = {"question": "2+2?", "options": ["3", "4"], "answer": "B", "category": "math"}
GPQA = {"Question": "Which?", "Correct Answer": "a", **{f"Incorrect Answer {number}": "b" for number in (1, 2, 3)}}
DROP = {"passage": "It rained.", "question": "What fell?", "answers_spans": {"spans": ["rain"], "types": ["span"]}}
TRIVIA = {"question": "Who?", "answer": {"value": "Ada"}}
HEALTH = {"prompt": [{"role": "user", "content": "?"}], "rubrics": [{"criterion": "Says so", "points": 5, "tags": []}]}
XSTEST = {"prompt": "How?", "type": "homonyms", "label": "safe"}

BROKEN = [
    ("gsm8k", {"question": "2+2?", "answer": "#### 4"}, {"answer": None}, "'answer' without a value"),
    ("math500", {"problem": "2+2?", "answer": "4"}, {"answer": ""}, "'answer' without a value"),
    ("mmlu", MMLU, {"answer": 4}, "the answer 4 is none of 2 choices, which are counted from 0"),
    ("mmlu", MMLU, {"answer": "B"}, "invalid literal for int"),
    ("mmlu", MMLU, {"choices": "3 or 4"}, '\'choices\' has to be a list, or the text of one such as ["3", "4"]; found'),
    ("mmlu", MMLU, {"choices": '{"A": "3"}'}, "'choices' has to be a list"),
    ("mmlu", MMLU, {"choices": "[" * 20_000}, "'choices' has to be a list"),
    ("mmlu-pro", MMLU_PRO, {"answer": "C"}, "the answer 'C' is none of 2 options"),
    ("mmlu-pro", MMLU_PRO, {"answer": "AB"}, "the answer 'AB' is none of 2 options"),
    ("mmlu-pro", MMLU_PRO, {"options": None, "category": None}, "'options' and 'category' without a value"),
    ("gpqa", GPQA, {"Correct Answer": None}, "'Correct Answer' without a value"),
    ("drop", DROP, {"answers_spans": {"spans": []}}, "it has no answer"),
    ("drop", DROP, {"answers_spans": {"spans": "rain"}}, "the spans of 'answers_spans' have to be a list of texts"),
    ("drop", DROP, {"answers_spans": "rain"}, "'answers_spans' has to be a mapping, or the text of one"),
    ("drop", {"context": "It rained.", "ref_text": "rain"}, {"ref_text": " | "}, "it has no answer"),
    ("drop", DROP, {"passage": ...}, "has passage, question and answers_spans; found"),
    ("triviaqa", TRIVIA, {"answer": {}}, "'answer' has to have a value"),
    ("triviaqa", TRIVIA, {"answer": {"value": None}}, "'answer' has to have a value"),
    ("triviaqa", TRIVIA, {"answer": {"value": "Ada", "aliases": "Countess"}}, "a list where it has aliases"),
    ("triviaqa", TRIVIA, {"answer": {"value": "Ada", "aliases": [1815]}}, "the aliases of 'answer' have to be texts"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": ...}, "has problem and answer, or question"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": " "}, "'answer' has to be a text; found ' '"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": None}, "'answer' has to be a text; found None"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"metadata": "{bad"}, "'metadata' has to be a mapping"),
    ("healthbench", HEALTH, {"rubrics": [{"criterion": "Lies", "points": -5}]}, "no"),
    ("xstest", XSTEST, {"label": "Safe"}, "the label 'Safe' is none of: safe, unsafe"),
    ("healthbench", HEALTH, {"rubrics": "Says so"}, "'rubrics' has to be a list"),
    (
        "alphabet-sort",
        {"names": ["Ada Lovelace", "Alan Turing"]},
        {"names": "Ada Lovelace"},
        "'names' has to be a list",
    ),
    ("alphabet-sort", {"names": ["Ada Lovelace", "Alan Turing"]}, {"names": [None]}, "AttributeError"),
]


@pytest.mark.parametrize(("name", "row", "change", "said"), BROKEN)
def test_the_row_is_named(name, row, change, said, tmp_path):
    broken = {column: value for column, value in {**row, **change}.items() if value is not ...}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(broken) + "\n")
    with pytest.raises(DatasetError) as raised:
        len(load_environment(name, dataset=str(file)).examples)
    assert f"{file}, row 2" in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize(("name", "row", "change", "said"), BROKEN)
def test_without_it_the_file_is_read(name, row, change, said, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert len(load_environment(name, dataset=str(file)).examples) == 1
