"""API keys: their values are written nowhere."""

import json

import pytest

pytestmark = pytest.mark.long

KEY = "sk-tell-nobody-0123456789"


def everything_written(nightjar, ended):
    """Returns what a command has printed and left on disk, with the compressed rows of the warehouse."""
    files = [path for path in nightjar.folder.rglob("*") if path.is_file()]
    assert any(path.name == "rollouts.parquet" for path in files)
    kinds = ("runs", "rollouts", "attempts", "examples")
    published = "".join(str(nightjar.sql(f"FROM segments.{kind}")) for kind in kinds)
    return ended.stdout + ended.stderr + published + "".join(path.read_bytes().decode("latin-1") for path in files)


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
def test_a_key_and_headers_that_the_server_sends_back_are_hidden(nightjar, echo, status):
    secrets = {"MY_KEY": KEY, "TEAM": "team-tell-nobody-0123456789", "OTHER": "other-tell-nobody-0123456789"}
    planted = "planted-tell-nobody-0123456789"
    headers = ("--header", "X-Team: $TEAM", "--header", f"X-Planted: {planted}")
    sampling = '{"extra_headers": {"X-Other": "Bearer ${OTHER}"}}'
    flags = ("-r", 1, "-v", "-m", "local", "-k", "MY_KEY", "-b", echo(status), *headers, "-S", sampling)
    ended = nightjar.eval("arithmetic", *flags, **secrets)
    assert ended.code == 1
    assert ended.errors
    written = everything_written(nightjar, ended)
    shown = ["[secret]", "MY_KEY", '"X-Planted":"$NIGHTJAR_HEADER_X_PLANTED"']
    if status == 500:
        shown += ["'X-Team': '[secret]'", "'X-Other': 'Bearer [secret]'", "'X-Planted': '[secret]'"]
    assert [part for part in shown if part not in written] == []
    assert [secret for secret in (*secrets.values(), planted) if secret in written] == []


def test_a_header_whose_variable_is_not_set_stops_the_run_before_it_begins(nightjar, serve):
    server = serve()
    ended = nightjar.eval("arithmetic", "-S", '{"extra_headers": {"X-Team": "$TEAM"}}', server=server)
    assert (ended.code, "'TEAM' not set" in ended.stderr) == (1, True)
    assert (server.stats().received, nightjar.runs) == (0, [])
