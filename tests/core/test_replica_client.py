"""Replicas: the replica of each request, and the pause of broken ones."""

import pytest

from nightjar.clients import ClientConfig, OpenAIChatCompletionsClient, ReplicaClient, replicas, resolve_client
from nightjar.clients.failures import classify
from nightjar.core.messages import UserMessage
from nightjar.errors import ConfigError, ModelError

ASKED = [UserMessage(content="2+2?")]


def broken(cause):
    error = ModelError("no answer")
    error.__cause__ = cause
    return error


def status(code):
    error = Exception(f"status {code}")
    error.status_code = code
    return broken(error)


class Fleet:
    """Replicas that answer with their letter, or fail as they are told to."""

    def __init__(self, scripted_client, count, **fields):
        self.now = 0.0
        self.clients = [scripted_client("abcdef"[position]) for position in range(count)]
        self.client = ReplicaClient(self.clients, clock=lambda: self.now, **fields)

    def breaks(self, position, error=None):
        self.clients[position].answers = [error or status(503)]

    def heals(self, position):
        self.clients[position].answers = ["abcdef"[position]]

    def requests(self, position):
        return len(self.clients[position].asked)

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


async def test_requests_go_to_replicas_in_turn_and_all_of_a_group_or_rollout_to_one_until_it_is_forgotten(
    fleet, monkeypatch
):
    assert await fleet().asks(40, 7, 7, 40, 99, 7, 1000) == "abbacba"
    for is_per_rollout, letters in ((False, "aaaaa"), (True, "abcba")):
        some = fleet(is_per_rollout=is_per_rollout)
        assert "".join([await some.ask(0, rollout) for rollout in (0, 1, 2, 1, 0)]) == letters
    some = fleet()
    answers = [await some.client.get_response(ASKED, "m", {}) for _ in range(4)]
    assert [answer.message.content for answer in answers] == ["a", "b", "c", "a"], "requests without a state"
    monkeypatch.setattr(replicas, "REMEMBERED_GROUPS", 2)
    some = fleet()
    assert await some.asks(0, 1, 0, 2, 0) == "abaca", "example 1 is the one that was asked longest ago"
    assert await some.asks(1) == "a", "it is given the replica whose turn it is"


@pytest.mark.parametrize("kind", ["APIConnectionError", "APITimeoutError", 401, 404, 429, 500, 503, 529])
async def test_the_request_and_its_group_move_on_and_three_failures_pause_the_replica(fleet, kind):
    import openai

    some = fleet()
    some.breaks(0, status(kind) if isinstance(kind, int) else broken(getattr(openai, kind)(request=None)))
    assert await some.asks(0, 0, 0) == "bbb"
    assert some.requests(0) == 1, "the group moved"
    assert await some.asks(1, 2, 3, 4, 5, 6) == "bcbbcb"
    assert await some.asks(7, 8, 9, 10) == "bcbb"
    assert some.requests(0) == 3, "groups of later turns do not get it"


async def test_errors_of_the_request_do_not_count_and_an_answer_resets_the_failures(fleet):
    for error in (status(400), ModelError("empty")):
        some = fleet()
        some.breaks(0, error)
        assert await some.asks(0, 0, 0, 0, 0) == "-----"
    some = fleet(2)
    for examples in ((0, 1, 2, 3), (6, 7, 8, 9)):
        some.breaks(0)
        assert await some.asks(*examples) == "bbbb"
        some.heals(0)
        assert await some.asks(examples[0] + 100, examples[1] + 100) == "ab"


async def test_after_the_pause_one_request_probes_the_replica(fleet):
    some = fleet(2)
    some.breaks(0)
    assert await some.asks(0, 1, 2, 3, 4, 5, 6) == "bbbbbbb"
    some.now = replicas.PAUSE_SECONDS
    assert await some.asks(10, 11, 12, 13, 14) == "bbbbb"
    assert some.requests(0) == 4, "the probe failed, and another pause begins"
    some.heals(0)
    some.now = 2 * replicas.PAUSE_SECONDS
    assert sorted(await some.asks(22, 23, 24, 25)) == ["a", "a", "b", "b"]
    assert await some.asks(0) == "b", "the group that moved stays where it is"


async def test_a_request_fails_if_all_replicas_do_and_the_error_names_each(fleet):
    some = fleet(2)
    some.breaks(0, status(401))
    some.breaks(1)
    with pytest.raises(ModelError) as failed:
        await some.client.get_response(ASKED, "m", {})
    assert str(failed.value).count("no answer") == 2
    assert classify(failed.value).is_repeatable, "a rejected key does not hide that the other may recover"
    assert await some.asks(*range(8)) == "--------"
    some.heals(0)
    some.heals(1)
    assert "-" not in await some.asks(*range(20, 24)), "paused replicas are used if there is no other"


async def test_several_endpoints_become_one_client_with_the_native_steps_of_its_replicas(canned):
    urls = ["http://localhost:1/v1", "http://localhost:2/v1"]
    config = ClientConfig(endpoint_configs=[{"api_base_url": url} for url in urls], timeout=5)
    async with resolve_client(config) as client:
        assert (type(client), client.config) == (ReplicaClient, config)
        assert {type(one) for one in client.client} == {OpenAIChatCompletionsClient}
        assert [(one.config.api_base_url, one.config.timeout) for one in client.client] == [(url, 5) for url in urls]
    async with resolve_client(ClientConfig(endpoint_configs=[{"api_base_url": urls[0]}])) as client:
        assert (type(client), client.config.api_base_url) == (OpenAIChatCompletionsClient, urls[0])
    for clients, match in (([], "at least one client"), (ClientConfig(), "Use resolve_client")):
        with pytest.raises(ConfigError, match=match):
            ReplicaClient(clients)
    canned.reply({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}]})
    config = ClientConfig(endpoint_configs=[{"api_base_url": canned.url}] * 2)
    async with resolve_client(config) as client:
        prompt, extra = await client.to_native_prompt(ASKED)
        native = await client.get_native_response(prompt, "m", {}, **extra)
        await client.raise_from_native_response(native)
        assert (await client.from_native_response(native)).message.content == "4"
