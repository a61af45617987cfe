"""Replicas: the replica of each request, and the pause of broken ones."""

import openai
import pytest

from nightjar.clients import ClientConfig, OpenAIChatCompletionsClient, ReplicaClient, replicas, resolve_client
from nightjar.core.messages import UserMessage
from nightjar.errors import ConfigError, ModelError

ASKED = [UserMessage(content="2+2?")]


def broken(cause):
    error = ModelError("no answer")
    error.__cause__ = cause
    return error


UNREACHABLE = broken(openai.APIConnectionError(request=None))
TIMEOUT = broken(openai.APITimeoutError(request=None))


def status(code):
    error = Exception(f"status {code}")
    error.status_code = code
    return broken(error)


class Fleet:
    def __init__(self, scripted_client, count, **fields):
        self.now = 0.0
        self.clients = [scripted_client("abcdef"[position]) for position in range(count)]
        self.client = ReplicaClient(self.clients, clock=lambda: self.now, **fields)

    def breaks(self, *positions, error=UNREACHABLE):
        for position in positions:
            self.clients[position].answers = [error]

    def heals(self, *positions):
        for position in positions:
            self.clients[position].answers = ["abcdef"[position]]

    async def ask(self, example_id, rollout_index=0):
        """Returns the letter of the replica that answered; "-" where the request failed."""
        state = {"input": {"example_id": example_id, "rollout_index": rollout_index}}
        try:
            return (await self.client.get_response(ASKED, "m", {}, state=state)).message.content
        except ModelError:
            return "-"

    async def asks(self, *example_ids):
        return "".join([await self.ask(example_id) for example_id in example_ids])


@pytest.fixture
def fleet(scripted_client):
    return lambda count=3, **fields: Fleet(scripted_client, count, **fields)


class TestWhoIsAsked:
    async def test_groups_in_turn_in_the_order_in_which_they_appear(self, fleet):
        assert await fleet().asks(40, 7, 7, 40, 99, 7, 1000) == "abbacba"

    @pytest.mark.parametrize(("is_per_rollout", "answers"), [(False, "aaaaa"), (True, "abcba")])
    async def test_all_turns_of_a_group_or_of_a_rollout_go_to_one_replica(self, fleet, is_per_rollout, answers):
        some = fleet(is_per_rollout=is_per_rollout)
        assert "".join([await some.ask(0, rollout) for rollout in (0, 1, 2, 1, 0)]) == answers

    async def test_without_a_state_each_request_is_given_one(self, fleet):
        some = fleet()
        answers = [await some.client.get_response(ASKED, "m", {}) for _ in range(4)]
        assert [answer.message.content for answer in answers] == ["a", "b", "c", "a"]

    async def test_what_is_asked_reaches_the_replica_as_it_is(self, fleet):
        some = fleet()
        state = {"input": {"example_id": 1}}
        await some.client.get_response(ASKED, "m", {"seed": 1}, None, state=state, extra_headers={"X": "1"})
        assert some.clients[0].asked == [(ASKED, "m", {"seed": 1}, None)]
        assert some.clients[0].kwargs == [{"state": state, "extra_headers": {"X": "1"}}]

    async def test_groups_that_were_asked_long_ago_are_forgotten(self, fleet, monkeypatch):
        monkeypatch.setattr(replicas, "REMEMBERED_GROUPS", 2)
        some = fleet()
        assert await some.asks(0, 1, 0, 2, 0) == "abaca", "example 1 is the one that was asked longest ago"
        assert await some.asks(1) == "a", "it is given the replica whose turn it is"


class TestBrokenReplicas:
    @pytest.mark.parametrize(
        "error", [UNREACHABLE, TIMEOUT, status(429), status(500), status(503), status(529)], ids=str
    )
    async def test_a_failure_moves_the_group_and_three_in_a_row_pause_the_replica(self, fleet, error):
        some = fleet()
        some.breaks(0, error=error)
        assert await some.asks(0, 0, 0) == "-bb", "its group moves to the next one"
        assert await some.asks(1, 2, 3, 4, 5, 6) == "bc-bc-"
        assert await some.asks(7, 8, 9) == "bcb", "new groups do not get it"

    @pytest.mark.parametrize("error", [status(400), ModelError("empty")], ids=str)
    async def test_errors_of_the_request_do_not_count(self, fleet, error):
        some = fleet()
        some.breaks(0, error=error)
        assert await some.asks(0, 0, 0, 0, 0) == "-----"

    async def test_an_answer_resets_the_failures(self, fleet):
        some = fleet(2)
        some.breaks(0)
        assert await some.asks(0, 1, 2, 3) == "-b-b"
        some.heals(0)
        assert await some.asks(4, 5) == "ab"
        some.breaks(0)
        assert await some.asks(6, 7, 8, 9) == "-b-b", "it is not left out after these two"

    async def test_after_the_pause_one_request_probes_it(self, fleet):
        some = fleet(2)
        some.breaks(0)
        assert await some.asks(0, 1, 2, 3, 4, 5, 6) == "-b-b-bb"
        some.now = replicas.PAUSE_SECONDS
        answers = await some.asks(10, 11, 12, 13, 14)
        assert (answers.count("-"), answers.count("b")) == (1, 4), "the probe failed, and another pause begins"
        some.heals(0)
        some.now = 2 * replicas.PAUSE_SECONDS
        assert sorted(await some.asks(22, 23, 24, 25)) == ["a", "a", "b", "b"]
        assert await some.asks(0) == "b", "the group that moved stays where it is"

    async def test_broken_replicas_are_used_if_all_are_broken(self, fleet):
        some = fleet(2)
        some.breaks(0, 1)
        assert await some.asks(*range(8)) == "--------"
        some.heals(0, 1)
        assert "a" in await some.asks(*range(20, 24))


class TestMaking:
    async def test_a_configuration_with_several_endpoints_becomes_one_client(self):
        urls = ["http://localhost:1/v1", "http://localhost:2/v1"]
        config = ClientConfig(endpoint_configs=[{"api_base_url": url} for url in urls], timeout=5)
        async with resolve_client(config) as client:
            assert (type(client), client.config) == (ReplicaClient, config)
            assert {type(one) for one in client.client} == {OpenAIChatCompletionsClient}
            assert [(each.config.api_base_url, each.config.timeout) for each in client.client] == [(u, 5) for u in urls]
        async with resolve_client(ClientConfig(endpoint_configs=[{"api_base_url": urls[0]}])) as client:
            assert (type(client), client.config.api_base_url) == (OpenAIChatCompletionsClient, urls[0])

    def test_there_must_be_a_client(self):
        with pytest.raises(ConfigError, match="at least one client"):
            ReplicaClient([])
        with pytest.raises(ConfigError, match="Use resolve_client"):
            ReplicaClient(ClientConfig())

    async def test_the_native_steps_are_those_of_the_replicas(self, canned):
        canned.reply({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}]})
        config = ClientConfig(endpoint_configs=[{"api_base_url": canned.url}] * 2)
        async with resolve_client(config) as client:
            prompt, extra = await client.to_native_prompt(ASKED)
            native = await client.get_native_response(prompt, "m", {}, **extra)
            await client.raise_from_native_response(native)
            assert (await client.from_native_response(native)).message.content == "4"
