"""Files of benchmarks with an invalid row: the error names the row and the problem."""

import json

import pytest

from nightjar.environments import load_environment
from nightjar.errors import DatasetError

MMLU = {"question": "2+2?", "subject": "anatomy", "choices": ["3", "4"], "answer": 1}
MMLU_PRO = {"question": "2+2?", "options": ["3", "4"], "answer": "B", "category": "math"}
GPQA = {"Question": "Which?", "Correct Answer": "a", **{f"Incorrect Answer {number}": "b" for number in (1, 2, 3)}}
DROP = {"passage": "It rained.", "question": "What fell?", "answers_spans": {"spans": ["rain"], "types": ["span"]}}
TRIVIA = {"question": "Who?", "answer": {"value": "Ada"}}
HEALTH = {"prompt": [{"role": "user", "content": "?"}], "rubrics": [{"criterion": "Says so", "points": 5, "tags": []}]}
SORT = {"names": ["Ada Lovelace", "Alan Turing"]}
XSTEST = {"prompt": "How?", "type": "homonyms", "label": "safe"}

BROKEN = [
    ("gsm8k", {"question": "2+2?", "answer": "#### 4"}, {"answer": None}, "no value for 'answer'"),
    ("math500", {"problem": "2+2?", "answer": "4"}, {"answer": ""}, "no value for 'answer'"),
    ("mmlu", MMLU, {"answer": 4}, "the answer 4 is not one of 2 choices, counted from 0"),
    ("mmlu", MMLU, {"answer": "B"}, "invalid literal for int"),
    ("mmlu", MMLU, {"choices": "3 or 4"}, '\'choices\' must be a list, or the text of one such as ["3", "4"]; found'),
    ("mmlu", MMLU, {"choices": '{"A": "3"}'}, "'choices' must be a list"),
    ("mmlu", MMLU, {"choices": "[" * 20_000}, "'choices' must be a list"),
    ("mmlu-pro", MMLU_PRO, {"answer": "C"}, "the answer 'C' is not one of 2 options"),
    ("mmlu-pro", MMLU_PRO, {"answer": "AB"}, "the answer 'AB' is not one of 2 options"),
    ("mmlu-pro", MMLU_PRO, {"options": None, "category": None}, "no value for 'options' and 'category'"),
    ("gpqa", GPQA, {"Correct Answer": None}, "no value for 'Correct Answer'"),
    ("drop", DROP, {"answers_spans": {"spans": []}}, "it has no answer"),
    ("drop", DROP, {"answers_spans": {"spans": "rain"}}, "the spans of 'answers_spans' must be a list of texts"),
    ("drop", DROP, {"answers_spans": "rain"}, "'answers_spans' must be a mapping, or the text of one"),
    ("drop", {"context": "It rained.", "ref_text": "rain"}, {"ref_text": " | "}, "it has no answer"),
    ("drop", DROP, {"passage": ...}, "must have passage, question and answers_spans; found"),
    ("triviaqa", TRIVIA, {"answer": {}}, "'answer' must have a value"),
    ("triviaqa", TRIVIA, {"answer": {"value": None}}, "'answer' must have a value"),
    ("triviaqa", TRIVIA, {"answer": {"value": "Ada", "aliases": "Countess"}}, "its aliases must be lists"),
    ("triviaqa", TRIVIA, {"answer": {"value": "Ada", "aliases": [1815]}}, "the aliases of 'answer' must be texts"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": ...}, "must have problem and answer, or question"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": " "}, "'answer' must be a text; found ' '"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"answer": None}, "'answer' must be a text; found None"),
    ("simpleqa", {"problem": "Who?", "answer": "Ada"}, {"metadata": "{bad"}, "'metadata' must be a mapping"),
    ("healthbench", HEALTH, {"rubrics": [{"criterion": "Lies", "points": -5}]}, "no"),
    ("xstest", XSTEST, {"label": "Safe"}, "the label 'Safe' is not one of: safe, unsafe"),
    ("healthbench", HEALTH, {"rubrics": "Says so"}, "'rubrics' must be a list"),
    ("alphabet-sort", SORT, {"names": "Ada Lovelace"}, "'names' must be a list"),
    ("alphabet-sort", SORT, {"names": [None]}, "AttributeError"),
]


@pytest.mark.parametrize(("name", "row", "change", "said"), BROKEN)
def test_the_row_is_named_and_without_it_the_file_is_read(name, row, change, said, tmp_path):
    broken = {column: value for column, value in {**row, **change}.items() if value is not ...}
    valid, invalid = tmp_path / "valid.jsonl", tmp_path / "rows.jsonl"
    valid.write_text(json.dumps(row) + "\n")
    invalid.write_text(json.dumps(row) + "\n" + json.dumps(broken) + "\n")
    assert len(load_environment(name, dataset=str(valid)).examples) == 1
    with pytest.raises(DatasetError) as raised:
        len(load_environment(name, dataset=str(invalid)).examples)
    assert f"{invalid}, row 2" in str(raised.value)
    assert said in str(raised.value)
