"""Commands on runs that a worker does, from another folder: ``eval run --hosted``, ``eval logs``, ``eval stop``."""

import json
import os
import re
import signal
import time
from collections import Counter

import pytest
from waiting import until

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (\w+) +\| (.*)")
SECRET, OWN = "planted-custom-77291", "planted-block-55180"
ENVIRONMENT = """import asyncio
import logging
import os
import time
import nightjar as vf
from nightjar.sandboxes import CreateSandboxRequest, SandboxClient

logger = logging.getLogger("nightjar.chatty")


def load_environment(kind: str = "", lines: int = 0) -> vf.Environment:
    begun = time.monotonic()
    for number in range(lines):
        logger.info("chat %d", number)
        time.sleep(max(0, number / 1000 - (time.monotonic() - begun)))

    async def graded(completion) -> float:
        if kind == "raises":
            raise ValueError("the rubric is wrong")
        if kind == "secrets":
            logger.warning("secrets: %s", os.environ.get("FIRST"))
            print("printed:", os.environ["FIRST"])
            return float(len(os.environ["FIRST"] + os.environ["SECOND"] + os.environ["THIRD"]))
        if kind == "slow":
            await asyncio.sleep(600)
        if kind == "sandbox":
            client = SandboxClient("local")
            sandbox = await client.create(CreateSandboxRequest(name="test"))
            await client.execute_command(sandbox.id, "true", timeout=30)
            await client.delete(sandbox.id)
        return 1.0

    data = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}]
    return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[graded]))
"""


class Typed:
    """The command line in a folder that is not the worker's, and a model."""

    def __init__(self, services, folder, server):
        self.services, self.folder, self.server = services, folder, server
        (folder / "environments").mkdir()
        (folder / "environments/hosted_env.py").write_text(ENVIRONMENT)

    def __call__(self, *words, code=0):
        ended = self.services.run(*words, folder=self.folder)
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        return ended

    def command(self, kind="", *words, **arguments):
        size = ["-m", "hosted", "-b", self.server.url, "-n", "2", "-r", "1"]
        return ["eval", "run", "hosted-env", *size, "-a", json.dumps({"kind": kind, **arguments}), "--hosted", *words]

    def submit(self, kind="", *words, **arguments):
        return json.loads(self(*self.command(kind, *words, "--json", **arguments)).stdout)

    def begin_to_follow(self, kind="", *words, **arguments):
        command = self.command(kind, *words, "--follow", "--poll-interval", "0.5", **arguments)
        return self.services.begin(*command, folder=self.folder)

    def listed(self, *words):
        return json.loads(self("eval", "list", "--json", "-n", "500", *words).stdout)

    def on_server(self, flow_run_id):
        """Returns the messages that the server has of a run."""
        chosen = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "sort": "TIMESTAMP_ASC"}
        found = []
        while page := self.services.call("POST", "/logs/filter", {**chosen, "offset": len(found)}):
            found += [line["message"] for line in page]
        return found


@pytest.fixture
def typed(services, own_folder):
    with ModelServer(ArithmeticSolver()) as server:
        yield Typed(services, own_folder, server)


def flow_run_of(said):
    return re.search(r"flow run ([0-9a-f-]{36})", said)[1]


LINES = 1_000


def test_following_shows_every_line_once_and_results_are_shown_in_another_folder(typed):
    """The run is permitted to create sandboxes, and does."""
    named = ("--eval-name", "my own name", "--allow-sandbox-access")
    following = typed.begin_to_follow("sandbox", *named, lines=LINES)  # which it writes in a second
    shown, said = following.communicate(timeout=120)
    assert following.returncode == 0, said
    shown = shown.splitlines()
    flow_run_id = flow_run_of(said)
    run_id = flow_run_id[-12:]
    time.sleep(2)  # what came after the end would be there by now
    on_server = typed.on_server(flow_run_id)
    messages = "\n".join(re.sub(LINE, r"\2", line) for line in shown)
    assert Counter(messages.splitlines()) == Counter("\n".join(on_server).splitlines())
    assert [line for line in on_server if line.startswith("chat ")] == [f"chat {number}" for number in range(LINES)]
    assert f"COMPLETED: run {run_id}, my own name\n" in said
    tail = typed("eval", "logs", "my own name", "--tail", "3").stdout.splitlines()
    assert [LINE.fullmatch(line)[2] for line in tail] == on_server[-3:]
    [first, *_] = typed("eval", "logs", flow_run_id[-12:-4], "-f", "-n", "2", "--json").stdout.splitlines()
    assert json.loads(first)["message"] == on_server[-2]

    assert json.loads(typed("eval", "get", run_id, "--json").stdout)["scored"] == 2
    assert [row["reward"] for row in json.loads(typed("eval", "samples", run_id, "--json").stdout)] == [1.0, 1.0]
    assert "| Scored | 2 of 2 rollouts, 2 examples |" in typed("eval", "report", run_id).stdout
    [listed] = [run for run in typed.listed() if run["flow_run_id"] == flow_run_id]
    assert listed["avg_reward"] == 1.0
    typed.services.call("PATCH", f"/flow_runs/{flow_run_id}/labels", {"nightjar/folder": "far:/srv/team"})
    for command in ("samples", "report"):
        said = typed("eval", command, run_id, code=1).stderr
        assert said.startswith(f"Error: The results of run {run_id} cannot be read here: its warehouse is ")
        assert "/srv/team/outputs/warehouse on machine far. Run the command there" in said
        assert said.count("\n") == 1
    assert "on machine far. Run the command there" in typed("eval", "get", run_id).stderr


