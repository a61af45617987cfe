"""Benchmarks from tables: lists and mappings, which are texts there, are read; the examples are those of JSON lines."""

import csv
import json

import pytest

from nightjar.environments import load_environment
from nightjar.errors import DatasetError

ROWS = {
    "mmlu": {"question": "2+2?", "subject": "anatomy", "choices": ["3", 'the "4"', "it's"], "answer": 1},
    "mmlu-pro": {"question": "2+2?", "options": ["3", "4"], "answer": "B", "category": "math"},
    "drop": {"passage": "p", "question": "q", "answers_spans": {"spans": ["rain", "hail"], "types": ["span", "span"]}},
    "triviaqa": {"question": "Who?", "answer": {"value": "Ada", "aliases": ["Countess"]}},
    "simpleqa": {"problem": "Who?", "answer": "Ada", "metadata": {"topic": "Science", "answer_type": "Person"}},
    "healthbench": {
        "prompt": [{"role": "user", "content": "?"}],
        "rubrics": [{"criterion": "Says so", "points": 5, "tags": ["axis:accuracy"]}],
        "example_tags": ["theme:hedging"],
    },
    "alphabet-sort": {"names": ["Ada Lovelace", "Alan Turing", "Grace Hopper"]},
}


def _table(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def _examples(name, path):
    return list(load_environment(name, dataset=path).examples)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize("written", [json.dumps, repr])
def test_a_table_has_the_examples_of_json_lines(name, ending, written, tmp_path):
    row = ROWS[name]
    lines = tmp_path / "rows.jsonl"
    lines.write_text(json.dumps(row))
    texts = {column: value if isinstance(value, str) else written(value) for column, value in row.items()}
    found = _examples(name, _table(tmp_path / f"rows{ending}", texts))
    assert len(found) == 1
    assert found == _examples(name, str(lines))


def test_a_list_as_numpy_writes_it_has_each_of_its_texts(tmp_path):
    row = {**ROWS["mmlu"], "choices": """['3' 'the "4"'\n "it's"]"""}
    [example] = _examples("mmlu", _table(tmp_path / "rows.csv", row))
    assert '\n\nA) 3\nB) the "4"\nC) it\'s\n\n' in example["prompt"][-1]["content"]


def test_the_error_of_an_invalid_list_names_file_row_and_column(tmp_path):
    row = {**ROWS["mmlu"], "choices": '["3", "4"]'}
    path = _table(tmp_path / "rows.csv", row, {**row, "choices": "3, 4"})
    with pytest.raises(DatasetError, match=r"rows\.csv, row 2: 'choices' must be a list.*; found '3, 4'"):
        _examples("mmlu", path)
