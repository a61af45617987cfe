"""Files of benchmarks: the same examples from JSON lines and tables, and errors that name an invalid row."""

import csv
import itertools
import json

import pytest

from nightjar.environments import load_environment
from nightjar.errors import DatasetError

ROWS = {
    "gsm8k": {"question": "2+2?", "answer": "#### 4"},
    "math500": {"problem": "2+2?", "answer": "4"},
    "mmlu": {"question": "2+2?", "subject": "anatomy", "choices": ["3", 'the "4"', "it's"], "answer": 1},
    "mmlu-pro": {"question": "2+2?", "options": ["3", "4"], "answer": "B", "category": "math"},
    "gpqa": {
        "Question": "Which?", "Correct Answer": "a", **{f"Incorrect Answer {number}": "b" for number in (1, 2, 3)},
    },
    "drop": {"passage": "p", "question": "q", "answers_spans": {"spans": ["rain", "hail"], "types": ["span", "span"]}},
    "drop as in simple-evals": {"context": "It rained.", "ref_text": "rain"},
    "triviaqa": {"question": "Who?", "answer": {"value": "Ada", "aliases": ["Countess"]}},
    "simpleqa": {"problem": "Who?", "answer": "Ada", "metadata": {"topic": "Science", "answer_type": "Person"}},
    "healthbench": {
        "prompt": [{"role": "user", "content": "?"}],
        "rubrics": [{"criterion": "Says so", "points": 5, "tags": ["axis:accuracy"]}],
        "example_tags": ["theme:hedging"],
    },
    "xstest": {"prompt": "How?", "type": "homonyms", "label": "safe"},
    "alphabet-sort": {"names": ["Ada Lovelace", "Alan Turing", "Grace Hopper"]},
}  # fmt: skip
BROKEN = [
    ("gsm8k", {"answer": None}, "no value for 'answer'"),
    ("math500", {"answer": ""}, "no value for 'answer'"),
    ("mmlu", {"answer": 4}, "the answer 4 is not one of 3 choices, counted from 0"),
    ("mmlu", {"answer": "B"}, "invalid literal for int"),
    ("mmlu", {"choices": "3 or 4"}, 'a list, or a text that holds a list, such as ["3", "4"]; found'),
    ("mmlu", {"choices": '{"A": "3"}'}, "'choices' must be a list"),
    ("mmlu", {"choices": "[" * 20_000}, "'choices' must be a list"),
    ("mmlu-pro", {"answer": "C"}, "the answer 'C' is not one of 2 options"),
    ("mmlu-pro", {"answer": "AB"}, "the answer 'AB' is not one of 2 options"),
    ("mmlu-pro", {"options": None, "category": None}, "no value for 'options' and 'category'"),
    ("gpqa", {"Correct Answer": None}, "no value for 'Correct Answer'"),
    ("drop", {"answers_spans": {"spans": []}}, "it has no answer"),
    ("drop", {"answers_spans": {"spans": "rain"}}, "the spans of 'answers_spans' must be a list of texts"),
    ("drop", {"answers_spans": "rain"}, "'answers_spans' must be a mapping, or a text that holds a mapping"),
    ("drop as in simple-evals", {"ref_text": " | "}, "it has no answer"),
    ("drop", {"passage": ...}, "must have passage, question and answers_spans; found"),
    ("triviaqa", {"answer": {}}, "'answer' must have a value"),
    ("triviaqa", {"answer": {"value": None}}, "'answer' must have a value"),
    ("triviaqa", {"answer": {"value": "Ada", "aliases": "Countess"}}, "its aliases must be lists"),
    ("triviaqa", {"answer": {"value": "Ada", "aliases": [1815]}}, "the aliases of 'answer' must be texts"),
    ("simpleqa", {"answer": ...}, "must have problem and answer, or question"),
    ("simpleqa", {"answer": " "}, "'answer' must be a text; found ' '"),
    ("simpleqa", {"answer": None}, "'answer' must be a text; found None"),
    ("simpleqa", {"metadata": "{bad"}, "'metadata' must be a mapping"),
    ("healthbench", {"rubrics": [{"criterion": "Lies", "points": -5}]}, "positive points"),
    ("healthbench", {"rubrics": "Says so"}, "'rubrics' must be a list"),
    ("xstest", {"label": "Safe"}, "the label 'Safe' is not one of: safe, unsafe"),
    ("alphabet-sort", {"names": "Ada Lovelace"}, "'names' must be a list"),
    ("alphabet-sort", {"names": [None]}, "AttributeError"),
]


def examples(name, path):
    return list(load_environment(name.partition(" ")[0], dataset=path).examples)


def table(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.mark.parametrize("name", ROWS)
def test_an_invalid_row_is_named_and_without_it_the_file_is_read(name, rows_file):
    assert len(examples(name, rows_file(ROWS[name], name="valid.jsonl"))) == 1
    for change, said in ((change, said) for broken, change, said in BROKEN if broken == name):
        row = {column: value for column, value in {**ROWS[name], **change}.items() if value is not ...}
        invalid = rows_file(ROWS[name], row)
        with pytest.raises(DatasetError) as raised:
            examples(name, invalid)
        assert f"{invalid}, row 2" in str(raised.value)
        assert said in str(raised.value)


@pytest.mark.parametrize("name", ["mmlu", "mmlu-pro", "drop", "triviaqa", "simpleqa", "healthbench", "alphabet-sort"])
def test_a_table_has_the_examples_of_json_lines(name, tmp_path, rows_file):
    expected = examples(name, rows_file(ROWS[name]))
    assert len(expected) == 1
    for ending, written in itertools.product((".csv", ".tsv"), (json.dumps, repr)):
        texts = {column: value if isinstance(value, str) else written(value) for column, value in ROWS[name].items()}
        assert examples(name, table(tmp_path / f"rows{ending}", texts)) == expected


def test_a_list_as_numpy_writes_it_has_each_of_its_texts(tmp_path):
    row = {**ROWS["mmlu"], "choices": """['3' 'the "4"'\n "it's"]"""}
    [example] = examples("mmlu", table(tmp_path / "rows.csv", row))
    assert '\n\nA) 3\nB) the "4"\nC) it\'s\n\n' in example["prompt"][-1]["content"]


def test_the_error_of_an_invalid_list_in_a_table_names_file_row_and_column(tmp_path):
    row = {**ROWS["mmlu"], "choices": '["3", "4"]'}
    path = table(tmp_path / "rows.csv", row, {**row, "choices": "3, 4"})
    with pytest.raises(DatasetError, match=r"rows\.csv, row 2: 'choices' must be a list.*; found '3, 4'"):
        examples("mmlu", path)
