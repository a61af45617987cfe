"""The sign-flip test and Holm's adjustment, against values counted by hand."""

import pytest

from nightjar.stats.sign_flips import chance_of_so_low, holm


class TestChanceOfSoLow:
    def test_of_few_differences_is_never_small(self):
        assert chance_of_so_low([]) == 1.0
        assert chance_of_so_low([0.0, 0.0]) == 1.0
        assert chance_of_so_low([-1.0]) == pytest.approx(1 / 2, abs=0.02)

    def test_is_the_share_of_sign_choices_with_so_low_a_sum(self):
        # of the 32 choices for five ones, one has the sum -5, and five more have -3 or less
        assert chance_of_so_low([-1.0] * 5) == pytest.approx(1 / 32, abs=0.006)
        assert chance_of_so_low([-1.0] * 4 + [1.0]) == pytest.approx(6 / 32, abs=0.015)
        assert chance_of_so_low([1.0] * 5) == 1.0

    def test_does_not_see_what_has_not_moved(self):
        assert chance_of_so_low([-1.0] * 5 + [0.0] * 1_000) == chance_of_so_low([-1.0] * 5)

    def test_of_many_differences_is_that_of_a_normal_sum(self):
        # 1,100 down and 900 up: z = -200 / sqrt(2000) = -4.472, whose tail is 3.87e-6
        assert chance_of_so_low([-1.0] * 1_100 + [1.0] * 900) == pytest.approx(3.87e-6, rel=0.01)
        # the same share of 1,000, which are flipped: z = -100 / sqrt(1000) = -3.162, 7.8e-4
        assert chance_of_so_low([-1.0] * 550 + [1.0] * 450) == pytest.approx(8.6e-4, abs=6e-4)

    def test_says_the_same_again(self):
        assert chance_of_so_low([-0.3, 0.1, -0.2]) == chance_of_so_low([-0.3, 0.1, -0.2])


def test_holm_multiplies_the_smallest_by_all_and_never_turns_the_order_round():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
