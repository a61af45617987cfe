"""The exchange test and Holm's adjustment, against values counted by hand."""

import pytest
from late import late

exchange = late("nightjar.statistics.exchange")


def of(*differences):
    """One old value of each thing: an exchange turns the sign of the difference round."""
    return [[one, 0.0] for one in differences]


def test_the_chance_is_the_share_of_choices_with_so_low_a_sum_or_that_of_a_normal_sum():
    assert [exchange.chance_of_so_low(values) for values in ([], of(0.0, 0.0), [[1.0]])] == [1.0, 1.0, 1.0]
    assert exchange.chance_of_so_low(of(-1.0)) == pytest.approx(1 / 2, abs=0.02)
    # of the 32 choices of signs for five ones, one has the sum -5, and five more have -3 or less
    assert exchange.chance_of_so_low(of(*[-1.0] * 5)) == pytest.approx(1 / 32, abs=0.006)
    assert exchange.chance_of_so_low(of(*[-1.0] * 4, 1.0)) == pytest.approx(6 / 32, abs=0.015)
    assert exchange.chance_of_so_low(of(*[1.0] * 5)) == 1.0
    # values that have not moved do not count
    assert exchange.chance_of_so_low(of(*[-1.0] * 5, *[0.0] * 1_000)) == exchange.chance_of_so_low(of(*[-1.0] * 5))
    # 1,100 down and 900 up: z = -200 / sqrt(2000) = -4.472, whose tail is 3.87e-6
    assert exchange.chance_of_so_low(of(*[-1.0] * 1_100, *[1.0] * 900)) == pytest.approx(3.87e-6, rel=0.01)
    # 550 of 1,000, which are exchanged: z = -100 / sqrt(1000) = -3.162, 7.8e-4
    assert exchange.chance_of_so_low(of(*[-1.0] * 550, *[1.0] * 450)) == pytest.approx(8.6e-4, abs=6e-4)


def test_the_exchange_test_of_one_old_value_each_is_the_sign_flip_test():
    import numpy as np

    from nightjar.statistics.exchange import sign_flips

    assert sign_flips(np.array([-1.0] * 5)) == pytest.approx(1 / 32, abs=0.006)
    assert sign_flips(np.array([])) == sign_flips(np.zeros(3)) == 1.0
    draw = np.random.default_rng(1).normal(size=(2, 1_500))
    for differences in (draw[0][:40], draw[1]):
        assert sign_flips(differences) == exchange.chance_of_so_low(of(*differences.tolist()))


def test_with_several_old_values_any_may_be_the_new_one_and_a_lucky_one_alarms_nobody():
    # each of two things was right three times and is wrong now: both are the odd one of four in 1 of 16 choices
    assert exchange.chance_of_so_low([[0.0, 1.0, 1.0, 1.0]] * 2) == pytest.approx(1 / 16, abs=0.01)
    # one of three was wrong before, and now: of 4 * 4 choices none is lower than two of the wrong ones, 2 * 2
    assert exchange.chance_of_so_low([[0.0, 0.0, 1.0, 1.0]] * 2) == pytest.approx(4 / 16, abs=0.02)
    # the numbers of old values may differ
    assert exchange.chance_of_so_low([[0.0, 1.0], [0.0, 1.0, 1.0, 1.0]]) == pytest.approx(1 / 8, abs=0.012)
    # 100 things, right 9 times in 10, but for one night on which all were right
    usual = [[float((thing + night) % 10 != 0) for night in range(7)] for thing in range(100)]
    assert exchange.chance_of_so_low([[row[0], 1.0, *row[1:]] for row in usual]) > 0.05


def test_holm_multiplies_the_smallest_by_all_and_never_turns_the_order_round():
    from nightjar.statistics.exchange import holm

    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (holm([0.9, 0.8]), holm([])) == ([1.0, 1.0], [])
