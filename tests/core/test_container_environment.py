"""Evaluation images, with a program in place of the container engine."""

import asyncio
import json
import os
import sys

import pytest
import yaml
from waiting import until

from nightjar.clients import ClientConfig
from nightjar.environments import load_environment
from nightjar.errors import ConfigError, DatasetError, Error, SandboxError
from nightjar.sandboxes.request import sandbox_access

pytestmark = pytest.mark.slow

SCORES = {
    "results": {
        "tasks": {
            "gsm8k": {"metrics": {"exact": {"scores": {"accuracy": {"value": 0.8125, "stats": {"count": 16}}}}}},
            "gsm8k_hard": {"metrics": {"exact": {"scores": {"accuracy": {"value": 0.25}, "note": {"value": None}}}}},
        }
    },
    "config": {"params": {"extra": {"num_repeats": 2}}},
}
ROWS = [
    {"problem_idx": 3, "problem": "1+1?", "generation": "2", "predicted_answer": "2", "is_correct": True},
    {"problem_idx": 3, "problem": "1+1?", "generation": "3", "predicted_answer": "3", "is_correct": False},
]

ENGINE = """#!{python} -IS
import json, os, pathlib, sys, time

words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps({{"words": words, "key": os.environ.get("NEMO_API_KEY")}}) + "\\n")
if words[0] == "run":
    mounts = dict(word.split(":")[1::-1] for before, word in zip(words, words[1:]) if before == "-v")
    config = pathlib.Path(mounts["/config/run_config.yaml"]).read_text()
    (here / "run_config.yaml").write_text(config)
    {does}
"""
WRITES = """
    results = pathlib.Path(mounts["/results"])
    (results / "results.yml").write_text((here / "given.yml").read_text())
    rows = results / "eval-results/gsm8k"
    rows.mkdir(parents=True)
    (rows / "output.jsonl").write_text((here / "given.jsonl").read_text())
"""


@pytest.fixture(scope="module")
def nemo():
    import nightjar.compat.nemo.environments.container  # imports jinja2 and tenacity

    return nightjar.compat.nemo


