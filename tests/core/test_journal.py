"""Journal: what is finished is kept, found again, and put in order in the end."""

import asyncio
import copy
import json
import re
import resource

import pytest

from nightjar.core.messages import AssistantMessage
from nightjar.engine.runs import Journal, Key, RunDirectory
from nightjar.engine.runs.jsonl import drop_checksums
from nightjar.errors import ModelError, RunDirectoryError


@pytest.fixture
def directory(tmp_path):
    with RunDirectory(tmp_path / "r1") as directory:
        yield directory


@pytest.fixture
def journal_of(directory):
    """Opens the journal anew, as a resumed run does, and finishes what is left open."""
    opened = []

    def open_(**fields):
        if opened:
            opened.pop().finish()
        opened.append(Journal(directory, lambda example_id: f"hash{example_id}", **fields))
        return opened[-1]

    yield open_
    for journal in opened:
        journal.finish()


@pytest.fixture
def rollout(make_state):
    """Makes a finished rollout: scored with a reward, or failed."""

    def make(example_id, rollout_index=0, reward=None, error=None, advantage=0.0, **fields):
        scored = reward is not None
        return make_state(
            example_id, rollout_index, completion=[AssistantMessage(content=f"{example_id}/{rollout_index}")],
            reward=reward, advantage=advantage if scored else None, metrics={"correct": reward} if scored else None,
            error=error, **fields,
        )  # fmt: skip

    return make


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_attempts_are_on_disk_at_once_and_numbered_per_rollout_also_after_a_resume(journal_of, rollout, directory):
    journal = journal_of()
    for state in [rollout(0, error=ModelError("down")), rollout(7), rollout(0), rollout(1, 2)]:
        journal.attempted(state)
    for each in (journal, journal_of()):
        generated = [each.is_generated(Key(*key)) for key in ((0, 0), (1, 2), (1, 1))]
        assert generated == [True, True, False], "once an attempt did not fail"
    journal_of().attempted(rollout(3, error=ModelError("down")))
    journal_of().attempted(rollout(0))
    assert not journal_of().is_generated(Key(3, 0))
    found = [(row["example_hash"], row["attempt"], row["error"] is None) for row in lines(directory.attempts_path)]
    assert found[:3] == [("hash0", 1, False), ("hash7", 1, True), ("hash0", 2, True)]
    assert found[3:] == [("hash1", 1, True), ("hash3", 1, False), ("hash0", 3, True)]


def test_a_key_that_cannot_be_saved_is_warned_of_once(journal_of, rollout, caplog):
    journal = journal_of()
    for number in range(3):
        journal.attempted(rollout(number, socket=object()))
    [record] = caplog.records
    assert "state['socket']" in record.getMessage()


def test_restoring_fills_a_fresh_state_with_the_latest_attempt_that_did_not_fail(journal_of, rollout, make_state):
    journal = journal_of()
    for turn, error in [(1, None), (2, None), (3, ModelError("down"))]:
        usage = {"input_tokens": 1, "output_tokens": 2}
        journal.attempted(rollout(3, 1, turn=turn, error=error, usage=usage))
    for each in (journal, journal_of()):
        restored = each.restore(make_state(3, 1))
        assert restored["completion"] == [AssistantMessage(content="3/1")]
        assert (restored["turn"], restored["usage"]) == (2, {"input_tokens": 1, "output_tokens": 2})


def test_a_rollout_is_scored_if_its_result_has_no_error_also_after_a_resume(journal_of, rollout):
    journal = journal_of()
    journal.scored([rollout(0, reward=1.0), rollout(1, error=ModelError("down")), rollout(2)])
    for each in (journal, journal_of()):
        assert [each.is_scored(Key(number, 0)) for number in range(4)] == [True, False, True, False]
        assert list(each.rewards()) == [(Key(0, 0), 1.0)]


def test_in_the_end_the_latest_line_of_each_rollout_is_kept_in_order(journal_of, rollout, directory):
    journal = journal_of()
    for key in [(2, 0), (0, 1), (10, 0), (0, 0), (2, 0)]:
        journal.scored([rollout(*key, reward=1.0)])
    journal.scored([rollout(0, error=ModelError("down"))])
    assert not journal.is_scored(Key(0, 0))
    journal.scored([rollout(0, reward=0.25)])
    journal_of()
    found = [(row["example_id"], row["rollout_index"], row["reward"]) for row in lines(directory.results_path)]
    assert found == [(0, 0, 0.25), (0, 1, 1.0), (2, 0, 1.0), (10, 0, 1.0)]


