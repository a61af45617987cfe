"""Windows of nights, against values worked by hand, SciPy, and nights in which nothing has changed."""

import pytest
from late import late

np, stats, windows = late("numpy", "scipy.stats", "nightjar.statistics.windows")


def windows_of(values, /, **wanted):
    values = np.array(values, dtype=float)
    normal = wanted.pop("is_normal", [True] * len(values))
    return {test.nights: test for test in windows.window_tests(values, normal, **{"count": 7, **wanted})}


def test_one_window_by_hand_also_with_examples_without_a_value():
    # three examples, three nights and the last one; differences 1 - 0, 2/3 - 0, 1/3 - 1
    found = windows_of([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 1]])[1]
    assert found.damage == pytest.approx((1 + 2 / 3 - 2 / 3) / 3)
    assert (found.pairs, found.baseline) == (3, (0, 1, 2))
    # between examples: the variance of 1, 2/3, -2/3 is 7/9, and the error sqrt(7/27) = 0.5092;
    # from night to night: the variances are 1/4, 1/3, 1/3, times 1 + 1/3: sqrt(11/9) / 3 = 0.3685
    assert found.stderr == pytest.approx((7 / 27) ** 0.5)
    assert found.p == pytest.approx(stats.t.sf((1 / 3) / (7 / 27) ** 0.5, 2))
    found = windows_of([[1, np.nan, 1, 0], [1, 1, np.nan, 0], [0, 1, 1, np.nan]])[1]
    assert found.pairs == 3
    assert found.damage == pytest.approx(1 / 3)


def test_one_window_is_the_t_test_of_scipy_where_examples_spread():
    draw = np.random.default_rng(5)
    before, after = draw.normal(0.5, 0.01, (8, 30)), draw.normal(0.45, 0.2, 30)
    found = windows_of([*before, after], count=8, margin=0.02)[1]
    expected = stats.ttest_1samp(before.mean(axis=0) - after, 0.02, alternative="greater")
    assert (found.damage, found.p) == pytest.approx((before.mean() - after.mean(), expected.pvalue))


def test_little_where_little_ever_is_proves_little_but_a_change_everywhere_much():
    # of 100 examples, two are right each night, others each time, and tonight none: a matter of chance
    nights = np.zeros((8, 100))
    for night in range(7):
        nights[night, [2 * night, 2 * night + 1]] = 1
    found = windows_of(nights)[1]
    assert found.damage == pytest.approx(0.02)
    assert found.p > 0.05
    # the differences alone would have said so
    assert stats.ttest_1samp(nights[:7].mean(axis=0), 0, alternative="greater").pvalue < 1e-4
    assert windows_of([[0.9] * 100] * 3 + [[0.55] * 100], margin=0.05)[1].p < 1e-10
    assert windows_of([[1.0] * 10] * 4, margin=0.05)[1].p == 1.0


def test_windows_are_compared_with_normal_nights_before_them_within_the_same_settings():
    found = windows_of(np.eye(12, 3), count=3, is_normal=[True] * 9 + [False] * 3)
    assert {nights: test.baseline for nights, test in found.items()} == {
        1: (6, 7, 8), 2: (6, 7, 8), 4: (5, 6, 7), 8: (1, 2, 3),
    }  # fmt: skip
    found = windows_of(np.eye(8, 3), settings=["a"] * 5 + ["b"] * 3)
    assert {nights: test.baseline for nights, test in found.items()} == {1: (5, 6), 2: (5,)}
    first = windows_of(np.eye(6, 3), settings=["a"] * 5 + ["b"])
    assert {nights: test.baseline for nights, test in first.items()} == {1: (0, 1, 2, 3, 4)}
    assert windows_of([[1, 0, 1]]) == {}
    assert windows.chance_of_so_much_damage([]) == 1.0


def test_a_bad_night_does_not_echo():
    usual = [[float((thing + night) % 10 != 0) for thing in range(200)] for night in range(8)]
    bad = [float(thing % 2) for thing in range(200)]
    alarm, echo = windows_of([*usual, bad]), windows_of([*usual, bad, usual[-1]])
    assert windows.chance_of_so_much_damage([*alarm.values()]) < 1e-6
    assert echo[2].p < 1e-6
    assert windows.chance_of_so_much_damage([*echo.values()], margin=0.001) == 1.0


def test_a_small_drop_that_lasts_is_found_by_the_long_windows():
    draw = np.random.default_rng(3)
    ease = draw.beta(2, 1, 500)
    nights = draw.random((28, 500)) < ease
    low = draw.random((8, 500)) < ease - 0.03
    found = windows_of(np.vstack([nights, low]), count=28)
    assert found[8].p < found[1].p / 10


FEW, MANY = 300, 4_000


@pytest.mark.parametrize(
    ("ease", "nights"), [(0.5, FEW), *(pytest.param(ease, MANY, marks=pytest.mark.long) for ease in (0.02, 0.5, 0.98))]
)
def test_without_a_change_alarms_are_as_rare_as_their_level(ease, nights):
    """Nights with 60 examples each; alarms at the level of one in ten and one in a hundred."""
    draw = np.random.default_rng(11)
    chances = []
    for _ in range(nights):
        rows = (draw.random((15, 60)) < ease).astype(float)
        chances.append(windows.chance_of_so_much_damage(windows.window_tests(rows, [True] * 15, count=7)))
    for level in (0.1, 0.01):
        highest = level + 3 * (level * (1 - level) / len(chances)) ** 0.5
        assert np.mean(np.array(chances) < level) <= highest
