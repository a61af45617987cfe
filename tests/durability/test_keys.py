"""API keys: a wrong one stops the run after a few requests, and its value is written nowhere."""

import json

import pytest

from nightjar.model_server import Answer

pytestmark = pytest.mark.long

KEY = "sk-tell-nobody-0123456789"


def everything_written(nightjar, ended):
    """Returns what a command has printed and left on disk, with the compressed rows of the warehouse."""
    files = [path for path in nightjar.folder.rglob("*") if path.is_file()]
    assert any(path.name == "rollouts.parquet" for path in files)
    kinds = ("runs", "rollouts", "attempts", "examples")
    published = "".join(str(nightjar.sql(f"FROM segments.{kind}")) for kind in kinds)
    return ended.stdout + ended.stderr + published + "".join(path.read_bytes().decode("latin-1") for path in files)


def test_a_refused_key_stops_the_run_after_a_few_requests(nightjar, serve):
    server = serve(require_key="another")
    ended = nightjar.eval("arithmetic", "-n", 500, "-k", "MY_KEY", server=server, MY_KEY=KEY)
    assert "401 - Incorrect API key provided" in ended.error
    assert server.stats().received <= 64, "what is in flight at once, and a few"
    assert nightjar.run.metadata["status"] == "failed"
    assert KEY not in everything_written(nightjar, ended)


def test_a_key_that_is_accepted_is_written_nowhere(nightjar, serve):
    server = serve(require_key=KEY)
    ended = nightjar.eval("arithmetic", "-v", "-k", "MY_KEY", server=server, MY_KEY=KEY).ok()
    written = everything_written(nightjar, ended)
    assert "MY_KEY" in written
    assert KEY not in written


def test_a_key_that_no_header_can_carry(nightjar, serve):
    ended = nightjar.eval("arithmetic", "-k", "MY_KEY", server=serve(), MY_KEY="sk-a\nsk-b")
    assert "'MY_KEY'" in ended.only_line
    assert not nightjar.runs


@pytest.fixture
def echo(http_server):
    """Starts servers that send back what they are sent, with a given status."""

    def start(status):
        def reply(request, _):
            key = request.headers["Authorization"]
            said = json.dumps({"error": {"message": f"Rejected: {key} in {dict(request.headers)}"}}).encode()
            return status, said[: -1 if status == 200 else None], {"X-Authorization": key, "X-Reason": key}

        return f"{http_server(reply)}/v1"

    return start


@pytest.mark.parametrize("status", [401, 500, 200])
def test_a_key_that_the_server_sends_back_is_hidden(nightjar, echo, status):
    ended = nightjar.eval("arithmetic", "-r", 1, "-v", "-k", "MY_KEY", "-m", "local", "-b", echo(status), MY_KEY=KEY)
    assert ended.code == 1
    assert ended.errors
    written = everything_written(nightjar, ended)
    assert "[secret]" in written
    assert KEY not in written


LEAKY = """
import logging
import os
import nightjar as vf
KEY = os.environ["MY_KEY"]

class LeakyError(Exception):
    def __init__(self):
        self.request = {"headers": KEY}
        super().__init__(f"401 for Bearer {KEY}")

class Leaky(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["seen"] = {"nested": [KEY]}
        logging.getLogger("leaky").warning("asking with %s", KEY)
        print("printed:", KEY)
        return state

def raises(answer) -> float:
    if answer == "1":
        raise LeakyError
    return 1.0

async def raises_from(answer) -> float:
    if answer == "2":
        try:
            raise LeakyError
        except LeakyError as error:
            raise RuntimeError("could not score") from error
    return 1.0

def load_environment() -> vf.Environment:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]
    return Leaky(dataset=rows, rubric=vf.Rubric(funcs=[raises, raises_from]))
"""


def test_a_key_that_an_environment_gives_away_is_hidden(nightjar, serve):
    class TellsTheKey:
        def answer(self, messages):
            return Answer(question="", text=f"You are {KEY}, and the sum is 3")

    nightjar.write_environment("leaky", LEAKY)
    server = serve(TellsTheKey())
    ended = nightjar.eval("leaky", "-r", 1, "-v", "-C", "seen", "-k", "MY_KEY", server=server, MY_KEY=KEY)
    assert "2 of 4 rollouts failed" in ended.stdout + ended.stderr
    written = everything_written(nightjar, ended)
    assert "401 for Bearer [secret]" in written
    assert "You are [secret], and the sum is 3" in written
    assert "asking with [secret]" in written
    assert "printed: [secret]" in ended.stdout
    assert KEY not in written


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_gets_neither_key_nor_prompt(nightjar, serve, http_server, status):
    elsewhere = serve()

    def redirect(request, _):
        return status, b"", {"Location": f"{elsewhere.url}?token={request.headers['Authorization']}"}

    url = f"{http_server(redirect)}/v1"
    ended = nightjar.eval("arithmetic", "-r", 1, "-v", "-k", "MY_KEY", "-m", "local", "-b", url, MY_KEY=KEY)
    assert ended.code == 1
    assert elsewhere.stats().received == 0
    assert KEY not in everything_written(nightjar, ended)


@pytest.mark.parametrize("url", [f"http://user:{KEY}@127.0.0.1:9/v1", f"http://127.0.0.1:9/v1?api_key={KEY}"])
def test_a_key_in_the_base_url_is_refused_and_not_repeated(nightjar, url):
    ended = nightjar.eval("arithmetic", "-m", "local", "-b", url)
    assert ended.code != 0
    [line] = ended.errors
    assert "api_key_var" in line
    assert KEY not in ended.stdout + ended.stderr
    assert not nightjar.runs


def test_headers_are_sent_by_name_and_hidden_where_the_server_sends_them_back(nightjar, echo):
    planted = "planted-tell-nobody-0123456789"
    headers = ("--header", "X-Team: $TEAM", "--header", f"X-Planted: {planted}")
    sampling = '{"extra_headers": {"X-Other": "Bearer ${OTHER}"}}'
    team, other = "team-tell-nobody-0123456789", "other-tell-nobody-0123456789"
    flags = ("-r", 1, "-m", "local", "-b", echo(500), *headers, "-S", sampling)
    ended = nightjar.eval("arithmetic", *flags, TEAM=team, OTHER=other)
    assert ended.code == 1
    written = everything_written(nightjar, ended)
    shown = ("'X-Team': '[secret]'", "'X-Other': 'Bearer [secret]'", "'X-Planted': '[secret]'")
    assert [part for part in (*shown, '"X-Planted":"$NIGHTJAR_HEADER_X_PLANTED"') if part not in written] == []
    assert [secret for secret in (team, other, planted) if secret in written] == []


def test_a_header_whose_variable_is_not_set_stops_the_run_before_it_begins(nightjar, serve):
    server = serve()
    ended = nightjar.eval("arithmetic", "-S", '{"extra_headers": {"X-Team": "$TEAM"}}', server=server)
    assert (ended.code, "'TEAM' not set" in ended.stderr) == (1, True)
    assert (server.stats().received, nightjar.runs) == (0, [])
