"""YAML configs of NeMo Evaluator: each key is supported or refused by its name, and a config is a suite."""

import re
from typing import Annotated, get_args, get_origin

import pytest
import yaml

from nightjar.compat.nemo.config import compose_config, default_policy, parse_eval_config
from nightjar.errors import ConfigError
from nightjar.evaluation.config.nemo.eval_config import EvalConfig
from nightjar.evaluation.config.nemo.file import NemoConfigFile
from nightjar.evaluation.config.nemo.services import Section
from nightjar.evaluation.config.suite import load_suite

PLAIN = """\
services:
  model: {type: api, url: http://127.0.0.1:1/v1/chat/completions, protocol: chat_completions, model: m}
  judge: {type: api, url: http://127.0.0.1:2/v1, protocol: chat_completions, api_key: "${JUDGE_KEY}"}
benchmarks:
  - name: arithmetic
    solver: {type: simple, service: model}
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))

    def read(text, *overrides, **files):
        for name, content in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        (tmp_path / "config.yaml").write_text(text)
        return NemoConfigFile.read(tmp_path / "config.yaml", overrides)

    return read


def run_of(file, number=0):
    return file.evaluations({})[number].config


def test_a_config_is_a_suite_with_its_defaults(read, tmp_path):
    [one] = read(PLAIN).evaluations({"tags": ["mine"]})
    config = one.config
    assert (config.env_id, config.model, config.base_url, config.suite) == (
        "arithmetic", "m", "http://127.0.0.1:1/v1", "config",
    )  # fmt: skip
    assert (config.num_examples, config.rollouts_per_example, config.shuffle_seed) == (-1, 1, 42)
    assert (config.timeout, config.max_retries, config.tags) == (1800, 2, ["mine"])
    assert (one.sources["model"], one.sources["timeout"], one.sources["tags"]) == ("suite", "NeMo's default", "flag")
    assert [each.config for each in load_suite(tmp_path / "config.yaml", {"tags": ["mine"]})] == [config]


MODEL, BENCHMARK_0 = "services.model", "benchmarks.0"
SUPPORTED = {
    f"{MODEL}.url=http://127.0.0.1:9/v1": {"base_url": "http://127.0.0.1:9/v1"},
    f"{MODEL}.protocol=completions": {"api_client_type": "openai_completions"},
    f"{MODEL}.model=other": {"model": "other"}, f"{MODEL}.model=null": {"model": "model"},
    f"{MODEL}.api_key=${{MY_KEY}}": {"api_key_var": "MY_KEY"},
    f"{MODEL}.generation.temperature=0.5": {"temperature": 0.5}, f"{MODEL}.generation.max_tokens=9": {"max_tokens": 9},
    f"{MODEL}.generation.seed=7": {"seed": 7}, f"{MODEL}.generation.top_p=0.5": {"sampling_args": {"top_p": 0.5}},
    f"{MODEL}.generation.frequency_penalty=1": {"sampling_args": {"frequency_penalty": 1}},
    f"{MODEL}.generation.presence_penalty=1": {"sampling_args": {"presence_penalty": 1}},
    f"{MODEL}.proxy.extra_body.top_k=5": {"sampling_args": {"extra_body": {"top_k": 5}}},
    f"{MODEL}.proxy.extra_headers.X-Team=${{TEAM}}": {"headers": {"X-Team": "${TEAM}"}},
    f"{MODEL}.proxy.request_timeout=9": {"request_timeout": 9}, f"{MODEL}.proxy.max_retries=1": {"request_retries": 1},
    f"{MODEL}.proxy.max_concurrent_upstream=3": {"max_concurrent": 3},
    f"{BENCHMARK_0}.name=gsm8k": {"env_id": "gsm8k"},
    f"{BENCHMARK_0}.solver.service=judge": {"base_url": "http://127.0.0.1:2/v1", "api_key_var": "JUDGE_KEY"},
    f"{BENCHMARK_0}.solver.system_prompt=Brief.": {"extra_env_kwargs": {"system_prompt": "Brief."}},
    f"{BENCHMARK_0}.solver.generation.temperature=1": {"temperature": 1},
    f"{BENCHMARK_0}.repeats=4": {"rollouts_per_example": 4}, f"{BENCHMARK_0}.max_problems=7": {"num_examples": 7},
    f"{BENCHMARK_0}.max_concurrent=5": {"max_concurrent": 5}, f"{BENCHMARK_0}.timeout=60": {"timeout": 60},
    f"{BENCHMARK_0}.skip_failed=true": {"tolerated_failures": 1},
    f"{BENCHMARK_0}.max_system_retries=1": {"max_retries": 0},
    f"{BENCHMARK_0}.shuffle_seed=null": {"shuffle_seed": None},
    f"{BENCHMARK_0}.params.largest=9": {"env_args": {"largest": 9}},
    f"{BENCHMARK_0}.solver.image_detail=high": {"middleware": [{"use": "images", "detail": "high"}]},
    f"{MODEL}.proxy.verbose=true": {"middleware": []},
}  # fmt: skip
SOLVER = "    solver: {type: simple, service: model}\n"
SCORING = "    scoring: {{metrics: [{{type: {}}}]{}}}\n"
LISTS = {
    SOLVER + SCORING.format("scorer, name: mcq_extract", ""): {"extra_env_kwargs": {"scorers": ["mcq_extract"]}},
    SOLVER + SCORING.format("scorer, name: mcq_extract}, {type: scorer, name: exact_match", ", primary: exact_match"): {
        "extra_env_kwargs": {"scorers": ["mcq_extract", "exact_match"]}
    },
    SOLVER + SCORING.format("judge, name: j, service: judge", ", include_defaults: false"): {
        "env_args": {
            "judge_model": "judge", "judge_base_url": "http://127.0.0.1:2/v1", "judge_api_key_var": "JUDGE_KEY",
        }
    },
    SOLVER + "    sandbox: {type: docker, image: python:3.12-slim, timeout: 60, concurrency: 3}\n": {
        "env_args": {"docker_image": "python:3.12-slim", "test_timeout_seconds": 60}, "max_sandboxes": 3,
    },
    SOLVER.replace("}", ", generation: {stop: [END]}}"): {"sampling_args": {"stop": ["END"]}},
    f"{SOLVER}    scoring: {{metrics: [{{type: judge, name: j, service: judge, allow_self_judge: true}}]}}\n": {
        "env_args": {
            "judge_model": "judge", "judge_base_url": "http://127.0.0.1:2/v1", "judge_api_key_var": "JUDGE_KEY",
        }
    },
}  # fmt: skip
OF_THE_COMMAND = {"output.dir", "output.timestamped"}
"""Supported by ``nightjar eval run``, see tests/durability/test_nemo_command.py."""


def test_supported_keys_and_lists_are_in_the_run(read):
    files = [(read(PLAIN, override), expected) for override, expected in SUPPORTED.items()]
    files += [(read(PLAIN.replace(SOLVER, lines)), expected) for lines, expected in LISTS.items()]
    for file, expected in files:
        config = run_of(file)
        assert {name: getattr(config, name) for name in expected} == expected


def fields_of(kind=EvalConfig, place=""):
    """Every key that a config may have, by its place in ``PLAIN``, with whether it is refused."""
    for name, field in kind.model_fields.items():
        inner, here = field.annotation, f"{place}{name}"
        while (origin := get_origin(inner)) is not None:
            inner = [each for each in get_args(inner) if each is not type(None)][0 if origin is Annotated else -1]
            here += {dict: ".model", list: ".0"}.get(origin, "")
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from fields_of(inner, f"{here}.")
        else:
            yield f"{place}{name}", any(hasattr(each, "func") for each in field.metadata)


REFUSED = [place for place, is_refused in fields_of() if is_refused and not place.endswith("api_key")]


def test_an_unsupported_key_is_refused_by_its_name(read):
    judge = "    scoring: {metrics: [{type: judge, name: j, service: judge}]}\n"
    for place in REFUSED:
        with pytest.raises(ConfigError, match=rf"  {re.escape(place)}: "):
            read(PLAIN + judge, f"{place}=planted")


def test_each_key_is_either_supported_or_refused():
    supported = {override.partition("=")[0] for override in SUPPORTED} | OF_THE_COMMAND
    supported |= {f"benchmarks.0.scoring.{name}" for name in ("primary", "include_defaults")}
    supported |= {"services.model.proxy.interceptors"}
    supported |= {place.rpartition(".")[0] for place in supported if re.search(r"\.(params|extra_\w+)\.", place)}
    rest = {place for place, _ in fields_of()} - supported - set(REFUSED)
    judged = {f"benchmarks.0.scoring.metrics.0.{name}" for name in ("name", "service", "allow_self_judge")}
    kinds = {place for place in rest if place.endswith(".type")}
    assert rest - kinds == judged | {"services.model.generation.stop", "benchmarks.0.solver.generation.stop"} | {
        f"benchmarks.0.solver.generation.{name}"
        for name in ("top_p", "max_tokens", "seed", "frequency_penalty", "presence_penalty")
    }, "the solver's generation is merged onto the service's"


def test_an_error_names_the_key_and_the_value(read):
    for override, named in [
        ("services.model.type=vllm", ["services.model", "'vllm'", "start the server"]),
        ("services.model.type=dynamo", ["services.model", "'dynamo'", "start the server"]),
        ("services.model.type=gym", ["services.model", "'gym'", "as the benchmark"]),
        ("benchmarks.0.solver.type=tool_calling", ["benchmarks.0.solver", "'tool_calling'"]),
        ("cluster.type=slurm", ["cluster", "'slurm'"]),
        ("sandboxes.s.type=slurm", ["sandboxes.s", "'slurm'"]),
        ("benchmarks.0.sandbox=gone", ["'gone'", "sandboxes"]),
        ("services.model.urll=x", ["services.model.urll", "'url'?"]),
        ("benchmarks.0.repeat=4", ["benchmarks.0.repeat", "'repeats'?"]),
        ("outputs.dir=x", ["outputs", "'output'?"]),
        ("benchmarks.0.solver.service=gone", ["benchmarks.0.solver.service", "'gone'", "model, judge"]),
        ("benchmarks.0.repeats=zero", ["benchmarks.0.repeats", "valid integer"]),
        ("services.model.url=${NOT_SET_ANYWHERE}", ["services.model.url", "NOT_SET_ANYWHERE"]),
        ("benchmarks.0.scoring.include_defaults=false", ["benchmarks.0.scoring", "needs a judge"]),
        ("benchmarks.0.scoring.primary=gone", ["benchmarks.0.scoring", "primary", "'gone'"]),
        ("benchmarks.0.params.token=${HF_TOKEN}", ["benchmarks.0.params.token", "HF_TOKEN", "stored"]),
        ("benchmarks.3.repeats=1", ["--override benchmarks.3.repeats", "'3'"]),
        ("benchmarks", ["--override", "key=value"]),
        ("services.model.api_key=sk-planted-0123", ["variable"]),
    ]:
        with pytest.raises(ConfigError) as caught:
            read(PLAIN, override)
        assert [word for word in named if word not in str(caught.value)] == []
        assert "planted" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        read(PLAIN, "services.model.tokenizer=t", "benchmarks.0.fewshot=5", "benchmarks.0.nmae=x")
    assert len(str(caught.value).splitlines()) == 4, "all wrong keys are named at once"


INTERCEPTORS = {
    "{name: drop_params, config: {params: [seed]}}": [{"use": "drop", "parameters": ["seed"]}],
    "{name: payload_modifier, config: {params_to_add: {top_k: 5}, params_to_remove: [n]}}": [
        {"use": "drop", "parameters": ["n"]}, {"use": "payload", "set": {"top_k": 5}},
    ],
    "{name: system_message, config: {system_message: Be brief., strategy: replace}}": [
        {"use": "system", "text": "Be brief.", "mode": "replace"}
    ],
    "{name: consolidate_system}": [{"use": "consolidate_system"}],
    "{name: turn_counter, config: {max_turns: 100}}": [{"use": "turn_limit", "turns": 100}],
    "{name: turn_counter}": [], "{name: reasoning_replay}": [], "{name: response_stats, config: {every: 9}}": [],
    "{name: reasoning}": [{"use": "reasoning"}], "{name: logging}": [{"use": "log"}],
    "{name: http_pairs_dump, config: {dump_path: pairs.jsonl}}": [{"use": "log", "path": "pairs.jsonl"}],
}  # fmt: skip


WITHOUT_EQUIVALENT = {
    "{name: streaming}": ["'streaming'", "read as a whole"], "{name: turn_count}": ["'turn_counter'?"],
    "{name: modify_tools}": ["'modify_tools'"],
    "{name: drop_params, config: {param: [a]}}": ["no equivalent of param"],
    "{name: payload_modifier, config: {headers_to_add: {A: b}}}": ["headers_to_add"],
    "{name: system_message, config: {system_message: a, strategy: append}}": ["'append'"],
}  # fmt: skip


def test_interceptors_are_middleware_or_the_cache_or_are_refused(read):
    def with_interceptor(text):
        return read(PLAIN.replace("model: m}", f"model: m, proxy: {{interceptors: [{text}]}}}}"))

    assert {text: run_of(with_interceptor(text)).middleware for text in INTERCEPTORS} == INTERCEPTORS
    caching = run_of(with_interceptor("{name: caching, config: {cache_dir: x}}"))
    assert (caching.cache, run_of(read(PLAIN)).cache) == (True, False)
    for text, named in WITHOUT_EQUIVALENT.items():
        with pytest.raises(ConfigError, match=r"services\.model\.proxy\.interceptors\.0") as caught:
            with_interceptor(text)
        assert [word for word in named if word not in str(caught.value)] == []


def test_an_image_evaluates_the_model_itself(read):
    solver = "{type: container, service: model, adapter_config: {a: 1}, env_vars: {B: c}, mounts: {/d: /e}}"
    text = PLAIN.replace("arithmetic", "container://image#task").replace("{type: simple, service: model}", solver)
    assert run_of(read(f"{text}    params: {{limit_samples: 10}}\n")).env_args == {
        "legacy_params": {"limit_samples": 10}, "adapter_config": {"a": 1}, "extra_env": {"B": "c"},
        "extra_mounts": ["/d:/e"],
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"solver: only benchmarks container://IMAGE#TASK"):
        read(PLAIN.replace("type: simple", "type: container"))


LAUNCHED = """\
defaults: [{execution: local}, {deployment: none}, _self_]
execution: {output_dir: results}
target: {api_endpoint: {url: "http://127.0.0.1:1/v1", model_id: m, api_key_name: KEY}}
evaluation:
  nemo_evaluator_config: {config: {params: {limit_samples: 10, max_new_tokens: 9}}}
  tasks: [{name: gsm8k}]
