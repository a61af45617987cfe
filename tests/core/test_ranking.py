"""Simultaneous intervals, rank sets and letters: against SciPy, values worked by hand, and by simulation."""

import pytest
from late import late

from nightjar.statistics import clustered_mean

np, stats, ranking, intervals = late(
    "numpy", "scipy.stats", "nightjar.statistics.ranking", "nightjar.statistics.intervals"
)


def orthogonal(means, things):
    """Returns values of mean 0 and variance 1 that are not correlated at all."""
    made = np.random.default_rng(0).standard_normal((things, means + 1))
    made[:, 0] = 1.0
    return np.linalg.qr(made)[0][:, 1:].T * (things - 1) ** 0.5


def relation(size, *pairs):
    found = np.zeros((size, size), dtype=bool)
    for one, other in pairs:
        found[one, other] = True
    return found


def test_one_difference_is_that_of_students_t():
    values = np.random.default_rng(1).random((2, 30))
    found = ranking.simultaneous_intervals(values, ranking.pair_contrasts(2), span=0.0)
    expected = intervals.t_interval(clustered_mean([[value] for value in values[0] - values[1]]), 30)
    half = (expected.high - expected.low) / 2
    assert found.half_widths[0] == pytest.approx(half, rel=0.02)
    assert found.estimates[0] == pytest.approx((expected.high + expected.low) / 2)


@pytest.mark.parametrize(("means", "things"), [(3, 20), (6, 200)])
def test_all_pairs_of_independent_means_are_tukeys(means, things):
    found = ranking.simultaneous_intervals(orthogonal(means, things), ranking.pair_contrasts(means), span=0.0)
    # the studentized range divides by the error of a mean, a difference has one sqrt(2) as large
    expected = stats.studentized_range.ppf(0.95, means, things - 1) / things**0.5
    assert found.half_widths == pytest.approx(np.full(len(found.half_widths), expected), rel=0.02)


def test_values_that_all_agree_prove_as_much_as_there_are():
    # nothing varies, and no statistic is ever larger than 0: it is the first of ten that would be told apart
    found = ranking.simultaneous_intervals(np.array([[1.0] * 10, [1.0] * 10]), ranking.pair_contrasts(2))
    assert found.signs.tolist() == [0]
    one = ranking.simultaneous_intervals(np.array([[1.0], [0.0]]), ranking.pair_contrasts(2))
    assert (one.signs.tolist(), one.half_widths.tolist()) == ([0], [float("inf")])


def test_rank_sets_and_letters_by_hand():
    # the first is better than the third and fourth, the second than the fourth alone
    is_better = relation(4, (0, 2), (0, 3), (1, 3))
    assert ranking.rank_sets(is_better) == [(1, 2), (1, 3), (2, 4), (3, 4)]
    assert ranking.letters(is_better) == ["a", "ab", "bc", "c"]
    # where none differs, all have one letter and any rank
    assert ranking.letters(relation(3)) == ["a", "a", "a"]
    assert ranking.rank_sets(relation(3)) == [(1, 3)] * 3


def test_two_share_a_letter_exactly_where_they_are_tied():
    for seed in range(20):
        signs = np.random.default_rng(seed).integers(-1, 2, size=15)
        is_better = ranking.better(signs, 6)
        found = ranking.letters(is_better)
        tied = ~(is_better | is_better.T)
        assert [[bool(set(a) & set(b)) for a in found] for b in found] == tied.tolist()


FEW, MANY = 20, 400
KINDS = [(0.5, 60), (0.9, 100), (0.97, 50)]


@pytest.mark.parametrize(
    ("right", "examples", "tries"),
    [*((*kind, FEW) for kind in KINDS), *(pytest.param(*kind, MANY, marks=pytest.mark.long) for kind in KINDS)],
)
def test_equal_models_are_seldom_told_apart(right, examples, tries):
    draw, claimed = np.random.default_rng(3), 0
    for _ in range(tries):
        ability = draw.beta(right * 2, (1 - right) * 2, size=examples)
        values = draw.binomial(1, np.repeat(ability[None], 5, axis=0)).astype(float)
        claimed += bool(ranking.simultaneous_intervals(values, ranking.pair_contrasts(5)).signs.any())
    assert claimed <= stats.binom.ppf(0.999, tries, 0.05)
