"""HumanEval, Alphabet sort, Reverse text, Tool test and Wordle: code, lists, texts, calls and guesses."""

import random

import pytest
from drawing import drawn

from nightjar.benchmarks import alphabet_sort, humaneval, reverse_text, tool_test, wordle
from nightjar.core.messages import AssistantMessage, ToolCall, UserMessage


@pytest.mark.long
def test_humaneval_reference_solutions_pass_and_blanks_do_not(data, rewards, needs_sandbox):
    env = humaneval.load_environment(str(data / "humaneval" / "HumanEval.jsonl.gz"))
    examples = list(env.examples)
    assert len(examples) == 164
    assert set(rewards(env, [(example, example["answer"]) for example in drawn(examples, 30)])) == {1.0}
    assert set(rewards(env, [(example, "") for example in drawn(examples, 5)])) == {0.0}


def test_humaneval_passes_nothing_else_than_the_function(rows_file, rewards, needs_sandbox):
    row = {
        "task_id": "X/0", "prompt": "def inc(n):\n    'Adds 1.'\n", "canonical_solution": "    return n + 1\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n", "entry_point": "inc",
    }  # fmt: skip
    env = humaneval.load_environment(rows_file(row))
    wrong = [
        "```python\ndef inc(n):\n    return n\n```", "```python\ndef inc(n)\n```",
        "```python\nimport os\nprint('ok')\nos._exit(0)\n```", "```python\nraise SystemExit(0)\n```",
        "```python\ndef inc(n):\n    return type('E', (), {'__eq__': lambda self, other: True})()\n```",
        "```python\ndef check(candidate):\n    pass\n```", "I would rather not.",
    ]  # fmt: skip
    replies = [*wrong, f"So:\n```python\n{row['prompt']}    return n + 1\n```"]
    found = rewards(env, [(env.examples[0], reply) for reply in replies])
    assert dict(zip(replies, found, strict=True)) == {**dict.fromkeys(replies, 0.0), replies[-1]: 1.0}


NAMES = ["Ada Lovelace", "Alan Turing", "Grace Hopper", "Ann McKay", "Bo McKay", "Edsger W. Dijkstra", "Plato"]


@pytest.fixture
def env(rows_file):
    rows = [{"names": random.Random(seed).sample(NAMES, 7)} for seed in range(40)]
    return alphabet_sort.load_environment(rows_file(*rows))


def test_right_lists_in_order_score_one_and_none_zero(env, rewards):
    examples = list(env.examples)
    assert {len(example["info"]["lists"]) for example in examples} == {1, 2, 3}
    assert set(rewards(env, [(example, *env.reference_replies(example)) for example in examples])) == {1.0}
    assert set(rewards(env, [(example, "") for example in examples])) == {0.0}


def test_names_are_sorted_by_one_part_and_then_by_the_other():
    parts = [["Bo McKay", "Ann McKay"], ["Ada Lovelace"]]
    assert alphabet_sort._sorted_list(parts, "last") == ["AdaLovelace // new name!", "AnnMcKay", "BoMcKay"]
    assert alphabet_sort._sorted_list(parts, "first") == ["AdaLovelace // new name!", "AnnMcKay", "BoMcKay"]
    assert alphabet_sort._sorted_list(parts[:1], "last") == ["AnnMcKay", "BoMcKay"]


def test_a_turn_that_is_missing_or_says_two_lists_scores_nothing(env, score):
    example = next(example for example in env.examples if len(example["info"]["lists"]) == 2)
    first, later = (said["content"] for said in env.reference_replies(example))
    assert score(env, example, first)["reward"] == 0.5
    assert score(env, example, first + first, later)["reward"] == 0.5
    assert score(env, example, later, first)["reward"] == 0.0


def test_a_draft_in_thoughts_and_a_tag_that_is_only_named_are_no_lists(env, score):
    example = next(example for example in env.examples if len(example["info"]["lists"]) == 1)
    [right] = (said["content"] for said in env.reference_replies(example))
    draft = "<alphabetical_sorted>\nZoe\n</alphabetical_sorted>"
    assert score(env, example, f"<think>{draft}</think>{right}")["reward"] == 1.0
    assert score(env, example, f"In <alphabetical_sorted> tags: {right}")["reward"] == 1.0
    assert score(env, example, f"<think>{right}")["reward"] == 0.0


def test_equal_seeds_give_equal_examples_and_each_its_own(env, rows_file):
    prompts = [example["prompt"] for example in env.examples]
    rows = [{"names": random.Random(seed).sample(NAMES, 7)} for seed in range(20, 40)]
    later = alphabet_sort.load_environment(rows_file(*rows))
    assert [example["prompt"] for example in later.examples] == prompts[20:]