FAILURES = {
    "raises": ("FAILED", "environment code", "ScoringError -> ValueError"),
    "sandbox": ("FAILED", "permission", "--allow-sandbox-access"),
    "slow": ("TIMEOUT", "timeout", "timeout_minutes"),
}
"""The state, the class and the reason of failures, for kinds of the environment."""


def test_failures_and_a_time_limit_show_their_class_and_advice(typed):
    limits = {"slow": ("--timeout-minutes", "0.05")}
    following = {kind: typed.begin_to_follow(kind, *limits.get(kind, ())) for kind in FAILURES}
    for kind, (state, expected, reason) in FAILURES.items():
        _, said = following[kind].communicate(timeout=120)
        assert following[kind].returncode == 1
        assert said.count(f"What to do ({expected}): ") == 1, said
        assert reason in said
        assert f"{state}: run " in said
        flow_run_id = flow_run_of(said)
        assert f"What to do ({expected}): " in typed.services.flow_run(flow_run_id)["state"]["message"]
        got = typed("eval", "get", flow_run_id[-12:]).stdout  # from a folder that has nothing of it
        for told in (f"Failure:     {expected}\n", reason, f"What to do ({expected}): ", "Last lines", "hosted-env"):
            assert told in got
        assert typed.services.run("eval", "get", flow_run_id).returncode == 0  # from the one that has
        [listed] = [run for run in typed.listed() if run["flow_run_id"] == flow_run_id]
        assert (listed["type"], listed["state"], listed["env_id"]) == ("HOSTED", state, "hosted-env")


def test_ctrl_c_ends_following_and_eval_stop_ends_the_run(services, own_folder):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=30_000)) as server:
        typed = Typed(services, own_folder, server)
        following = services.begin(*typed.command("", "--follow", "--poll-interval", "0.2"), folder=own_folder)
        for line in following.stdout:
            if "Run " in line:
                break
        following.send_signal(signal.SIGINT)
        _, said = following.communicate(timeout=60)
        assert following.returncode == 130
        [(run_id, stop)] = re.findall(r"nightjar eval logs (\w+) -f \| nightjar (eval stop \w+)", said)
        flow_run_id = flow_run_of(said)
        assert services.flow_run(flow_run_id)["state_type"] == "RUNNING"
        assert f"Cancelled: run {run_id}" in typed(*stop.split()).stdout
        assert services.flow_run(flow_run_id)["state_type"] == "CANCELLED"
        assert typed(*stop.split()).stdout == f"Run {run_id} has ended already: CANCELLED.\n"


def test_a_killed_process_is_a_failure_of_the_infrastructure(services, own_folder):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=30_000)) as server:
        typed = Typed(services, own_folder, server)
        submitted = typed.submit()
        until(lambda: server.stats().in_flight)
        os.kill(services.process_of(submitted["flow_run_id"]), signal.SIGKILL)
        ended = typed("eval", "logs", submitted["run_id"], "-f", "--poll-interval", "0.5", code=1)
    assert "FAILED: run " in ended.stderr
    assert "What to do (infrastructure): " in ended.stderr


def custom_secrets(services):
    chosen = {"block_documents": {"is_anonymous": {"eq_": True}}}
    chosen["block_types"] = {"slug": {"any_": ["nightjar-environment-secrets"]}}
    return services.call("POST", "/block_documents/filter", chosen)


def test_custom_secrets_override_other_secrets_and_are_removed(typed):
    services, own = typed.services, {"values": {"FIRST": OWN, "SECOND": OWN}}
    services.save_block("for-hosted", "nightjar-environment-secrets", own)
    deployment = services.call("GET", "/deployments/name/evaluate/evaluate")
    services.call("PATCH", f"/deployments/{deployment['id']}", {"parameters": {"secrets": "for-hosted"}})
    try:
        submitted = typed.submit("secrets", "--custom-secrets", json.dumps({"FIRST": SECRET, "THIRD": SECRET}))
        assert services.end_of(submitted["flow_run_id"]) == "COMPLETED"
    finally:
        services.call("PATCH", f"/deployments/{deployment['id']}", {"parameters": {}})
    assert custom_secrets(services) == []
    rewards = typed.services.run("eval", "get", submitted["run_id"], "--json")
    assert json.loads(rewards.stdout)["avg_reward"] == 2 * len(SECRET) + len(OWN)
    assert "secrets: [secret]" in " ".join(typed.on_server(submitted["flow_run_id"]))
    assert "printed: [secret]" in (services.folder / "home/worker.log").read_text()
    places = [path for path in services.folder.rglob("*") if path.is_file() and "venv" not in path.parts]
    assert [path for path in places if SECRET.encode() in path.read_bytes()] == []
    services.retry(submitted["flow_run_id"])
    assert services.end_of(submitted["flow_run_id"]) == "FAILED"
    message = services.flow_run(submitted["flow_run_id"])["state"]["message"]
    assert "(--custom-secrets) are gone" in message
    assert "What to do (secret missing): " in message