@pytest.fixture
def make_env(nemo):
    def make(key=None, **options):
        endpoint = ("http://model.example/v1", "m", *filter(None, [key]))
        return nemo.environments.container.ContainerEnvironment("simple-evals", "gsm8k", *endpoint, **options)

    return make


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Puts a program named docker where it is found; gives the function that does, which returns its folder."""

    def put(does=WRITES, name="docker"):
        program = tmp_path / name
        program.write_text(ENGINE.format(python=sys.executable, does=does.strip()))
        program.chmod(0o755)
        (tmp_path / "given.yml").write_text(yaml.safe_dump(SCORES))
        (tmp_path / "given.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        return tmp_path

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NIGHTJAR_SANDBOX", raising=False)
    return put


def calls(folder):
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


async def test_an_image_evaluates_and_writes_a_bundle(engine, tmp_path, nemo):
    folder = engine()
    env = nemo.get_environment("container://nvcr.io/eval/simple-evals:25.09#gsm8k")
    client = nemo.ModelClient("http://model.example/v1", "m", api_key="sk-secret-secret")
    bundle = await nemo.run_evaluation(env, nemo.ChatSolver(client), config={"params": {"limit_samples": 16}})
    [_, run] = calls(folder)
    assert run["key"] == "sk-secret-secret"
    assert "sk-secret" not in repr(run["words"]) + repr(bundle) + (folder / "run_config.yaml").read_text()
    assert run["words"][:3] == ["run", "--rm", "--name"]
    assert run["words"][run["words"].index("-e") + 1] == "NEMO_API_KEY"
    assert "--network" not in run["words"]
    config = yaml.safe_load((folder / "run_config.yaml").read_text())
    assert config == bundle["_run_config"]
    assert config["config"] == {"type": "gsm8k", "output_dir": "/results", "params": {"limit_samples": 16}}
    endpoint = {"url": "http://model.example/v1/chat/completions", "model_id": "m", "type": "chat"}
    assert config["target"]["api_endpoint"] == endpoint | {"api_key_name": "NEMO_API_KEY"}
    benchmark = bundle["benchmark"]
    assert (benchmark["name"], benchmark["samples"], benchmark["repeats"]) == ("container/gsm8k", 16, 2)
    scores = {name: score["value"] for name, score in benchmark["scores"].items()}
    assert scores == {"gsm8k/exact/accuracy": 0.8125, "gsm8k_hard/exact/accuracy": 0.25}
    assert [(row["problem_idx"], row["repeat"], row["reward"]) for row in bundle["_results"]] == [(3, 0, 1), (3, 1, 0)]
    nemo.write_all(bundle, tmp_path / "written")
    assert json.loads(next((tmp_path / "written").glob("eval-*.json")).read_text())["benchmark"] == benchmark


async def test_a_run_has_one_example_with_all_scores_as_metrics(engine, monkeypatch):
    folder = engine(name="podman")
    monkeypatch.setenv("MY_KEY", "sk-secret-secret")
    env = load_environment("container://simple-evals#gsm8k")
    config = ClientConfig(api_base_url="http://127.0.0.1:9/v1", api_key_var="MY_KEY")
    results = await env.evaluate(config, "m", sampling_args={"max_tokens": 64, "temperature": 0, "seed": 1})
    [output] = results["outputs"]
    assert (output["reward"], output["metrics"]["gsm8k_hard/exact/accuracy"]) == (0.8125, 0.25)
    [_, run] = calls(folder)
    assert (run["words"][4:6], run["key"]) == (["--network", "host"], "sk-secret-secret")
    sampled = yaml.safe_load((folder / "run_config.yaml").read_text())["config"]["params"]
    assert sampled == {"max_new_tokens": 64, "temperature": 0}


async def test_an_image_that_fails_is_an_error_and_a_cancelled_run_removes_the_container(engine, make_env):
    for does, match in (
        ("print('no', os.environ['NEMO_API_KEY']); sys.exit(3)", r"code 3.* no \[NEMO_API_KEY\]"),
        ("pass", "No results"),
        ("time.sleep(60)", r"0\.5 s"),
    ):
        folder = engine(does)
        limit = {"timeout": 0.5} if "sleep" in does else {}
        with pytest.raises((Error, DatasetError), match=match):
            await make_env("sk-secret", **limit).run_batch()
    assert ["rm", "--force"] in [call["words"][:2] for call in calls(folder)], "it ran out of time"
    (folder / "run_config.yaml").unlink()
    running = asyncio.create_task(make_env().run_batch())
    await asyncio.to_thread(until, (folder / "run_config.yaml").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert calls(folder)[-1]["words"][:2] == ["rm", "--force"]


async def test_without_a_container_engine_there_is_an_error(engine, tmp_path, monkeypatch, make_env):
    env = make_env()
    with pytest.raises(SandboxError, match=r"docker.*podman"):
        await env.run_batch()
    (tmp_path / "docker").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('is the daemon running?')\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("NIGHTJAR_SANDBOX", "docker")
    with pytest.raises(SandboxError, match=rf"{tmp_path}{os.sep}docker: is the daemon running\?"):
        await env.run_batch()
    with sandbox_access(is_allowed=False), pytest.raises(SandboxError, match="--allow-sandbox-access"):
        await env.run_batch()


async def test_invalid_arguments_are_errors_and_without_a_key_the_configuration_names_none(nemo):
    container = nemo.environments.container
    with pytest.raises(ConfigError, match="needs a model"):
        await container.ContainerEnvironment("simple-evals").run_batch()
    for ask in (lambda env: env.seed(0), lambda env: env.dataset_size()):
        with pytest.raises(ConfigError, match="evaluated as a whole"):
            await ask(nemo.get_environment("container://simple-evals#gsm8k"))
    for query, how, match in (
        ("?endpoint_type=vlm", {}, "'vlm'.*: chat, completions"), ("?legacy_params=1", {}, "'legacy_params'"),
        ("", {"api_key": "sk-secret"}, "'api_key'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=match):
            load_environment(f"container://simple-evals#gsm8k{query}", **how)
    limit, caching = {"limit_samples": 1}, {"use_caching": True}
    config = container.build_legacy_run_config("t", "u", "m", "completions", limit, caching)
    endpoint = {"url": "u", "model_id": "m", "type": "completions", "adapter_config": {"use_caching": True}}
    assert config["target"]["api_endpoint"] == endpoint


def test_results_in_all_formats_are_read(tmp_path, nemo):
    container = nemo.environments.container
    with pytest.raises(DatasetError, match="No results"):
        container.parse_legacy_results(tmp_path)
    (tmp_path / "results.json").write_text('{"metrics": {"acc": 0.5}, "n_samples": 8}')
    assert container.parse_legacy_results(tmp_path) == {"scores": {"acc": {"value": 0.5}}, "samples": 8, "repeats": 1}
    group = {"mmlu": {"metrics": {"m": {"scores": {"micro": {"value": 1}}}}}}
    (tmp_path / "results.yml").write_text(yaml.safe_dump({"results": {"tasks": {}, "groups": group}}))
    bundle = container.build_legacy_bundle("a/b:1", "", tmp_path)
    assert bundle["benchmark"]["scores"] == {"mmlu/m/micro": {"value": 1.0}}
    (tmp_path / "results.yml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"results\.yml.*line 1"):
        container.parse_legacy_results(tmp_path)
    (tmp_path / "results.yml").write_text('{"metrics": {"loss": 1e-05}}')
    assert container.parse_legacy_results(tmp_path)["scores"] == {"loss": {"value": 1e-05}}
