"""Journal: what is finished is kept, found again, and put in order in the end."""

import json
import re

import pytest

from nightjar.core.messages import AssistantMessage
from nightjar.engine.runs import Journal, Key, RunDirectory
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
            example_id,
            rollout_index,
            completion=[AssistantMessage(content=f"{example_id}/{rollout_index}")],
            reward=reward,
            advantage=advantage if scored else None,
            metrics={"correct": reward} if scored else None,
            error=error,
            **fields,
        )

    return make


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestAttempts:
    def test_are_numbered_per_rollout(self, journal_of, rollout, directory):
        journal = journal_of()
        for state in [rollout(0, error=ModelError("down")), rollout(1), rollout(0)]:
            journal.attempted(state)
        found = [(row["example_id"], row["attempt"], row["error"] is None) for row in lines(directory.attempts_path)]
        assert found == [(0, 1, False), (1, 1, True), (0, 2, True)]

    def test_count_on_after_a_resume(self, journal_of, rollout, directory):
        journal_of().attempted(rollout(0, error=ModelError("down")))
        journal_of().attempted(rollout(0))
        assert [row["attempt"] for row in lines(directory.attempts_path)] == [1, 2]

    def test_have_the_example_s_hash(self, journal_of, rollout, directory):
        journal_of().attempted(rollout(7))
        assert lines(directory.attempts_path)[0]["example_hash"] == "hash7"

    def test_are_on_file_at_once(self, journal_of, rollout, directory):
        journal_of().attempted(rollout(0))
        assert len(lines(directory.attempts_path)) == 1

    def test_a_rollout_is_generated_when_one_did_not_fail(self, journal_of, rollout):
        journal = journal_of()
        journal.attempted(rollout(0, error=ModelError("down")))
        journal.attempted(rollout(1))
        assert [journal.is_generated(Key(number, 0)) for number in (0, 1, 2)] == [False, True, False]

    def test_so_it_is_after_a_resume(self, journal_of, rollout):
        journal_of().attempted(rollout(1, 2))
        journal = journal_of()
        assert (journal.is_generated(Key(1, 2)), journal.is_generated(Key(1, 1))) == (True, False)

    def test_what_cannot_be_saved_is_warned_of_once(self, journal_of, rollout, caplog):
        journal = journal_of()
        for number in range(3):
            journal.attempted(rollout(number, socket=object()))
        assert [record.getMessage() for record in caplog.records] == [
            "state['socket'] cannot be saved: a resumed run scores without it"
        ]

    def test_restore_fills_a_fresh_state(self, journal_of, rollout, make_state):
        journal_of().attempted(rollout(3, 1, turn=2, usage={"input_tokens": 1, "output_tokens": 2}))
        restored = journal_of().restore(make_state(3, 1))
        assert restored["completion"] == [AssistantMessage(content="3/1")]
        assert (restored["turn"], restored["usage"]) == (2, {"input_tokens": 1, "output_tokens": 2})

    def test_restore_takes_the_latest_that_did_not_fail(self, journal_of, rollout, make_state):
        journal = journal_of()
        for turn, error in [(1, None), (2, None), (3, ModelError("down"))]:
            journal.attempted(rollout(0, turn=turn, error=error))
        assert journal.restore(make_state(0))["turn"] == 2


