"""The local model server: real HTTP over loopback."""

import asyncio
import contextlib
import io
import json
import signal
import socket
import subprocess
import sys
import time

import aiohttp
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    """Waits until so many requests are in flight."""
    async with asyncio.timeout(5):
        while server.stats().in_flight != count:  # noqa: ASYNC110 - the server has another loop
            await asyncio.sleep(0.01)


class TestMessages:
    def test_last_user_message_counts(self):
        messages = [*user("first"), *user("second"), {"role": "assistant", "content": "third"}]
        assert last_user_text(messages) == "second"

    def test_text_parts_are_joined(self):
        parts = [
            {"type": "text", "text": "Look:"},
            {"type": "image_url", "image_url": {"url": "data:,"}},
            {"type": "text", "text": "what is it?"},
        ]
        assert last_user_text([{"role": "user", "content": parts}]) == "Look:\nwhat is it?"

    def test_no_user_message_is_empty(self):
        assert last_user_text([{"role": "system", "content": "Be brief."}]) == ""


class TestRecording:
    def recording(self):
        return Recording(
            {
                "How many legs has a dog?": ["A: 4"],
                "How many legs has a dog? And a hen?": ["A: 4 and 2"],
                "2+2?": ["A: 4", "A: 5", "A: 22"],
            }
        )

    def say(self, text):
        return self.recording().answer(user(text)).text

    def test_exact_question(self):
        assert self.say("How many legs has a dog?") == "A: 4"

    def test_question_among_other_text(self):
        text = "Q: 2+2?\nA: 4\n\nQ: How many legs has a dog?\nAnswer with a number."
        assert self.say(text) == "A: 4"

    def test_longest_contained_question_wins(self):
        text = "Answer: How many legs has a dog? And a hen? Be brief."
        assert self.say(text) == "A: 4 and 2"

    def test_answer_names_the_recorded_question(self):
        answer = self.recording().answer(user("Please: 2+2?!"))
        assert answer == Answer(question="2+2?", text="A: 4")

    def test_several_completions_take_turns_per_question(self):
        recording = self.recording()
        said = [
            recording.answer(user(text)).text
            for text in ["2+2?", "How many legs has a dog?", "Q: 2+2?", "2+2?", "2+2?"]
        ]
        assert said == ["A: 4", "A: 4", "A: 5", "A: 22", "A: 4"]

    def test_unknown_question(self):
        with pytest.raises(DatasetError, match=r"not in the recording 'recording': 'Why\?'"):
            self.recording().answer(user("Why?"))

    def test_load(self, tmp_path):
        path = tmp_path / "small.jsonl"
        path.write_text(
            '{"question": " 1+1? ", "completion": "2", "is_correct": true}\n{"question": "1+1?", "completion": "3"}\n'
        )
        recording = Recording.load(path)
        assert len(recording) == 1
        assert recording.name == "small.jsonl"
        assert [recording.answer(user("1+1?")).text for _ in range(2)] == ["2", "3"]

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ('{"question": "2?", ', "not valid JSON"),
            ('{"question": "2?"}', "'question' and 'completion'"),
            ('{"question": " ", "completion": "2"}', "'question' and 'completion'"),
            ('{"question": "2?", "completion": 2}', "'question' and 'completion'"),
            ("[1]", "'question' and 'completion'"),
            ("", "not valid JSON"),
        ],
    )
    def test_broken_line_is_named(self, tmp_path, line, complaint):
        path = tmp_path / "broken.jsonl"
        path.write_text(f'{{"question": "1?", "completion": "1"}}\n{line}\n')
        with pytest.raises(DatasetError, match=rf"broken\.jsonl:2 .*{complaint}"):
            Recording.load(path)

    def test_missing_and_empty_file(self, tmp_path):
        with pytest.raises(DatasetError, match="No such file"):
            Recording.load(tmp_path / "none.jsonl")
        (tmp_path / "empty.jsonl").touch()
        with pytest.raises(DatasetError, match="is empty"):
            Recording.load(tmp_path / "empty.jsonl")

    @pytest.mark.slow
    @given(st.sets(st.text("ab", min_size=1, max_size=40), max_size=20), st.text("ab", max_size=80))
    def test_index_finds_what_a_scan_finds(self, texts, text):
        contained = [known for known in texts if known in text]
        found = TextIndex(texts).longest_in(text)
        assert len(found or "") == max(map(len, contained), default=0)
        assert found is None or found in contained


