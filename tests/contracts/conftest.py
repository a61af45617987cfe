"""What the contract tests share."""

import pytest

from nightjar.core.rollout.state import new_state


@pytest.fixture
def make_state():
    """Makes the state of a rollout at its start."""

    def make(example_id=0, rollout_index=0, **fields):
        rollout_input = {"prompt": [], "example_id": example_id, "rollout_index": rollout_index}
        return new_state(rollout_input, **fields)

    return make
