"""GSM8K: the answer in a solution, and agreement with recorded scores."""

import json
from pathlib import Path

import pytest

from nightjar.benchmarks.gsm8k import correct_answer, extract_answer, load_environment, reference_answer
from nightjar.core.messages import AssistantMessage
from nightjar.environments.parsers import AfterThinkParser
from nightjar.errors import DatasetError

DATA = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the recorded answers in {DATA}")


class TestExtractAnswer:
    @pytest.mark.parametrize(("text", "answer"), [
        (r"A: 1 #### 2 \boxed{3} 4", "3"), (r"\boxed{3} then \boxed{5}", "5"), ("Answer: 1\n#### 2\n4", "2"),
        ("Answer: 1\nso 4", "1"), ("Answer: 1\nAnswer: 2", "2"), ("4 * 4 = 16\nA: 1", "1"),
        ("first 12, then 7", "7"), ("nothing to see", ""), ("", ""),
    ])  # fmt: skip
    def test_box_before_hash_before_stated_number_before_last_number(self, text, answer):
        assert extract_answer(text) == answer

    @pytest.mark.parametrize(("text", "answer"), [
        (r"\boxed{} #### 2", "2"), (r"\boxed{\text{the total}} so 2", "2"), ("Answer: 1\n####", "1"),
        ("Answer: 1\nAnswer: none", "1"),
    ])  # fmt: skip
    def test_a_place_without_a_number_is_passed_over(self, text, answer):
        assert extract_answer(text) == answer

    @pytest.mark.parametrize(("text", "answer"), [
        (r"\boxed{\$18}", "18"), (r"\boxed{18\text{ dollars}}", "18"), (r"\boxed{\text{Janet makes } \$18}", "18"),
        (r"\boxed{18 \text{ m}^2}", "18"), (r"\boxed{18.00}", "18.00"), (r"\boxed{0}", "0"),
        (r"\boxed{1{,}200}", "1200"), (r"\boxed{1\,200}", "1200"), (r"\boxed{\frac{5}{2}}", "2.5"),
        (r"\boxed{2\frac{1}{2}}", "2.5"), (r"\boxed{3 \times 400 = 1200}", "1200"), (r"\boxed{2.5 \approx 3}", "3"),
        (r"**Final Answer:** the answer is $\boxed{18}$. It took 5 steps.", "18"),
    ])  # fmt: skip
    def test_in_a_box(self, text, answer):
        assert extract_answer(text) == answer

    @pytest.mark.parametrize(("text", "answer"), [
        ("#### 18", "18"), ("####18", "18"), ("#### **$1,200.00**", "1200.00"),
        ("#### 17\nWait.\n#### 18\nIt took 5 steps.", "18"),
        ("#### Step 1\n16 - 3 = 13\n#### Step 2\nThe total is 18.", "18"),
        ("#### 1. Eggs\n16 - 3 = 13\n#### 2. Money\n13 * 2 = 26", "26"),
        ("#### Answer: 18 eggs\nIt took 5 steps.", "18"),
    ])  # fmt: skip
    def test_behind_hashes_that_are_no_heading(self, text, answer):
        assert extract_answer(text) == answer


class TestCorrectAnswer:
    def score(self, text, answer):
        return correct_answer([AssistantMessage(content=text)], answer, AfterThinkParser(extract_answer))

    @pytest.mark.parametrize(("text", "answer"), [
        (r"\boxed{18}", "18"), (r"\boxed{\$1,234.00}", "1234"), ("A: $1,234.00.", "1234"),
        ("The result is 0.50", ".5"), ("#### 1,000", "1000"), ("So -3.", "-3"), ("Answer: −5", "-5"),
        ("Answer: １，２００", "1200"), ("Answer: 1 200 clips", "1200"),
        ("<think>\\boxed{4}\nThe answer is 5.</think>It is 18.", "18"),
    ])  # fmt: skip
    def test_the_same_number_however_it_is_written(self, text, answer):
        assert self.score(text, answer) == 1.0

    @pytest.mark.parametrize(
        ("text", "answer"),
        [("18.5", "18"), ("180", "18"), ("", "18"), ("no idea", "18"), ("-18", "18"), (r"\boxed{\frac{5}{2}}", "5")],
    )
    def test_another_number_or_none(self, text, answer):
        assert self.score(text, answer) == 0.0

    def test_no_answer_to_a_reference_without_a_number_is_wrong(self):
        assert self.score("no idea", "none") == 0.0


class TestDataset:
    def test_a_reference_solution_is_cut_to_its_answer(self):
        assert reference_answer("16 - 3 = 13\n#### 13") == "13"

    @pytest.mark.parametrize(("answer", "text"), [("72", "72"), (72, "72")])
    def test_a_bare_answer_stays(self, answer, text):
        assert reference_answer(answer) == text

    def test_from_a_file(self, tmp_path):
        path = tmp_path / "d.jsonl"
        path.write_text(json.dumps({"question": "2+2?", "answer": "2+2=4\n#### 4", "level": 1}))
        example = load_environment(str(path), system_prompt=None).examples[0]
        assert (example["prompt"], example["answer"]) == ([{"role": "user", "content": "2+2?"}], "4")

    def test_a_file_without_answers(self, tmp_path):
        path = tmp_path / "d.jsonl"
        path.write_text('{"question": "2+2?"}')
        with pytest.raises(DatasetError, match="line 1: no 'answer'"):
            len(load_environment(str(path)).examples)


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@with_data
@pytest.mark.parametrize(("recording", "right"), [("finetuning", 286), ("verification", 515)])
def test_every_recorded_answer_scores_as_its_authors_scored_it(recording, right):
    references = {row["question"]: reference_answer(row["answer"]) for row in rows("test.jsonl")}
    recorded = rows(f"recorded-6b-{recording}.jsonl")
    parser = AfterThinkParser(extract_answer)
    scores = [correct_answer(row["completion"], references[row["question"]], parser) for row in recorded]
    differing = [
        row["question"] for row, score in zip(recorded, scores, strict=True) if score != float(row["is_correct"])
    ]
    assert (len(recorded), differing, sum(scores)) == (1319, [], right)


HOW_MODELS_END = [
    "{answer}", "#### {answer}", "The answer is {answer}.", "**Answer:** ${answer}\n\nThis took 5 steps.",
    "The final answer is: $\\boxed{{{answer}}}$. I hope it is correct.",
    "<think>Perhaps \\boxed{{5}}</think>So it is **{answer}**.",
]  # fmt: skip


@with_data
@pytest.mark.parametrize("end", HOW_MODELS_END)
def test_every_reference_answer_is_right_however_it_is_said(score, end):
    env = load_environment(str(DATA / "test.jsonl"))
    wrong = [
        row["question"]
        for row, example in zip(rows("test.jsonl"), env.examples, strict=True)
        if score(env, example, "16 - 3 = 13\n" + end.format(answer=row["answer"].split("#### ")[1]))["reward"] != 1.0
    ]
    assert wrong == []


@with_data
def test_every_reference_solution_is_right_by_itself():
    parser = AfterThinkParser(extract_answer)
    wrong = [
        row["question"]
        for row in rows("test.jsonl")
        if correct_answer(row["answer"], reference_answer(row["answer"]), parser) != 1.0
    ]
    assert wrong == []