def test_results_in_order_are_not_written_again(journal_of, rollout, directory):
    journal_of().scored([rollout(0, reward=1.0), rollout(1, reward=0.0)])
    before = directory.results_path.stat().st_ino
    journal_of()
    assert directory.results_path.stat().st_ino == before


def test_results_have_the_number_of_attempts_and_the_state_columns(journal_of, rollout, directory):
    journal = journal_of(state_columns=["turn"])
    journal.attempted(rollout(0, error=ModelError("down")))
    journal.attempted(rollout(0))
    journal.scored([rollout(0, reward=1.0, turn=4)])
    [row] = lines(directory.results_path)
    assert (row["attempts"], row["turn"]) == (2, 4)


@pytest.mark.parametrize(
    ("sessions", "advantages"),
    [
        ([[[(0, 0, 1.0), (0, 1, None)], [(0, 1, 0.0)], [(1, 0, 0.5)]]], [0.5, -0.5, 0.0]),
        ([[[(0, 0, 1.0)]], [[(0, 1, 0.0)]]], [0.5, -0.5]),
        ([[[(0, 0, 1.0)], [(0, 1, None)]]], [0.0, None]),
        ([[[(0, 0, 1.0, None, 0.5), (0, 1, 0.0, None, -0.5)]]], [0.5, -0.5]),
    ],
    ids=["scored in parts", "over a resume", "failed", "scored at once"],
)
def test_advantages_are_those_of_the_whole_group(journal_of, rollout, directory, sessions, advantages):
    for calls in sessions:
        journal = journal_of()
        for states in calls:
            failure = {"error": ModelError("down")}
            journal.scored([rollout(*state, **(failure if state[2] is None else {})) for state in states])
    journal_of()
    assert [row["advantage"] for row in lines(directory.results_path)] == advantages


DAMAGE_OF_BOTH = [
    ("example_id", ...), ("rollout_index", ...), ("rollout_index", "1"), ("rollout_index", -1),
    ("rollout_index", 2**40), ("error", ...), ("error", "down"), ("error", {"error": "X", "message": "m"}),
    ("token_usage", []),
]  # fmt: skip
DAMAGE = {
    "attempts.jsonl": [
        *DAMAGE_OF_BOTH, ("state", None), ("generation_ms", None), ("state.trajectory", ...), ("state.trajectory", {}),
        ("state.completion", 7), ("state.completion", [{"content": "4"}]),
    ],
    "results.jsonl": [
        *DAMAGE_OF_BOTH, ("reward", ...), ("reward", ""), ("metrics.correct", [1.0]), ("metrics", None),
        ("stop_condition", 3),
    ],
}  # fmt: skip
"""Values of fields that no run writes, by file; ``...`` for a missing field."""


@pytest.fixture
def written(journal_of, rollout, directory):
    """The lines of an attempt and of its result, without checksums, as older releases write them."""
    journal = journal_of()
    state = rollout(0, reward=1.0)
    journal.attempted(state)
    journal.scored([state])
    journal_of()
    for name in DAMAGE:
        drop_checksums(directory.path / name)
    return {name: lines(directory.path / name)[0] for name in DAMAGE}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_error_of_a_damaged_line_names_the_file_the_line_and_the_field(directory, written, name):
    directory.results_path.unlink()
    for place, value in DAMAGE[name]:
        row = inner = copy.deepcopy(written[name])
        *outer, field = place.split(".")
        for key in outer:
            inner = inner[key]
        inner[field] = value
        if value is ...:
            del inner[field]
        (directory.path / name).write_text(f"{json.dumps(row)}\n")
        wrong = rf"{re.escape(name)}, line 1 is damaged: .*{place.partition('.')[0]}"
        with pytest.raises(RunDirectoryError, match=wrong):
            Journal(directory, str)


def test_damage_changes_nothing(directory, written):
    content = f'{json.dumps(written["attempts.jsonl"])}\nxxx\n{{"torn'.encode()
    directory.attempts_path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"attempts\.jsonl, line 2"):
        Journal(directory, str)
    assert directory.attempts_path.read_bytes() == content


async def test_no_result_follows_attempts_that_could_not_be_written(directory, rollout):
    journal = Journal(directory, lambda example_id: f"hash{example_id}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        journal.attempted(state := rollout(0, reward=1.0))
        await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(RunDirectoryError, match="File too large"):
        journal.scored([state])
    with pytest.raises(RunDirectoryError, match="File too large"):
        journal.finish()
    assert lines(directory.results_path) == []
