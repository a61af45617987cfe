"""The answer that a text says, without what only wraps it."""

import pytest

from nightjar.environments.scorers.texts import stated_answer, stated_lines


def test_the_answer_is_found_without_markup():
    answers = [
        ("answer: think.\n**Answer:** 42", "42"), ("**Answer:**42", "42"), ("**Answer: 42**", "42"),
        ("**Answer:\nParis**", "Paris"), ("Answer:\n\n*Paris*", "Paris"), ("# Answer\nParis", "Paris"),
        ("Answer: Paris\nIt is in France.", "Paris"), ("Answer: **Paris** (France)", "Paris (France)"),
        ("Answer = 3", "3"), ("So the final answer is **Paris**", "Paris"), ("It rains. The answer is $3$.", "3"),
        (r"It is \boxed{\text{Paris}}. No doubt.", "Paris"),
        (r"Answer: $\boxed{\frac{\sqrt{3}}{2}}$", r"\frac{\sqrt{3}}{2}"), (r"Answer: $\$1{,}200$", "$1,200"),
        ("Answer: “Paris”.", "Paris"), ("Answer: 'Salem's Lot'", "Salem's Lot"),
        ("Answer: 'Tis a Pity", "'Tis a Pity"), ("Answer: M*A*S*H", "M*A*S*H"), ("Answer: *M*A*S*H*", "M*A*S*H"),
        ("Answer: snake_case_name", "snake_case_name"), ("Answer: 2 * 3 * x", "2 * 3 * x"),
        (r"Answer: \{1,2\}", r"\{1,2\}"), ("Well,\nParis", "Paris"),
        ("We have 5. The answer is 5.\n\nLet me know if you need more.", "5"),
        ("The answer is:\n(A) dog\n\nBut that fails.\n\nSo the answer is (B).", "(B)"),
        (r"Final Answer: The final answer is $\boxed{5}$. I hope it is correct.", "5"),
        ("Answer: The answer is Paris.", "Paris"), ("The answer is Mt. Everest. It is high.", "Mt. Everest"),
        ("To find whether the answer is Yes or No, we simulate.\nWe end where we began.\nYes", "Yes"),
        ("The answer is not obvious at first.\nTrying all of them, we get:\n42", "42"),
        ("The answer is Paris. It is the capital of France.", "Paris"),
        ("The answer is Paris.\n\nIt is the capital of France.", "Paris"),
        ("Let us see.\nSo the answer is True. Hence we are done.", "True"),
        ("3 words.\nSo the answer is apple banana.", "apple banana"),
        ("So the answer is J. R. R. Tolkien. He was a writer.", "J. R. R. Tolkien"),
        ("The answer is $1,200.50. It is a lot.", "$1,200.50"),
        ("We find \\boxed{x+1}.\nTherefore the answer is valid.", "valid"),
        ("Thus the answer is \\boxed{x+1}.", "x+1"), ("The answer is not 3.\nIt is \\boxed{4}.", "4"),
        ("We add.\nSo the answer is valid.\n\nGood luck!", "valid"),
        ("It is \\boxed{3}.\nI hope this answer is helpful!", "3"),
        ("The answer is 3.\nAsk if the answer is unclear.", "3"), ("", ""),
    ]  # fmt: skip
    assert [(text, stated_answer(text)) for text, _ in answers] == answers
    assert stated_lines("So:\n**Answer:**\n- Ann\n- Bob\n\nThey won.") == ["- Ann", "- Bob"]


@pytest.mark.slow
def test_repetitive_texts_are_read_quickly():
    for text in ("`", "*a ", "answer:\n", r"\boxed{", "$", "{", " \n", "answer is ", "answer is a. ", "so ", "so the "):
        stated_answer(text * 50_000)
