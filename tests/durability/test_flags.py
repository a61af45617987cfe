"""Every flag of ``nightjar eval run``: its effect in the requests or in the files, also after a resume.

Flags that do not affect each other share a command, which runs two examples and two more with ``--resume``. The effect
of each flag must hold for all four.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.main import get_command

from nightjar.cli.eval.run import eval_run
from nightjar.model_server import Faults

TESTS = Path(__file__).parents[1]


class Seen(SimpleNamespace):
    """Requests without credentials, the run, the warehouse, and the second command after both have ended."""

    def sent(self, name):
        return {json.dumps(request.body.get(name)) for request in self.requests}

    def header(self, name):
        return {request.headers.get(name) for request in self.requests}


@dataclass
class Case:
    """A flag as typed, with ``{url}`` for the server's, and the effect that must be seen."""

    typed: list[str]
    holds: Callable[[Seen], bool]
    server: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    env_id: str = "arithmetic"


def saved(flag, value):
    """A flag that is in the configuration of the run."""
    name = flag.removeprefix("--").replace("-", "_")
    return Case([flag, str(value)], lambda seen: seen.config[name] == value)


def four(seen):
    return len(seen.results) == 4


SLOW = {"faults": Faults(latency_ms=50)}
REGISTRY = """\
[[endpoint]]
endpoint_id = "named"
model = "the-model"
url = "{url}"
key = "NO_KEY"
headers = {{ X-Team = "$TEAM" }}
prices = {{ input = 1000.0, output = 0.0 }}

[[endpoint]]
endpoint_id = "named"
extends = "other"

[[endpoint]]
endpoint_id = "other"
model = "the-model"
url = "{other}"
key = "NO_KEY"
prices = {{ input = 1000.0, output = 0.0 }}
"""
REPLICAS = '[{"base_url": "{url}", "api_key_var": "A"}, {"base_url": "{other}", "api_key_var": "B"}]'


def hosts(seen):
    return {host.partition(":")[0] for host in seen.header("Host")}


def costs(seen):
    [(tokens_in, tokens_out, cost)] = seen.nightjar.sql("SELECT input_tokens, output_tokens, cost FROM runs")
    return tokens_in, tokens_out, cost


