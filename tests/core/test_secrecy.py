"""Secrets: named, set for the time of a run, and hidden in what is written."""

import asyncio
import io
import logging
import os
import sys

import orjson
import pytest
from pydantic import BaseModel

from nightjar.core.secrecy import (
    hidden_in_errors,
    hidden_in_log,
    hidden_in_prints,
    hide,
    hide_bytes,
    in_environment,
    is_reference,
    note_secrets,
    resolve,
)
from nightjar.errors import ConfigError, EnvironmentLoadError, MissingKeyError, NightjarError

SECRET = 'tell-nobody-"é"\n-0123456789'


@pytest.fixture(autouse=True)
def known():
    note_secrets(SECRET)


class TestHiding:
    def test_in_a_text_and_as_json_writes_it(self):
        assert hide(f"a {SECRET} b") == "a [secret] b"
        assert orjson.loads(hide_bytes(orjson.dumps({"a": f"x{SECRET}y"}))) == {"a": "x[secret]y"}

    def test_a_secret_that_holds_another_goes_whole(self):
        note_secrets("0123456789abcdef", "0123456789abcdef-and-more")
        assert hide("0123456789abcdef-and-more") == "[secret]"

    def test_a_short_one_could_be_any_word(self):
        note_secrets("hunter2", "postgres")
        assert hide("hunter2 of postgres") == "hunter2 of [secret]"

    def test_in_errors_and_their_causes(self):
        with pytest.raises(EnvironmentLoadError) as caught, hidden_in_errors():
            raise EnvironmentLoadError("env", f"says {SECRET}") from KeyError(SECRET)
        assert str(caught.value) == "Environment 'env' says [secret]"
        assert caught.value.__cause__.args == ("[secret]",)

    def test_keys_that_nobody_told_of_are_hidden_in_errors(self):
        with pytest.raises(EnvironmentLoadError) as caught, hidden_in_errors():
            raise EnvironmentLoadError("env", "boom key=sk-SECRET0123, not a task-specific prompt")
        assert str(caught.value) == "Environment 'env' boom key=[secret], not a task-specific prompt"

    def test_in_errors_that_cannot_be_changed(self):
        class Number(BaseModel):
            value: int

        note_secrets("tell-nobody-0123456789")
        with pytest.raises(NightjarError, match=r"input_value='\[secret\]'") as caught, hidden_in_errors():
            Number(value="tell-nobody-0123456789")
        assert caught.value.__cause__ is None

    def test_in_the_log(self):
        error = ValueError(SECRET)
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "it is %s", (SECRET,), (ValueError, error, None))
        assert hidden_in_log(record)
        written = logging.Formatter().format(record)
        assert written.startswith("it is [secret]\nValueError: ")
        assert SECRET not in written


class TestPrints:
    SECRET = "tell-nobody-0123456789"

    def test_on_both_streams_while_secrets_are_set(self, capfd):
        before = sys.stdout, sys.stderr
        with in_environment({"TOLD": self.SECRET}):
            print("it is", os.environ["TOLD"], flush=True)
            sys.stderr.writelines([f"and {self.SECRET}\n"])
            assert (sys.stdout.fileno(), sys.stdout.encoding) == (before[0].fileno(), before[0].encoding)
        assert capfd.readouterr() == ("it is [secret]\n", "and [secret]\n")
        assert (sys.stdout, sys.stderr) == before

    def test_blocks_that_overlap_end_in_any_order(self, capsys):
        note_secrets(self.SECRET)
        before = sys.stdout
        first, second = hidden_in_prints(), hidden_in_prints()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        print(self.SECRET)
        second.__exit__(None, None, None)
        assert capsys.readouterr().out == "[secret]\n"
        assert sys.stdout is before

    def test_a_redirection_from_within_is_left_alone(self, capsys, monkeypatch):
        with hidden_in_prints():
            monkeypatch.setattr(sys, "stdout", other := io.StringIO())
        assert sys.stdout is other


class TestNames:
    @pytest.mark.parametrize("text", ["$TOKEN", "${TOKEN}", "Bearer $TOKEN", "Basic ${_T1}"])
    def test_a_reference(self, text):
        assert is_reference(text)

    @pytest.mark.parametrize(
        "text", ["", "$", "s3cret", "$TOKEN-x", "${TOKEN", "a b $TOKEN", "$1", "s3cret $TOKEN", 1, "$A\n"]
    )
    def test_what_is_none(self, text):
        assert not is_reference(text)

    def test_values_take_the_place_of_names(self, monkeypatch):
        monkeypatch.setenv("TEAM", " t1 ")
        assert resolve({"A": "$TEAM", "B": "Bearer ${TEAM}", "C": "as it is"}) == {
            "A": "t1", "B": "Bearer t1", "C": "as it is",
        }  # fmt: skip

    def test_what_is_missing_is_named(self, monkeypatch):
        monkeypatch.setenv("EMPTY", "")
        with pytest.raises(MissingKeyError, match="'UNSET', 'EMPTY' not set"):
            resolve({"A": "$UNSET", "B": "$EMPTY"})

    def test_what_no_header_can_carry(self, monkeypatch):
        monkeypatch.setenv("TEAM", "two\nlines")
        with pytest.raises(ConfigError, match="'TEAM' holds characters that no HTTP header can carry"):
            resolve({"A": "$TEAM"})


class TestInEnvironment:
    def test_a_variable_is_there_while_the_block_lasts(self, monkeypatch):
        monkeypatch.setenv("OLD", "before")
        monkeypatch.delenv("NEW", raising=False)
        with in_environment({"OLD": "now", "NEW": "now"}):
            assert (os.environ["OLD"], os.environ["NEW"]) == ("now", "now")
        assert os.environ["OLD"] == "before"
        assert "NEW" not in os.environ

    async def test_runs_that_overlap_share_it(self, monkeypatch):
        monkeypatch.delenv("NEW", raising=False)
        second = asyncio.Event()

        async def run(until):
            with in_environment({"NEW": "now"}):
                await until()
                return os.environ["NEW"]

        async def short():
            second.set()

        assert await asyncio.gather(run(second.wait), run(short)) == ["now", "now"]
        assert "NEW" not in os.environ

    def test_a_run_that_needs_another_value_is_refused(self, monkeypatch):
        monkeypatch.delenv("NEW", raising=False)
        with in_environment({"NEW": "one"}):
            with (
                pytest.raises(ConfigError, match="another value of the variable 'NEW'"),
                in_environment({"NEW": "two"}),
            ):
                pass
            assert os.environ["NEW"] == "one"
        assert "NEW" not in os.environ
