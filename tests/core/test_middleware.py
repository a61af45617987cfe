"""Middleware of an endpoint: changed requests and responses, over HTTP."""

import json
from dataclasses import replace

import pytest

from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.answer_cache import AnswerCache, CachingClient
from nightjar.clients.middleware_client import (
    BUILT_IN,
    MiddlewareClient,
    check_middleware,
    load_middleware,
    with_middleware,
)
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import SystemMessage, Tool, UserMessage
from nightjar.engine.runs.identity import differences
from nightjar.environments import SingleTurnEnv, ToolEnv
from nightjar.environments.rubrics import JudgeRubric, Rubric
from nightjar.errors import ConfigError, MiddlewareError
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.config.registry import Registry
from nightjar.model_server import FixedAnswer, ModelServer, Script, tool_call

HELLO = [UserMessage(content="Hello")]
ADD = Tool(
    name="add", description="Adds.", parameters={"type": "object", "properties": {"format": {"format": "int64"}}}
)
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
every_protocol = pytest.mark.parametrize("client_type", PROTOCOLS)


@pytest.fixture
def exchange():
    async def ask(*specs, prompt=HELLO, answer="Hi.", tools=None, client_type="openai_chat_completions", **sampling):
        with ModelServer(FixedAnswer(answer), keep_requests=10) as server:
            config = ClientConfig(api_base_url=server.base_url, client_type=client_type, middleware=list(specs))
            async with resolve_client(config) as client:
                response = await client.get_response(prompt, "m", sampling, tools)
            return response.message, server.requests[-1].body

    return ask


async def test_images_are_sent_in_a_detail(exchange):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    prompt = [UserMessage(content=[image, {"type": "text", "text": "What is this?"}])]
    _, body = await exchange({"use": "images", "detail": "high"}, prompt=prompt)
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {**image["image_url"], "detail": "high"}},
        {"type": "text", "text": "What is this?"},
    ]


@every_protocol
async def test_parameters_are_dropped_renamed_and_set_in_every_protocol(exchange, client_type):
    _, body = await exchange(
        {"use": "drop", "parameters": ["temperature"]}, {"use": "rename", "parameters": {"top_p": "nucleus"}},
        {"use": "payload", "set": {"chat_template_kwargs": {"enable_thinking": False}}}, client_type=client_type,
        temperature=0.5, top_p=0.9, max_tokens=7, extra_body={"chat_template_kwargs": {"depth": 2}},
    )  # fmt: skip
    assert "temperature" not in body
    assert "top_p" not in body
    assert body["nucleus"] == 0.9
    assert body["chat_template_kwargs"] == {"depth": 2, "enable_thinking": False}
    assert [body[name] for name in LIMITS if name in body] == [7]


@pytest.mark.parametrize("said", ["max_tokens", "max_completion_tokens"])
async def test_the_limit_of_tokens_is_one_parameter_with_several_names(exchange, said):
    for spec, sent in [
        ({"use": "rename", "parameters": {"max_completion_tokens": "max_tokens"}}, (7, None)),
        ({"use": "drop", "parameters": ["max_tokens"]}, (None, None)),
        ({"use": "payload", "set": {"max_tokens": 9}}, (9, None)),
    ]:
        _, body = await exchange(spec, **{said: 7})
        assert (body.get("max_tokens"), body.get("max_completion_tokens")) == sent


async def test_a_system_message_is_added_or_replaced(exchange):
    systems = {"prepend": "Be brief.\n\nYou add.", "append": "You add.\n\nBe brief.", "replace": "Be brief."}
    for mode, system in systems.items():
        spec = {"use": "system", "text": "Be brief.", "mode": mode}
        _, body = await exchange(spec, prompt=[SystemMessage(content="You add."), *HELLO])
        assert body["messages"] == [{"role": "system", "content": system}, {"role": "user", "content": "Hello"}]
        _, body = await exchange(spec)
        assert [message["content"] for message in body["messages"]] == ["Be brief.", "Hello"]


