"""Rewards that tests of tasks write."""

import pytest

from nightjar.environments.agents.verification import VerificationError, combined, main_reward, verify


@pytest.fixture
def verified(plain_sandbox, tmp_path_factory, monkeypatch):
    """Runs a test script in a folder of this machine, in place of the folders of a container."""
    logs = plain_sandbox.workspace
    monkeypatch.setattr("nightjar.environments.agents.verification._REWARDS", f"{logs}/verifier")
    monkeypatch.setattr("nightjar.environments.agents.verification.TESTS", f"{logs}/tests")

    async def run(script, seconds=60):
        folder = tmp_path_factory.mktemp("tests")
        (folder / "test.sh").write_text(f"cd {logs}/verifier\n{script}")
        return await verify(plain_sandbox, "task", [folder], {"WHO": "me"}, seconds)

    return run


async def test_rewards_are_finite_numbers(verified):
    rewards = {
        "echo 1 > reward.txt": {"reward": 1.0}, "printf ' 0.25\\n\\n' > reward.txt": {"reward": 0.25},
        "echo -2e-1 > reward.txt": {"reward": -0.2},
        """echo '{"reward": 1, "style": 0.5}' > reward.json""": {"reward": 1.0, "style": 0.5},
        """echo '{"reward": true, "style": false}' > reward.json""": {"reward": 1.0, "style": 0.0},
        """echo 0 > reward.txt; echo '{"reward": 1}' > reward.json""": {"reward": 1.0},
        '[ "$WHO" = me ] && echo 1 > reward.txt': {"reward": 1.0}, "echo 1 > reward.txt; exit 1": {"reward": 1.0},
    }  # fmt: skip
    assert {script: (await verified(script)).rewards for script in rewards} == rewards


async def test_anything_else_than_a_finite_number_is_an_error_and_no_zero(verified):
    await verified("echo 1 > reward.txt")
    for script, problem in {
        "true": "wrote no reward",  # the reward from before does not count
        "echo broken; exit 3": r"wrote no reward to .* \(exit code 3\): broken",
        ": > reward.txt": "reward.txt of 'task' is not a finite number: ''",
        "echo nan > reward.txt": "not a finite number: 'nan'", "echo inf > reward.txt": "not a finite number: 'inf'",
        "echo yes > reward.txt": "not a finite number: 'yes'", ": > reward.json": "reward.json of 'task' is not JSON",
        "echo '{}' > reward.json": "has no named numbers: {}", "echo '[1]' > reward.json": r"no named numbers: \[1\]",
        """echo '{"a": NaN}' > reward.json""": r"reward.json \(a\) of 'task' is not a finite number",
        "echo 1 > reward.txt; echo x > reward.json": "reward.json of 'task' is not JSON",
        "sleep 500": "did not end within 0.3 s",
    }.items():  # fmt: skip
        with pytest.raises(VerificationError, match=problem):
            await verified(script, 0.3 if "sleep" in script else 60)


def test_steps_are_combined_as_the_task_says_and_the_main_reward_is_the_one_called_reward_or_the_mean():
    steps = [{"reward": 1.0, "style": 0.5}, {"reward": 0.5}]
    assert combined([{"reward": 1.0}], "mean") == {"reward": 1.0}
    assert combined(steps, "mean") == {"reward": 0.75, "style": 0.25}
    assert combined(steps, "final") == {"reward": 0.5}
    assert (main_reward({"reward": 0.5, "a": 1.0}), main_reward({"a": 1.0, "b": 0.5})) == (0.5, 0.75)
