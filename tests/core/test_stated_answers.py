"""The answer that a text says, without what only wraps it."""

import pytest

from nightjar.scorers import stated_answer, stated_lines


class TestStatedAnswer:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("answer: think.\n**Answer:** 42", "42"),
            ("**Answer:**42", "42"),
            ("**Answer: 42**", "42"),
            ("**Answer:\nParis**", "Paris"),
            ("Answer:\n\n*Paris*", "Paris"),
            ("# Answer\nParis", "Paris"),
            ("Answer: Paris\nIt is in France.", "Paris"),
            ("Answer: **Paris** (France)", "Paris (France)"),
            ("Answer = 3", "3"),
            ("So the final answer is **Paris**", "Paris"),
            ("It rains. The answer is $3$.", "3"),
            (r"It is \boxed{\text{Paris}}. No doubt.", "Paris"),
            (r"Answer: $\boxed{\frac{\sqrt{3}}{2}}$", r"\frac{\sqrt{3}}{2}"),
            (r"Answer: $\$1{,}200$", "$1,200"),
            ("Answer: “Paris”.", "Paris"),
            ("Answer: 'Salem's Lot'", "Salem's Lot"),
            ("Answer: 'Tis a Pity", "'Tis a Pity"),
            ("Answer: M*A*S*H", "M*A*S*H"),
            ("Answer: *M*A*S*H*", "M*A*S*H"),
            ("Answer: snake_case_name", "snake_case_name"),
            ("Answer: 2 * 3 * x", "2 * 3 * x"),
            (r"Answer: \{1,2\}", r"\{1,2\}"),
            ("Well,\nParis", "Paris"),
            ("", ""),
        ],
    )
    def test_what_is_said_without_what_wraps_it(self, text, answer):
        assert stated_answer(text) == answer

    def test_a_list(self):
        assert stated_lines("So:\n**Answer:**\n- Ann\n- Bob\n\nThey won.") == ["- Ann", "- Bob"]

    @pytest.mark.parametrize("text", ["`", "*a ", "answer:\n", r"\boxed{", "$", "{", " \n", "answer is "])
    def test_what_a_model_that_repeats_itself_writes_takes_no_time(self, text):
        stated_answer(text * 50_000)
