"""MMLU, MMLU-Pro and GPQA: choices and their letters, and agreement with recorded answers of a real model."""

import gzip
import json

import pytest
from drawing import drawn

from nightjar.benchmarks import gpqa, mmlu, mmlu_pro
from nightjar.environments.scorers.texts import stated_letter
from nightjar.errors import ConfigError, DatasetError

MMLU_ROW = {"question": "2+2?", "subject": "elementary_mathematics", "choices": ["3", "4", "5", "6"], "answer": 1}
PRO_ROW = {"question": "2+2?", "options": [" 4", "5", "6"], "answer": "A", "category": "math", "question_id": 7}
GPQA_ROW = {
    "Question": "Which is a noble gas?", "Correct Answer": "Argon\n", "Incorrect Answer 1": "Nitrogen",
    "Incorrect Answer 2": "Oxygen, as in (A)", "Incorrect Answer 3": "Chlorine", "High-level domain": "Chemistry",
    "Subdomain": "Inorganic",
}  # fmt: skip

STATED = [
    "Of the four:\nB: right", "I choose B.", "So it must be B.", "B is the correct answer",
    "Answer: B (not option C)", "Answer: B (D is close)", "Option B is the one. Option D is unlikely.",
    "Option B is correct. Option C is also wrong.", "Answer: C is wrong; the answer is B",
    "Answer: B\nOption C is tempting.", "Answer: B. Answer A is wrong, though.", "Answer: B because two of them are",
    "Answer: B is correct", "The correct answer is B, since it is", "The answer to the question is (B)",
    "Answer: B – Madrid", "Answer: B, I think", r"\boxed{\textbf{B}}", r"\boxed{B. Madrid}", r"\boxed{\text{(B)}}",
    r"Answer: \text{B}", r"Answer: \(B\)", 'Answer: "B"', "Answer: 'B'", "Answer: [B]", "[B]", "<answer>B</answer>",
    "Let me think.\nB. Madrid", "Option B is right. Option C is wrong.", "(A) is near, (B) is it",
    "The correct choice is B.\n- Option A is a base.\n- Option C is a salt.",
    "**Best option: B**\n\nOption A is a distractor.", "We choose option B (option A is worse).",
    "Option B is correct. Option D is too large.", "Option A is wrong, and option C, too. So option B.",
    "Option A is not correct because cells lack it.\n\nB. Mitochondria",
    "Option B must be right. Option A is not correct.", "Option A is less correct than option B.\n\nB",
    "So the answer is clearly B. (A) has the wrong sign.", "\\boxed{A}. Wait, I made a mistake.\nAnswer: B",
]  # fmt: skip
OWN_TEXT = ["B and C", "A, C, and D", "C only", "A Mexican entrepreneur", "is false, and would not", "x", "D) or not"]
"""What an option may say that reads like another letter, or like a denial."""
OTHER_LANGUAGES = [
    "答案：B", "正确答案是B选项", "答え：Ｂ", "정답은 B입니다", "Antwort: B", "Réponse\N{NO-BREAK SPACE}: B",
    "La respuesta correcta es B", "Jawaban: B", "Ответ: Б", "الإجابة الصحيحة هي: ب", "উত্তরঃ ব",
]  # fmt: skip
UNSTATED = [
    "I choose a different one", "So it must be a trap", "Answer: A, B", "Answer: C or maybe D", "Answer: (A) or (B)",
    "Answer: both A and B", r"\boxed{A, B}", r"\boxed{A + B}", "Answer: a dog", "Answer: A dog", "Answer: I think C",
    "Answer: I'm not sure", "Answer: B-cells", "Answer: E = mc^2", "The answer is not C", "The answer cannot be C",
    "A. Lisbon\nB. Madrid", "Option B is near, option C is nearer", "Answer: A B", "Answer: C) and D)",
]  # fmt: skip


