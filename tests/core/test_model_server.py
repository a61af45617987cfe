"""The local model server: real HTTP over loopback."""

import asyncio
import contextlib
import io
import json
import random
import signal
import socket
import subprocess
import time

import aiohttp
import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.errors import ConfigError, DatasetError, ServiceError
from nightjar.model_server import (
    Answer,
    ArithmeticSolver,
    FaultKind,
    Faults,
    FixedAnswer,
    ModelServer,
    Recording,
    last_user_text,
)
from nightjar.model_server.answerers import TextIndex
from nightjar.model_server.faults import FaultInjector


def user(text):
    return [{"role": "user", "content": text}]


def payload(text="Hello?", **fields):
    return {"model": "m", "messages": user(text), **fields}


@pytest.fixture
async def http():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def ask(http, server, **fields):
    """Posts a chat completion; returns status and body."""
    async with http.post(f"{server.url}/chat/completions", json=payload(**fields)) as response:
        return response.status, await response.json()


async def content(http, server, text):
    status, body = await ask(http, server, text=text)
    assert status == 200
    return body["choices"][0]["message"]["content"]


async def in_flight(server, count):
    async with asyncio.timeout(60):
        while server.stats().in_flight != count:  # noqa: ASYNC110 - the server has another loop
            await asyncio.sleep(0.01)


def test_the_last_user_message_counts_and_its_text_parts_are_joined():
    messages = [*user("first"), *user("second"), {"role": "assistant", "content": "third"}]
    assert last_user_text(messages) == "second"
    assert last_user_text([{"role": "system", "content": "Be brief."}]) == ""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    texts = [{"type": "text", "text": text} for text in ("Look:", "what is it?")]
    assert last_user_text(user([texts[0], image, texts[1]])) == "Look:\nwhat is it?"


DOG, BOTH = "How many legs has a dog?", "How many legs has a dog? And a hen?"


@pytest.fixture
def recording():
    return Recording({DOG: ["A: 4"], BOTH: ["A: 4 and 2"], "2+2?": ["A: 4", "A: 5", "A: 22"]})


def test_a_recording_answers_the_longest_question_in_the_text(recording):
    for text, question, completion in [
        (DOG, DOG, "A: 4"), (f"Q: 2+2?\nA: 4\n\nQ: {DOG}\nAnswer with a number.", DOG, "A: 4"),
        (f"Answer: {BOTH} Be brief.", BOTH, "A: 4 and 2"), ("Please: 2+2?!", "2+2?", "A: 4"),
    ]:  # fmt: skip
        assert recording.answer(user(text)) == Answer(question=question, text=completion)


def test_several_completions_of_a_recording_take_turns_and_an_unknown_question_is_refused(recording):
    said = [recording.answer(user(text)).text for text in ["2+2?", DOG, "Q: 2+2?", "2+2?", "2+2?"]]
    assert said == ["A: 4", "A: 4", "A: 5", "A: 22", "A: 4"]
    with pytest.raises(DatasetError, match=r"'recording': 'Why\?'"):
        recording.answer(user("Why?"))


