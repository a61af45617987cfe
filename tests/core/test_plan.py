"""The remaining rollouts, and their division into shards."""

import pytest

from nightjar.core.rollout.records import Key
from nightjar.engine import Plan
from nightjar.engine.runs import Journal, RunDirectory
from nightjar.errors import ModelError


@pytest.fixture
def journal(tmp_path):
    with RunDirectory(tmp_path / "r1") as directory:
        journal = Journal(directory, str)
        yield journal
        journal.finish()


@pytest.fixture
def done(journal, make_state):
    """Notes rollouts as generated, scored or failed."""

    def note(example_id, rollout_index, *, scored=True, failed=False):
        error = ModelError("down") if failed else None
        state = make_state(example_id, rollout_index, completion=[], error=error, reward=None if failed else 1.0)
        journal.attempted(state)
        if scored:
            journal.scored([state])

    return note


def plan(rollouts=3, is_independent=False, scores_whole_groups=False, **options):
    return Plan(rollouts, is_independent, scores_whole_groups, **options)


def remaining(plan, journal):
    return [(group.to_generate, group.to_restore) for group in plan.remaining_groups(journal, 0)]


CHOSEN = frozenset({Key(0, 0), Key(0, 2)})


@pytest.mark.parametrize(
    ("scored", "generated", "failed", "wanted", "groups"),
    [
        ((), (), (), {}, [((0, 1, 2), ())]), ((0, 1, 2), (), (), {}, []), ((1,), (), (), {}, [((0, 2), ())]),
        ((), (1,), (), {}, [((0, 2), (1,))]), ((), (), (1,), {}, [((0, 1, 2), ())]),
        ((), (1,), (), {"is_independent": True}, [((0,), ()), ((), (1,)), ((2,), ())]),
        ((0, 1), (), (), {"scores_whole_groups": True}, [((2,), (0, 1))]),
        ((0, 1, 2), (), (), {"scores_whole_groups": True}, []),
        # nothing is generated where the model is not asked
        ((), (1,), (2,), {"scores_whole_groups": True, "asks_model": False}, [((), (1,))]),
        # what was not chosen stays failed
        ((0,), (), (1, 2), {"chosen": CHOSEN}, [((2,), ())]),
        ((0,), (), (1, 2), {"chosen": CHOSEN, "scores_whole_groups": True}, [((2,), (0,))]),
        ((0,), (), (1, 2), {"chosen": CHOSEN - {Key(0, 2)}, "scores_whole_groups": True}, []),
    ],
)  # fmt: skip
def test_missing_rollouts_are_generated_and_those_without_a_score_scored(
    journal, done, scored, generated, failed, wanted, groups
):
    for index in (*scored, *generated, *failed):
        done(0, index, scored=index not in generated, failed=index in failed)
    assert remaining(plan(**wanted), journal) == groups


def test_rollouts_that_failed_in_scoring_are_scored_again(journal, done, make_state):
    done(0, 0, scored=False)
    journal.scored([make_state(0, 0, error=ModelError("the judge is down"))])
    assert remaining(plan(1), journal) == [((), (0,))]


def test_shards_are_blocks_of_equal_size_in_the_order_of_examples(journal, done):
    for count, most, sizes in (
        (1, 16, [1]), (16, 16, [1] * 16), (17, 16, [2] * 8 + [1]), (100, 16, [7] * 14 + [2]), (160, 16, [10] * 16),
        (10, 3, [4, 4, 2]),
    ):  # fmt: skip
        shards = plan().shards(journal, list(range(count)), most)
        assert [len(shard.remaining) for shard in shards] == sizes
    shards = plan().shards(journal, [9, 2, 5, 7], 2)
    assert [(each.label, each.remaining) for each in shards] == [("groups 1 to 2", (9, 2)), ("groups 3 to 4", (5, 7))]
    for example_id in (0, 1, 4):
        done(example_id, 0)
    shards = plan(1).shards(journal, [0, 1, 2, 3, 4, 5], 3)
    assert [(each.number, each.remaining) for each in shards] == [(0, ()), (1, (2, 3)), (2, (5,))]