class TestResults:
    def test_a_rollout_is_scored_when_its_result_has_no_error(self, journal_of, rollout):
        journal = journal_of()
        journal.scored([rollout(0, reward=1.0), rollout(1, error=ModelError("down"))])
        assert [journal.is_scored(Key(number, 0)) for number in (0, 1, 2)] == [True, False, False]

    def test_so_it_is_after_a_resume(self, journal_of, rollout):
        journal_of().scored([rollout(0, reward=1.0), rollout(1, error=ModelError("down"))])
        journal = journal_of()
        assert [journal.is_scored(Key(number, 0)) for number in (0, 1)] == [True, False]
        assert [reward for _, reward in journal.rewards()] == [1.0]

    def test_the_latest_line_wins(self, journal_of, rollout, directory):
        journal = journal_of()
        journal.scored([rollout(0, reward=1.0)])
        journal.scored([rollout(0, error=ModelError("down"))])
        assert not journal.is_scored(Key(0, 0))
        journal.scored([rollout(0, reward=0.25)])
        journal_of()
        assert [row["reward"] for row in lines(directory.results_path)] == [0.25]

    def test_are_ordered_in_the_end_one_line_a_rollout(self, journal_of, rollout, directory):
        journal = journal_of()
        for key in [(2, 0), (0, 1), (10, 0), (0, 0), (2, 0)]:
            journal.scored([rollout(*key, reward=1.0)])
        journal_of()
        keys = [(row["example_id"], row["rollout_index"]) for row in lines(directory.results_path)]
        assert keys == [(0, 0), (0, 1), (2, 0), (10, 0)]

    def test_a_file_that_is_in_order_is_not_written_again(self, journal_of, rollout, directory):
        journal_of().scored([rollout(0, reward=1.0), rollout(1, reward=0.0)])
        before = directory.results_path.stat().st_ino
        journal_of()
        assert directory.results_path.stat().st_ino == before

    def test_say_how_many_attempts_there_were(self, journal_of, rollout, directory):
        journal = journal_of()
        journal.attempted(rollout(0, error=ModelError("down")))
        journal.attempted(rollout(0))
        journal.scored([rollout(0, reward=1.0)])
        assert lines(directory.results_path)[0]["attempts"] == 2

    def test_keep_the_state_columns(self, journal_of, rollout, directory):
        journal_of(state_columns=["turn"]).scored([rollout(0, reward=1.0, turn=4)])
        assert lines(directory.results_path)[0]["turn"] == 4

    def test_a_rollout_without_a_reward_is_done_where_nothing_is_scored(self, journal_of, rollout):
        journal = journal_of()
        journal.scored([rollout(0)])
        assert (journal.is_scored(Key(0, 0)), list(journal.rewards())) == (True, [])


class TestAdvantage:
    def advantages(self, directory):
        return [row["advantage"] for row in lines(directory.results_path)]

    def test_of_a_group_scored_in_parts_is_that_of_the_whole_group(self, journal_of, rollout, directory):
        journal = journal_of()
        journal.scored([rollout(0, 0, reward=1.0), rollout(0, 1, error=ModelError("down"))])
        journal.scored([rollout(0, 1, reward=0.0)])
        journal.scored([rollout(1, 0, reward=0.5)])
        journal_of()
        assert self.advantages(directory) == [0.5, -0.5, 0.0]

    def test_of_a_group_scored_at_once_stays(self, journal_of, rollout, directory):
        journal_of().scored([rollout(0, 0, reward=1.0, advantage=0.5), rollout(0, 1, reward=0.0, advantage=-0.5)])
        before = directory.results_path.read_bytes()
        journal_of()
        assert directory.results_path.read_bytes() == before

    def test_is_corrected_over_a_resume_too(self, journal_of, rollout, directory):
        journal_of().scored([rollout(0, 0, reward=1.0)])
        journal_of().scored([rollout(0, 1, reward=0.0)])
        journal_of()
        assert self.advantages(directory) == [0.5, -0.5]

    def test_a_failed_rollout_has_none(self, journal_of, rollout, directory):
        journal = journal_of()
        journal.scored([rollout(0, 0, reward=1.0)])
        journal.scored([rollout(0, 1, error=ModelError("down"))])
        journal_of()
        assert self.advantages(directory) == [0.0, None]


def without(row, *path):
    """Returns a row that lacks what is at a path."""
    inner = json.loads(json.dumps(row))
    last = inner
    for name in path[:-1]:
        last = last[name]
    del last[path[-1]]
    return inner


def with_(row, value, *path):
    """Returns a row with another value at a path."""
    inner = json.loads(json.dumps(row))
    last = inner
    for name in path[:-1]:
        last = last[name]
    last[path[-1]] = value
    return inner


