"""Datasets: rows as examples, their identity, and files."""

import datasets
import pytest

from nightjar.core.messages import AssistantMessage, UserMessage
from nightjar.engine.runs.identity import fingerprint
from nightjar.environments.data import Examples, example_hash, read_rows
from nightjar.errors import DatasetError

ASKED = {"role": "user", "content": "2+2?"}
EXAMPLE = {"prompt": [ASKED], "answer": "4", "info": {"a": 1, "b": 2}, "example_id": 0}


class TestPrompt:
    def test_a_question_becomes_a_user_message(self):
        example = Examples([{"question": "2+2?", "answer": "4", "info": None}])[0]
        assert example == {"question": "2+2?", "answer": "4", "prompt": [ASKED], "example_id": 0}

    def test_system_prompt_and_few_shot_come_before_the_question(self):
        few_shot = [UserMessage(content="1+1?"), AssistantMessage(content="2")]
        prompt = Examples([{"question": "2+2?"}], "Be brief.", few_shot)[0]["prompt"]
        assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
        assert prompt[-1] == ASKED

    @pytest.mark.parametrize(
        ("prompt", "expected"),
        [
            ([ASKED], [{"role": "system", "content": "Be brief."}, ASKED]),
            ([{"role": "system", "content": "Shout."}, ASKED], [{"role": "system", "content": "Shout."}, ASKED]),
        ],
    )
    def test_a_prompt_gets_a_system_prompt_unless_it_has_one_and_no_few_shot(self, prompt, expected):
        few_shot = [{"role": "user", "content": "x"}]
        assert Examples([{"prompt": prompt}], "Be brief.", few_shot)[0]["prompt"] == expected

    def test_a_prompt_may_be_a_text(self):
        assert Examples([{"prompt": "2+2?"}])[0]["prompt"] == [{"role": "text", "content": "2+2?"}]

    def test_neither_prompt_nor_question_is_an_error_that_lists_the_columns(self):
        with pytest.raises(DatasetError, match=r"Example 1 has neither .* its columns are \['answer', 'q'\]"):
            Examples([{"question": "a"}, {"q": "b", "answer": "c"}])[1]


class TestColumns:
    def test_example_id_is_the_position_and_src_id_the_dataset_s_own_id(self):
        example = Examples([{"question": "a"}, {"question": "b", "example_id": "x-17"}])[1]
        assert (example["example_id"], example["src_id"]) == (1, "x-17")

    def test_info_may_be_json_text(self):
        assert Examples([{"question": "a", "info": '{"n": 1}'}])[0]["info"] == {"n": 1}

    def test_info_that_is_no_json_names_the_example(self):
        with pytest.raises(DatasetError, match="'info' of example 0"):
            Examples([{"question": "a", "info": "oops"}])[0]

    def test_nothing_is_shared_between_two_readings(self):
        examples = Examples([{"prompt": [ASKED], "info": {"list": [1]}}], "Be brief.")
        first, second = examples[0], examples[0]
        first["info"]["list"].append(2)
        first["prompt"][0]["content"] = "changed"
        first["prompt"][1]["content"] = "changed"
        assert (second["info"], second["prompt"]) == (
            {"list": [1]},
            [{"role": "system", "content": "Be brief."}, ASKED],
        )
        assert examples[0] == second


class TestSources:
    def test_a_builder_is_called_on_first_use_and_once(self):
        calls = []

        def build():
            calls.append(True)
            return [{"question": "a"}]

        examples = Examples(build)
        assert calls == []
        assert (len(examples), examples[0]["question"], calls) == (1, "a", [True])

    def test_a_dataset_of_the_datasets_library(self):
        rows = [{"question": f"q{number}", "answer": str(number)} for number in range(600)]
        examples = Examples(datasets.Dataset.from_list(rows))
        assert len(examples) == 600
        assert [examples[n]["answer"] for n in (0, 255, 256, 599, 3)] == ["0", "255", "256", "599", "3"]

    def test_rows_that_are_no_dicts(self):
        with pytest.raises(DatasetError, match="Example 0 of the dataset is not a dict: 'a'"):
            Examples(["a"])[0]

    @pytest.mark.parametrize("value", [{"train": [{"question": "a"}]}, 7, iter([])], ids=["dict", "int", "iterator"])
    def test_an_invalid_dataset_is_an_error(self, value):
        with pytest.raises(DatasetError, match="A dataset must be a list of dicts or a Dataset, found"):
            len(Examples(value))


class TestIdentity:
    def test_sixteen_hex_digits(self):
        assert len(example_hash(EXAMPLE)) == 16
        assert int(example_hash(EXAMPLE), 16) >= 0

    @pytest.mark.parametrize("change", [{"example_id": 9, "difficulty": 3}, {"info": {"b": 2, "a": 1}}], ids=str)
    def test_position_other_columns_and_the_order_of_keys_do_not_count(self, change):
        assert example_hash(EXAMPLE | change) == example_hash(EXAMPLE)

    @pytest.mark.parametrize(
        "change",
        [{"prompt": [{**ASKED, "content": "2+3?"}]}, {"answer": "5"}, {"info": {"a": 1}}, {"info": {1: "a"}}],
        ids=str,
    )
    def test_prompt_answer_and_info_count(self, change):
        assert example_hash(EXAMPLE | change) != example_hash(EXAMPLE)

    def test_no_answer_is_an_empty_answer(self):
        assert example_hash({"prompt": [ASKED]}) == example_hash({"prompt": [ASKED], "answer": "", "info": {}})

    def test_a_fingerprint_depends_on_the_order(self):
        assert fingerprint(["a" * 16, "b" * 16]) != fingerprint(["b" * 16, "a" * 16])


class TestJsonLinesFiles:
    def test_one_row_a_line_and_empty_lines_passed_over(self, tmp_path):
        path = tmp_path / "d.jsonl"
        path.write_text('{"question": "a"}\n\n{"question": "b\u2028c"}')
        assert read_rows(path) == [{"question": "a"}, {"question": "b\u2028c"}]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"q": 1}\n{"q":', "line 2: not valid JSON"),
            ("[1]", "line 1: expected a JSON object, found list"),
            ('{"b": 1, "a": 2}', r"line 1: no 'q'; found \['a', 'b'\]"),
            ("\n\n", "is empty"),
        ],
    )
    def test_an_invalid_line_is_named(self, tmp_path, content, message):
        path = tmp_path / "d.jsonl"
        path.write_text(content)
        with pytest.raises(DatasetError, match=message):
            read_rows(path, required=("q",))

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(DatasetError, match=r"Cannot read dataset .*none\.jsonl': No such file"):
            read_rows(tmp_path / "none.jsonl")

    def test_a_file_in_the_home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "x.jsonl").write_text('{"question": "a"}\n')
        assert read_rows("~/x.jsonl") == [{"question": "a"}]
