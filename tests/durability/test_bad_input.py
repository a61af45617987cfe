"""Wrong usage and unusable inputs: one clear line, no traceback, and no needless request.

An expected error ends with exit code 1, wrong usage with exit code 2.
"""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from nightjar.clients.protocols import PROTOCOLS
from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server():
    with ModelServer(ArithmeticSolver(), only_model="local") as server:
        yield server


WRONG = [
    (["-n", "0"], ["'--num-examples' / '-n'", "-1 for all", "found 0"]),
    (["-a", "{bad"], ["'--env-args' / '-a'", "not valid JSON"]),
    (["-a", "7"], ["'--env-args' / '-a'", "JSON object", "found '7'"]),
    (["-x", "[1]"], ["'--extra-env-kwargs' / '-x'", "JSON object"]),
    (["-S", "temperature=1"], ["'--sampling-args' / '-S'", "character 1"]),
    (["-S", '{"a":' * 2000 + "1" + "}" * 2000], ["'--sampling-args' / '-S'", "nested too deeply"]),
    (["--prefect"], ["--direct and --prefect"]),
    (["-p", "opnai"], ["'--provider' / '-p'", "'openai'", "'vllm'", "found 'opnai'"]),
    (["--api-client-type", "openai"], ["'--api-client-type'", *map(repr, PROTOCOLS), "found 'openai'"]),
    (["-b", "localhost:8000"], ["'--api-base-url' / '-b'", "http://"]),
    (["-m", ""], ["'--model' / '-m'", "found ''"]),
    (["-k", "sk-typed-0123"], ["'--api-key-var' / '-k'", "name of the environment variable"]),
    (["-c", "0"], ["'--max-concurrent' / '-c'", "found 0"]), (["-r", "0"], ["'--rollouts-per-example' / '-r'"]),
    (["-t", "0"], ["'--max-tokens' / '-t'"]), (["-T", "-1"], ["'--temperature' / '-T'"]),
    (["--request-timeout", "0"], ["'--request-timeout'", "found 0.0"]),
    (["--max-retries", "-1"], ["'--max-retries'", "found -1"]),
    (["--max-concurrent-generation", "0"], ["'--max-concurrent-generation'"]),
    (["--max-concurrent-scoring", "0"], ["'--max-concurrent-scoring'"]),
    (["--scoring-timeout", "nan"], ["'--scoring-timeout'", "found nan"]),
    (["--shuffle-seed", "one"], ["'--shuffle-seed'"]), (["--env-dir-path", ""], ["'--env-dir-path'"]),
    (["--max-retires", "3"], ["--max-retires", "Possible options: "]),
]  # fmt: skip
"""Wrong flags, and what the error names."""


def test_wrong_usage_is_one_line_that_names_the_flag(nightjar, server):
    for arguments, named in WRONG:
        ended = nightjar.eval("arithmetic", *arguments, server=server)
        [line] = ended.stderr.splitlines()
        assert (ended.code, line[:7], ended.stdout, nightjar.runs) == (2, "Error: ", "", []), arguments
        assert [part for part in named if part not in line] == [], arguments
    ended = nightjar.start("export", "a", "--to", "foo").wait()
    told = "Error: Invalid value for '--to': 'foo' is not one of 'mlflow', 'wandb', 'inspect'.\n"
    assert (ended.code, ended.stderr) == (2, told)


IMPOSSIBLE = [
    ("arithmatic", [], "(did you mean 'arithmetic'?) is not installed. Installed here: alphabet-sort, arithmetic, "),
    ("arithmetic", ["-a", '{"problems": 3}'], "unexpected keyword argument 'problems'. It takes (num_problems: "),
    ("arithmetic", ["-b", "https://api.example.com/v1", "-k", "EXAMPLE_KEY"], "export EXAMPLE_KEY="),
    ("arithmetic", ["--resume", "no/such/run"], "No run in 'no/such/run': cannot read config.json: "),
    ("arithmetic", ["-o", "file"], "Cannot write 'file/evals/arithmetic--local/"),
    ("gsm8k", ["-a", '{"dataset": "none.jsonl"}'], "'none.jsonl': No such file or directory"),
    ("gsm8k", ["-a", '{"dataset": "torn.jsonl"}'], "torn.jsonl, line 2: not valid JSON: "),
    ("gsm8k", ["-a", '{"dataset": "odd.jsonl"}'], "odd.jsonl, line 1: no 'question'; found ['answer', 'q']"),
]