class TestArithmetic:
    @pytest.mark.parametrize(
        ("question", "expression", "result"),
        [
            ("What is 12 * (3 + 4)?", "12 * (3 + 4)", "84"),
            ("Compute 7-10.", "7-10", "-3"),
            ("6 \u00d7 7", "6 * 7", "42"),
            ("3x4 =", "3*4", "12"),
            ("max 3 x 4", "3 * 4", "12"),
            ("First 1 + 1 = 2. Now 10 / 4?", "10 / 4", "5/2"),
            ("1/3 + 1/6", "1/3 + 1/6", "1/2"),
            ("-(2 + 3) * -2", "-(2 + 3) * -2", "10"),
            ("(that is, 3 + 4)", "3 + 4", "7"),
            ("Note (3 + 4", "3 + 4", "7"),
            ("Add (1 + 2) + 3) now", "(1 + 2) + 3", "6"),
            ("1,250 + 750", "1,250 + 750", "2000"),
            ("Pick 3, 4 + 5", "4 + 5", "9"),
            ("007 + 1", "007 + 1", "8"),
            ("Sum: 12 + 5\n- 3 apples", "12 + 5", "17"),
            ("2 + 2 or 1 / 0?", "2 + 2", "4"),
        ],
    )
    def test_solves(self, question, expression, result):
        answer = ArithmeticSolver().answer(user(question))
        assert answer.text == f"{expression} = {result}\nThe answer is \\boxed{{{result}}}."
        assert answer.question == question

    @pytest.mark.parametrize(
        "question",
        [
            "Who wrote Faust?",
            "What is 12?",
            "Solve 4x + 3 = 11",
            "2 ** 10",
            "1.5 + 2",
            "2 + 3.5",
            "1 / 0",
            "(" * 300 + "1 + 1" + ")" * 300,
            "-" * 5000 + "1 + 1",
            "1 + " * 5000 + "1",
        ],
    )
    def test_cannot_solve(self, question):
        assert ArithmeticSolver().answer(user(question)).text == "I cannot solve this."

    def test_errors_do_not_depend_on_order(self):
        questions = [f"{number} + 1" for number in range(200)] * 2
        forward, backward = ArithmeticSolver(0.3, seed=7), ArithmeticSolver(0.3, seed=7)
        answers = {(a.question, a.text) for a in (forward.answer(user(q)) for q in questions)}
        reverse = {(a.question, a.text) for a in (backward.answer(user(q)) for q in questions[::-1])}
        assert answers == reverse

    def test_error_rate(self):
        def wrong(error_rate):
            solver = ArithmeticSolver(error_rate, seed=1)
            texts = [solver.answer(user("20 + 22")).text for _ in range(1000)]
            return sum("boxed{42}" not in text for text in texts)

        assert wrong(0) == 0
        assert 250 < wrong(0.3) < 350
        assert wrong(1) == 1000

    def test_error_rate_must_be_a_share(self):
        with pytest.raises(ConfigError, match=r"error_rate is 1\.5"):
            ArithmeticSolver(1.5)


