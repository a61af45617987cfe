"""``MCPEnv``: the tools of real MCP servers, written with the ``mcp`` package and run as processes."""

import asyncio
import gc
import os
import signal
import sys
import textwrap
import threading
from subprocess import PIPE

import psutil
import pytest
from waiting import is_alive, until

from nightjar.environments import MCPEnv, tear_down
from nightjar.environments.tools.mcp_env import MCPServerConfig, tool_content
from nightjar.errors import InfraError, ToolCallError

DATASET = [{"question": "What is 4 + 3?", "answer": "7"}]
SERVER = """
import sys
from mcp.server.mcpserver import Image, MCPServer
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

def fail() -> str:
    raise ValueError("no luck")

def draw() -> list:
    return ["a dot", Image(data=b"dot", format="png")]

def chatter() -> str:
    print(("x" * 100 + chr(10)) * 3000, file=sys.stderr)
    return "said"

server = MCPServer("calculator")
for tool in (add, fail, draw, chatter):
    server.tool()(tool)
server.run()
"""
SMALL = """
import json, os, sys
def answer(method, parameters):
    match method:
        case "initialize":
            about = {"serverInfo": {"name": "small", "version": "1"}, "capabilities": {"tools": {}}}
            return {"result": {"protocolVersion": parameters["protocolVersion"], **about}}
        case "tools/list":
            names = ["".join(sys.argv[1:]) + name for name in ("pid", "given", "hang", "crash")]
            return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}}
        case "tools/call":
            if parameters["name"] == "crash":
                print("out of paper", file=sys.stderr, flush=True)
                os._exit(3)
            shown = {name: os.environ.get(name) for name in ("GIVEN", "NIGHTJAR_SECRET")}
            text = str(os.getpid() if parameters["name"] == "pid" else shown)
            return {"result": {"content": [{"type": "text", "text": text}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and (message.get("params") or {}).get("name") != "hang":
        answered = answer(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answered}), flush=True)
"""
"""A server that starts in 30 ms instead of 1.5 s, for want of the ``mcp`` package: for how servers start and end."""

