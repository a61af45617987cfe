"""DROP and TriviaQA: several answers that are right, numbers, and partly right answers."""

import pytest
from drawing import drawn

from nightjar.benchmarks import drop, triviaqa

WHOLE, NONE = (1.0, 1.0), (0.0, 0.0)
BOTH = ["Ann", "Bob", "Ann", "Bob"]
DROP = [
    (["3"], "Answer: 3", WHOLE), (["3"], "Answer: 3.0 goals", (0.67, 0.0)), (["3"], "Answer: 13", NONE),
    (["3"], "3 goals in the first half.\nAnswer: none", NONE), (["3"], r"\boxed{3}", WHOLE),
    (["3"], "The answer is 3.", WHOLE), (["3"], "Answer = 3", WHOLE), (["3"], "**Answer:**\n3", WHOLE),
    (["3"], "<think>Answer: 4</think>Answer: 3\n\nThe Owls kicked 3.", WHOLE),
    (["1,200"], "Answer: 1200", WHOLE), (["1200"], "Answer: $1{,}200$", WHOLE), (["5.5"], "Answer: 55", NONE),
    (["5"], "Answer: .5", NONE), (["5.5%"], "Answer: 5.5 percent", (0.67, 0.0)),
    (["50.6"], "Answer: 50.6%", WHOLE), (["$5"], "**Answer:** 5", WHOLE), (["5"], r"Answer: \$5", WHOLE),
    (["the Owls"], "Answer: Owls.", WHOLE), (["the Owls"], "Answer: “The Owls”", WHOLE),
    (["Ann's"], "Answer: Ann’s", WHOLE), (["18-year-old"], "Answer: 18 year old", WHOLE),
    (["Ann Lee"], "Answer: Lee", (0.67, 0.0)), (["5 yards"], "Answer: yards", NONE),
    (["Ann and Bob and Cy"], "Answer: Ann, Bob, Cy", (0.86, 0.0)), (["Owls"], "", NONE),
    (["the"], "Answer:", NONE), (["nan"], "Answer: nan", WHOLE),
    (BOTH, "Answer: Ann", (0.5, 0.0)), (BOTH, "Answer: Bob and Ann", WHOLE), (BOTH, "Answer: Ann, Bob", WHOLE),
    (BOTH, "Answer: Ann; Bob", WHOLE), (BOTH, "Answer: Ann\nBob", WHOLE),
    (BOTH, "Answer:\n- Ann\n- Bob\n\nThey won.", WHOLE), (BOTH, "Answer:\n1. Ann\n2. Bob", WHOLE),
    (BOTH, "Answer: Ann, Bob, Cy", (0.67, 0.0)), (BOTH, "Answer: Ann Lee, Bob", (0.83, 0.0)), (BOTH, "", NONE),
    (["Rock and Roll", "Jazz"] * 2, "Answer: Jazz, Rock and Roll", WHOLE),
    (["18 to 24", "25 to 44"] * 2, "Answer: 25 to 44 and 18 to 24", WHOLE),
    (["18 to 24", "25 to 44"] * 2, "Answer: 25 to 44", (0.5, 0.0)),
    (["1,200 men", "300 women"] * 2, "Answer: 300 women, 1,200 men", WHOLE),
    (["Ann", "Bob", "Cy", "Ann", "Bob"], "Answer: Bob, Ann", WHOLE), (["Ann", "Bob"], "Answer: Bob", WHOLE),
    (["Ann", "Bob"], "Answer: Ann and Bob", WHOLE),
    (["vacancy rate", "rental vacancy rate"], "Answer: vacancy rate", WHOLE),
]  # fmt: skip
"""The spans, a reply, and its F1 and exact match."""
TRIVIA = [
    ("Paris, City of Light", "Answer: Paris", WHOLE), ("Paris, City of Light", "Answer: the city-of-light!", WHOLE),
    ("Paris", "Answer: It is Paris", (0.5, 0.0)), ("Paris", "Paris", WHOLE), ("Paris", "The answer is Paris.", WHOLE),
    ("Paris", r"\boxed{\text{Paris}}", WHOLE), ("Paris", "Answer: “Paris”", WHOLE),
    ("Paris", "**Answer:**\n**Paris**", WHOLE), ("Paris", "Answer: Paris\nIt is the capital of France.", WHOLE),
    ("Paris", "<think>Answer: Paris</think>\nAnswer: London", NONE),
    ("Paris", "<think>London?</think>\nAnswer: Paris", WHOLE), ("M*A*S*H", "Answer: M*A*S*H", WHOLE),
    ("M*A*S*H", "Answer: *M*A*S*H*", WHOLE), ("Guns N' Roses", "Answer: Guns N´ Roses", WHOLE),
    ("The Who", "Answer: Who", WHOLE), ("Doctor_No", "Answer: doctor no", WHOLE),
    ("L’Avventura", "Answer: L'Avventura", WHOLE), ("“Heroes”", 'Answer: "Heroes"', WHOLE),
    ("7, seven", "Answer: Seven", WHOLE), ("7", "Answer: 17", NONE), ("Москва, Moscow", "Answer: москва", WHOLE),
    ("New York", "Answer: New York City", (0.8, 0.0)), ("Paris", "", NONE), ("!!!", "Answer: ???", NONE),
    ("!!!", "Answer: !!!", WHOLE), ("The The", "Answer: The The", WHOLE), ("A", "Answer: A.", WHOLE),
    ("Paris", "Answer: The", NONE), ("Paris", "Answer: Paris…", WHOLE), ("Paris", "Answer: Paris。", WHOLE),
    ("Beyonc\u00e9", "Answer: Beyonce\u0301", WHOLE),
]  # fmt: skip
"""The value and its aliases, a reply, and its F1 and exact match."""
ANNOTATED = [
    ("2 3 3", "number number number", [["2"], ["3"]]),
    ("Ann Ann", "span span", [["Ann"]]),
    ("Ann Bob Ann Bob", "span span span span", [["Ann", "Bob"]]),
    ("Ann Bob Bob Ann", "span span span span", [["Ann", "Bob"], ["Bob", "Ann"]]),
    ("7 Ann Bob", "number span span", [["7"], ["Ann"], ["Bob"], ["Ann", "Bob"]]),
    ("Ann Ann Bob", "span span span", [["Ann"], ["Bob"], ["Ann", "Bob"]]),
    ("Ann Bob", "", [["Ann"], ["Bob"], ["Ann", "Bob"]]),
]  # fmt: skip


