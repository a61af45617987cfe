"""Agent programs as real processes: their variables, requests, output and end."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from waiting import is_alive, until

from nightjar.environments.agents.bounded_log import BoundedLog
from nightjar.environments.agents.program import AgentProgram
from nightjar.errors import SandboxError

ASK = """
import json, os, sys, urllib.request
def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


@pytest.fixture
def program(bridge, plain_sandbox):
    """Makes a program of this command, or of this Python source after ``ask`` is defined."""

    def make(command="", *, python="", **options):
        Path(plain_sandbox.workspace, "agent.py").write_text(ASK + python)
        command = command or f"exec {sys.executable} -S agent.py"
        return AgentProgram(plain_sandbox, command, bridge.open("tested"), bridge.url, **options)

    return make


async def ended(program):
    await program.start()
    for _ in range(2):
        assert await asyncio.wait_for(program.next_request(), 60) is None
    await program.close()
    return program


async def test_a_program_finds_the_model_in_its_variables_and_its_output_is_in_the_log(program, bridge):
    names = "OPENAI_BASE_URL OPENAI_API_KEY OPENAI_MODEL ANTHROPIC_BASE_URL ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN MINE"
    done = await ended(program(f'for name in {names}; do eval "echo \\$$name"; done; pwd', env={"MINE": "7"}))
    token, url = done.conversation.token, f"{bridge.url}{done.conversation.path}"
    folder = done.sandbox.workspace
    assert done.log.split() == [f"{url}/v1", token, "tested", url, token, token, "7", folder]
    assert done.exit_code == 0
    done = await ended(program("echo one; sleep 0.05; echo two >&2; sleep 0.05; printf 'three \\377'"))
    assert done.log == "one\ntwo\nthree \N{REPLACEMENT CHARACTER}"
    made = "head -c 20000 /dev/zero | tr '\\0' a; head -c 5000000 /dev/zero | tr '\\0' b; echo end"
    start, notice, end = (await ended(program(made))).log.partition("\n[4920004 bytes of output are left out]\n")
    assert (start, notice > "", end) == ("a" * 20_000, True, "b" * 79_996 + "end\n")


async def test_close_kills_the_program_with_what_it_started(program):
    running = program("sleep 60 & echo $!; wait")
    await running.start()
    await asyncio.to_thread(until, lambda: running.log.endswith("\n"))
    child = int(running.log)
    assert is_alive(child)
    await running.close()
    await running.close()
    await asyncio.to_thread(until, lambda: not is_alive(child))
    assert (running.exit_code, running.conversation.is_open) == (None, False)


async def test_a_cancelled_wait_loses_no_request_and_a_cancelled_close_still_kills(program, response):
    running = program(python="print(ask('one'), ask('two'), flush=True); import time; time.sleep(60)")
    await running.start()
    waiting = asyncio.create_task(running.next_request())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    for text in ("one", "two"):
        request = await running.next_request()
        assert request.messages[0].content == text
        request.answer(response(text.upper()))
    await asyncio.to_thread(until, lambda: running.log == "ONE TWO\n")
    closing = asyncio.create_task(running.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert running._process._process.returncode is not None


async def test_a_failing_sandbox_fails_the_wait(program, plain_sandbox):
    class Failing:
        async def read(self):
            raise SandboxError("The sandbox is gone")

        async def close(self): ...

        close_input = close

    async def spawn(*_):
        return Failing()

    plain_sandbox.spawn = spawn
    running = program("true")
    await running.start()
    with pytest.raises(SandboxError, match="gone"):
        await running.next_request()
    await running.close()


def test_a_log_keeps_its_first_and_last_bytes_and_stays_small():
    kept = {
        "ab": "ab",
        "abc def gh": "abcdefgh",
        "abcdefghi": "abc\n[1 bytes of output are left out]\nefghi",
        "a b cd efg hij": "abc\n[2 bytes of output are left out]\nfghij",
        "abcdefghijklmnop q": "abc\n[9 bytes of output are left out]\nmnopq",
    }
    logs = {pieces: BoundedLog(first_bytes=3, last_bytes=5) for pieces in kept}
    for pieces, log in logs.items():
        for piece in pieces.split():
            log.add(piece.encode())
    assert {pieces: log.text() for pieces, log in logs.items()} == kept
    log = BoundedLog()
    started = time.process_time()
    for _ in range(300_000):
        log.add(b"x")
    assert sum(map(len, log._last)) == 80_000
    assert len(log._last) <= 80_000
    assert time.process_time() - started < 5
