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
import os, sys, time, asyncio
from mcp.server.mcpserver import Image, MCPServer
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

def fail() -> str:
    raise ValueError("no luck")

def pid() -> int:
    return os.getpid()

async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"

def crash() -> str:
    print("out of paper", file=sys.stderr, flush=True)
    os._exit(3)

def environment(name: str) -> str:
    return os.environ.get(name, "not set")

def draw() -> list:
    return ["a dot", Image(data=b"dot", format="png")]

def chatter() -> str:
    print(("x" * 100 + chr(10)) * 3000, file=sys.stderr)
    return "said"

server = MCPServer("calculator")
for tool in (add, fail, pid, wait, crash, environment, draw, chatter):
    server.tool(sys.argv[1] + tool.__name__ if sys.argv[1:] else None)(tool)
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
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pid", "crash")]
            return {"result": {"tools": tools}}
        case "tools/call":
            if parameters["name"] == "crash":
                os._exit(3)
            return {"result": {"content": [{"type": "text", "text": str(os.getpid())}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
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


class TestTools:
    async def test_are_known_when_the_environment_is_made(self, calculator):
        assert list(calculator.tool_map)[:3] == ["add", "fail", "pid"]
        assert [tool.__name__ for tool in calculator.tools] == list(calculator.tool_map) == list(calculator.mcp_tools)
        add = calculator.tool_defs[0]
        assert (add.name, add.description, add.strict) == ("add", "Adds two numbers.", None)
        assert [schema["type"] for schema in add.parameters["properties"].values()] == ["integer", "integer"]

    async def test_a_rollout_calls_them_and_counts_the_calls(self, calculator, play, response):
        call = {"id": "call_0", "name": "add", "arguments": '{"a": 4, "b": 3}'}
        state, _ = await play(calculator, response("", tool_calls=[call, {**call, "name": "subtract"}]), "7")
        assert [message.content for message in state["completion"][1:3]] == ["7", "Error: Tool 'subtract' not found"]
        assert (state["metrics"]["add_calls"], state["metrics"]["total_tool_calls"]) == (1, 2)

    async def test_errors_of_a_tool_are_text(self, calculator):
        assert await answer(calculator, "fail") == "Error executing tool fail"
        assert "validation error" in await answer(calculator, "add", a="four", b=3)

    async def test_images_are_content_parts(self, calculator):
        message = await calculator.call_tool("draw", {}, "call_0")
        assert [part["type"] for part in message.content] == ["text", "image_url"]
        assert message.content[1]["image_url"]["url"] == "data:image/png;base64,ZG90"

    async def test_a_server_that_writes_much_to_stderr_is_not_held_up(self, calculator):
        assert await asyncio.wait_for(answer(calculator, "chatter"), 20) == "said"

    async def test_several_servers_and_what_they_are_given(self, monkeypatch):
        def double(x: int) -> int:
            return 2 * x

        monkeypatch.setenv("NIGHTJAR_SECRET", "not for servers")
        other = {"name": "b", "command": sys.executable, "args": ["-c", SERVER, "b_"]}
        servers = [python(SERVER, env={"GIVEN": "for it"}), {**other, "transport": "stdio"}]
        env = MCPEnv(servers, dataset=DATASET, tools=[double])
        try:
            assert await answer(env, "double", x=3) == "6"
            assert list(env.server_connections) == ["calculator", "b"]
            assert await answer(env, "environment", name="GIVEN") == "for it"
            assert await answer(env, "environment", name="NIGHTJAR_SECRET") == "not set"
            assert await answer(env, "b_environment", name="GIVEN") == "not set"
        finally:
            await tear_down(env)


class TestServersThatEnd:
    async def test_the_call_fails_and_the_next_one_starts_the_server_again(self, calculator):
        before = await answer(calculator, "pid")
        said = await answer(calculator, "crash")
        assert said.startswith("Error: MCP server 'calculator' ended while 'crash' was called; it wrote to stderr: ")
        assert "out of paper" in said
        await ended(int(before))
        assert await answer(calculator, "pid") != before

    async def test_calls_at_the_same_time_fail_and_start_one_server(self, calculator):
        calls = [*(answer(calculator, "wait", seconds=20) for _ in range(3)), answer(calculator, "crash")]
        said = await asyncio.gather(*calls)
        assert all("ended while" in text for text in said)
        assert len(set(await asyncio.gather(*(answer(calculator, "pid") for _ in range(5))))) == 1

    async def test_stop_errors_make_it_the_rollout_s_error(self, attempt, response):
        env = MCPEnv([python(SMALL)], dataset=DATASET, stop_errors=[InfraError])
        crash = response("", tool_calls=[{"id": "1", "name": "crash", "arguments": "{}"}])
        state, _ = await attempt(env, crash, "never")
        await tear_down(env)
        assert (type(state["error"]), type(state["error"].__cause__)) == (ToolCallError, InfraError)

    async def test_a_rollout_s_timeout_leaves_the_server_alone(self, calculator):
        before = await answer(calculator, "pid")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await answer(calculator, "wait", seconds=30)
        assert await answer(calculator, "pid") == before


class TestServersThatDoNotStart:
    def test_a_command_that_is_not_there(self):
        config = MCPServerConfig("files", "no-such-command-anywhere", ["--root", "a b"])
        with pytest.raises(InfraError, match=r"'files'.*FileNotFoundError.*no-such-command-anywhere --root 'a b'"):
            MCPEnv([config], dataset=DATASET)

    def test_a_program_that_ends_says_why(self):
        with pytest.raises(InfraError, match="it wrote to stderr: give me a key"):
            MCPEnv([python("import sys; sys.exit('give me a key')")], dataset=DATASET)

    @pytest.mark.long
    async def test_one_that_does_not_answer_is_ended_and_so_are_the_others(self):
        before = set(psutil.Process().children())
        hanging = python(STUBBORN, "hanging", start_timeout_seconds=10)
        with pytest.raises(InfraError, match="it did not answer within 10 s") as raised:
            MCPEnv([python(SMALL), hanging], dataset=DATASET)
        pid = int(str(raised.value).partition("stderr: ")[2].split(".")[0])
        await ended(pid)
        assert set(psutil.Process().children()) <= before


class TestWhereItIsMade:
    def test_in_a_thread_without_a_loop_and_in_a_running_one(self):
        made = []

        def make():
            made.append(MCPEnv([python(SMALL)], dataset=DATASET))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join(30)

        async def make_and_use():
            make()
            return {int(await answer(env, "pid")) for env in made}

        assert len(asyncio.run(make_and_use())) == 2
        for env in made:
            asyncio.run(tear_down(env))


class TestTheEnd:
    async def test_teardown_ends_the_process_and_a_later_call_starts_another(self):
        env = MCPEnv([python(SMALL)], dataset=DATASET)
        first = int(await answer(env, "pid"))
        await tear_down(env)
        await ended(first)
        second = int(await answer(env, "pid"))
        assert second != first
        await tear_down(env)
        await ended(second)
        await tear_down(env)

    async def test_an_environment_that_is_no_longer_used(self):
        env = MCPEnv([python(SMALL)], dataset=DATASET)
        pid = int(await answer(env, "pid"))
        del env
        gc.collect()
        await ended(pid)

    @pytest.mark.parametrize("how", ["exit", signal.SIGINT, signal.SIGKILL])
    def test_the_end_of_the_process(self, how, tmp_path, fork):
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
            process.wait(20)
        asyncio.run(ended(pid))

    def test_a_script_that_evaluates_ends_without_a_word(self, tmp_path, fork):
        (tmp_path / "server.py").write_text(SERVER)
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
            printed, errors = process.communicate(timeout=60)
        assert (process.returncode, printed, errors) == (0, "", "")


IMAGE = {"uri": "file:///a.png", "blob": "AAAA", "mime_type": "image/png"}


class TestContent:
    """Results as a server may give them, without a server."""

    @pytest.fixture
    def types(self):
        from mcp import types  # takes 1.7 s

        return types

    def embedded(self, types, **resource):
        kind = types.TextResourceContents if "text" in resource else types.BlobResourceContents
        return types.EmbeddedResource(resource=kind(**resource))

    def test_blocks(self, types):
        link = types.ResourceLink(name="manual", uri="file:///manual.txt")
        text = self.embedded(types, uri="file:///a.txt", text="inside")
        data = self.embedded(types, uri="file:///a.zip", blob="AAAA", mime_type="application/zip")
        sound = types.AudioContent(data="AAAA", mime_type="audio/wav")
        assert tool_content(types.CallToolResult(content=[link, text, data, sound])).splitlines() == [
            "manual: file:///manual.txt", "inside", "[application/zip: file:///a.zip]", "[audio/wav]",
        ]  # fmt: skip

    def test_an_image_structured_content_alone_and_nothing_at_all(self, types):
        image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
        assert tool_content(types.CallToolResult(content=[self.embedded(types, **IMAGE)])) == image
        assert tool_content(types.CallToolResult(content=[], structured_content={"a": "ä"})) == '{"a": "ä"}'
        assert tool_content(types.CallToolResult(content=[])) == "No result returned from tool"
