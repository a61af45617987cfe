"""Secrets: named, set during a run, and hidden in all output."""

import asyncio
import io
import logging
import os
import sys
import time

import orjson
import pytest
from pydantic import BaseModel

from nightjar.core import secrecy
from nightjar.errors import ConfigError, EnvironmentLoadError, MissingKeyError, NightjarError

SECRET, PLAIN = 'tell-nobody-"é"\n-0123456789', "tell-nobody-0123456789"


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Makes one secret known; the tests that follow in this process know none of this file's."""
    for values in ("texts", "encoded"):
        monkeypatch.setattr(secrecy._Known, values, getattr(secrecy._Known, values))
    secrecy.note_secrets(SECRET)


def test_secrets_are_hidden_in_texts_json_urls_pythons_notation_and_the_log():
    assert secrecy.hide(f"a {SECRET} b") == "a [secret] b"
    assert orjson.loads(secrecy.hide_bytes(orjson.dumps({"a": f"x{SECRET}y"}))) == {"a": "x[secret]y"}
    secrecy.note_secrets("Bearer tell/nobody'\"+4711")
    for shape in ("tell%2Fnobody%27%22%2B4711", "tell/nobody\\'\"+4711", "tell/nobody'\"+4711"):
        assert secrecy.hide(f"sent {shape} to https://host") == "sent [secret] to https://host"
    error = ValueError(SECRET)
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "it is %s", (SECRET,), (ValueError, error, None))
    assert secrecy.hidden_in_log(record)
    written = logging.Formatter().format(record)
    assert written.startswith("it is [secret]\nValueError: ")
    assert SECRET not in written


def test_a_secret_is_hidden_as_a_whole_before_a_long_message_is_cut_and_short_ones_are_not():
    secrecy.note_secrets("0123456789abcdef", "0123456789abcdef-and-more", "hunter2", "postgres", PLAIN)
    text = secrecy.error_text(ValueError("x" * 9_990 + PLAIN * 2))
    assert text == "x" * 9_990 + "[secret][s… (10006 characters)"
    assert secrecy.hide("0123456789abcdef-and-more") == "[secret]"
    assert secrecy.hide("hunter2 of postgres") == "hunter2 of [secret]"


def test_what_looks_like_a_secret_is_hidden_in_messages_and_odd_texts_take_no_long_time(monkeypatch):
    monkeypatch.setenv("TEAM_KEY", "of-the-team-0123")
    monkeypatch.setenv("TEAM_NAME", "the-whole-team")
    texts = {
        "postgresql://ann:s3/cr'et@db/runs": "postgresql://ann:[secret]@db/runs",
        "https://s3cret@host and ssh://git@host": "https://[secret]@host and ssh://git@host",
        "http://host:8000/ann@home": "http://host:8000/ann@home",
        "https://host/x?access_token=s3cret&page=2": "https://host/x?access_token=[secret]&page=2",
        "host=db password='s3cret word' user=ann": "host=db password=[secret] user=ann",
        "{'X-Api-Key': 's3cret', 'n': 1}": "{'X-Api-Key': [secret], 'n': 1}",
        r'{"said": "{\"password\": \"s3cret\"}"}': r'{"said": "{\"password\": [secret]}"}',
        "Authorization: Basic YW5uOnMzY3JldA==": "Authorization: Basic [secret]",
        "token = tokens[0]; max_tokens=5; key=len": "token = tokens[0]; max_tokens=5; key=len",
        "OpenAI(api_key=os.environ['TEAM_KEY'])": "OpenAI(api_key=os.environ['TEAM_KEY'])",
        "Invalid value for '--custom-secrets': no JSON": "Invalid value for '--custom-secrets': no JSON",
        "the-whole-team has of-the-team-0123": "the-whole-team has [secret]",
    }
    assert {text: secrecy.hide_keys(text) for text in texts} == texts
    for text in ("://", "://a:b", "key=", "a.b-", "'password': \\'"):
        started = time.process_time()
        secrecy.hide_keys(text * 10_000)
        assert time.process_time() - started < 10