class TestProtocol:
    async def test_openai_client_understands_it(self):
        with ModelServer(FixedAnswer("forty two")) as server:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="any") as client:
                completion = await client.chat.completions.create(model="m", messages=user("What is six times seven?"))
                models = await client.models.list()
        assert completion.model == "m"
        assert completion.object == "chat.completion"
        assert completion.choices[0].message.content == "forty two"
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage.prompt_tokens == 5
        assert completion.usage.completion_tokens == 2
        assert completion.usage.total_tokens == 7
        assert [model.id for model in models.data] == ["local"]

    @pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
    async def test_max_tokens_cuts_the_answer(self, http, field):
        with ModelServer(FixedAnswer(" one two\nthree  four")) as server:
            _, cut = await ask(http, server, **{field: 3})
            _, whole = await ask(http, server, **{field: 4})
        assert cut["choices"][0]["message"]["content"] == " one two\nthree"
        assert cut["choices"][0]["finish_reason"] == "length"
        assert cut["usage"]["completion_tokens"] == 3
        assert whole["choices"][0]["message"]["content"] == " one two\nthree  four"
        assert whole["choices"][0]["finish_reason"] == "stop"

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ("{", None),
            ("[]", None),
            (json.dumps({"messages": user("Hi")}), "model"),
            (json.dumps({"model": "m"}), "messages"),
            (json.dumps({"model": "m", "messages": []}), "messages"),
            (json.dumps({"model": "m", "messages": ["Hi"]}), "messages[0]"),
            (json.dumps({"model": "m", "messages": [*user("Hi"), *user(3)]}), "messages[1]"),
            (json.dumps({"model": "m", "messages": user(["Hi"])}), "messages[0]"),
            (json.dumps(payload(max_tokens=0)), "max_tokens"),
            (json.dumps(payload(stream=True)), "stream"),
            (json.dumps(payload(n=2)), "n"),
        ],
    )
    async def test_invalid_request(self, http, body, param):
        with ModelServer(FixedAnswer("yes")) as server:
            async with http.post(f"{server.url}/chat/completions", data=body) as response:
                error = (await response.json())["error"]
            stats = server.stats()
        assert response.status == 400
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
        assert error["message"]
        assert (stats.received, stats.refused, stats.answered) == (1, 1, 0)

    async def test_question_that_is_not_recorded(self, http):
        with ModelServer(Recording({"1+1?": ["2"]})) as server:
            status, body = await ask(http, server, text="3+3?")
        assert status == 400
        assert body["error"]["code"] == "unknown_question"
        assert "3+3?" in body["error"]["message"]

    async def test_require_key(self, http):
        with ModelServer(FixedAnswer("yes"), require_key="sesame") as server:
            status, body = await ask(http, server)
            async with http.get(f"{server.url}/models") as response:
                models_status = response.status
            http.headers["Authorization"] = "Bearer sesame"
            assert await content(http, server, "Hi") == "yes"
        assert (status, models_status) == (401, 401)
        assert body["error"]["code"] == "invalid_api_key"

    async def test_only_model(self, http):
        with ModelServer(FixedAnswer("yes"), only_model="m") as server:
            assert await content(http, server, "Hi") == "yes"
            status, body = await ask(http, server, model="other")
        assert status == 404
        assert body["error"]["code"] == "model_not_found"

    async def test_base_url_without_v1(self, http):
        with ModelServer(FixedAnswer("yes")) as server:
            url = server.url.removesuffix("/v1")
            async with http.post(f"{url}/chat/completions", json=payload()) as response:
                error = (await response.json())["error"]
            async with http.get(f"{url}/health") as health:
                assert await health.json() == {"status": "ok"}
        assert response.status == 404
        assert "ends in /v1" in error["message"]

    async def test_large_prompt(self, http):
        with ModelServer(FixedAnswer("yes")) as server:
            body = io.BytesIO(json.dumps(payload("x" * 5_000_000)).encode())
            async with http.post(f"{server.url}/chat/completions", data=body) as response:
                assert response.status == 200