CASES = {
    "--model": Case(["-m", "other"], lambda seen: seen.sent("model") == {'"other"'}),
    "--provider": Case(["-p", "vllm"], lambda seen: seen.config["api_key_var"] == "VLLM_API_KEY"),
    "--api-base-url": Case(["-b", "{url}"], lambda seen: seen.config["base_url"].endswith("/v1")),
    "--api-key-var": Case(
        ["-k", "MY_KEY"],
        lambda seen: seen.config["api_key_var"] == "MY_KEY",
        server={"require_key": "sk-mine-0123456789"},
        variables={"MY_KEY": "sk-mine-0123456789"},
    ),
    "--api-client-type": Case(
        ["--api-client-type", "openai_responses"],
        lambda seen: {request.path for request in seen.requests} == {"/v1/responses"},
    ),
    "--header": Case(
        ["--header", "X-Team: $TEAM", "--header", "X-Site: north"],
        lambda seen: (seen.header("X-Team"), seen.header("X-Site")) == ({"planted-0123456789"}, {"north"}),
    ),
    "--header-from-state": Case(
        ["--header-from-state", "X-Session-ID: example_id"],
        lambda seen: seen.header("X-Session-ID") == {"0", "1", "2", "3"},
    ),
    "--replicas": Case(["--replicas", REPLICAS], lambda seen: hosts(seen) == {"127.0.0.1", "localhost"}),
    "--middleware": Case(
        ["--middleware", '[{"use": "payload", "set": {"top_k": 5}}, {"use": "log"}]'],
        lambda seen: seen.sent("top_k") == {"5"} and (seen.run.path / "requests.jsonl").read_bytes().count(b"\n") == 4,
    ),
    "--endpoints-path": Case(
        ["-e", "endpoints.toml", "-m", "named"],
        lambda seen: seen.sent("model") == {'"the-model"'} and hosts(seen) == {"127.0.0.1", "localhost"}
        and seen.header("X-Team") == {"planted-0123456789", None} and costs(seen)[2] is not None,
    ),
    "--input-price": Case(
        ["--input-price", "1000"], lambda seen: costs(seen)[2] == pytest.approx(costs(seen)[0] / 1000)),
    "--output-price": Case(
        ["--output-price", "1000"], lambda seen: costs(seen)[2] == pytest.approx(costs(seen)[1] / 1000)),
    "--max-tokens": Case(
        ["-t", "99"], lambda seen: seen.sent("max_tokens") | seen.sent("max_completion_tokens") == {"99", "null"}),
    "--temperature": Case(["-T", "0.5"], lambda seen: seen.sent("temperature") == {"0.5"}),
    "--seed": Case(
        ["--seed", "1", "-r", "4"],
        lambda seen: sorted(request.body["seed"] for request in seen.requests) == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4,
    ),
    "--sampling-args": Case(["-S", '{"top_p": 0.9}'], lambda seen: seen.sent("top_p") == {"0.9"}),
    "--env-args": Case(["-a", '{"largest": 9}'], lambda seen: seen.run.metadata["env_args"] == {"largest": 9}),
    "--extra-env-kwargs": Case(
        ["-x", '{"system_prompt": "Be brief."}'],
        lambda seen: {request.body["messages"][0]["content"] for request in seen.requests} == {"Be brief."},
    ),
    "--timeout": Case(
        ["--timeout", "1"],
        lambda seen: {row["stop_condition"] for row in seen.results} == {"timeout_reached"},
        server={"faults": Faults(latency_ms=20_000)},
    ),
    "--env-dir-path": Case(["--env-dir-path", "elsewhere"], four, env_id="my-quiz"),
    "--num-examples": Case(["-n", "2"], four),
    "--rollouts-per-example": Case(["-r", "3"], lambda seen: len(seen.results) == 12),
    "--shuffle": Case(["--shuffle"], lambda seen: {row["example_id"] for row in seen.results} != {0, 1, 2, 3}),
    "--shuffle-seed": Case(
        ["--shuffle-seed", "3"], lambda seen: {row["example_id"] for row in seen.results} != {0, 1, 2, 3}),
    "--max-concurrent": Case(["-c", "1"], lambda seen: seen.stats.peak_in_flight == 1, server=SLOW),
    "--max-concurrent-generation": Case(
        ["--max-concurrent-generation", "1"], lambda seen: seen.stats.peak_in_flight == 1, server=SLOW),
    "--tolerated-failures": Case(
        ["--tolerated-failures", "1.0", "-m", "wrong"],
        lambda seen: (seen.run.metadata["status"], seen.run.metadata["scored"]) == ("completed", 0),
        server={"only_model": "right"},
    ),
    **{flag: saved(flag, 1) for flag in (
        "--max-concurrent-scoring", "--max-retries", "--max-shards", "--max-sandboxes")},
    **{flag: saved(flag, 9) for flag in ("--timeout-minutes", "--request-timeout", "--scoring-timeout")},
    "--no-interleave-scoring": Case(["-N"], lambda seen: seen.config["interleave_scoring"] is False),
    "--independent-scoring": Case(["-i"], lambda seen: seen.config["independent_scoring"] is True),
    "--tag": Case(
        ["--tag", "a", "--tag", "b"], lambda seen: seen.nightjar.sql("SELECT tags FROM runs") == [(["a", "b"],)]),
    "--suite": Case(["--suite", "s"], lambda seen: seen.nightjar.sql("SELECT suite FROM runs") == [("s",)]),
    "--name": Case(
        ["--name", "cold"], lambda seen: seen.nightjar.sql("SELECT config ->> 'name' FROM runs") == [("cold",)]),
    "--state-columns": Case(["-C", "trajectory_id"], lambda seen: all(row["trajectory_id"] for row in seen.results)),
    "--save-results": Case(["-s"], four), "--disable-env-server": Case(["--disable-env-server"], four),
    "--num-workers": Case(["-w", "auto"], four),
    "--output-dir": Case(["-o", "there"], lambda seen: "there" in seen.run.path.parts),
    "--warehouse": Case(["--warehouse", "house"], lambda seen: (seen.nightjar.folder / "house").is_dir()),
    "--json": Case(["--json"], lambda seen: json.loads(seen.ended.stdout)["scored"] == 4),
    "--verbose": Case(["-v"], lambda seen: "Loading environment" in seen.ended.stderr),
    "--abbreviated-summary": Case(["-A"], lambda seen: len(seen.ended.stdout.splitlines()) == 4),
    "--system-prompt": Case(
        ["--system-prompt", "Be brief."],
        lambda seen: {request.body["messages"][0]["content"] for request in seen.requests} == {"Be brief."},
    ),
    "--no-progress": Case(["--no-progress"], lambda seen: "rollouts, run" not in seen.ended.stderr),
    "--direct": Case(["--direct"], lambda seen: seen.run.metadata["flow_run_id"] is None),
}  # fmt: skip
APART = [
    [
        "--provider", "--extra-env-kwargs", "--shuffle-seed", "--independent-scoring", "--output-price", "--output-dir",
        "--abbreviated-summary", "--env-dir-path",
    ],
    ["--api-base-url", "--api-client-type", "--shuffle", "--warehouse"], ["--replicas"], ["--endpoints-path"],
    ["--timeout"], ["--seed", "--max-concurrent"], ["--rollouts-per-example", "--max-concurrent-generation"],
    ["--tolerated-failures"],
]  # fmt: skip
TOGETHER = [[flag for flag in CASES if not any(flag in flags for flags in APART)], *APART]
"""The flags of each command."""
ELSEWHERE = {
    "durability/test_nemo_command.py": "--bench --adapter --repeats --max-problems --model-url --model-id --api-key "
    "--override",
    "durability/test_interrupted.py": "--resume", "durability/test_suites.py": "--dry-run --heartbeat-url",
    "core/test_live_view.py": "--tui --debug",
    "durability/test_failing_requests.py": "--request-retries --wait-for-endpoint",
    "durability/test_budgets.py": "--max-total-tokens --max-cost-usd", "durability/test_cache.py": "--cache",
    "durability/test_parts.py": "--part", "durability/test_hub.py": "--save-to-hf-hub --hf-hub-dataset-name",
    "processes/test_env_commands.py": "--env-source", "flows/test_stopped_runs.py": "--prefect",
    "flows/test_suites_as_flows.py": "--prefect-url", "flows/test_sent_environments.py": "--hosted",
    "flows/test_parts_of_runs.py": "--shards",
    "flows/test_hosted_runs.py": "--follow --poll-interval --allow-sandbox-access --allow-instances-access "
    "--custom-secrets --eval-name --deployment",
}  # fmt: skip
"""The tests of flags that need more than a model."""


