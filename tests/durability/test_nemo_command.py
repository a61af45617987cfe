"""``nightjar eval run`` with the flags, variables and configs of NeMo Evaluator, and the files that it writes."""

import json
import shutil
import subprocess

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

FILES = {"results.jsonl", "trajectories.jsonl", "runtime_stats.json", "failure_analysis.json"}


def names_in(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_its_flags_give_the_same_run_as_nightjars_and_a_folder_for_results_a_complete_bundle(nightjar, serve):
    server = serve(keep_requests=50)
    sampling = ["--temperature", "0.5", "--max-tokens", "64", "--shuffle-seed", "7", "-o", "there", "--direct"]
    theirs = ["--bench", "arithmetic", "--repeats", "2", "--max-problems", "3", "--model-id", "local"]
    theirs += ["--model-url", f"{server.url}/chat/completions", "--system-prompt", "Add.", "--no-progress", *sampling]
    first = nightjar.start("eval", "run", *theirs).wait().ok()
    assert "rollouts, run" not in first.stderr
    own = ["-m", "local", "-r", "2", "-n", "3", "-x", '{"system_prompt": "Add."}', "-b", server.url, *sampling]
    nightjar.start("eval", "run", "arithmetic", *own, "--resume").wait().ok()
    assert len(server.requests) == len(nightjar.run.results) == 6, "the second command resumes the run"
    assert {request.body["messages"][0]["content"] for request in server.requests} == {"Add."}
    run_id, folder = nightjar.run.path.name, nightjar.folder / "there" / "arithmetic"
    path = folder / f"eval-{run_id}-arithmetic.json"
    nightjar.start("eval", "run", *theirs, "--resume").wait().ok()
    assert (names_in(folder), len(server.requests)) == ({path.name, *FILES}, 6)
    reported = nightjar.start("eval", "report", "there", "-f", "json").wait()
    assert len(json.loads(reported.stdout)["runs"]) == 1, "the run and its bundle are one run"

    bundle = json.loads(path.read_text())
    assert bundle["config"] == {
        "benchmark": "arithmetic", "model": "local", "base_url": server.url, "repeats": 2, "max_problems": 3,
        "shuffle_seed": 7, "temperature": 0.5, "max_tokens": 64, "system_prompt": "Add.",
        "api_client_type": "openai_chat_completions",
    }  # fmt: skip
    scores = bundle["benchmark"]["scores"]
    assert scores["coverage"]["total"] == 6
    assert scores["summary"] == {"n": 6, "mean": 1.0, "median": 1.0, "std": 0.0, "min": 1.0, "max": 1.0}
    assert scores["runtime"] == json.loads((folder / "runtime_stats.json").read_text())
    assert scores["failures"] == {"total_steps": 6, "total_failures": 0, "failure_rate": 0.0, "categories": {}}
    extracted = [(group["n"], group["mean_reward"]) for group in scores["breakdowns"]["extracted"]]
    assert (sum(n for n, _ in extracted), {mean for _, mean in extracted}) == (6, {1.0})
    row = json.loads((folder / "results.jsonl").read_text().splitlines()[0])
    assert (row["metadata"]["source"], row["metadata"]["benchmark"]) == ("nightjar", "arithmetic")
    assert row["scoring_details"]["extracted"] == row["extracted_answer"] == row["expected_answer"]
    assert row["scoring_details"]["method"] in row["scoring_details"], "the reward function"
    [document] = row["trajectory"]
    steps = [(step["step_id"], step["source"]) for step in document["steps"]]
    assert steps == [(1, "system"), (2, "user"), (3, "agent")]
    counts = document["steps"][2]["metrics"]
    assert document["final_metrics"] == {"total_steps": 3} | {f"total_{name}": count for name, count in counts.items()}
    assert sum(counts.values()) == row["tokens"]

    (nightjar.folder / "wrong.py").write_text("def wrong(answer):\n    return float(len(answer) > 99)\n")
    nightjar.start("eval", "rescore", run_id, "--rubric", "wrong.py:wrong", "-o", "again").wait().ok()
    assert names_in(nightjar.folder / "again" / "arithmetic") >= FILES
    found = nightjar.json("compare", "there/arithmetic", "again/arithmetic")
    assert (found["pairs"], found["difference"]["mean"]) == (3, -1.0)


def test_its_variables_apply_to_environments_given_by_its_flags(nightjar, serve):
    server = serve(keep_requests=50, require_key="sk-mine-0123456789")
    said = {"NEMO_MODEL_URL": server.url, "NEMO_MODEL_ID": "mine", "NVIDIA_API_KEY": "sk-mine-0123456789"}
    nightjar.write_environment("sums", "from nightjar.benchmarks.arithmetic import load_environment\n")
    typed = ["--bench", "arithmetic", "--bench", "sums", "--repeats", "1", "--max-problems", "1"]
    assert nightjar.start("eval", "run", *typed, "--direct", "-o", "there", **said).wait().code == 0
    assert {request.body["model"] for request in server.requests} == {"mine"}
    assert {run.metadata["env_id"] for run in nightjar.runs} == {"arithmetic", "sums"}
    assert names_in(nightjar.folder / "there" / "sums") >= FILES
    written = b"".join(path.read_bytes() for path in nightjar.folder.rglob("*") if path.is_file())
    assert b"sk-mine" not in written
    elsewhere = nightjar.start("eval", "run", "arithmetic", "--dry-run", "--json", **said).wait()
    base_url = json.loads(elsewhere.stdout)["config"]["base_url"]
    assert base_url != server.url, "the variables do not apply to Nightjar's own flags"


def test_commas_in_a_uri_do_not_separate_environments(nightjar):
    for typed, named in (
        (["arithmetic,lm-eval://sums?metric=a,tasks"], ["arithmetic", "lm-eval://sums?metric=a,tasks"]),
        (["--bench", "lm-eval://a?metric=b,c", "--bench", "gsm8k"], ["lm-eval://a?metric=b,c", "gsm8k"]),
        (["--adapter", "gym://cmd:serve a,b"], ["gym://cmd:serve a,b"]),
    ):
        ended = nightjar.start("eval", "run", *typed, "--hosted", "-m", "m", "--dry-run", "--json").wait()
        assert [each for each in named if json.dumps(each) not in ended.stdout] == [], ended.stderr


CONFLICTS = [
    (["--bench", "arithmetic"], ["ENV", "--bench"]), (["--bench", "a", "--adapter", "gym://h:1"], ["--bench"]),
    (["--repeats", "2", "-r", "3"], ["-r", "--repeats"]), (["--max-problems", "2", "-n", "3"], ["--max-problems"]),
    (["--model-url", "http://h/v1", "-b", "http://h/v1"], ["-b", "--model-url"]),
    (["--model-id", "a", "-m", "b"], ["-m", "--model-id"]), (["--no-progress", "--tui"], ["--no-progress"]),
    (["--system-prompt", "a", "-x", '{"system_prompt": "b"}'], ["-x", "--system-prompt"]),
    (["--override", "a=b"], ["--override"]), (["--api-key", "sk-planted-0123"], ["key", "list of processes"]),
]  # fmt: skip


def test_conflicting_and_unsafe_flags_are_wrong_usage(nightjar):
    for typed, named in CONFLICTS:
        ended = nightjar.start("eval", "run", "arithmetic", *typed).wait()
        message = " ".join(ended.stderr.split())
        assert (ended.code, [word for word in named if word not in message]) == (2, []), typed
        assert "sk-planted" not in message
    ended = nightjar.start("eval", "run", "tasks", "-m", "m", "--direct").wait()
    assert "'tasks' is not installed" in ended.error, "a module of Nightjar is not an environment"


CONFIG = """\
services:
  model: {{type: api, url: "{url}/chat/completions", protocol: chat_completions, model: m, api_key: "${{MY_KEY}}"}}
benchmarks:
  - name: arithmetic
    repeats: 2
    max_problems: 3
    solver: {{type: simple, service: model}}
  - name: gsm8k
    params: {{dataset: none.jsonl}}
    solver: {{type: simple, service: model}}
  - name: arithmetic
    max_problems: 2
    solver: {{type: simple, service: model, system_prompt: Be brief.}}
output: {{dir: there}}
"""


def test_a_config_is_a_suite_that_continues_after_a_failed_benchmark(nightjar, serve):
    server = serve(keep_requests=50, require_key="sk-mine-0123456789")
    (nightjar.folder / "release.yaml").write_text(CONFIG.format(url=server.url))

    def run(*typed):
        typed = ("release.yaml", "--direct", *typed)
        return nightjar.start("eval", "run", *typed, MY_KEY="sk-mine-0123456789", EDITION="5").wait()

    first = run("--json", "--no-progress", "-O", "benchmarks.2.max_problems=4")
    assert first.code == 1, first.stderr
    assert {each["name"]: each["status"] for each in json.loads(first.stdout)} == {
        "arithmetic": "completed", "gsm8k": "not started", "arithmetic-2": "completed",
    }  # fmt: skip
    assert len(server.requests) == 10
    folder = nightjar.folder / "there"
    assert names_in(folder / "arithmetic-2") >= FILES
    snapshot = (folder / "full_config.yaml").read_text()
    assert "max_problems: 4" in snapshot
    assert "${MY_KEY}" in snapshot
    assert sorted(nightjar.sql("SELECT suite, config ->> 'name' FROM runs"), key=str) == [
        ("release", "arithmetic-2"), ("release", None),
    ]  # fmt: skip
    written = b"".join(path.read_bytes() for path in nightjar.folder.rglob("*") if path.is_file())
    assert b"sk-mine" not in written

    (nightjar.folder / "none.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    second = run("--resume", "-O", "benchmarks.2.max_problems=4")
    assert second.code == 0, second.stderr
    assert len(server.requests) == 11, "only the remaining rollout is requested"
    folders = {path.name for path in folder.iterdir()}
    assert folders == {"arithmetic", "arithmetic-2", "evals", "full_config.yaml", "gsm8k"}
    for change in ("services.model.generation.temperature=0.5", "services.model.model=n"):
        assert run("--resume", "-O", change).code == 0
    bodies = [request.body for request in server.requests][11:]
    assert len(bodies) == 2 * (3 * 2 + 1 + 2), "a changed config gives no old scores"
    assert ({body["temperature"] for body in bodies[:9]}, {body["model"] for body in bodies[9:]}) == ({0.5}, {"n"})


def test_a_flag_overrides_the_value_of_a_config_and_a_benchmark_beside_it_is_refused(nightjar):
    (nightjar.folder / "release.yaml").write_text(CONFIG.format(url="http://127.0.0.1:1/v1"))
    planned = nightjar.json("eval", "run", "release.yaml", "--repeats", "4", "--dry-run")
    assert {run["config"]["rollouts_per_example"] for run in planned} == {4}
    ended = nightjar.start("eval", "run", "release.yaml", "--bench", "arithmetic").wait()
    assert (ended.code, "ENV and --bench" in ended.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("nel") is None, reason="needs nel, the program of NeMo Evaluator 0.4, on the path")
def test_nemo_evaluator_reads_the_files_without_warnings(nightjar, serve):
    server, failing = serve(), serve(faults=Faults(rate_500=0.2, seed=1))
    for name, url in (("before", server.url), ("after", failing.url)):
        typed = ["eval", "run", "arithmetic", "-m", "local", "-b", url, "-n", "20", "-r", "2", "--max-retries", "0"]
        nightjar.start(*typed, "--request-retries", "0", "--direct", "-o", name).wait()
    (nightjar.folder / "policy.yaml").write_text(
        "version: 1\nbenchmarks: {arithmetic: {metric: mean_reward, max_drop: 0.5}}\n"
    )
    for typed, word in (
        (["eval", "report", "after"], "arithmetic"),
        (["compare", "before", "after", "--no-strict"], "VERDICT"),
        (["gate", "before", "after", "-p", "policy.yaml", "--verbose", "--no-strict"], "arithmetic"),
    ):
        ended = subprocess.run(["nel", *typed], cwd=nightjar.folder, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr, word in ended.stdout) == (0, "", True), (typed, ended)
        assert "warning" not in ended.stdout.lower()