STUBBORN = """
import os, signal, sys, time
print(os.getpid(), file=sys.stderr, flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""


def python(source, name="calculator", **settings):
    return MCPServerConfig(name, sys.executable, ["-c", source], **settings)


async def answer(env, tool, **arguments):
    return (await env.call_tool(tool, arguments, "call_0")).content


async def ended(pid):
    await asyncio.to_thread(until, lambda: not is_alive(pid))


@pytest.fixture(scope="module")
def calculator():
    env = MCPEnv([python(SERVER)], dataset=DATASET)
    yield env
    asyncio.run(tear_down(env))


@pytest.fixture
def small():
    env = MCPEnv([python(SMALL, "small")], dataset=DATASET)
    yield env
    asyncio.run(tear_down(env))


async def test_tools_are_known_when_the_environment_is_made(calculator):
    assert list(calculator.tool_map) == ["add", "fail", "draw", "chatter"]
    assert [tool.__name__ for tool in calculator.tools] == list(calculator.tool_map) == list(calculator.mcp_tools)
    add = calculator.tool_defs[0]
    assert (add.name, add.description, add.strict) == ("add", "Adds two numbers.", None)
    assert [schema["type"] for schema in add.parameters["properties"].values()] == ["integer", "integer"]


async def test_a_rollout_calls_tools_and_counts_the_calls(calculator, play, response):
    call = {"id": "call_0", "name": "add", "arguments": '{"a": 4, "b": 3}'}
    state, _ = await play(calculator, response("", tool_calls=[call, {**call, "name": "subtract"}]), "7")
    assert [message.content for message in state["completion"][1:3]] == ["7", "Error: Tool 'subtract' not found"]
    assert (state["metrics"]["add_calls"], state["metrics"]["total_tool_calls"]) == (1, 2)


async def test_errors_of_a_tool_are_text_images_are_parts_and_much_on_stderr_holds_nothing_up(calculator):
    assert await answer(calculator, "fail") == "Error executing tool fail"
    assert "validation error" in await answer(calculator, "add", a="four", b=3)
    text, image = await answer(calculator, "draw")
    assert (text["type"], image["image_url"]["url"]) == ("text", "data:image/png;base64,ZG90")
    assert await asyncio.wait_for(answer(calculator, "chatter"), 60) == "said"


async def test_several_servers_get_only_what_they_are_given(monkeypatch):
    def double(x: int) -> int:
        return 2 * x

    monkeypatch.setenv("NIGHTJAR_SECRET", "not for servers")
    other = {"name": "b", "command": sys.executable, "args": ["-c", SMALL, "b_"], "transport": "stdio"}
    env = MCPEnv([python(SMALL, env={"GIVEN": "for it"}), other], dataset=DATASET, tools=[double])
    try:
        assert await answer(env, "double", x=3) == "6"
        assert list(env.server_connections) == ["calculator", "b"]
        assert await answer(env, "given") == "{'GIVEN': 'for it', 'NIGHTJAR_SECRET': None}"
        assert await answer(env, "b_given") == "{'GIVEN': None, 'NIGHTJAR_SECRET': None}"
    finally:
        await tear_down(env)


async def test_calls_to_a_server_that_ends_fail_and_the_next_ones_start_one_server(small):
    before = await answer(small, "pid")
    said = await asyncio.gather(*(answer(small, "hang") for _ in range(3)), answer(small, "crash"))
    assert all("ended while" in text for text in said)
    assert said[-1].startswith("Error: MCP server 'small' ended while 'crash' was called; it wrote to stderr: ")
    assert "out of paper" in said[-1]
    await ended(int(before))
    [after] = set(await asyncio.gather(*(answer(small, "pid") for _ in range(5))))
    assert after != before


async def test_stop_errors_make_the_end_of_a_server_the_rollout_s_error(attempt, response):
    env = MCPEnv([python(SMALL)], dataset=DATASET, stop_errors=[InfraError])
    crash = response("", tool_calls=[{"id": "1", "name": "crash", "arguments": "{}"}])
    state, _ = await attempt(env, crash, "never")
    await tear_down(env)
    assert (type(state["error"]), type(state["error"].__cause__)) == (ToolCallError, InfraError)


async def test_a_rollout_s_timeout_leaves_the_server_alone(small):
    before = await answer(small, "pid")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await answer(small, "hang")
    assert await answer(small, "pid") == before


def test_a_server_that_does_not_start_is_an_error_that_says_why():
    config = MCPServerConfig("files", "no-such-command-anywhere", ["--root", "a b"])
    with pytest.raises(InfraError, match=r"'files'.*FileNotFoundError.*no-such-command-anywhere --root 'a b'"):
        MCPEnv([config], dataset=DATASET)
    with pytest.raises(InfraError, match="it wrote to stderr: give me a key"):
        MCPEnv([python("import sys; sys.exit('give me a key')")], dataset=DATASET)


@pytest.mark.long
async def test_a_server_that_does_not_answer_is_ended_and_so_are_the_others():
    before = set(psutil.Process().children())
    hanging = python(STUBBORN, "hanging", start_timeout_seconds=10)
    with pytest.raises(InfraError, match="it did not answer within 10 s") as raised:
        MCPEnv([python(SMALL), hanging], dataset=DATASET)
    pid = int(str(raised.value).partition("stderr: ")[2].split(".")[0])
    await ended(pid)
    assert set(psutil.Process().children()) <= before


def test_an_environment_is_made_in_a_thread_without_a_loop_and_in_a_running_one():
    made = []

    def make():
        made.append(MCPEnv([python(SMALL)], dataset=DATASET))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join(60)

    async def make_and_use():
        make()
        return {int(await answer(env, "pid")) for env in made}

    assert len(asyncio.run(make_and_use())) == 2
    for env in made:
        asyncio.run(tear_down(env))


async def test_the_server_ends_with_the_teardown_or_when_the_environment_is_no_longer_used():
    env = MCPEnv([python(SMALL)], dataset=DATASET)
    first = int(await answer(env, "pid"))
    await tear_down(env)
    await ended(first)
    second = int(await answer(env, "pid"))
    assert second != first
    del env
    gc.collect()
    await ended(second)


@pytest.mark.parametrize("how", ["exit", signal.SIGINT, signal.SIGKILL])
def test_the_server_ends_with_the_process(how, tmp_path, fork):
    (tmp_path / "server.py").write_text(SMALL)
    script = """
        import asyncio, sys, time
        from nightjar.environments import MCPEnv
        env = MCPEnv([{"name": "s", "command": sys.executable, "args": ["server.py"]}], dataset=[{"question": "?"}])
        print(asyncio.run(env.call_tool("pid", {}, "1")).content, flush=True)
        sys.stdin.readline()
    """
    fork.prepare("nightjar.environments", "mcp")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), PIPE)
    with fork.python(textwrap.dedent(script), cwd=tmp_path, **streams) as process:
        pid = int(process.stdout.readline())
        if how == "exit":
            process.stdin.close()
        else:
            os.kill(process.pid, how)
        process.wait(120)
    asyncio.run(ended(pid))


def test_a_script_that_evaluates_ends_without_a_word(tmp_path, fork):
    (tmp_path / "server.py").write_text(SMALL)
    script = """
        import sys
        import nightjar as vf
        from nightjar.model_server import FixedAnswer, ModelServer
        server = {"name": "s", "command": sys.executable, "args": ["server.py"]}
        env = vf.MCPEnv([server], dataset=[{"question": "?"}])
        with ModelServer(FixedAnswer("7")) as server:
            env.evaluate_sync(vf.ClientConfig(api_base_url=server.url), "any-model")
    """
    with fork.python(textwrap.dedent(script), cwd=tmp_path, stdout=PIPE, stderr=PIPE) as process:
        printed, errors = process.communicate(timeout=120)
    assert (process.returncode, printed, errors) == (0, "", "")


def test_results_of_every_kind_become_text_and_images_parts():
    from mcp import types  # takes 1.7 s

    def shown(*content, **more):
        return tool_content(types.CallToolResult(content=list(content), **more))

    link = types.ResourceLink(name="manual", uri="file:///manual.txt")
    text = types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a.txt", text="inside"))
    data, picture = (
        types.EmbeddedResource(
            resource=types.BlobResourceContents(uri=f"file:///a.{kind}", blob="AAAA", mime_type=mime)
        )
        for kind, mime in (("zip", "application/zip"), ("png", "image/png"))
    )
    sound = types.AudioContent(data="AAAA", mime_type="audio/wav")
    assert shown(link, text, data, sound).splitlines() == [
        "manual: file:///manual.txt", "inside", "[application/zip: file:///a.zip]", "[audio/wav]",
    ]  # fmt: skip
    assert shown(picture) == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    assert shown(structured_content={"a": "ä"}) == '{"a": "ä"}'
    assert shown() == "No result returned from tool"