@pytest.fixture
def scored(rows_file, score):
    """Scores the cases of a benchmark, whose rows are made of their answers: ``scored(module, cases, row)``."""

    def scored(module, cases, row):
        env = module.load_environment(rows_file(*(row(answers) for answers, *_ in cases)))
        for example, (answers, reply, _) in zip(env.examples, cases, strict=True):
            found = score(env, example, reply)
            yield answers, reply, (found["metrics"]["f1"], found["metrics"]["exact_match"]), found["reward"]

    return scored


def test_drop_takes_one_span_or_several(scored):
    def row(spans):
        answers = {"spans": spans, "types": ["span"] * len(spans)}
        return {"passage": "?", "question": "?", "answers_spans": answers}

    assert [*scored(drop, DROP, row)] == [(*case, case[2][0]) for case in DROP]


def test_drop_reads_the_spans_of_all_annotators():
    found = [(spans, types, drop.answers_of(spans.split(), types.split())) for spans, types, _ in ANNOTATED]
    assert found == ANNOTATED


def test_drop_reads_rows_of_simple_evals(rows_file):
    row = {"context": "Passage: It rained.\nQuestion: What fell?\nAnswer:", "ref_text": "rain|drops of rain"}
    [example] = drop.load_environment(rows_file(row)).examples
    assert example["info"]["answers"] == [["rain"], ["drops of rain"]]
    assert example["prompt"][-1]["content"].startswith("It rained.\n\nWhat fell?\n\n")


@pytest.mark.long
def test_drop_reference_answers_are_right_and_blanks_are_not(data, rewards):
    env = drop.load_environment(str(data / "drop" / "drop_v0_dev.jsonl.gz"))
    examples = list(env.examples)
    some = drawn(examples, 1_500)
    said = [(example, f"So.\nAnswer: {answer}") for example in some for [answer] in example["info"]["answers"]]
    assert (len(examples), set(rewards(env, said))) == (9_536, {1.0})
    assert set(rewards(env, [(example, "") for example in drawn(examples, 300)])) == {0.0}


def test_triviaqa_takes_an_alias_less_case_punctuation_and_articles(scored):
    def row(answers):
        value, *aliases = answers.split(", ")
        return {"question": "Who?", "answer": {"value": value, "aliases": aliases, "type": "WikipediaEntity"}}

    found = [(*case, (round(f1, 2), exact), reward) for *case, (f1, exact), reward in scored(triviaqa, TRIVIA, row)]
    assert found == [(*case, case[2][1]) for case in TRIVIA]