class TestFaults:
    @pytest.mark.parametrize(("seconds", "header"), [(3, "3"), (None, None)])
    async def test_rate_limit(self, http, seconds, header):
        faults = Faults(rate_429=1, retry_after_seconds=seconds, latency_ms=60_000)
        with ModelServer(FixedAnswer("yes"), faults=faults) as server:
            url = f"{server.url}/chat/completions"
            async with http.post(url, json=payload()) as response:
                error = (await response.json())["error"]
        assert response.status == 429
        assert response.headers.get("Retry-After") == header
        assert error["code"] == "rate_limit_exceeded"

    async def test_server_error(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_500=1)) as server:
            status, body = await ask(http, server)
        assert status == 500
        assert body["error"]["type"] == "server_error"

    async def test_dropped_connection(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_dropped=1)) as server:
            with pytest.raises(aiohttp.ClientConnectionError):
                await ask(http, server)
            stats = server.stats()
        assert stats.faults[FaultKind.DROPPED] == 1
        assert (stats.answered, stats.abandoned, stats.in_flight) == (0, 0, 0)

    async def test_malformed_body(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_malformed=1)) as server:
            url = f"{server.url}/chat/completions"
            async with http.post(url, json=payload()) as response:
                text = await response.text()
        assert response.status == 200
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)

    @pytest.mark.slow
    async def test_slow_body(self, http):
        faults = Faults(rate_slow=1, slow_seconds=2)
        with ModelServer(FixedAnswer("yes"), faults=faults) as server:
            start = time.monotonic()
            url = f"{server.url}/chat/completions"
            async with http.post(url, json=payload()) as response:
                headers_after = time.monotonic() - start
                body = await response.json()
                body_after = time.monotonic() - start
            stats = server.stats()
        assert headers_after < 1.5
        assert body_after >= 2
        assert body["choices"][0]["message"]["content"] == "yes"
        assert (stats.answered, stats.faults[FaultKind.SLOW]) == (1, 1)

    async def test_failed_requests_do_not_use_up_answers(self, http):
        faults = Faults(rate_429=0.4, rate_500=0.4)
        with ModelServer(Recording({"q?": ["1", "2", "3"]}), faults=faults) as server:
            said = []
            while len(said) < 3:
                status, body = await ask(http, server, text="q?")
                if status == 200:
                    said.append(body["choices"][0]["message"]["content"])
            assert server.stats().received > 3
        assert said == ["1", "2", "3"]

    def test_rates_and_seed(self):
        def drawn(seed):
            injector = FaultInjector(Faults(rate_429=0.2, rate_slow=0.3, seed=seed))
            return [injector.draw().fault for _ in range(2000)]

        faults = drawn(1)
        assert faults == drawn(1)
        assert faults != drawn(2)
        assert 340 < faults.count(FaultKind.RATE_LIMITED) < 460
        assert 540 < faults.count(FaultKind.SLOW) < 660
        assert faults.count(None) == 2000 - faults.count("rate_limited") - faults.count("slow")

    def test_jitter_adds_to_the_latency(self):
        injector = FaultInjector(Faults(latency_ms=100, jitter_ms=50))
        latencies = [injector.draw().latency_seconds for _ in range(100)]
        assert 0.1 <= min(latencies) < 0.11
        assert 0.14 < max(latencies) <= 0.15

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({"rate_429": 1.5}, "rate of rate_limited is 1.5"),
            ({"rate_slow": -0.1}, "rate of slow is -0.1"),
            ({"rate_429": 0.6, "rate_500": 0.6}, "add up to 1.2"),
            ({"latency_ms": -1}, "latency_ms is -1"),
            ({"rate_overloaded": 2}, "rate of overloaded is 2"),
        ],
    )
    def test_impossible_faults(self, options, complaint):
        with pytest.raises(ConfigError, match=complaint):
            Faults(**options)


