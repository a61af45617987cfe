"""Where a series has changed, against values worked by hand, statsmodels, and by simulation."""

import pytest
from late import late

NAN = float("nan")


np, stats, change_points = late("numpy", "scipy.stats", "nightjar.statistics.change_points")


def nights(seed, runs, *, examples=200, rollouts=1, before=None, drop=0.0):
    """Returns made-up values and counts: binary rewards, and every seventh night a quarter of the examples."""
    draw = np.random.default_rng(seed)
    right = np.repeat(draw.beta(0.6, 0.4, size=(1, examples)), runs, axis=0)
    if before is not None:
        right[before:] *= 1 - drop / right[0].mean()
    counts = np.full((runs, examples), rollouts)
    counts[3::7, examples // 4 :] = 0
    with np.errstate(invalid="ignore"):
        return draw.binomial(counts, right) / counts, counts.astype(float)


def test_a_split_noise_and_levels_are_those_worked_by_hand():
    # 0, 0 | 1, 1 of variance 1/2: 1 / sqrt(1/2 * (1/2 + 1/2)); 0 | 0, 1, 1: 2/3 / sqrt(1/2 * (1 + 1/3))
    values, counts = np.array([[0.0], [0.0], [1.0], [1.0]]), np.ones((4, 1))
    found = change_points.split_statistics(values, counts, np.array([0.5]))[:, 0]
    assert found == pytest.approx([2 / 3 / (2 / 3) ** 0.5, 2**0.5, 2 / 3 / (2 / 3) ** 0.5])
    # noise is half the squared difference of neighbours, nearer to the mean: one difference of 1 and one of 0 in the
    # first, none in the second: (1/2 + 4 * 1/8) / 6 and (0 + 4 * 1/8) / 6
    values, counts = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), np.ones((3, 2))
    assert change_points.noise_variances(values, counts) == pytest.approx([1 / 6, 1 / 12])
    # a run without the easy examples is as good as the others
    assert change_points.levels(np.array([[0.0, 1.0], [0.0, 1.0], [0.0, NAN]])) == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.slow
def test_a_split_and_levels_are_those_of_regressions_of_statsmodels():
    import statsmodels.api as sm

    values, counts = nights(1, 9, examples=12, rollouts=3)
    counts[2, 4], values[2, 4] = 0, NAN
    found = change_points.split_statistics(values, counts, np.full(12, 0.2))[:, 0]
    run, example = np.nonzero(counts)
    for place in (1, 4, 8):  # a split is the step of a regression on example and side
        design = np.column_stack([run >= place, example[:, None] == np.arange(12)]).astype(float)
        model = sm.WLS(values[run, example], design, weights=counts[run, example] / 0.2)
        fit = model.fit(cov_type="fixed scale", cov_kwds={"scale": 1.0})
        assert found[place - 1] == pytest.approx(fit.params[0] / fit.bse[0])
    values, counts = nights(2, 8, examples=15)
    run, example = np.nonzero(counts)
    design = np.column_stack([run[:, None] == np.arange(8), example[:, None] == np.arange(1, 15)]).astype(float)
    effects = sm.OLS(values[run, example], design).fit().params
    found = change_points.levels(values)
    assert found - found[0] == pytest.approx(effects[:8] - effects[0])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("runs", "series"), [(5, 400), (10, 400), (30, 300), (100, 100)])
def test_a_series_without_change_has_a_mark_as_seldom_as_it_says(runs, series):
    alarms = sum(bool(change_points.change_points(*nights(seed, runs), 0.05)) for seed in range(series))
    assert alarms <= stats.binom.ppf(0.999, series, 0.05)


@pytest.mark.slow
def test_a_change_is_found_where_it_is():
    found = [change_points.change_points(*nights(seed, 30, before=20, drop=0.15)) for seed in range(50)]
    assert [len(one) for one in found].count(1) >= 45
    inside = [one[0].earliest <= 20 <= one[0].latest for one in found if one]
    assert sum(inside) >= stats.binom.ppf(0.001, len(inside), 0.95)


@pytest.mark.slow
def test_nights_that_differ_more_than_their_examples_explain_are_seldom_changes():
    draw, marked = np.random.default_rng(5), 0
    for seed in range(100):
        values, counts = nights(seed, 30)
        marked += bool(change_points.change_points(values + 0.05 * draw.standard_normal((30, 1)), counts))
    # where it was not looked for, 98 of these would be marked: the noise by night is twice that of the answers
    assert marked <= 20


def test_series_without_variance_have_changes_only_where_values_change():
    for runs in (1, 2, 9):
        assert change_points.change_points(np.ones((runs, 5)), np.ones((runs, 5))) == []
    values = np.array([[1.0, NAN], [1.0, NAN], [NAN, 0.0], [NAN, 0.0]])
    assert change_points.change_points(values, (~np.isnan(values)).astype(float)) == []
    values = np.repeat([1.0] * 10 + [0.0] * 10, 50).reshape(20, 50)
    values[:, 10:] = 1.0
    assert [one.at for one in change_points.change_points(values, np.ones((20, 50)))] == [10]
    values, counts = nights(3, 40, before=15, drop=0.2)
    values[25:] = nights(3, 40)[0][25:]
    assert [one.at for one in change_points.change_points(values, counts)] == [15, 25]
