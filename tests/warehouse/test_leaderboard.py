"""``nightjar leaderboard``, from runs made by hand."""

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError


@pytest.fixture
def publish(terminal, house):
    """Publishes a run of a model; ``right`` of a hundred examples are right, the first, or shifted by ``turn``."""

    def publish(model, right, *, examples=100, turn=0, **content):
        rewards = [float((n - turn) % examples < right) for n in range(examples)]
        house.publish(f"run-{model}", rewards, model=model, **content)

    return publish


def test_models_are_ranked_and_ties_are_marked(publish, nightjar):
    publish("best", 80)
    publish("good", 78, turn=1)
    publish("weak", 30)
    found = analysis.leaderboard("gsm8k")
    assert [(row.model, row.mean, row.ranks, row.letters, row.tied) for row in found.rows] == [
        ("best", 0.8, (1, 2), "a", ["good"]), ("good", 0.78, (1, 2), "a", ["best"]), ("weak", 0.3, (3, 3), "b", []),
    ]  # fmt: skip
    assert (found.examples, found.left_out, found.differs) == (100, {}, [])
    told = nightjar("leaderboard", "gsm8k")
    assert told.width <= 80
    assert "First: best, good are tied: any of them may be the best" in told.words
    assert "Next: nightjar compare run-good run-best" in told.err
    assert nightjar("leaderboard", "gsm8k", "--json").json["rows"][2]["ranks"] == [3, 3]


def test_means_are_over_what_all_have_scored(publish):
    publish("more", 60)
    # of the first sixty, the fifty that are right
    publish("fewer", 50, examples=60)
    publish("others", 90, hashes="other")
    publish("few", 20, examples=20)
    found = analysis.leaderboard("gsm8k")
    assert {row.model: row.mean for row in found.rows} == {"more": 1.0, "fewer": pytest.approx(50 / 60)}
    assert (found.examples, found.left_out) == (60, {"others": 0, "few": 20})


def test_one_model_alone_and_different_settings_are_reported(publish, nightjar):
    publish("a", 50)
    assert "First: a, the only model" in nightjar("leaderboard", "gsm8k").words
    with pytest.raises(ConfigError, match="There are: gsm8k"):
        analysis.leaderboard("other")
    publish("b", 50, sampling_args={"temperature": 1.5})
    assert analysis.leaderboard("gsm8k").differs == ["sampling"]
    assert "Not the same: sampling" in nightjar("leaderboard", "gsm8k").out