@pytest.mark.long
@pytest.mark.parametrize("flags", TOGETHER, ids=lambda flags: flags[0])
def test_flags_do_what_they_say_before_and_after_a_resume(nightjar, serve, flags):
    cases = {flag: CASES[flag] for flag in flags}
    settings, variables = {}, {"TEAM": "planted-0123456789"}
    for case in cases.values():
        settings |= case.server
        variables |= case.variables
    server = serve(keep_requests=200, **settings)
    other = server.url.replace("127.0.0.1", "localhost")
    (nightjar.folder / "endpoints.toml").write_text(REGISTRY.format(url=server.url, other=other))
    (nightjar.folder / "elsewhere").mkdir()
    source = "from nightjar.benchmarks.arithmetic import load_environment\n"
    (nightjar.folder / "elsewhere" / "my_quiz.py").write_text(source)
    words = [word for case in cases.values() for word in case.typed]
    typed = [word.replace("{url}", server.url).replace("{other}", other) for word in words]
    endpoint = [] if "--endpoints-path" in flags else ["-b", server.url]
    env_id = next((case.env_id for case in cases.values() if case.env_id != "arithmetic"), "arithmetic")
    command = [env_id, "-m", "local", *endpoint, "-r", "1", "-n", "2", *typed]

    assert nightjar.start("eval", "run", *command, "--direct", **variables).wait().code == 0
    ended = nightjar.start("eval", "run", *command, "-n", "4", "--resume", "--direct", **variables).wait().ok()

    run, requests = nightjar.run, server.requests
    config = json.loads((run.path / "config.json").read_text())
    about = {"requests": requests, "stats": server.stats(), "run": run, "results": run.results, "config": config}
    seen = Seen(nightjar=nightjar, ended=ended, **about)
    without_effect = [flag for flag, case in cases.items() if not case.holds(seen)]
    assert without_effect == [], (seen.requests, seen.config, ended.stdout, ended.stderr)
    assert len(server.requests) == sum(row["attempts"] for row in seen.results), "no request is repeated"
    written = b"".join(path.read_bytes() for path in nightjar.folder.rglob("*") if path.is_file())
    assert b"planted-0123456789" not in written
    assert b"sk-mine-0123456789" not in written


def test_every_flag_is_in_the_tables_and_the_others_are_tested_elsewhere():
    alone = typer.Typer(add_completion=False)
    alone.command()(eval_run)
    long = [[flag for flag in option.opts if flag.startswith("--")] for option in get_command(alone).params]
    elsewhere = {flag: file for file, flags in ELSEWHERE.items() for flag in flags.split()}
    assert {flags[0] for flags in long if flags} - elsewhere.keys() == CASES.keys()
    assert [flag for flag, file in elsewhere.items() if flag not in (TESTS / file).read_text()] == []
