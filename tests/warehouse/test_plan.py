"""``nightjar plan``, from runs made by hand."""

import json
import math

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError


@pytest.fixture
def publish(terminal, house):
    """Publishes a run; ``groups`` are the rewards of each example's rollouts."""

    def publish(run_id, groups, model="m", asked=None):
        told = {"model": model, "time_ms": 1000.0 * sum(map(len, groups)),
                "started_at": f"2026-01-{len(list(terminal.iterdir())) + 1:02}T00:00:00+00:00"}  # fmt: skip
        run_dir = house.write(run_id, groups, **told)
        (run_dir / "config.json").write_text(json.dumps({} if asked is None else {"num_examples": asked}))
        house.warehouse.publish(run_dir, tidies=False)

    return publish


def once(right, flipped=0):
    """Returns a hundred examples: the first are right, of which the last few are flipped with as many of the others."""
    return [[float((n < right) != (right - flipped <= n < right + flipped))] for n in range(100)]


def needed(variance, detect):
    from statsmodels.stats.power import TTestPower

    return math.ceil(TTestPower().solve_power(detect / variance**0.5, None, 0.025, 0.8, alternative="larger"))


def test_from_runs_that_differ(publish, nightjar):
    publish("a", once(50))
    publish("b", once(50, flipped=10), asked=-1)
    found = analysis.plan("gsm8k", detect=0.05)
    # 20 of 100 flipped between two runs: each has variance 1/2 and the others 0, so the mean is 0.1
    assert found.variances.within == pytest.approx(0.1)
    # 40 examples always right, 40 never, 20 half: 0.2020 over examples, without a half of 0.1
    assert found.variances.between == pytest.approx(20 / 99 - 0.05)
    assert found.variances.difference == pytest.approx(0.05 * 0.95)
    assert [row.examples for row in found.rows] == [needed(0.0475 + 0.2 / rollouts, 0.05) for rollouts in (1, 2, 4, 8)]
    assert (found.rows[1].seconds, found.rows[1].cost) == (found.rows[1].rollouts, None)
    assert (found.dataset, found.rollouts_for_dataset) == (100, None)
    told = nightjar("plan", "gsm8k", "--detect", 0.05)
    assert told.width <= 80
    assert "The 100 examples are too few" in told.words
    # (0.1275 + 0.2) * 7.85 / 0.15^2 = 114 are more than 100, (0.1275 + 0.1) * 7.85 / 0.15^2 = 79 are not
    assert nightjar("plan", "gsm8k", "--detect", 0.15, "--json").json["rollouts_for_dataset"] == 2


def test_more_rollouts_where_examples_are_too_few(publish, nightjar):
    publish("a", once(50))
    publish("b", once(50, flipped=20), asked=-1)
    publish("n", once(50), model="n")
    found = analysis.plan("gsm8k", detect=0.1, model="m")
    # the means of the two runs of m differ by 1/2 from n on 40 examples: (40 * 1/4) / 99, and by chance 0.2 / 2 and, as
    # n was asked once, all of its variance
    assert (found.variances.models, found.variances.difference) == (["n"], 0.0)
    assert found.rows[0].examples > 100
    assert found.rollouts_for_dataset == 4
    told = nightjar("plan", "gsm8k", "--detect", 0.1, "--model", "m")
    assert "All 100 examples, 4 rollouts each" in told.words
    assert "Next: nightjar eval run gsm8k -m m -n -1 -r 4" in told.err


def test_from_the_rollouts_of_one_run_or_from_none_at_all(publish, nightjar):
    told = nightjar("plan", "gsm8k", "--detect", 0.05)
    assert "A pilot of 50 examples × 2 rollouts" in told.words
    assert "Next: nightjar eval run gsm8k -m MODEL -n 50 -r 2" in told.err
    publish("a", [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    # two of four examples with a variance of 1/2
    assert analysis.plan("gsm8k", detect=0.05).variances.within == pytest.approx(0.25)
    publish("b", once(50), model="once")
    found = analysis.plan("gsm8k", detect=0.05)
    assert (found.variances.is_within_known, found.variances.within) == (False, pytest.approx(25 / 99))


def test_an_unknown_model_and_a_drop_of_zero_are_errors(publish, tmp_path):
    publish("a", once(50))
    with pytest.raises(ConfigError, match=r"No run of model 'x'. There are: m"):
        analysis.plan("gsm8k", detect=0.05, model="x")
    with pytest.raises(ConfigError, match="detect above 0"):
        analysis.plan("gsm8k", detect=0.0)
    found = analysis.plan("nothing-yet", detect=5, warehouse=tmp_path / "warehouse")
    assert found.rows[0].examples <= 3