"""


@pytest.mark.parametrize(("text", "told"), [
    ("config: {type: gsm8k, params: {limit_samples: 10, parallelism: 4}}\ntarget: {api_endpoint: {model_id: m}}\n",
     ["config.type: write benchmarks.0.name", "config.params.limit_samples: write benchmarks.0.max_problems",
      "config.params.parallelism: write benchmarks.0.max_concurrent",
      "target.api_endpoint.model_id: write services.model.model"]),
    (LAUNCHED,
     ["execution.output_dir: write output.dir", "target.api_endpoint.url: write services.model.url",
      "evaluation.tasks: write benchmarks",
      "evaluation.nemo_evaluator_config.config.params.max_new_tokens: write services.model.generation.max_tokens"]),
])  # fmt: skip
def test_a_config_of_the_launcher_is_refused_with_the_keys_to_write(read, text, told):
    with pytest.raises(ConfigError, match="nemo-evaluator-launcher") as caught:
        read(text)
    assert [line for line in told if f"  {line}" not in str(caught.value)] == []


def test_the_same_benchmark_twice_has_two_names(read):
    two = read(PLAIN + "  - {name: arithmetic, repeats: 2, solver: {type: simple, service: model}}\n").evaluations({})
    assert [(each.config.name, each.label) for each in two] == [(None, "arithmetic"), ("arithmetic-2", "arithmetic-2")]


SEVERAL = """\
defaults: [services/two, {_base_: base}, _self_]
_common: {largest: 99}
services: {judge: null}
benchmarks:
  - name: arithmetic
    repeats: ${EVAL_REPEATS}
    max_problems: ${EVAL_PROBLEMS:-7}
    solver: {type: simple, service: model, system_prompt: "$${HOME} at ${.services.model.url}"}
    params: {largest: "${._common.largest}"}
