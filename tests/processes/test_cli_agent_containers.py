"""``CliAgentEnv`` in containers: an agent of busybox, which asks the model through the bridge on this machine.

Containers need an engine: ``apt-get install podman``, and the address of its socket in ``DOCKER_HOST``.
"""

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments import tear_down
from nightjar.environments.agents.cli_agent_env import CliAgentEnv
from nightjar.environments.rubrics import Rubric
from nightjar.model_server import ModelServer, Script
from nightjar.sandboxes.ownership import owned_containers

pytestmark = pytest.mark.long

ASK = """
ask() {
    wget -q -O - --header "Authorization: Bearer $OPENAI_API_KEY" --post-data "$1" "$OPENAI_BASE_URL/chat/completions"
}
"""
TWICE = (
    ASK
    + """
ask '{"messages": [{"role": "user", "content": "first"}]}' >/tmp/answer
said='{"role": "user", "content": "first"}, {"role": "assistant", "content": "one"}'
ask '{"messages": ['"$said"', {"role": "user", "content": "second"}]}' >>/tmp/answer
cat /tmp/answer
exit 3
"""
)


class KeptEnv(CliAgentEnv):
    """Reads the agent's file before its container goes."""

    async def post_rollout(self, state):
        state["answer"] = (await self.sandbox_of(state).exec("cat /tmp/answer", 20)).stdout


async def answered_twice(state):
    return float("one" in state["answer"] and "two" in state["answer"])


async def evaluated(command, **options):
    env = KeptEnv(
        command, docker_image="docker.io/library/busybox", dataset=[{"question": "Any?"}], memory_gb=0.25,
        rubric=Rubric(funcs=[answered_twice]), **options,
    )  # fmt: skip
    with ModelServer(Script(["one", "two"])) as server:
        results = await env.evaluate(ClientConfig(api_base_url=server.base_url), "local", rollouts_per_example=2)
    await tear_down(env)
    return results["outputs"]


async def test_a_program_without_python_asks_the_model_from_its_container(engine):
    rows = await evaluated(TWICE)
    assert [(row["error"], row["reward"], row["agent_exit_code"]) for row in rows] == [(None, 1.0, 3)] * 2
    assert [row["metrics"]["agent_error"] for row in rows] == [1.0] * 2
    assert [[each["content"] for each in row["completion"]] for row in rows] == [["one", "second", "two"]] * 2
    mine = [each for each in owned_containers(engine) if each.is_owner_running and each.task is None]
    assert mine == []


async def test_a_program_that_runs_out_of_time_is_killed_with_its_container(engine):
    rows = await evaluated("sleep 1000", timeout_seconds=1)
    assert [(row["error"], row["reward"], row["agent_exit_code"]) for row in rows] == [(None, 0.0, None)] * 2
    assert [row["metrics"]["agent_timeout"] for row in rows] == [1.0] * 2


async def test_the_key_of_one_rollout_opens_no_other_conversation(engine):
    steal = (
        "url=$(echo $OPENAI_BASE_URL | sed 's#rollout/[0-9a-f]*#rollout/0000000000000000#'); OPENAI_BASE_URL=$url; "
        """ask '{"messages": [{"role": "user", "content": "first"}]}'"""
    )
    rows = await evaluated(ASK + steal)
    assert [row["error"] for row in rows] == [None] * 2
    assert all("401 Unauthorized" in row["agent_log"] for row in rows)