class TestDamage:
    """Each line is compared with what Nightjar reads of it before anything is asked of a model."""

    @pytest.fixture
    def written(self, journal_of, rollout, directory):
        """The lines of an attempt and of its result."""
        journal = journal_of()
        state = rollout(0, reward=1.0)
        journal.attempted(state)
        journal.scored([state])
        journal_of()
        return lines(directory.attempts_path)[0], lines(directory.results_path)[0]

    @pytest.mark.parametrize(
        ("damage", "what"),
        [
            (lambda row: {}, "example_id: field required"),
            (lambda row: without(row, "rollout_index"), "rollout_index: field required"),
            (lambda row: with_(row, "1", "rollout_index"), "rollout_index: input should be a valid integer"),
            (lambda row: with_(row, -1, "rollout_index"), "rollout_index: input should be greater than or equal to 0"),
            (lambda row: with_(row, 2**40, "rollout_index"), "rollout_index: input should be less than or equal to"),
            (lambda row: without(row, "error"), "error: field required"),
            (lambda row: with_(row, "down", "error"), "error: input should be a valid dictionary"),
            (lambda row: with_(row, {"error": "X", "message": "m"}, "error"), "error.error_chain_repr: field required"),
            (lambda row: with_(row, [], "token_usage"), "token_usage: input should be a valid dictionary"),
        ],
    )
    @pytest.mark.parametrize("name", ["attempts.jsonl", "results.jsonl"])
    def test_of_a_line(self, directory, written, name, damage, what):
        self.refuses(directory, name, damage(written[name == "results.jsonl"]), what)

    @pytest.mark.parametrize(
        ("damage", "what"),
        [
            (lambda row: with_(row, None, "state"), "it has neither an error nor a state"),
            (lambda row: with_(row, None, "generation_ms"), "generation_ms: input should be a valid number"),
            (lambda row: without(row, "state", "trajectory"), "state.trajectory: field required"),
            (lambda row: with_(row, {}, "state", "trajectory"), "state.trajectory: input should be a valid list"),
            (lambda row: with_(row, 7, "state", "completion"), "state.completion"),
            (lambda row: with_(row, [{"content": "4"}], "state", "completion"), "state cannot be restored: "),
        ],
    )
    def test_of_an_attempt(self, directory, written, damage, what):
        directory.results_path.unlink()
        self.refuses(directory, "attempts.jsonl", damage(written[0]), what)

    @pytest.mark.parametrize(
        ("damage", "what"),
        [
            (lambda row: without(row, "reward"), "reward: field required"),
            (lambda row: with_(row, "", "reward"), "reward: input should be a valid number"),
            (lambda row: with_(row, [1.0], "metrics", "correct"), "metrics.correct: input should be a valid number"),
            (lambda row: with_(row, None, "metrics"), "metrics: input should be a valid dictionary"),
            (lambda row: with_(row, 3, "stop_condition"), "stop_condition: input should be a valid string"),
        ],
    )
    def test_of_a_result(self, directory, written, damage, what):
        self.refuses(directory, "results.jsonl", damage(written[1]), what)

    def refuses(self, directory, name, row, what):
        path = directory.path / name
        path.write_text(f"{json.dumps(row)}\n")
        with pytest.raises(RunDirectoryError, match=rf"{re.escape(name)}, line 1 is damaged: {re.escape(what)}"):
            Journal(directory, str)

    def test_changes_nothing(self, directory, written):
        content = f'{json.dumps(written[0])}\nxxx\n{{"torn'.encode()
        directory.attempts_path.write_bytes(content)
        with pytest.raises(RunDirectoryError, match=r"attempts\.jsonl, line 2"):
            Journal(directory, str)
        assert directory.attempts_path.read_bytes() == content

    def test_a_torn_last_line_is_no_damage(self, journal_of, rollout, directory):
        journal_of().attempted(rollout(0))
        journal_of()
        with directory.attempts_path.open("ab") as file:
            file.write(b'{"example_id": 1, "rollo')
        journal = journal_of()
        assert (journal.is_generated(Key(0, 0)), journal.is_generated(Key(1, 0))) == (True, False)
        assert len(lines(directory.attempts_path)) == 1