"""


def test_a_config_is_composed_of_several_files(read, tmp_path, monkeypatch):
    monkeypatch.setenv("EVAL_REPEATS", "4")
    (tmp_path / "conf").mkdir()
    two = "model: {type: api, url: http://127.0.0.1:1/v1, protocol: chat_completions, model: a}\njudge: {type: vllm}\n"
    base = "services: {model: {model: b}}\nbenchmarks: [{name: gone}]\n"
    config = run_of(read(SEVERAL, base=base, conf__services__two=two))
    assert (config.model, config.rollouts_per_example, config.num_examples) == ("b", 4, 7)
    assert config.extra_env_kwargs == {"system_prompt": "${HOME} at http://127.0.0.1:1/v1"}
    assert config.env_args == {"largest": 99}


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))


def test_files_that_cannot_be_composed_are_an_error_of_one_line(read):
    for text, message in [
        ("defaults: [gone]\n", "'gone'"), ("defaults: [{_base_: config}]\n", "includes itself"),
        ("defaults: [config]\n", "'config' in defaults"), ("defaults: [within]\n", "{_base_: within}"),
        ("_base_: within\n", "[{_base_: within}, _self_]"), ("", "config.yaml is empty"),
        ("# nothing\n", "config.yaml is empty"), ("a: &a\n  b: *a\n", "alias refers"),
        ("a: &a [*a]\n", "alias refers"), (BOMB, "aliases"), ("[" * 500, "too deeply"),
        ("defaults: [{other: x}]\n", "'group/name'"), ("a: ${.b.c}\n", "${.b.c}"), ("a: 1\na: 2\n", "'a'"),
        ("- a\n", "found list"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            read(text, within="defaults: [other]\n")
        assert len(str(caught.value).splitlines()) == 1


BENCHMARK = """from nightjar.compat.nemo import benchmark, exact_match, scorer

