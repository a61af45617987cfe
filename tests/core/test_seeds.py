"""Seeds: each rollout of an example gets its own; a protocol without seeds gets none."""

import asyncio
from collections import Counter

from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.messages import UserMessage
from nightjar.environments import SingleTurnEnv
from nightjar.model_server import FixedAnswer, ModelServer


def seeds_of(server):
    return [request.body.get("seed") for request in server.requests]


async def test_each_rollout_of_an_example_gets_the_next_seed():
    env = SingleTurnEnv(dataset=[{"question": "2+2?"}, {"question": "3+3?"}])
    with ModelServer(FixedAnswer("4"), keep_requests=100) as server:
        client = ClientConfig(api_base_url=server.url)
        await env.evaluate(client, "m", sampling_args={"seed": 11}, rollouts_per_example=4)
    assert Counter(seeds_of(server)) == {11: 2, 12: 2, 13: 2, 14: 2}


def test_a_protocol_without_seeds_gets_none_and_logs_a_warning(caplog):
    async def ask(kind, url):
        async with resolve_client(ClientConfig(api_base_url=url, client_type=kind)) as client:
            for _ in range(2):
                await client.get_response([UserMessage(content="2+2?")], "m", {"seed": 1})

    with ModelServer(FixedAnswer("4"), keep_requests=100) as server:
        asyncio.run(ask("anthropic_messages", server.url.removesuffix("/v1")))
        asyncio.run(ask("openai_responses", server.url))
    assert seeds_of(server) == [None] * 4
    said = [record.getMessage() for record in caplog.records if "seed" in record.getMessage()]
    assert [text.partition(" has no seed")[0] for text in said] == ["Anthropic", "The Responses API"]
