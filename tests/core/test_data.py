"""Datasets: rows as examples, their identity, and files."""

import re

import pytest

from nightjar.core.messages import AssistantMessage, UserMessage
from nightjar.engine.runs.identity import fingerprint
from nightjar.environments.data import Examples, example_hash, read_rows
from nightjar.errors import DatasetError

ASKED, A = ({"role": "user", "content": text} for text in ("2+2?", "a"))
EXAMPLE = {"prompt": [ASKED], "answer": "4", "info": {"a": 1, "b": 2}, "example_id": 0}


def test_prompts_of_all_forms_become_messages_after_system_prompt_and_few_shot():
    for row, expected in (
        ({"question": "2+2?", "answer": "4", "info": None}, {"question": "2+2?", "answer": "4", "prompt": [ASKED]}),
        ({"prompt": "2+2?"}, {"prompt": [{"role": "text", "content": "2+2?"}]}),
        ({"question": "a", "info": '{"n": 1}'}, {"question": "a", "prompt": [A], "info": {"n": 1}}),
        ({"question": "a", "example_id": "x-17"}, {"question": "a", "prompt": [A], "src_id": "x-17"}),
    ):
        assert Examples([{"question": "first"}, row])[1] == {**expected, "example_id": 1}
    few_shot = [UserMessage(content="1+1?"), AssistantMessage(content="2")]
    prompt = Examples([{"question": "2+2?"}], "Be brief.", few_shot)[0]["prompt"]
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
    assert prompt[-1] == ASKED
    brief, shout = ({"role": "system", "content": text} for text in ("Be brief.", "Shout."))
    for prompt, expected in (([ASKED], [brief, ASKED]), ([shout, ASKED], [shout, ASKED])):
        assert Examples([{"prompt": prompt}], "Be brief.", few_shot)[0]["prompt"] == expected


def test_two_readings_share_nothing_and_an_invalid_example_is_an_error():
    examples = Examples([{"prompt": [ASKED], "info": {"list": [1]}}], "Be brief.")
    first, second = examples[0], examples[0]
    first["info"]["list"].append(2)
    for message in first["prompt"]:
        message["content"] = "changed"
    assert second["info"] == {"list": [1]}
    assert second["prompt"] == [{"role": "system", "content": "Be brief."}, ASKED]
    assert examples[0] == second
    with pytest.raises(DatasetError, match=r"Example 1 has neither .* its columns are \['answer', 'q'\]"):
        Examples([{"question": "a"}, {"q": "b", "answer": "c"}])[1]
    with pytest.raises(DatasetError, match="'info' of example 0"):
        Examples([{"question": "a", "info": "oops"}])[0]
    for value in ({"train": [{"question": "a"}]}, 7, iter([]), ["a"]):
        with pytest.raises(DatasetError, match=r"a (list of )?dict"):
            Examples(value)[0]


@pytest.mark.slow
def test_a_dataset_of_the_datasets_library():
    import datasets

    rows = [{"question": f"q{number}", "answer": str(number)} for number in range(600)]
    examples = Examples(datasets.Dataset.from_list(rows))
    assert len(examples) == 600
    assert [examples[n]["answer"] for n in (0, 255, 256, 599, 3)] == ["0", "255", "256", "599", "3"]


def test_an_example_s_identity_is_sixteen_hex_digits_of_prompt_answer_and_info():
    known = example_hash(EXAMPLE)
    assert re.fullmatch("[0-9a-f]{16}", known)
    assert example_hash({"prompt": [ASKED]}) == example_hash({"prompt": [ASKED], "answer": "", "info": {}})
    for change in ({"example_id": 9, "difficulty": 3}, {"info": {"b": 2, "a": 1}}):
        assert example_hash(EXAMPLE | change) == known
    for change in ({"prompt": [{**ASKED, "content": "2+3?"}]}, {"answer": "5"}, {"info": {"a": 1}}, {"info": {1: "a"}}):
        assert example_hash(EXAMPLE | change) != known
    assert fingerprint(["a" * 16, "b" * 16]) != fingerprint(["b" * 16, "a" * 16])


def test_json_lines_are_one_row_a_line_and_an_invalid_line_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "d.jsonl").write_text('{"question": "a"}\n\n{"question": "b\u2028c"}')
    expected = [{"question": "a"}, {"question": "b\u2028c"}]
    assert read_rows(tmp_path / "d.jsonl") == read_rows("~/d.jsonl") == expected
    with pytest.raises(DatasetError, match=r"Cannot read dataset .*none\.jsonl': No such file"):
        read_rows(tmp_path / "none.jsonl")
    path = tmp_path / "d.jsonl"
    for content, message in {
        '{"q": 1}\n{"q":': "line 2: not valid JSON",
        "[1]": "line 1: expected a JSON object, found list",
        '{"b": 1, "a": 2}': r"line 1: no 'q'; found \['a', 'b'\]",
        "\n\n": "is empty",
    }.items():
        path.write_text(content)
        with pytest.raises(DatasetError, match=message):
            read_rows(path, required=("q",))