def test_reverse_text_scores_how_much_of_the_text_is_right(rows_file, score):
    cases = [
        ("abc def", "<reversed_text>fed cba</reversed_text>", 1.0),
        (" abc ", "<reversed_text> cba </reversed_text>", 1.0), ("ab", "<reversed_text>bb</reversed_text>", 0.5),
        ("äö", "<reversed_text>öä</reversed_text>", 1.0), ("abc", "cba", 0.0),
        ("abc", "<think><reversed_text>abc</reversed_text></think><reversed_text>cba</reversed_text>", 1.0),
        ("abc", "<think><reversed_text>cba</reversed_text>", 0.0),
        ("abc", "In <reversed_text> tags: <reversed_text>cba</reversed_text>", 1.0), ("abc", "", 0.0),
    ]  # fmt: skip
    env = reverse_text.load_environment(rows_file(*({"prompt": text} for text, _, _ in cases)))
    found = [score(env, example, case[1])["reward"] for example, case in zip(env.examples, cases, strict=True)]
    assert found == [reward for _, _, reward in cases]


def test_reverse_text_compares_long_texts_piece_by_piece():
    text = "ab" * 10_000
    assert reverse_text.ratio(text, text) == 1.0
    assert reverse_text.ratio(text, text[1:-7]) == pytest.approx(1.0, abs=0.001)
    assert reverse_text.ratio(text, "c" * 20_000) == 0.0
    assert reverse_text.ratio("abcd" * 50, "bcde" * 50) == 0.75
    left, right = ("".join(random.Random(1).choices(letters, k=1_000)) for letters in ("abcdefgh", "stuvwxyz"))
    assert reverse_text.ratio(left + right, right + left) == 0.5  # as a whole; in two pieces, nothing would match


def calling(names):
    calls = [ToolCall(id=str(place), name=name, arguments='{"x": 1}') for place, name in enumerate(names)]
    return AssistantMessage(content=None, tool_calls=calls)


def test_tool_test_takes_the_calls_that_are_asked_for_in_any_order(rewards):
    env = tool_test.load_environment()
    examples = list(env.examples)
    right = [(example, *env.reference_replies(example)) for example in examples]
    assert (len(examples), set(rewards(env, right))) == (100, {1.0})
    backwards = [(example, calling(reversed(example["info"]["tool_names"]))) for example in examples]
    assert set(rewards(env, backwards)) == {1.0}
    assert set(rewards(env, [(example, "") for example in examples])) == {0.0}
    twice = [(example, calling(example["info"]["tool_names"] * 2)) for example in examples]
    assert set(rewards(env, twice)) == {0.0}


TOLD = "[GAME] You submitted [crane].\nFeedback:\nC R A N E \nX Y G X X \n\nYou have 5 guesses left."


def test_wordle_shows_the_model_the_last_feedback():
    assert wordle.last_feedback(f"Rules\n{TOLD}").splitlines()[:2] == ["C R A N E ", "X Y G X X "]
    assert wordle.last_feedback("[GAME] Guess a word.") == "Guess a word."


def test_wordle_scores_the_word_how_fast_it_was_found_and_the_format():
    parser = wordle.AfterThinkXMLParser(["guess"], answer_field="guess")

    def scores(*messages):
        said = [
            AssistantMessage(content=text) if place % 2 == 0 else UserMessage(content=text)
            for place, text in enumerate(messages)
        ]
        return [round(func(said, "bread", parser), 2) for func in (wordle.found, wordle.partly_found, wordle.speed)]

    assert scores("<guess>[bread]</guess>") == [1.0, 0.0, 1.0]
    assert scores("<guess>[crane]</guess>", "X Y G X X", "<guess>[BREAD]</guess>") == [1.0, 0.0, 0.5]
    assert scores("<think><guess>[crane]</guess>?</think><guess>[bread]</guess>") == [1.0, 0.0, 1.0]
    assert scores("<think><guess>[bread]</guess>") == [0.0, 0.0, 0.0]
    assert scores("<guess>[crane]</guess>", wordle.last_feedback(TOLD)) == [0.0, 0.3, 0.0]
    assert scores("<guess>bread</guess>") == scores("") == [0.0, 0.0, 0.0]
    formats = {
        "<guess>[crane]</guess>": 1.0, "So: <guess>[crane]</guess>": 0.8, "<think>So</think><guess>[a]</guess>": 1.0,
        "": 0.0,
    }  # fmt: skip
    found = {text: wordle.kept_format([AssistantMessage(content=text)], parser) for text in formats}
    assert found == pytest.approx(formats, abs=0.005)
