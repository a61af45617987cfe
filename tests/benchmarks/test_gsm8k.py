"""GSM8K: the answer in a solution, and agreement with recorded scores."""

import json
from pathlib import Path

import pytest

from nightjar.benchmarks.gsm8k import correct_answer, extract_answer, load_environment, reference_answer
from nightjar.core.messages import AssistantMessage
from nightjar.environments.parsers import AfterThinkParser

DATA = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the recorded answers in {DATA}")


SOLUTIONS = [
    # box before hash before stated number before last number
    (r"A: 1 #### 2 \boxed{3} 4", "3"), (r"\boxed{3} then \boxed{5}", "5"), ("Answer: 1\n#### 2\n4", "2"),
    ("Answer: 1\nso 4", "1"), ("Answer: 1\nAnswer: 2", "2"), ("4 * 4 = 16\nA: 1", "1"),
    ("first 12, then 7", "7"), ("nothing to see", ""), ("", ""),
    # a place without a number is passed over
    (r"\boxed{} #### 2", "2"), (r"\boxed{\text{the total}} so 2", "2"), ("Answer: 1\n####", "1"),
    ("Answer: 1\nAnswer: none", "1"),
    # in a box
    (r"\boxed{\$18}", "18"), (r"\boxed{18\text{ dollars}}", "18"), (r"\boxed{\text{Janet makes } \$18}", "18"),
    (r"\boxed{18 \text{ m}^2}", "18"), (r"\boxed{18.00}", "18.00"), (r"\boxed{0}", "0"),
    (r"\boxed{1{,}200}", "1200"), (r"\boxed{1\,200}", "1200"), (r"\boxed{\frac{5}{2}}", "2.5"),
    (r"\boxed{2\frac{1}{2}}", "2.5"), (r"\boxed{3 \times 400 = 1200}", "1200"), (r"\boxed{2.5 \approx 3}", "3"),
    (r"**Final Answer:** the answer is $\boxed{18}$. It took 5 steps.", "18"),
    # behind hashes that are no heading
    ("#### 18", "18"), ("####18", "18"), ("#### **$1,200.00**", "1200.00"),
    ("#### 17\nWait.\n#### 18\nIt took 5 steps.", "18"),
    ("#### Step 1\n16 - 3 = 13\n#### Step 2\nThe total is 18.", "18"),
    ("#### 1. Eggs\n16 - 3 = 13\n#### 2. Money\n13 * 2 = 26", "26"),
    ("#### Answer: 18 eggs\nIt took 5 steps.", "18"),
]  # fmt: skip
RIGHT = [
    (r"\boxed{18}", "18"), (r"\boxed{\$1,234.00}", "1234"), ("A: $1,234.00.", "1234"),
    ("The result is 0.50", ".5"), ("#### 1,000", "1000"), ("So -3.", "-3"), ("Answer: −5", "-5"),
    ("Answer: １，２００", "1200"), ("Answer: 1 200 clips", "1200"),
    ("<think>\\boxed{4}\nThe answer is 5.</think>It is 18.", "18"),
]  # fmt: skip
WRONG = [
    ("18.5", "18"), ("180", "18"), ("", "18"), ("no idea", "18"), ("-18", "18"), (r"\boxed{\frac{5}{2}}", "5"),
    ("no idea", "none"),
]  # fmt: skip


def test_the_answer_of_a_solution():
    assert [(text, extract_answer(text)) for text, _ in SOLUTIONS] == SOLUTIONS


def test_the_same_number_is_right_however_it_is_written_and_another_or_none_is_wrong():
    parser = AfterThinkParser(extract_answer)

    def scores(cases):
        return [correct_answer([AssistantMessage(content=text)], answer, parser) for text, answer in cases]

    assert scores(RIGHT) == [1.0] * len(RIGHT)
    assert scores(WRONG) == [0.0] * len(WRONG)


def test_a_reference_is_cut_to_its_answer_also_from_a_file(rows_file):
    assert [reference_answer(answer) for answer in ("16 - 3 = 13\n#### 13", "72", 72)] == ["13", "72", "72"]
    path = rows_file({"question": "2+2?", "answer": "2+2=4\n#### 4", "level": 1})
    example = load_environment(path, system_prompt=None).examples[0]
    assert (example["prompt"], example["answer"]) == ([{"role": "user", "content": "2+2?"}], "4")


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@with_data
@pytest.mark.parametrize(("recording", "right"), [("finetuning", 286), ("verification", 515)])
def test_every_recorded_answer_scores_as_its_authors_scored_it(recording, right):
    references = {row["question"]: reference_answer(row["answer"]) for row in rows("test.jsonl")}
    recorded = rows(f"recorded-6b-{recording}.jsonl")
    parser = AfterThinkParser(extract_answer)
    scores = [correct_answer(row["completion"], references[row["question"]], parser) for row in recorded]
    assert scores == [float(row["is_correct"]) for row in recorded]
    assert (len(recorded), sum(scores)) == (1319, right)


HOW_MODELS_END = [
    "{answer}", "#### {answer}", "The answer is {answer}.", "**Answer:** ${answer}\n\nThis took 5 steps.",
    "The final answer is: $\\boxed{{{answer}}}$. I hope it is correct.",
    "<think>Perhaps \\boxed{{5}}</think>So it is **{answer}**.",
]  # fmt: skip


@pytest.mark.slow
@with_data
def test_every_reference_answer_is_right_however_it_is_said_and_every_reference_solution_is():
    parser = AfterThinkParser(extract_answer)
    answers = [row["answer"] for row in rows("test.jsonl")]
    said = {
        end: ["16 - 3 = 13\n" + end.format(answer=answer.split("#### ")[1]) for answer in answers]
        for end in HOW_MODELS_END
    }
    for end, texts in {**said, "the solution": answers}.items():
        pairs = zip(texts, answers, strict=True)
        assert {correct_answer(text, reference_answer(answer), parser) for text, answer in pairs} == {1.0}, end


@with_data
def test_every_reference_answer_is_right_in_the_environment(all_right):
    all_right(load_environment(str(DATA / "test.jsonl")), "#### {answer}".format_map, 1319)