async def test_system_messages_become_one_at_the_beginning(exchange):
    prompt = [SystemMessage(content="A"), *HELLO, SystemMessage(content="B")]
    _, body = await exchange({"use": "consolidate_system"}, prompt=prompt)
    assert [message["content"] for message in body["messages"]] == ["A\n\nB", "Hello"]


async def test_tools_are_removed_and_their_schemas_reduced(exchange):
    other = ADD.model_copy(update={"name": "other"})
    spec = {"use": "tools", "drop": ["other"], "without": ["format"], "strict": True}
    _, body = await exchange(spec, tools=[ADD, other])
    (function,) = [tool["function"] for tool in body["tools"]]
    assert (function["name"], function["strict"]) == ("add", True)
    assert function["parameters"]["properties"] == {"format": {}}
    assert ADD.parameters["properties"] == {"format": {"format": "int64"}}


async def test_reasoning_stands_apart_from_what_is_scored(exchange):
    for said, content, reasoning in [
        ("<think>One and one.</think>\n\n2", "2", "One and one."), ("One and one.</think>2", "2", "One and one."),
        ("<think>One and", "", "One and"), ("<think>a</think>2<think>b</think>", "2", "a\nb"),
        ("2 < 3", "2 < 3", None),
    ]:  # fmt: skip
        message, _ = await exchange({"use": "reasoning"}, answer=said)
        assert (message.content, message.reasoning_content) == (content, reasoning)


@every_protocol
async def test_reasoning_may_have_tokens_of_its_own_in_every_protocol(exchange, client_type):
    spec = {"use": "reasoning", "start": "[T]", "end": "[/T]"}
    message, _ = await exchange(spec, answer="[T]Hm.[/T]2", client_type=client_type, max_tokens=50)
    assert (message.content, message.reasoning_content) == ("2", "Hm.")


def evaluate(server, env, *specs, **how):
    config = ClientConfig(api_base_url=server.base_url, max_retries=0, middleware=list(specs))
    return env.evaluate_sync(config, "m", num_examples=2, rollouts_per_example=1, **how)["outputs"]


def test_a_rollout_ends_at_its_turn_limit_with_a_stop_condition_and_a_score():
    def look() -> str:
        """Looks."""
        return "nothing"

    env = ToolEnv(tools=[look], dataset=[{"question": "Where?"}] * 2, rubric=Rubric([lambda state: 1.0]))
    call = tool_call("look")
    with ModelServer(Script([call, call, call, "There."]), keep_requests=20) as server:
        rows = evaluate(server, env, {"use": "turn_limit", "turns": 2})
        asked = len(server.requests)
    facts = [(row["stop_condition"], row["error"], row["reward"]) for row in rows]
    assert (facts, asked) == ([("turn_limit_reached", None, 1.0)] * 2, 4)


def test_a_rollout_fails_alone_if_a_middleware_raises(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "class Picky:\n"
        "    def __init__(self, word): self.word = word\n"
        "    def request(self, request):\n"
        "        if self.word in str(request.messages): raise KeyError('no such ' + self.word)\n"
        "        return request\n"
    )
    env = SingleTurnEnv(dataset=[{"question": "red"}, {"question": "blue"}], rubric=Rubric([lambda state: 1.0]))
    with ModelServer(FixedAnswer("2")) as server:
        broken, fine = evaluate(server, env, {"use": f"{own}:Picky", "word": "red"})
    assert (broken["error"]["error"], broken["reward"], fine["reward"]) == ("MiddlewareError", None, 1.0)
    assert ("Picky" in broken["error"]["message"], "no such red" in broken["error"]["traceback"]) == (True, True)
    assert "own.py" in broken["error"]["traceback"]