def test_a_recording_is_loaded_from_a_file_that_must_be_there_and_not_empty(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_text(
        '{"question": " 1+1? ", "completion": "2", "is_correct": true}\n{"question": "1+1?", "completion": "3"}\n'
    )
    recording = Recording.load(path)
    assert (len(recording), recording.name) == (1, "small.jsonl")
    assert [recording.answer(user("1+1?")).text for _ in range(2)] == ["2", "3"]
    (tmp_path / "empty.jsonl").touch()
    for name in ("none.jsonl", "empty.jsonl"):
        with pytest.raises(DatasetError, match=name):
            Recording.load(tmp_path / name)


def test_the_error_of_a_recording_names_the_broken_line_of_its_file(tmp_path):
    path = tmp_path / "broken.jsonl"
    broken = ['{"question": "2?", ', '{"question": "2?"}', '{"question": " ", "completion": "2"}']
    for line in [*broken, '{"question": "2?", "completion": 2}', "[1]", ""]:
        path.write_text(f'{{"question": "1?", "completion": "1"}}\n{line}\n')
        with pytest.raises(DatasetError, match=r"broken\.jsonl:2 "):
            Recording.load(path)


def test_the_index_of_a_recording_finds_what_a_scan_finds():
    draw = random.Random(1)
    for _ in range(300):
        text, *texts = ("".join(draw.choices("ab", k=draw.randint(1, 9))) for _ in range(draw.randint(1, 20)))
        contained = [known for known in texts if known in text * 3]
        found = TextIndex(set(texts)).longest_in(text * 3)
        assert len(found or "") == max(map(len, contained), default=0)
        assert found is None or found in contained


def test_arithmetic_is_solved():
    for question, expression, result in [
        ("What is 12 * (3 + 4)?", "12 * (3 + 4)", "84"), ("Compute 7-10.", "7-10", "-3"),
        ("6 \u00d7 7", "6 * 7", "42"), ("3x4 =", "3*4", "12"), ("max 3 x 4", "3 * 4", "12"),
        ("First 1 + 1 = 2. Now 10 / 4?", "10 / 4", "5/2"), ("1/3 + 1/6", "1/3 + 1/6", "1/2"),
        ("-(2 + 3) * -2", "-(2 + 3) * -2", "10"), ("(that is, 3 + 4)", "3 + 4", "7"), ("Note (3 + 4", "3 + 4", "7"),
        ("Add (1 + 2) + 3) now", "(1 + 2) + 3", "6"), ("1,250 + 750", "1,250 + 750", "2000"),
        ("Pick 3, 4 + 5", "4 + 5", "9"), ("007 + 1", "007 + 1", "8"), ("Sum: 12 + 5\n- 3 apples", "12 + 5", "17"),
        ("2 + 2 or 1 / 0?", "2 + 2", "4"),
    ]:  # fmt: skip
        text = f"{expression} = {result}\nThe answer is \\boxed{{{result}}}."
        assert ArithmeticSolver().answer(user(question)) == Answer(question, text)


def test_what_is_no_arithmetic_cannot_be_solved():
    for question in (
        "Who wrote Faust?", "What is 12?", "Solve 4x + 3 = 11", "2 ** 10", "1.5 + 2", "2 + 3.5", "1 / 0",
        "(" * 300 + "1 + 1" + ")" * 300, "-" * 5000 + "1 + 1", "1 + " * 5000 + "1",
    ):  # fmt: skip
        assert ArithmeticSolver().answer(user(question)).text == "I cannot solve this."


def test_errors_in_arithmetic_do_not_depend_on_order():
    questions = [f"{number} + 1" for number in range(200)] * 2
    forward, backward = ArithmeticSolver(0.3, seed=7), ArithmeticSolver(0.3, seed=7)
    answers = {(a.question, a.text) for a in (forward.answer(user(q)) for q in questions)}
    reverse = {(a.question, a.text) for a in (backward.answer(user(q)) for q in questions[::-1])}
    assert answers == reverse


def test_the_error_rate_of_arithmetic():
    def wrong(error_rate):
        solver = ArithmeticSolver(error_rate, seed=1)
        return sum("boxed{42}" not in solver.answer(user("20 + 22")).text for _ in range(1000))

    assert (wrong(0), 250 < wrong(0.3) < 350, wrong(1)) == (0, True, 1000)
    with pytest.raises(ConfigError, match=r"1\.5"):
        ArithmeticSolver(1.5)


async def test_a_missing_v1_is_named_in_the_error_and_a_large_prompt_is_accepted(http):
    with ModelServer(FixedAnswer("yes")) as server:
        async with http.post(f"{server.root_url}/chat/completions", json=payload()) as response:
            error = (await response.json())["error"]
        async with http.get(f"{server.root_url}/health") as health:
            assert await health.json() == {"status": "ok"}
        body = io.BytesIO(json.dumps(payload("x" * 5_000_000)).encode())
        async with http.post(f"{server.url}/chat/completions", data=body) as large:
            assert large.status == 200
    assert (response.status, "/v1" in error["message"]) == (404, True)


async def test_a_rate_limit_is_answered_without_the_latency(http):
    with ModelServer(FixedAnswer("yes"), faults=Faults(rate_429=1, latency_ms=60_000)) as server:
        async with http.post(f"{server.url}/chat/completions", json=payload()) as response:
            assert (response.status, response.headers.get("Retry-After")) == (429, None)


async def test_a_slow_body_arrives_in_pieces_after_the_headers(http):
    with ModelServer(FixedAnswer("yes"), faults=Faults(rate_slow=1, slow_seconds=0.5)) as server:
        start = time.monotonic()
        async with http.post(f"{server.url}/chat/completions", json=payload()) as response:
            is_whole = response.content.at_eof()
            body = await response.json()
        seconds, stats = time.monotonic() - start, server.stats()
    assert (is_whole, seconds >= 0.5) == (False, True)
    assert body["choices"][0]["message"]["content"] == "yes"
    assert (stats.answered, stats.faults[FaultKind.SLOW]) == (1, 1)


async def test_failed_requests_do_not_use_up_answers(http):
    faults = Faults(rate_429=0.4, rate_500=0.4)
    with ModelServer(Recording({"q?": ["1", "2", "3"]}), faults=faults) as server:
        said = []
        while len(said) < 3:
            status, body = await ask(http, server, text="q?")
            if status == 200:
                said.append(body["choices"][0]["message"]["content"])
        assert server.stats().received > 3
    assert said == ["1", "2", "3"]


def test_faults_have_their_rates_and_depend_on_the_seed():
    def drawn(seed):
        injector = FaultInjector(Faults(rate_429=0.2, rate_slow=0.3, seed=seed))
        return [injector.draw().fault for _ in range(2000)]

    faults = drawn(1)
    assert faults == drawn(1)
    assert faults != drawn(2)
    assert 340 < faults.count(FaultKind.RATE_LIMITED) < 460
    assert 540 < faults.count(FaultKind.SLOW) < 660
    assert faults.count(None) == 2000 - faults.count("rate_limited") - faults.count("slow")


def test_jitter_adds_to_the_latency():
    injector = FaultInjector(Faults(latency_ms=100, jitter_ms=50))
    latencies = [injector.draw().latency_seconds for _ in range(100)]
    assert (0.1 <= min(latencies) < 0.11, 0.14 < max(latencies) <= 0.15) == (True, True)


def test_impossible_faults_are_refused():
    for options, complaint in [
        ({"rate_429": 1.5}, r"rate_limited is 1\.5"), ({"rate_slow": -0.1}, r"slow is -0\.1"),
        ({"rate_429": 0.6, "rate_500": 0.6}, r"1\.2"), ({"latency_ms": -1}, "latency_ms is -1"),
        ({"rate_overloaded": 2}, "overloaded is 2"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=complaint):
            Faults(**options)


async def test_many_requests_are_served_at_once_and_may_hang_up(http):
    with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=60_000)) as server:
        asked = [asyncio.ensure_future(content(http, server, f"{i}?")) for i in range(128)]
        await in_flight(server, 128)
        for one in asked:
            one.cancel()
        await in_flight(server, 0)
        stats = server.stats()
        assert (stats.peak_in_flight, stats.received, stats.answered, stats.abandoned) == (128, 128, 0, 128)
    with ModelServer(FixedAnswer("yes")) as server:
        assert await asyncio.gather(*(content(http, server, f"{i}?") for i in range(128))) == ["yes"] * 128