def test_known_secrets_are_hidden_in_errors_and_their_causes_or_the_error_is_replaced():
    with pytest.raises(EnvironmentLoadError) as caught, secrecy.hidden_in_errors():
        raise EnvironmentLoadError("env", f"{SECRET} key=sk-SECRET0123 task-specific") from KeyError(SECRET)
    assert str(caught.value) == "Environment 'env' [secret] key=[secret] task-specific"
    assert caught.value.__cause__.args == ("[secret]",)

    class Number(BaseModel):
        value: int

    secrecy.note_secrets(PLAIN)
    with pytest.raises(NightjarError, match=r"input_value='\[secret\]'") as caught, secrecy.hidden_in_errors():
        Number(value=PLAIN)
    assert caught.value.__cause__ is None


def test_secrets_are_hidden_in_prints_to_both_streams(capfd):
    before = sys.stdout, sys.stderr
    with secrecy.in_environment({"TOLD": PLAIN}):
        print("it is", os.environ["TOLD"], flush=True)
        sys.stderr.writelines([f"and {PLAIN}\n"])
        assert (sys.stdout.fileno(), sys.stdout.encoding) == (before[0].fileno(), before[0].encoding)
    assert capfd.readouterr() == ("it is [secret]\n", "and [secret]\n")
    assert (sys.stdout, sys.stderr) == before


def test_blocks_that_hide_prints_may_overlap_and_a_redirection_inside_stays(capsys, monkeypatch):
    secrecy.note_secrets(PLAIN)
    before = sys.stdout
    first, second = secrecy.hidden_in_prints(), secrecy.hidden_in_prints()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    print(PLAIN)
    second.__exit__(None, None, None)
    assert capsys.readouterr().out == "[secret]\n"
    assert sys.stdout is before
    with secrecy.hidden_in_prints():
        monkeypatch.setattr(sys, "stdout", other := io.StringIO())
    assert sys.stdout is other


def test_references_to_variables_are_replaced_by_values_that_must_be_set_and_valid(monkeypatch):
    assert all(map(secrecy.is_reference, ("$TOKEN", "${TOKEN}", "Bearer $TOKEN", "Basic ${_T1}")))
    others = ("", "$", "s3cret", "$TOKEN-x", "${TOKEN", "a b $TOKEN", "$1", 1, "$A\n")
    assert not any(map(secrecy.is_reference, others))
    monkeypatch.setenv("TEAM", " t1 ")
    assert secrecy.resolve({"A": "$TEAM", "B": "Bearer ${TEAM}", "C": "as it is"}) == {
        "A": "t1", "B": "Bearer t1", "C": "as it is",
    }  # fmt: skip
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("TEAM", "two\nlines")
    with pytest.raises(MissingKeyError, match="'UNSET', 'EMPTY'"):
        secrecy.resolve({"A": "$UNSET", "B": "$EMPTY"})
    with pytest.raises(ConfigError, match="'TEAM'"):
        secrecy.resolve({"A": "$TEAM"})


async def test_variables_are_set_during_the_block_and_concurrent_runs_share_them_without_changing_them(monkeypatch):
    monkeypatch.setenv("OLD", "before")
    monkeypatch.delenv("NEW", raising=False)
    with secrecy.in_environment({"OLD": "now", "NEW": "now"}):
        with pytest.raises(ConfigError, match="'NEW'"), secrecy.in_environment({"NEW": "two"}):
            pass
        assert (os.environ["OLD"], os.environ["NEW"]) == ("now", "now")
    assert os.environ["OLD"] == "before"
    assert "NEW" not in os.environ
    monkeypatch.delenv("NEW", raising=False)
    second = asyncio.Event()

    async def run(until):
        with secrecy.in_environment({"NEW": "now"}):
            await until
            return os.environ["NEW"]

    async def short():
        second.set()

    assert await asyncio.gather(run(second.wait()), run(short())) == ["now", "now"]
    assert "NEW" not in os.environ