def test_a_rollout_is_scored_without_its_reasoning_and_judged_through_the_middleware_of_the_judge():
    thought = {"use": "reasoning"}

    async def judged(judge, prompt, completion, answer, state):
        return float(await judge(prompt, completion, answer, state) == "yes")

    def said(completion):
        return float(completion[-1].content == "yes")

    with ModelServer(FixedAnswer("<think>no, no, yes</think>yes"), keep_requests=10) as server:
        judge = ClientConfig(
            api_base_url=server.base_url, middleware=[thought, {"use": "system", "text": "Be strict."}]
        )
        rubric = JudgeRubric(judge_client=judge, judge_model="j")
        rubric.add_reward_func(judged)
        rubric.add_reward_func(said, weight=10)
        env = SingleTurnEnv(dataset=[{"question": "1+1", "answer": "2"}] * 2, rubric=rubric)
        assert [row["reward"] for row in evaluate(server, env)] == [1.0, 1.0]
        assert [row["reward"] for row in evaluate(server, env, thought)] == [11.0, 11.0]
        asked = [each.body["messages"] for each in server.requests if each.body["model"] == "j"]
    assert [messages[0]["content"] for messages in asked] == ["Be strict."] * 4


async def test_async_hooks_see_requests_in_order_and_answers_in_the_opposite_order():
    seen = []

    class Noting:
        def __init__(self, name):
            self.name = name

        async def request(self, request):
            seen.append(f"{self.name} asks {request.messages[-1].content}")
            return replace(request, messages=[*request.messages, UserMessage(content=self.name)])

        async def response(self, response, request):
            seen.append(f"{self.name} hears {request.messages[-1].content}")
            return response

    with ModelServer(FixedAnswer("Hi.")) as server:
        asked = resolve_client(ClientConfig(api_base_url=server.base_url))
        async with MiddlewareClient(asked, [Noting("a"), Noting("b")]) as client:
            await client.get_response(HELLO, "m", {})
    assert seen == ["a asks Hello", "b asks a", "b hears b", "a hears b"]


async def test_a_users_middleware_must_return_a_request_with_messages(scripted_client):
    hooks = {"Forgetful": lambda self, asked: None, "Deleting": lambda self, asked: replace(asked, messages=[])}
    for name, hook in hooks.items():
        client = MiddlewareClient(scripted_client("1"), [type(name, (), {"request": hook})()])
        with pytest.raises(MiddlewareError, match=name):
            await client.get_response(HELLO, "m", {})


def test_a_users_middleware_may_be_in_a_module_and_a_dataclass(tmp_path):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass Own:\n    n: int = 1\n    def request(self, request): return request\n"
    )
    (made,) = load_middleware([{"use": f"{tmp_path}/own.py:Own", "n": 3}])
    assert made.n == 3
    (made,) = load_middleware([{"use": "nightjar.clients.middleware:ConsolidateSystem"}])
    assert isinstance(made, BUILT_IN["consolidate_system"])


async def test_the_log_has_requests_answers_and_errors_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-mine-0123456789")
    monkeypatch.setenv("TEAM", "team-secret-0123456789")
    spec = {"use": "log", "path": str(tmp_path / "log.jsonl"), "hide": ["user"]}
    leak = [UserMessage(content="My key is sk-mine-0123456789")]
    with ModelServer(FixedAnswer("Hi."), require_key="sk-mine-0123456789") as server:
        fields = {"api_key_var": "MY_KEY", "middleware": [spec], "extra_headers": {"X-Team": "$TEAM"}}
        config = ClientConfig(api_base_url=server.base_url, **fields)
        async with resolve_client(config) as client:
            sampling = {"user": "ann", "extra_body": {"api_key": "abc"}, "extra_headers": {"X-Site": "$TEAM"}}
            await client.get_response(leak, "m", sampling)
            with pytest.raises(Exception, match="m"):
                await client.get_response([], "m", {})
    text = (tmp_path / "log.jsonl").read_text()
    asked, failed = [json.loads(line) for line in text.splitlines()]
    assert asked["response"]["message"]["content"] == "Hi."
    assert asked["request"]["messages"][0]["content"] == "My key is [secret]"
    assert asked["request"]["parameters"] == {
        "user": "[secret]", "extra_body": {"api_key": "[secret]"}, "extra_headers": "[secret]",
    }  # fmt: skip
    assert "error" in failed
    assert not any(secret in text for secret in ("sk-mine", "team-secret", "abc", 'ann"'))