async def test_each_question_is_counted(http):
    with ModelServer(FixedAnswer("yes")) as server:
        for text in ["a", "b", "a"]:
            await content(http, server, text)
        url = f"{server.root_url}/stats"
        async with http.get(url) as response:
            without = await response.json()
        async with http.get(url, params={"questions": "1"}) as response:
            questions = (await response.json())["questions"]
        async with http.post(f"{url}/reset") as response:
            assert response.status == 204
        await content(http, server, "c")
    assert without == {
        "received": 3, "answered": 3, "refused": 0, "abandoned": 0,
        "faults": dict.fromkeys(["rate_limited", "server_error", "dropped", "malformed", "slow", "overloaded"], 0),
        "in_flight": 0, "peak_in_flight": 1,
    }  # fmt: skip
    assert questions == {"a": 2, "b": 1}
    assert server.stats().questions == {"c": 1}


async def test_every_request_is_accounted_for(http):
    faults = Faults(rate_429=0.2, rate_500=0.2, rate_dropped=0.2, rate_malformed=0.1)
    with ModelServer(FixedAnswer("yes"), faults=faults) as server:
        url = f"{server.url}/chat/completions"

        async def post():
            async with http.post(url, json=payload()) as response:
                return response.status

        outcomes = await asyncio.gather(*(post() for _ in range(100)), return_exceptions=True)
        stats = server.stats()
    assert stats.received == 100
    assert stats.answered + sum(stats.faults.values()) == 100
    assert stats.answered + stats.faults["malformed"] == outcomes.count(200)
    assert stats.faults["rate_limited"] == outcomes.count(429)
    assert stats.faults["server_error"] == outcomes.count(500)
    counts = [stats.faults[kind] for kind in ("rate_limited", "server_error", "dropped", "malformed")]
    assert min(stats.answered, *counts) > 0
    assert (stats.abandoned, stats.in_flight) == (0, 0)


