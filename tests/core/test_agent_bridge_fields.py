"""Odd values in every field of an agent's request: each protocol accepts them or refuses them, and never crashes."""

import json
from itertools import product

import orjson

from nightjar.core.messages import dump_messages
from nightjar.environments.agents import bridge_chat, bridge_messages, bridge_responses
from nightjar.environments.agents.bridge_protocol import RequestError, parse_json

TEXT = {"type": "text", "text": "x"}
CHAT = {
    "messages": [
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"id": 1}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "t"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema"}, "temperature": 1, "stop": ["x"],
    "max_tokens": 4, "stream": False, "n": 1,
}  # fmt: skip
RESPONSES = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": None},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "r"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    ],
    "instructions": "i", "tools": [{"type": "function", "name": "f", "parameters": {}}], "tool_choice": "auto",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "reasoning": {"effort": "low"},
}  # fmt: skip
MESSAGES = {
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [TEXT]}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "m", "data": "d"}}]},
        {"role": "user", "content": [{"type": "document", "source": {}}]},
    ],
    "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled"}, "stop_sequences": ["x"], "max_tokens": 1,
}  # fmt: skip
ODD = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "user", "tool", [], {}, [[]], [{}], [None], {"type": ["a"]}, {"type": 1},
]  # fmt: skip


def places(value, place=()):
    yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*place, key))


def test_an_odd_value_is_accepted_or_refused_in_every_field():
    for protocol, body in ((bridge_chat, CHAT), (bridge_responses, RESPONSES), (bridge_messages, MESSAGES)):
        protocol.parse(body)
        text, refused = json.dumps(body), 0
        for (*parents, last), odd in product(filter(None, places(body)), ODD):
            changed = inner = json.loads(text)
            for key in parents:
                inner = inner[key]
            inner[last] = odd
            try:
                parsed = protocol.parse(parse_json(json.dumps(changed).encode()))
            except RequestError as error:
                refused += error.status == 400
            else:
                orjson.dumps([dump_messages(parsed.messages), dump_messages(parsed.tools), parsed.sampling_args])
        assert refused > 100
