"""What the tests of benchmarks share: replies that are scored without a model, and the data that is at hand."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from drawing import drawn

from nightjar.core.messages import AssistantMessage
from nightjar.core.rollout.state import new_state

DATA = Path(__file__).parents[3] / "shared" / "data"
AT_ONCE = 8


@pytest.fixture
def data():
    """The folder of real benchmark data; the test is skipped where it is not there."""
    if not DATA.is_dir():
        pytest.skip(f"needs the data in {DATA}")
    return DATA


@pytest.fixture
def score():
    """Scores a reply, or several of several turns, to an example of an environment: ``score(env, example, reply)``."""
    return lambda env, example, *replies: scores(env, [(example, *replies)])[0]


@pytest.fixture
def rewards():
    """Scores many replies, each to an example: ``rewards(env, [(example, reply), …])``."""
    return lambda env, said: [state["reward"] for state in scores(env, said)]


def scores(env, said):
    states = [finished(example, replies) for example, *replies in said]

    async def all_of_them():
        for start in range(0, len(states), AT_ONCE):
            await asyncio.gather(*(env.rubric.score_group([state]) for state in states[start : start + AT_ONCE]))
        await env.rubric.teardown()

    asyncio.run(all_of_them())
    return states


def finished(example, replies):
    state = new_state(dict(example))
    messages = [AssistantMessage(content=reply) if isinstance(reply, str) else reply for reply in replies]
    state.update(completion=messages, trajectory=list(messages))
    return state


@pytest.fixture
def rows_file(tmp_path):
    """Writes rows of a dataset, and returns the path of their file: ``rows_file(row, …)``."""

    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def needs_sandbox():
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")


@pytest.fixture
def all_right(data, rewards):
    """Checks that reference replies of a benchmark are right and empty ones wrong; returns all of its examples."""

    def check(env, reply, num_examples=None):
        examples = list(env.examples)
        assert num_examples in {None, len(examples)}
        assert set(rewards(env, [(example, reply(example)) for example in drawn(examples, 3_000)])) == {1.0}
        assert set(rewards(env, [(example, "") for example in drawn(examples, 300)])) == {0.0}
        return examples

    return check