@benchmark(name="sums", dataset=lambda: [{"q": "1+1", "a": "2"}], prompt="{q}", target_field="a")
@scorer
def sums(sample):
    return exact_match(sample)
"""


def test_a_benchmarks_file_may_be_beside_the_config(read, tmp_path, monkeypatch):
    (tmp_path / "bench.py").write_text(BENCHMARK)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = PLAIN.replace("arithmetic", "bench.py:sums")
    again = "  - {name: bench.py, solver: {type: simple, service: model}}\n"
    two = read(text + again).evaluations({})
    assert [(each.config.env_id, each.label) for each in two] == [("sums", "sums"), ("sums", "sums-2")]
    assert two[0].config.env_dir_path == str(tmp_path)
    with pytest.raises(ConfigError, match=f"no file 'gone.py' in {tmp_path}/elsewhere or {tmp_path}"):
        read(PLAIN.replace("arithmetic", "gone.py")).evaluations({})


def test_the_snapshot_has_overrides_and_the_names_of_variables_and_needs_readable_files_and_folders(
    read, tmp_path, monkeypatch
):
    monkeypatch.setenv("WHICH", "planted")
    (tmp_path / "file").write_bytes(b"a: \xe9t\xe9\n")
    with pytest.raises(ConfigError, match=r"file is not UTF-8"):
        NemoConfigFile.read(tmp_path / "file")
    with pytest.raises(ConfigError, match="Not a directory"):
        read(PLAIN).write_snapshot(tmp_path / "file" / "below")
    file = read(PLAIN.replace("model: m}", 'model: "${WHICH}", api_key: "${MY_KEY}"}'), "benchmarks.0.repeats=4")
    assert run_of(file).model == "planted"
    text = file.write_snapshot(tmp_path / "there").read_text()
    assert "planted" not in text
    assert NemoConfigFile.read(tmp_path / "there" / "full_config.yaml").config == file.config
    assert yaml.safe_load(text)["services"]["model"]["api_key"] == "${MY_KEY}"


AGENT = """\
services:
  model: {type: api, url: http://127.0.0.1:1/v1/chat/completions, protocol: chat_completions, model: m}
sandboxes:
  containers: {type: docker, concurrency: 2, timeout: 900}
benchmarks:
  - name: harbor://my-tasks
    repeats: 3
    solver: {type: harbor, service: model, agent: oracle}
    sandbox: containers
"""


@pytest.fixture
def read_agents(read, tmp_path):
    (tmp_path / "my-tasks").mkdir()
    return lambda *overrides, text=AGENT: read(text, *overrides)


def test_an_agent_works_on_the_tasks_in_a_folder_beside_the_config(read_agents, tmp_path):
    config = run_of(read_agents())
    assert (config.env_id, config.model, config.max_sandboxes) == (f"harbor://{tmp_path}/my-tasks", "m", 2)
    assert config.env_args == {"agent": "oracle", "agent_timeout_seconds": 900}
    assert (config.rollouts_per_example, config.timeout) == (3, None)
    [one] = read_agents(text=AGENT.replace("    sandbox: containers\n", "")).evaluations({})
    assert one.sources.get("max_sandboxes") != "suite"


SOLVED = "benchmarks.0.solver"
BOXED = "sandboxes.containers"


def test_settings_of_agents_are_arguments_of_the_environment(read_agents):
    for overrides, expected in [
        ([f"{SOLVED}.agent=react"], {"agent": "shell"}),
        ([f"{SOLVED}.agent=command:my-agent --fast"], {"agent": "command:my-agent --fast"}),
        ([f"{SOLVED}.run_timeout=60", f"{SOLVED}.cmd_timeout=9"],
         {"agent_timeout_seconds": 60, "timeout_per_command_seconds": 9}),
        (["benchmarks.0.timeout=30"], {"agent_timeout_seconds": 30}),
        ([f"{BOXED}.image=busybox", f"{BOXED}.container_env.A=x", f"{SOLVED}.container_env.B=y"],
         {"docker_image": "busybox", "environment_vars": {"A": "x", "B": "y"}}),
        (["benchmarks.0.params.keep_processes=true"], {"keep_processes": True}),
    ]:  # fmt: skip
        found = run_of(read_agents(*overrides)).env_args
        assert {name: found[name] for name in expected} == expected
    config = run_of(read_agents(f"{SOLVED}.timeout_strategy=task", f"{SOLVED}.run_timeout=60"))
    assert "agent_timeout_seconds" not in config.env_args, "the time limits of the tasks apply"


def test_agents_that_cannot_run_here_are_refused(read_agents):
    for override, named in [
        *((f"{SOLVED}.agent={name}", [f"{SOLVED}.agent", repr(name), "shell, oracle, nop, command:PROGRAM"])
          for name in ("terminus-2", "claude-code", "command:")),
        (f"{SOLVED}.agnet=oracle", [f"{SOLVED}.agnet", "'agent'?"]),
        (f"{SOLVED}.skill=x", [f"{SOLVED}.skill", "no skills"]),
        (f"{SOLVED}.service=gone", [f"{SOLVED}.service", "'gone'"]),
        (f"{SOLVED}.type=simple", [f"{SOLVED}.agent", "no such key"]),
        (f"{BOXED}.concurrency=0", [f"{BOXED}.concurrency", "greater than or equal to 1"]),
        (f"{BOXED}.memory=8g", [f"{BOXED}.memory", "task.toml"]),
        (f"{BOXED}.concurency=2", [f"{BOXED}.concurency", "'concurrency'?"]),
        ("benchmarks.0.name=gsm8k", [SOLVED, "harbor://PATH", "'gsm8k'"]),
    ]:  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            read_agents(override)
        assert [words for words in named if words not in str(caught.value)] == []


def test_a_model_without_an_agent_and_a_data_set_of_the_registry_are_refused(read_agents):
    simple = AGENT.replace("type: harbor, service: model, agent: oracle", "type: simple, service: model")
    with pytest.raises(ConfigError, match=r"benchmarks.0.solver: harbor:// needs an agent: type: harbor"):
        read_agents(text=simple)
    with pytest.raises(ConfigError, match=r"benchmarks.0 \(harbor://terminal-bench@2.0\): there is no folder of tasks"):
        read_agents("benchmarks.0.name=harbor://terminal-bench@2.0").evaluations({})


def test_a_night_runs_a_config(read, tmp_path):
    read(PLAIN)
    from nightjar.evaluation.nights import plan_night

    [one] = plan_night(str(tmp_path / "config.yaml"), "2026-01-31").evaluations
    assert (one.config.suite, one.config.tags) == ("config", ["night:2026-01-31"])


def test_a_program_reads_a_config(read, tmp_path, monkeypatch):
    read(PLAIN)
    config = parse_eval_config(compose_config(tmp_path / "config.yaml"))
    monkeypatch.setenv("JUDGE_KEY", "sk-mine")
    assert (config.get_model_id("judge"), config.get_model_url("model")) == ("judge", "http://127.0.0.1:1/v1")
    assert (config.get_api_key("judge"), config.managed_services()) == ("sk-mine", {})
    assert "sk-mine" not in config.model_dump_json()
    assert default_policy().defaults.max_drop == 0.015
