"""What is different between two texts, as the web view shows it."""

import time

import pytest

from nightjar.view.differences import differences, folded_differences


def lines(numbers):
    return "".join(f"{number}\n" for number in numbers)


def parts(changes):
    return [(change.kind, change.text) for change in changes]


def test_a_difference_is_of_words_and_equal_parts_are_folded():
    assert parts(differences("one two three", "one 2 three four")) == [
        ("same", "one"), ("gone", " two"), ("new", " 2"), ("same", " three"), ("new", " four")
    ]  # fmt: skip
    assert (parts(differences("same", "same")), differences("", "")) == ([("same", "same")], [])
    same = lines(range(1_500))
    assert parts(differences(f"{same}Therefore 41.\n", f"A\n{same}Therefore 42.\n")) == [
        ("new", "A\n"), ("same", f"{same}Therefore"), ("gone", " 41."), ("new", " 42."), ("same", "\n")
    ]  # fmt: skip
    same = " ".join(f"w{number}" for number in range(100))
    changes = folded_differences(differences(f"a {same} b {same}", f"c {same} d {same}"))
    assert [(change.kind, change.words) for change in changes] == [
        ("gone", 1), ("new", 1), ("same", 20), ("folded", 60), ("same", 20),
        ("gone", 1), ("new", 1), ("same", 20), ("folded", 80),
    ]  # fmt: skip
    assert "".join(change.text for change in changes if change.kind != "gone") == f"c {same} d {same}"


@pytest.mark.slow
def test_a_difference_takes_little_time():
    began = time.process_time()
    for before, after in (
        ("word " * 100_000, "other" * 1_000_000), ("a\n" * 100_000, "b\n" * 100_000),
        ("a b\n" * 9_000, "b a\n" * 9_000),
        ("a b c\n" * 2_000, "b a\n" * 2_000), (lines(range(9_000)), lines(range(9_000, 0, -1))),
        (lines(range(1_900)), lines(range(1_900, 0, -1))),
    ):  # fmt: skip
        changes = differences(before, after)
        assert "".join(change.text for change in changes if change.kind != "gone") == after[:500_000]
    assert time.process_time() - began < 30