async def test_the_log_ends_before_it_is_too_long_and_costs_no_rollout(tmp_path, scripted_client, caplog):
    path = tmp_path / "log.jsonl"
    client = with_middleware(scripted_client(*"1234"), [{"use": "log", "max_bytes": 1000}], path.parent)
    for _ in range(4):
        await client.get_response(HELLO, "m", {})
    written = (tmp_path / "requests.jsonl").read_text()
    assert 0 < len(written) <= 1000
    assert "max_bytes" in caplog.text


def test_mistakes_are_named_before_the_first_request(tmp_path):
    for spec, says in [
        ({"use": "dorp"}, r"drop, rename, payload, system,.*path\.py:Class"), ({}, "None"),
        ({"use": "turn_counter"}, "turn_limit"), ({"use": "drop", "params": ["n"]}, "parameters"),
        ({"use": "payload", "set": {"messages": []}}, "'payload': set: .*'messages'"),
        ({"use": "rename", "parameters": {"user": "model"}}, "'rename': parameters: .*'model'"),
        ({"use": "rename", "parameters": {"a": "n", "b": "n"}}, "'n'"),
        ({"use": "system", "text": "x", "mode": "after"}, "'prepend', 'append' or 'replace'"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            check_middleware([spec])
    own = {"gone.py:Own": "'gone.py'", "json:JSONDecoder": "'JSONDecoder'"}
    for use, says in (own | {"nightjar.clients.middleware:Drop": "'parameters'"}).items():
        with pytest.raises(ConfigError, match=says):
            load_middleware([{"use": use}])
    with pytest.raises(ConfigError, match=r"'log': '.*gone/log.jsonl'.*No such file"):
        load_middleware([{"use": "log", "path": "gone/log.jsonl"}], tmp_path)
    load_middleware([{"use": "log"}, {"use": "log", "path": str(tmp_path / "x")}], tmp_path / "later")


def test_an_endpoint_of_the_registry_has_its_middleware_and_mistakes_are_named_with_their_line(tmp_path):
    endpoint = '[[endpoint]]\nendpoint_id = "e"\nmodel = "m"\nurl = "http://localhost:1/v1"\nkey = "K"\n'
    uses = "".join(f'[[endpoint.middleware]]\nuse = "{use}"\n' for use in ("reasoning", "log"))
    other = '[[endpoint]]\nendpoint_id = "f"\nextends = "e"\nmiddleware = []\n'
    (tmp_path / "endpoints.toml").write_text(endpoint + uses + other)
    registry = Registry.load(tmp_path)
    assert registry.fields("e")["middleware"] == [{"use": "reasoning"}, {"use": "log"}]
    assert "middleware" not in registry.fields("f")
    (tmp_path / "endpoints.toml").write_text(f'{endpoint}\n[[endpoint.middleware]]\nuse = "system"\ntxt = "x"\n')
    with pytest.raises(ConfigError, match=r"line 7: middleware: .*text"):
        Registry.load(tmp_path)


def test_the_middleware_is_compared_by_a_resume_but_for_the_log():
    thinking, log = {"use": "reasoning"}, {"use": "log"}
    saved = RunConfig(env_id="gsm8k", middleware=[thinking, log]).model_dump(mode="json")
    asked = lambda *specs: RunConfig(env_id="gsm8k", middleware=list(specs)).identity()  # noqa: E731
    assert not differences(saved, asked(thinking))
    assert [*differences(saved, asked(log))] == ["middleware"]
    assert not differences({"env_id": "gsm8k"} | asked() | {"middleware": None}, asked(log))


async def test_a_cache_knows_the_changed_request(tmp_path, scripted_client):
    async def ask(text, answer):
        cached = CachingClient(scripted_client(answer), AnswerCache(tmp_path / "a.sqlite"), "http://e/v1")
        async with with_middleware(cached, [{"use": "system", "text": text}]) as client:
            return (await client.get_response(HELLO, "m", {})).message.content

    assert [await ask("Be brief.", "1"), await ask("Be long.", "2"), await ask("Be brief.", "3")] == ["1", "2", "1"]