def test_stopping_a_pending_run_removes_its_custom_secrets(typed):
    services = typed.services
    pool = "/work_pools/nightjar"
    services.call("PATCH", pool, {"is_paused": True})
    try:
        submitted = typed.submit("", "--custom-secrets", json.dumps({"FIRST": SECRET}))
        assert len(custom_secrets(services)) == 1
        assert "PENDING" in typed("eval", "logs", submitted["run_id"]).stderr
        assert submitted["run_id"] in [run["run_id"] for run in typed.listed("--status", "pending")]
        assert "PENDING" in typed("eval", "get", submitted["run_id"]).stdout
        assert "Cancelled: run " in typed("eval", "stop", submitted["flow_run_id"]).stdout
        assert custom_secrets(services) == []
    finally:
        services.call("PATCH", pool, {"is_paused": False})


def test_a_suite_becomes_a_run_per_evaluation_and_flags_override_its_file(typed):
    (typed.folder / "two.toml").write_text(
        f'model = "in-file"\nbase_url = "{typed.server.url}"\nnum_examples = 2\nrollouts_per_example = 1\n'
        '[[eval]]\nenv_id = "hosted-env"\n[[eval]]\nenv_id = "arithmetic"\n'
    )
    ended = typed("eval", "run", "two.toml", "--hosted", "-m", "typed", "--eval-name", "both", "--json")
    submitted = json.loads(ended.stdout)
    assert [each["name"] for each in submitted] == ["both | hosted-env", "both | arithmetic"]
    services = typed.services
    for each in submitted:
        assert services.end_of(each["flow_run_id"]) == "COMPLETED"
        flow_run = services.flow_run(each["flow_run_id"])
        assert (flow_run["parameters"]["model"], flow_run["parameters"]["timeout_minutes"]) == ("typed", 120)
    first, second = (run["flow_run_id"] for run in typed.listed()[:2])
    assert {first, second} == {each["flow_run_id"] for each in submitted}
    assert [run["flow_run_id"] for run in typed.listed("-n", "1", "-p", "2")] == [second]
    [run, _] = json.loads(services.run("eval", "list", "--json", "-n", "2").stdout)
    assert (run["type"], run["state"], run["status"], run["scored"]) == ("HOSTED", "COMPLETED", "completed", 2)
    asked = ("-b", typed.server.url, "-n", "1", "-r", "1", "--json")
    own = services.run("eval", "run", "arithmetic", "-m", "own", *asked)
    [run, *_] = json.loads(services.run("eval", "list", "--json", "-m", "own").stdout)
    assert (run["run_id"], run["type"], run["state"]) == (json.loads(own.stdout)["run_id"], "LOCAL", "COMPLETED")


def test_wrong_flags_and_an_unknown_run_are_refused(typed):
    run = ("eval", "run", "arithmetic")
    for words, code, said in (
        ((*run, "--follow", "--eval-name", "x"), 2, "--follow, --eval-name: only for a hosted run: add --hosted"),
        ((*run, "--hosted", "--resume"), 2, "--resume: not for a hosted run"),
        ((*run, "--hosted", "--custom-secrets", '{"A": 1}'), 2, "expected a JSON object of strings"),
        ((*run, "--hosted", "--timeout-minutes", "1441"), 2, "a hosted run takes at most 1440 (24 hours)"),
        ((*run, "--hosted", "--allow-instances-access"), 1, "none of them can create instances"),
        ((*run, "--hosted", "--deployment", "evaluate/no-such"), 1, "There is no deployment 'evaluate/no-such'"),
        ((*run, "--shards", "3"), 2, "--shards: only for a hosted run: add --hosted"),
        ((*run, "--hosted", "--shards", "3", "-n", "2"), 2, "3 parts need at least as many examples (found 2)"),
        ((*run, "--hosted", "--shards", "3", "-n", "4", "-H"), 2, "parts are not pushed"),
        (("eval", "logs", "nobody"), 1, "knows no run 'nobody'"),
        (("eval", "stop", "nobody"), 1, "knows no run 'nobody'"),
    ):
        ended = typed(*words, code=code)
        assert said in ended.stderr
        assert ended.stdout == ""