async def test_a_server_stops_while_requests_are_in_flight(http):
    with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=60_000)) as server:
        waiting = asyncio.create_task(content(http, server, "Hi"))
        await in_flight(server, 1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await waiting
    assert server.stats().abandoned == 1


def test_a_port_in_use_and_a_context_of_no_tokens_are_refused_and_a_server_starts_again():
    with ModelServer(FixedAnswer("yes")) as server:
        second = ModelServer(FixedAnswer("no"), port=server.port)
        with pytest.raises(ServiceError, match=str(server.port)):
            second.__enter__()
    with pytest.raises(ConfigError, match="max_context_tokens is 0"):
        ModelServer(FixedAnswer("yes"), max_context_tokens=0)
    server = ModelServer(FixedAnswer("yes"))
    with server:
        port = server.port
    with server, socket.create_connection(("127.0.0.1", port)):
        assert server.port == port


def test_contradicting_options_of_the_command_are_usage_errors():
    for options in ("--recording x.jsonl --answer y", "--answer y --error-rate 1"):
        assert CliRunner().invoke(app, f"model-server --port 0 {options}").exit_code == 2


@pytest.fixture
def start(fork):
    program = "import typer; from nightjar.cli.model_server import model_server as m; typer.run(m)"
    return lambda *options: fork.python(program, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_serves_until_it_is_stopped(http, start, tmp_path, stop):
    path = tmp_path / "small.jsonl"
    path.write_text('{"question": "1+1?", "completion": "2"}\n')
    options = ["--port", "0", "--recording", str(path), "--only-model", "tiny", "--max-context-tokens", "3"]
    with start(*options) as process:
        line = process.stdout.readline()
        url = line.split()[-1]
        body = {"model": "tiny", "messages": user("1+1?")}
        async with http.post(f"{url}/chat/completions", json=body) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "2"
        async with http.post(f"{url}/chat/completions", json={**body, "messages": user("a b c 1+1?")}) as response:
            assert (await response.json())["error"]["code"] == "context_length_exceeded"
        hint = process.stderr.readline()
        process.send_signal(stop)
        _, complaints = process.communicate()
    assert ("small.jsonl" in line, url.startswith("http://127.0.0.1:")) == (True, True)
    assert hint.endswith(f"nightjar eval run gsm8k -m tiny -b {url}\n")
    assert (complaints, process.returncode) == ("", 0)


@pytest.mark.slow
def test_without_a_port_the_command_uses_another_one_if_the_usual_one_is_taken(start):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another process may have it
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        with start("--json") as server:
            url = json.loads(server.stdout.readline())["url"]
    assert url.startswith("http://127.0.0.1:")
    assert not url.endswith(":8000/v1")
