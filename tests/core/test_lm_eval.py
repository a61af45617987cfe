"""``lm-eval://`` sends the same requests as lm-eval, and gives the same scores for the same answers."""

import asyncio
import json
import logging
import subprocess
import sys
import zlib

import orjson
import pytest
import yaml

from nightjar.clients import ClientConfig
from nightjar.compat import nemo
from nightjar.core.messages import TextLogprobs
from nightjar.environments.loading import load_environment
from nightjar.errors import ConfigError, RunAbortedError, UnsupportedTaskTypeError
from nightjar.model_server import Answer, FixedAnswer, ModelServer
from nightjar.model_server.answers import last_user_text
from nightjar.model_server.tokens import pieces

pytestmark = pytest.mark.slow

BEGIN = "<|begin|>"
CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Peru": "Lima", "Chad": "N'Djamena", "Oman": "Muscat",
}  # fmt: skip
CITIES = [*CAPITALS.values()]
SUMS = [{"question": f"What is {i} + {i * 7 % 11}?", "answer": f"#### {i + i * 7 % 11}"} for i in range(40)]
ROWS = {
    "sums": SUMS[:30],
    "examples": SUMS[30:],
    "capitals": [
        {"country": country, "cities": CITIES[turn:] + CITIES[:turn], "right": (CITIES.index(city) - turn) % 6}
        for turn in range(3)
        for country, city in CAPITALS.items()
    ],
    "words": [{"text": f"The capital of {country} is", "last": city} for country, city in CAPITALS.items()] * 3,
    "pages": [
        {"page": f" {country} has a capital, which is {city}. Naïve? So be it."} for country, city in CAPITALS.items()
    ],
}
MEAN = {"aggregation": "mean", "higher_is_better": True}
FIRST = {"function": "take_first"}
NUMBER = {"function": "regex", "group_select": -1}
TASKS = {
    "sums": {
        "output_type": "generate_until", "fewshot_split": "train", "num_fewshot": 2, "description": "Add.\n\n",
        "doc_to_text": "Question: {{question}}\nAnswer:", "doc_to_target": "{{answer.split('#### ')[-1]}}",
        "metric_list": [{"metric": "exact_match", **MEAN, "ignore_punctuation": True}],
        "generation_kwargs": {"until": ["Question:", "</s>"], "do_sample": False, "max_gen_toks": 40},
        "filter_list": [
            {"name": "strict", "filter": [{"function": "regex", "regex_pattern": r"#### (\-?[0-9]+)"}, FIRST]},
            {"name": "flexible", "filter": [{**NUMBER, "regex_pattern": r"(-?[0-9]+)"}, FIRST]},
        ],
    },
    "capitals": {
        "output_type": "multiple_choice", "doc_to_text": "The capital of {{country}} is ",
        "doc_to_target": "right", "doc_to_choice": "cities",
        "metric_list": [
            {"metric": "mcc"}, {"metric": "acc", **MEAN}, {"metric": "acc_norm", **MEAN}, {"metric": "brier_score"},
        ],
    },
    "words": {
        "output_type": "loglikelihood", "doc_to_text": "{{text}}", "doc_to_target": " {{last}}",
        "metric_list": [
            {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
            {"metric": "acc", **MEAN},
        ],
    },
    "pages": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{page}}",
        "metric_list": [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")],
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def lm_eval():
    return pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'nightjar-evals[lm-eval]'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder of tasks; their data are beside them."""
    import datasets

    folder = tmp_path_factory.mktemp("tasks")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for name, config in TASKS.items():
        write_task(folder, name, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        yield folder


def write_task(folder, name, config, rows=None):
    files = {"test": str(folder / f"{rows or name}.jsonl"), "train": str(folder / "examples.jsonl")}
    if "fewshot_split" not in config:
        del files["train"]
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test"}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **data, **config}))


class Adder:
    """Answers sums, some wrong and some in another form, by all that it was asked."""

    def answer(self, messages):
        said = orjson.dumps([[message["role"], message["content"]] for message in messages])
        left, right = last_user_text(messages).rpartition("is ")[2].partition("?")[0].split(" + ")
        total = int(left) + int(right)
        texts = (f" #### {total}", f" It is {total}.", f" #### {total + 1}, no, {total}", " I do not know.")
        return Answer(last_user_text(messages), texts[zlib.crc32(said) % 4])


def by_lm_eval(model, task, folder, **how):
    """Evaluates a task with lm-eval, and returns its table and its samples."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = lm_eval.simple_evaluate(model, tasks=[task], task_manager=manager, bootstrap_iters=100, **how)
    return found["results"][task], found["samples"][task]


def by_nightjar(server, task, folder, client_type="openai_chat_completions", **options):
    """Evaluates a task with Nightjar, and returns the environment and the results."""
    env = load_environment(f"lm-eval://{task}", include_path=str(folder), **options)
    config = ClientConfig(api_base_url=server.base_url, client_type=client_type, max_retries=0)
    outputs = asyncio.run(env.generate(env.get_eval_dataset().to_list(), config, "m"))
    return env, outputs


class Texts:
    """lm-eval's ``local-completions``, with the tokens of the model server in the place of a tokenizer's."""

    def __new__(cls, server):
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        class Model(LocalCompletionsAPI):
            prefix_token_id = 0

            def tok_encode(self, string, **_):
                return [self.known.setdefault(piece, len(self.known)) for piece in pieces(string)]

            def decode_batch(self, tokens):
                texts = [*self.known]
                return ["".join(texts[number] for number in each) for each in tokens]

        model = Model(base_url=f"{server.base_url}/completions", model="m", tokenizer_backend=None)
        model.known, model.tokenizer = {BEGIN: 0}, "the server's"
        return model


@pytest.fixture(scope="module")
def server():
    with ModelServer(FixedAnswer(" so")) as server:
        yield server


def same(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("endpoint", ["chat", "texts"])
def test_a_generating_task_with_two_filters(folder, endpoint):
    with ModelServer(Adder()) as server:
        if endpoint == "chat":
            env, outputs = by_nightjar(server, "sums", folder)
            address = {"base_url": f"{server.base_url}/chat/completions", "model": "m"}
            how = {"model_args": address, "apply_chat_template": True, "fewshot_as_multiturn": True}
            table, samples = by_lm_eval("local-chat-completions", "sums", folder, **how)
        else:
            env, outputs = by_nightjar(server, "sums", folder, "openai_completions")
            table, samples = by_lm_eval(Texts(server), "sums", folder)
        questions = server.stats().questions
    assert set(questions.values()) == {2}, "both have asked the same"
    rows = outputs["outputs"]
    scores = {}
    for name in ("strict", "flexible"):
        key = f"exact_match,{name}"
        mine = [row["metrics"][key] for row in rows]
        assert mine == [sample["exact_match"] for sample in samples if sample["filter"] == name]
        scores[name] = table[key]
        assert env.benchmark.totals(rows)[key] == same(table[key])
    assert 0 < scores["strict"] < scores["flexible"] < 1
    metadata = outputs["metadata"]
    assert metadata["avg_reward"] == same(scores["strict"])
    assert metadata["stderr"] == same(table["exact_match_stderr,strict"])
    found = {sample["doc_id"]: sample["filtered_resps"][0] for sample in samples if sample["filter"] == "strict"}
    assert [row["extracted_answer"] for row in rows] == [found[number] for number in range(30)]


def both(server, task, folder, **options):
    """Evaluates a task of probabilities with Nightjar and lm-eval: totals, rows, metadata; table, samples."""
    env, outputs = by_nightjar(server, task, folder, "openai_completions", **options)
    rows = outputs["outputs"]
    return env.benchmark.totals(rows), rows, outputs["metadata"], *by_lm_eval(Texts(server), task, folder)


def test_a_multiple_choice_task(folder, server):
    totals, rows, metadata, table, samples = both(server, "capitals", folder)
    for metric in ("acc", "acc_norm"):
        assert [row["metrics"][metric] for row in rows] == [sample[metric] for sample in samples]
        assert totals[metric] == same(table[f"{metric},none"])
    assert metadata["avg_reward"] == same(table["acc,none"])
    assert metadata["stderr"] == same(table["acc_stderr,none"])
    likeliest = [max(each["resps"], key=lambda told: float(told[0][0])) for each in samples]
    chosen = [
        sample["doc"]["cities"][sample["resps"].index(told)] for sample, told in zip(samples, likeliest, strict=True)
    ]
    assert [row["extracted_answer"] for row in rows] == chosen
    for metric in ("mcc", "brier_score"):
        assert totals[metric] == same(table[f"{metric},none"])
        assert metric not in rows[0]["metrics"], "it is one value of all rows"
    assert rows[0]["token_usage"]["output_tokens"] == 6, "a request for each choice"


def test_a_task_with_the_probability_of_a_word(folder, server):
    totals, rows, metadata, table, samples = both(server, "words", folder)
    assert [row["metrics"]["acc"] for row in rows] == [sample["acc"] for sample in samples]
    found = [row["scoring_details"]["raw"]["perplexity"] for row in rows]
    assert found == [same(each["perplexity"]) for each in samples]
    assert metadata["avg_reward"] == same(table["acc,none"])
    assert totals["perplexity"] == same(table["perplexity,none"])
    assert "perplexity" not in rows[0]["metrics"], "it is not a mean"


def test_a_task_with_the_probability_of_whole_texts(folder, server):
    totals, rows, _, table, _ = both(server, "pages", folder, begin=BEGIN)
    names = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    assert totals == {name: same(table[f"{name},none"]) for name in names}
    assert all(row["reward"] == row["metrics"]["log_likelihood_per_byte"] < 0 for row in rows)


def test_an_endpoint_without_log_probabilities_is_an_error(folder, server):
    for client_type, message in [
        ("openai_chat_completions", "It needs .* --api-client-type openai_completions"),
        ("openai_completions", r"first token of a text.* lm-eval://TASK\?begin=TEXT"),
    ]:
        with pytest.raises(RunAbortedError, match=f"in the same way. .*{message}"):
            by_nightjar(server, "pages", folder, client_type)


def test_a_text_that_is_too_long_has_no_score(folder):
    with ModelServer(FixedAnswer(" so"), max_context_tokens=5) as server:
        _, outputs = by_nightjar(server, "words", folder, "openai_completions")
    errors = [row["error"] for row in outputs["outputs"]]
    assert all("maximum context length" in str(error) for error in errors)
    assert {row["reward"] for row in outputs["outputs"]} == {None}


def test_log_probabilities_of_a_prompt_with_a_begin_token_or_a_token_across_the_boundary_and_none():
    from nightjar.compat.nemo.environments.lm_eval_task import LikelihoodRequest, likelihood_of

    request = LikelihoodRequest.of("Once upon", " a time")
    own = {"text_offset": [0], "token_logprobs": [-0.5], "top_logprobs": [{" so": -0.5}]}
    for told in (None, TextLogprobs(**own), TextLogprobs(**{**own, "top_logprobs": None})):
        with pytest.raises(ConfigError, match="no log-probabilities of a prompt"):
            likelihood_of(told, request)
    request = LikelihoodRequest.of("Is it so? ", "Yes")
    told = TextLogprobs(
        text_offset=[0, 3, 9, 12, 16],  # "<s>Is it so? Yes", and one token more
        token_logprobs=[None, -1.0, -2.0, -4.0, -8.0],
        top_logprobs=[None, {"a": -1.0}, {"a": -2.0}, {"a": -3.0, " Yes": -4.0}, {"a": -8.0}],
    )
    assert likelihood_of(told, request) == (-4.0, False)
    across = TextLogprobs(**{**told.model_dump(), "text_offset": [0, 3, 9, 11, 16]})
    assert likelihood_of(across, request) == (-4.0, False)


def test_a_text_in_place_of_probabilities_is_an_error(folder):
    benchmark = nemo.get_environment("lm-eval://capitals", include_path=str(folder))
    with pytest.raises(UnsupportedTaskTypeError, match="compares probabilities, but the answer is a text"):
        asyncio.run(benchmark.verify("Lima", "Lima", doc_id=0))


def test_options_of_a_uri(folder):
    uri = f"lm-eval://sums?num_fewshot=1&limit=0.1&include_path={folder}&metric=exact_match,flexible"
    env = load_environment(uri)
    rows = env.get_eval_dataset().to_list()
    assert len(rows) == 3
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user", "assistant", "user"]
    assert (rows[2]["answer"], rows[2]["info"]) == ("5", {**SUMS[2], "doc_id": 2})
    assert env.own_sampling_args == {"temperature": 0, "max_tokens": 40, "stop": ["Question:", "</s>"]}
    result = asyncio.run(env.benchmark.verify("It is 5.", "5", doc_id=2))
    details = {"exact_match,strict": 0.0, "exact_match,flexible": 1.0}
    assert (result.reward, result.extracted_answer, result.scoring_details) == (1.0, "5", details)
    normalized = nemo.get_environment(f"lm-eval://capitals?include_path={folder}&metric=acc_norm,none")
    assert normalized.task.metrics.reward == "acc_norm"
    for wrong, match in (
        (uri.replace("flexible", "loose"), "exact_match,strict, exact_match,flexible"),
        ("lm-eval://sums?shots=3", "begin, include_path, limit, metric, num_fewshot"),
        *((f"lm-eval://arc_easy?limit={limit}", "limit") for limit in ("nan", "-5", "0", "some")),
    ):
        with pytest.raises(ConfigError, match=match):
            nemo.get_environment(wrong)


def test_unsupported_tasks_are_refused(folder, tmp_path):
    (tmp_path / "odd.jsonl").write_bytes((folder / "sums.jsonl").read_bytes())
    own = {name: value for name, value in TASKS["sums"].items() if name not in {"fewshot_split", "num_fewshot"}}
    for config, message in [
        ({"repeats": 4}, r"scores 4 answers .* \(repeats\)"),
        ({"unsafe_code": True}, "runs the model's code in this process"),
        ({"doc_to_image": "question"}, "has images"),
        ({"metric_list": [{"metric": "bleu"}]}, r"no metric that can be the reward.* bleu \(bleu\)"),
        ({"test_split": "train"}, "cannot load task 'odd': KeyError"),
    ]:
        write_task(tmp_path, "odd", {**own, **config})
        with pytest.raises(ConfigError, match=message):
            nemo.get_environment("lm-eval://odd", include_path=str(tmp_path))


def test_a_solver_has_the_same_score(folder):
    with ModelServer(Adder()) as adder:
        benchmark = nemo.get_environment("lm-eval://sums", include_path=str(folder))
        bundle = asyncio.run(nemo.run_evaluation(benchmark, nemo.ChatSolver(nemo.ModelClient(adder.base_url, "m"))))
        _, outputs = by_nightjar(adder, "sums", folder)
    assert bundle["benchmark"]["scores"]["mean_reward"]["value"] == same(outputs["metadata"]["avg_reward"])


@pytest.mark.long
def test_groups_and_unknown_names_are_refused(folder):
    with pytest.raises(UnsupportedTaskTypeError, match=r"'mmlu' of lm-eval is a group .*: mmlu_stem, mmlu_other"):
        nemo.get_environment("lm-eval://mmlu", include_path=str(folder))
    with pytest.raises(ConfigError, match=r"no task 'gsm8l'. Near: .*gsm8k"):
        nemo.get_environment("lm-eval://gsm8l", include_path=str(folder))


@pytest.mark.long
def test_tasks_are_listed():
    listed = subprocess.run(
        [sys.executable, "-m", "nightjar", "list", "--source", "lm-eval", "--json"], capture_output=True, check=True
    )
    names = {each["env_id"] for each in json.loads(listed.stdout)}
    assert {"lm-eval://gsm8k", "lm-eval://hellaswag", "lm-eval://mmlu_anatomy"} <= names
    assert "lm-eval://mmlu" not in names, "a group"


def test_without_lm_eval_the_error_names_the_extra():
    code = "import sys; sys.modules['lm_eval'] = None; from nightjar.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "list", "--source", "lm-eval"], capture_output=True, check=False, text=True
    )
    assert run.returncode == 1
    assert "pip install 'nightjar-evals[lm-eval]'\n" in run.stderr