class TestServing:
    @pytest.mark.slow
    async def test_many_requests_at_once(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=1500)) as server:
            start = time.monotonic()
            said = await asyncio.gather(*(content(http, server, f"{i}?") for i in range(256)))
            elapsed = time.monotonic() - start
            stats = server.stats()
        assert said == ["yes"] * 256
        assert stats.peak_in_flight == 256
        assert stats.in_flight == 0
        assert 1.5 <= elapsed < 15

    async def test_each_question_is_counted(self, http):
        with ModelServer(FixedAnswer("yes")) as server:
            for text in ["a", "b", "a"]:
                await content(http, server, text)
            url = server.url.removesuffix("/v1") + "/stats"
            async with http.get(url) as response:
                without = await response.json()
            async with http.get(url, params={"questions": "1"}) as response:
                questions = (await response.json())["questions"]
            async with http.post(f"{url}/reset") as response:
                assert response.status == 204
            await content(http, server, "c")
        assert without == {
            "received": 3,
            "answered": 3,
            "refused": 0,
            "abandoned": 0,
            "faults": dict.fromkeys(["rate_limited", "server_error", "dropped", "malformed", "slow", "overloaded"], 0),
            "in_flight": 0,
            "peak_in_flight": 1,
        }
        assert questions == {"a": 2, "b": 1}
        assert server.stats().questions == {"c": 1}

    async def test_every_request_is_accounted_for(self, http):
        faults = Faults(rate_429=0.2, rate_500=0.2, rate_dropped=0.2, rate_malformed=0.1)
        with ModelServer(FixedAnswer("yes"), faults=faults) as server:
            url = f"{server.url}/chat/completions"

            async def post():
                async with http.post(url, json=payload()) as response:
                    return response.status

            outcomes = await asyncio.gather(*(post() for _ in range(200)), return_exceptions=True)
            stats = server.stats()
        assert stats.received == 200
        assert stats.answered + sum(stats.faults.values()) == 200
        assert stats.answered + stats.faults["malformed"] == outcomes.count(200)
        assert stats.faults["rate_limited"] == outcomes.count(429)
        assert stats.faults["server_error"] == outcomes.count(500)
        assert (
            min(stats.answered, *[stats.faults[k] for k in ("rate_limited", "server_error", "dropped", "malformed")])
            > 0
        )

    async def test_client_that_hangs_up_is_not_answered(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=60_000)) as server:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await content(http, server, "Hi")
            await in_flight(server, 0)
            stats = server.stats()
        assert (stats.received, stats.answered, stats.abandoned) == (1, 0, 1)

    async def test_stops_while_requests_are_in_flight(self, http):
        with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=60_000)) as server:
            waiting = asyncio.create_task(content(http, server, "Hi"))
            await in_flight(server, 1)
            start = time.monotonic()
        assert time.monotonic() - start < 3
        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting
        assert server.stats().abandoned == 1

    def test_port_in_use(self):
        with ModelServer(FixedAnswer("yes")) as server:
            second = ModelServer(FixedAnswer("no"), port=server.port)
            with pytest.raises(ServiceError, match=f"Port {server.port} of 127.0.0.1 is in use"):
                second.__enter__()

    def test_context_of_no_tokens(self):
        with pytest.raises(ConfigError, match="max_context_tokens is 0"):
            ModelServer(FixedAnswer("yes"), max_context_tokens=0)

    def test_starts_again(self):
        server = ModelServer(FixedAnswer("yes"))
        with server:
            port = server.port
        with server, socket.create_connection(("127.0.0.1", port)):
            assert server.port == port


@pytest.mark.slow
class TestCommand:
    SCRIPT = "import typer; from nightjar.cli.model_server import model_server as m; typer.run(m)"

    def start(self, *options):
        return subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
    async def test_serves_until_it_is_stopped(self, http, tmp_path, stop):
        path = tmp_path / "small.jsonl"
        path.write_text('{"question": "1+1?", "completion": "2"}\n')
        with self.start("--recording", str(path), "--only-model", "tiny", "--max-context-tokens", "3") as process:
            line = process.stdout.readline()
            url = line.split()[-1]
            body = {"model": "tiny", "messages": user("1+1?")}
            async with http.post(f"{url}/chat/completions", json=body) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == "2"
            async with http.post(f"{url}/chat/completions", json={**body, "messages": user("a b c 1+1?")}) as response:
                assert (await response.json())["error"]["code"] == "context_length_exceeded"
            hint = process.stderr.readline()
            process.send_signal(stop)
            _, complaints = process.communicate(timeout=10)
        assert line.startswith("Serving recording small.jsonl (1 questions) on http://127.0.0.1:")
        assert hint == f"Try: nightjar eval run gsm8k -m tiny -b {url}\n"
        assert complaints == ""
        assert process.returncode == 0

    def test_json(self):
        with self.start("--json") as process:
            line = process.stdout.readline()
            process.terminate()
        assert json.loads(line)["url"].startswith("http://127.0.0.1:")

    @pytest.mark.parametrize(
        "options",
        [["--recording", "x.jsonl", "--answer", "y"], ["--answer", "y", "--error-rate", "1"]],
    )
    def test_contradicting_options_are_usage_errors(self, options):
        with self.start(*options) as process:
            process.communicate(timeout=10)
        assert process.returncode == 2


def test_the_model_server_takes_another_port_where_its_own_is_taken():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # by somebody else
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        command = [sys.executable, "-m", "nightjar", "model-server", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            url = json.loads(server.stdout.readline())["url"]
            server.terminate()
    assert not url.endswith(":8000/v1")