LETTERS = {
    "Answer: B": 1.0, "**Answer:** (B)": 1.0, "B": 1.0, "b)": 1.0, r"So it is \boxed{B}.": 1.0,
    "Answer: A? No.\nAnswer: B": 1.0, "Answer: C": 0.0, "A or B": 0.0, "Answer: because 2 and 2 is 4": 0.0, "4": 0.0,
    "": 0.0, "<think>Answer: C</think>\nAnswer: B": 1.0, "<think>Answer: B</think>": 0.0,
}  # fmt: skip


def test_mmlu_rewards_the_letter_that_a_reply_ends_up_with(rows_file, rewards):
    env = mmlu.load_environment(rows_file(MMLU_ROW))
    found = rewards(env, [(env.examples[0], reply) for reply in LETTERS])
    assert dict(zip(LETTERS, found, strict=True)) == LETTERS


def test_a_letter_is_read_however_it_is_stated_whatever_its_option_says():
    replies = [*STATED, *OTHER_LANGUAGES]
    for form in ("Answer: B) {}", "**Answer: (B) {}**", "The correct answer is [B] {}."):
        replies += map(form.format, OWN_TEXT)
    assert {reply: stated_letter(reply) for reply in replies} == dict.fromkeys(replies, "B")


def test_several_letters_and_words_are_no_letter():
    assert {reply: stated_letter(reply) for reply in UNSTATED} == dict.fromkeys(UNSTATED)


def test_a_model_that_says_the_same_for_ever_is_read_in_time():
    for part in ("answer ", "Answer: A, ", "answer is (", "option - ", "A, ", " ", "answer: the "):
        stated_letter(f"answer {part * 20_000}")


def test_mmlu_letters_choices_in_their_order(rows_file):
    [example] = mmlu.load_environment(rows_file(MMLU_ROW)).examples
    assert "A) 3\nB) 4\nC) 5\nD) 6" in example["prompt"][-1]["content"]
    assert example["info"] == {"category": "stem", "subject": "elementary_mathematics", "choices_seed": None}


def test_mmlu_seed_shuffles_each_question_by_itself(rows_file):
    rows = [{**MMLU_ROW, "question": f"{number}?"} for number in range(40)]
    path, fewer = rows_file(*rows), rows_file(*rows[20:], name="fewer.jsonl")
    all_of_them = list(mmlu.load_environment(path, choices_seed=3).examples)
    assert {example["answer"] for example in all_of_them} == set("ABCD")
    assert all(f"{example['answer']}) 4" in example["prompt"][-1]["content"] for example in all_of_them)
    later = list(mmlu.load_environment(fewer, choices_seed=3).examples)
    assert [example["prompt"] for example in later] == [example["prompt"] for example in all_of_them[20:]]


def test_mmlu_has_an_error_for_a_row_without_choices(rows_file):
    with pytest.raises(DatasetError, match="line 1: no 'choices'"):
        len(mmlu.load_environment(rows_file({"question": "?", "subject": "x", "answer": 0})).examples)


@pytest.mark.long
def test_mmlu_reference_letters_are_right_and_blanks_are_not_where_choices_are_shuffled(data, all_right):
    env = mmlu.load_environment(str(data / "mmlu" / "test.jsonl.gz"), choices_seed=5)
    examples = all_right(env, "Answer: {answer}".format_map, mmlu.DATA.num_examples)
    assert {example["info"]["subject"] for example in examples} == set(mmlu.CATEGORY_OF)


def test_mmlu_pro_tries_the_authors_patterns_one_after_another():
    expected = {
        "The answer is (C).": "C", "The answer is C": "C", "Answer: D": "D",
        "The answer is (A). Or B, answer: B": "A", "It can be B. In the end D is right.": "D",
        "the answer is unclear": None, "": None,
    }  # fmt: skip
    assert {reply: mmlu_pro.extract_letter(reply) for reply in expected} == expected