def test_what_cannot_be_done_is_one_line_before_a_request_or_a_run(nightjar, server):
    (nightjar.folder / "file").touch()
    good = json.dumps({"question": "What is 1 + 1?", "answer": "2"})
    (nightjar.folder / "torn.jsonl").write_text(f"{good}\n{good[:20]}\n", "utf-8")
    (nightjar.folder / "odd.jsonl").write_text('{"q": "What is 1 + 1?", "answer": "2"}\n', "utf-8")
    server.reset_stats()
    for env_id, arguments, message in IMPOSSIBLE:
        ended = nightjar.eval(env_id, *arguments, server=server)
        assert message in ended.only_line
        assert (ended.stdout, nightjar.runs, server.stats().received) == ("", [], 0), message


def test_an_output_folder_that_is_read_only_is_an_error(nightjar, server, mount):
    folder = mount("ro")
    ended = nightjar.eval("arithmetic", "-o", folder, server=server)
    line = ended.only_line
    assert line.startswith(f"Error: Cannot write '{folder}/evals/")
    assert line.endswith("Read-only file system")


def test_a_name_that_looks_like_markup_is_shown_as_it_is(nightjar, server):
    with ModelServer(ArithmeticSolver()) as anything:
        ended = nightjar.eval("arithmetic", "-n", 1, "-m", "[/x]", "-b", anything.url)
    assert (ended.code, "arithmetic | [/x]" in ended.stdout) == (0, True), ended.stderr


@pytest.mark.parametrize("command", ["eval run arithmetic -n 1 --direct -m local -b {url}", "warehouse --help"])
def test_an_output_that_is_full_is_an_error(nightjar, fork, server, command):
    place = {"env": nightjar.env, "cwd": nightjar.folder}
    with Path("/dev/full").open("w") as full:
        process = fork.nightjar(*command.format(url=server.url).split(), **place, stdout=full, stderr=PIPE)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == "Error: Cannot write to standard output: No space left on device"
    assert "Traceback" not in stderr


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_sql_that_is_no_text_is_an_error(nightjar, errors):
    command, env = [sys.executable, "-m", "nightjar", "sql"], nightjar.env | {"PYTHONIOENCODING": f"utf-8:{errors}"}
    ended = subprocess.run(command, cwd=nightjar.folder, env=env, input=b"SELECT \xff", capture_output=True)
    [line] = ended.stderr.decode().splitlines()
    assert (ended.returncode, line.startswith("Error: "), "UTF-8" in line) == (1, True, True)


def test_an_endpoint_that_does_not_answer_is_named(nightjar):
    ended = nightjar.eval("arithmetic", "-n", 1, "-m", "local", "-b", "http://127.0.0.1:9/v1")
    assert "Cannot reach http://127.0.0.1:9/v1/chat/completions: " in ended.error


UNUSABLE = [
    (["warehouse", "rebuild", "long" * 200], f"Cannot use {'long' * 50 + '…'!r}: File name too long"),
    (["eval", "logs", "a", "--prefect-url", ".."], "Prefect's server at ../api does not answer."),
    (["eval", "logs", "a", "--prefect-url", "http://a\nb"], "Prefect's server at http://a"),
    (["eval", "list", "--warehouse", "http://[::1"], "Cannot read the warehouse's location 'http://[::1': Invalid"),
]


def test_an_unusable_place_is_named_in_one_line(nightjar):
    errors = [nightjar.start(*words).wait().error for words, _ in UNUSABLE]
    assert [error for error, (_, told) in zip(errors, UNUSABLE, strict=True) if told not in error] == []
