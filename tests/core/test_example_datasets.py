"""Example datasets: by a short name, from the hub's rows to questions and answers.

The rows are written as the hub has them; the expected questions and answers are those that verifiers 0.1.14 makes of
them, but for the order of GPQA's choices, which is drawn anew there each time.
"""

import orjson
import pytest

from nightjar.environments.data import EXAMPLE_DATASETS, get_preprocess_fn, load_example_dataset

GPQA = {"Question": "2 + 2?", "Correct Answer": "4", "Incorrect Answer 1": "3", "Incorrect Answer 2": "5",
        "Incorrect Answer 3": "22"}  # fmt: skip
CODE = "Solve the following coding problem using the programming language python: add."
ROWS = {
    "aime2024": ({"problem": "2?", "answer": "025", "id": 60}, "2?", "25"),
    "aime2025": ({"question": "2?", "answer": r"$82^\circ$"}, "2?", "82"),
    "amc2023": ({"problem": "2?", "answer": "27.0"}, "2?", "27.0"),
    "gsm8k": ({"question": "2?", "answer": "It is <<1+1=2>>2.\n#### 2"}, "2?", "2"),
    "math": ({"problem": "2?", "solution": r"So $\boxed{\frac{4}{2}}$.", "level": "Level 1"}, "2?", r"\frac{4}{2}"),
    "math500": ({"problem": "2?", "answer": "2", "subject": "Algebra"}, "2?", "2"),
    "mmlu": ({"question": "2?", "choices": ["1", "2", "3", "4"], "answer": 1, "subject": "s"},
             "Question: 2?\n\nA: 1\nB: 2\nC: 3\nD: 4", "B"),
    "mmlu_pro": ({"question": "2?", "options": ["1", "2", "3"], "answer": "B", "answer_index": 1},
                 "Question: 2?\n\nA: 1\nB: 2\nC: 3", "B"),
    "openbookqa": ({"question_stem": "Two is", "choices": {"text": ["1", "2"], "label": ["A", "B"]}, "answerKey": "B"},
                   "Question: Two is\n\nChoices:\nA. 1\nB. 2", "B"),
    "openrs": ({"problem": "2?", "answer": "2", "level": "Easy"}, "2?", "2"),
    "openrs_easy": ({"problem": "2?", "answer": "2", "level": "Easy"}, "2?", "2"),
    "openrs_hard": ({"problem": "2?", "answer": "2", "level": "Hard"}, "2?", "2"),
    "prime_code": ({"prompt": CODE, "verification_info": '{"tests": []}'}, CODE, '{"tests": []}'),
}  # fmt: skip


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """Puts rows where Nightjar keeps datasets of the hub."""
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path))

    def put(repository, config, split, rows):
        path = tmp_path / "datasets" / repository.replace("/", "--") / config / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n".join(map(orjson.dumps, rows)))

    return put


def test_questions_and_answers(keep):
    assert {*ROWS, "gpqa_main", "gpqa_diamond"} == set(EXAMPLE_DATASETS)
    for name, (row, question, answer) in ROWS.items():
        known = EXAMPLE_DATASETS[name]
        for config in known.configs:
            keep(known.repository, config or "default", known.split, [row])
        loaded = load_example_dataset(name).to_list()
        assert loaded == [{"question": question, "answer": answer}] * len(known.configs), name


@pytest.mark.parametrize("name", ["gpqa_main", "gpqa_diamond"])
def test_the_choices_of_gpqa_have_an_order_of_their_own_that_stays(name):
    questions = [{**GPQA, "Question": f"{number}?"} for number in range(40)]
    made = list(map(get_preprocess_fn(name), questions))
    assert {example["answer"] for example in made} == set("ABCD")
    for number, example in enumerate(made):
        head, *choices = example["question"].split("\n")
        assert (head, sorted(choices)) == (f"Question: {number}?", ["", *sorted(choices)[1:]])
        assert f"{example['answer']}: 4" in choices
    assert made == list(map(get_preprocess_fn(name), questions))
    here = get_preprocess_fn(name)(GPQA)["question"]
    assert here == "Question: 2 + 2?\n\nA: 22\nB: 5\nC: 4\nD: 3", "the same everywhere"


def test_rows_are_drawn_as_datasets_shuffles_from_any_split_and_of_the_level_or_language(tmp_path, keep):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"problem": x, "answer": x, "level": x}) for x in ("Easy", "Hard")))
    assert load_example_dataset("openrs_hard", path=path)["question"][:] == ["Hard"]
    path.write_bytes(b"\n".join(orjson.dumps({"prompt": x, "verification_info": "{}"}) for x in ("In C:", CODE)))
    assert load_example_dataset("prime_code", path=path)["question"][:] == [CODE]

    import datasets

    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"question": f"{n}?", "answer": f"#### {n}"}) for n in range(30)))
    shuffled = datasets.Dataset.from_dict({"answer": [str(n) for n in range(30)]}).shuffle(seed=5)
    assert load_example_dataset("gsm8k", n=7, seed=5, path=path)["answer"][:] == shuffled["answer"][:7]
    assert len(load_example_dataset("gsm8k", n=100, path=path)) == 30
    keep("openai/gsm8k", "main", "train", [{"question": "1?", "answer": "#### 1"}])
    assert load_example_dataset("gsm8k", split="train")["answer"][:] == ["1"]
    with pytest.raises(ValueError, match=r"Unknown example dataset 'gsm9k'. Choose one of: aime2024, .*prime_code"):
        load_example_dataset("gsm9k")