def test_mmlu_pro_reads_behind_the_thoughts_with_fewer_patterns_and_takes_blanks_off_the_options(rows_file, score):
    for num_patterns, reward in ((3, 1.0), (2, 0.0)):
        env = mmlu_pro.load_environment(rows_file(PRO_ROW), num_patterns=num_patterns)
        assert score(env, env.examples[0], "<think>The answer is (B).</think> It is A.")["reward"] == reward
    assert "A) 4\nB) 5\nC) 6\n" in env.examples[0]["prompt"][-1]["content"]
    assert (env.examples[0]["answer"], env.examples[0]["info"]["category"]) == ("A", "math")


def test_mmlu_pro_shows_solved_questions_of_the_same_field_before(rows_file):
    solved = [
        {**PRO_ROW, "question": f"{field} {number}?", "category": field, "cot_content": f"A: {number}."}
        for field in ("law", "math")
        for number in range(3)
    ]
    shots = rows_file(*solved, name="shots.jsonl")
    env = mmlu_pro.load_environment(rows_file(PRO_ROW), num_few_shot=2, few_shot_dataset=shots)
    said = [message["content"] for message in env.examples[0]["prompt"]]
    assert [text.partition("?")[0] for text in said] == ["math 0", "0.", "math 1", "1.", "2+2"]


@pytest.mark.long
def test_mmlu_pro_reads_a_real_models_answers_as_their_authors_read_them(data, rewards):
    """Of 12,032 recorded answers 49.46 % are right, and each is read as the letter that was published with it."""
    env = mmlu_pro.load_environment(str(data / "mmlu_pro" / "test.jsonl.gz"))
    examples = {example["info"]["question_id"]: example for example in env.examples}
    with gzip.open(data / "mmlu_pro" / "recorded-jamba-1.5-large.jsonl.gz", "rt", encoding="utf-8") as file:
        recorded = [json.loads(line) for line in file]
    other = [row for row in recorded if mmlu_pro.extract_letter(row["completion"]) != row["pred"]]
    assert [row["question_id"] for row in other] == []
    right = [row["pred"] == examples[row["question_id"]]["answer"] for row in recorded]
    assert (len(right), sum(right), round(100 * sum(right) / len(right), 2)) == (12_032, 5_951, 49.46)
    some = drawn(zip(recorded, right, strict=True), 1_500)
    assert rewards(env, [(examples[row["question_id"]], row["completion"]) for row, _ in some]) == [
        float(is_right) for _, is_right in some
    ]


@pytest.mark.long
def test_mmlu_pro_reference_letters_are_right_and_blanks_are_not(data, all_right):
    env = mmlu_pro.load_environment(str(data / "mmlu_pro" / "test.jsonl.gz"))
    examples = all_right(env, "The answer is ({answer}).".format_map)
    assert len({example["info"]["category"] for example in examples}) == 14


def test_gpqa_order_is_that_of_the_seed_and_the_letter_goes_with_it(rows_file):
    path = rows_file(GPQA_ROW)
    letters = set()
    for seed in range(20):
        [example] = gpqa.load_environment(path, choices_seed=seed).examples
        assert f"{example['answer']}) Argon\n" in example["prompt"][-1]["content"]
        assert example["info"] == {"category": "Chemistry", "subdomain": "Inorganic", "choices_seed": seed}
        letters.add(example["answer"])
    assert letters == set("ABCD")


def test_gpqa_references_are_right_and_blanks_are_not(rows_file, rewards):
    env = gpqa.load_environment(rows_file(*({**GPQA_ROW, "Question": f"{n}?"} for n in range(12))))
    examples = list(env.examples)
    said = [(example, f"(A) is wrong.\nAnswer: {example['answer']}") for example in examples]
    assert rewards(env, said) == [1.0] * 12
    assert rewards(env, [(example, "") for example in examples]) == [0.0] * 12


def test_gpqa_has_an_error_for_an_unknown_subset():
    with pytest.raises(ConfigError, match=r"no subset 'gold'. Choose one of: diamond, main, extended"):
        gpqa.load_environment(subset="gold")


@pytest.mark.long
def test_gpqa_error_without_access_says_what_to_accept(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError, match=r"accept the terms .* Idavidrein/gpqa, and set HF_TOKEN"):
        len(gpqa.load_environment().examples)
