"""Benchmarks that seed and verify, and those of ``@benchmark`` and ``@scorer``, as environments."""

import asyncio
import sys
import textwrap
from types import SimpleNamespace

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments import SingleTurnEnv, load_environment
from nightjar.environments.packages.catalog import find_environment, list_environments
from nightjar.environments.packages.lookup import environments_in
from nightjar.environments.rubrics import Rubric
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.errors import ConfigError, DatasetError, EnvironmentLoadError
from nightjar.evaluation.config.run_config import parse_run_config
from nightjar.model_server import FixedAnswer, ModelServer

BENCHMARKS = """
    from nightjar.environments.seeded.benchmark import benchmark, scorer
    from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
    from nightjar.environments.seeded.registry import register

    @benchmark(name="Sums", dataset="sums.csv", prompt="What is {question}?", target_field="answer")
    @scorer
    def check(sample):
        said = sample.response
        return {"correct": said == sample.target, "length": len(said), "extracted": said}

    for language in ("de", "fr"):
        @benchmark(name=f"words_{language}", dataset=[{"word": "a", "target": language}], prompt="{word}")
        @scorer
        def same(sample):
            return sample.response == sample.target

    @register("products")
    class Products(EvalEnvironment):
        def __len__(self):
            return 3

        async def seed(self, idx):
            return SeedResult(f"2*{idx}?", str(2 * idx), {"category": "even", "response": "a column", "sandbox": 1})

        async def verify(self, response, expected, sandbox=None, **metadata):
            return VerifyResult(float(response == expected), response, {"category": metadata["category"]})
"""


@pytest.fixture(scope="module")
def seeded():
    """The functions of these modules, which import Jinja."""
    from nightjar.environments.seeded import benchmark, bridge, lookup, rows

    return SimpleNamespace(**vars(benchmark) | vars(bridge) | vars(lookup) | vars(rows))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_benches.py").write_text(textwrap.dedent(BENCHMARKS))
    (tmp_path / "sums.csv").write_text("question,answer,response\n2+2,4,x\n3+3,6,y\n")
    yield tmp_path
    sys.modules.pop("my_benches", None)


def evaluated(env, answer="4", **how):
    with ModelServer(FixedAnswer(answer), keep_requests=100) as server:
        results = env.evaluate_sync(ClientConfig(api_base_url=server.url), "m", **how)
        return results, [request.body for request in server.requests]


def test_benchmarks_are_found_by_name_and_by_file(folder):
    local = [package.env_id for package in list_environments(folder) if package.origin == "local"]
    assert local == ["products", "sums"]
    assert find_environment("sums", folder).module.name == "my_benches"
    with environments_in(folder):
        assert load_environment("sums").env_id == "sums"
    path = str(folder / "my_benches.py")
    assert len(load_environment(f"{path}:products").examples) == 3
    assert load_environment(f"{path}:words_fr").examples[0]["answer"] == "fr"
    with pytest.raises(EnvironmentLoadError, match=r"is ambiguous: .* has sums, words_de, words_fr, products"):
        load_environment(path)
    with pytest.raises(EnvironmentLoadError, match=r"has no benchmark 'sum'\. Choose one of: sums, "):
        load_environment(f"{path}:sum")


def test_a_file_in_a_configuration_becomes_name_and_folder(folder):
    path = folder / "my_benches.py"
    config = parse_run_config({"env_id": f"{path}:sums"})
    assert (config.env_id, config.env_dir_path, config.env_args) == ("sums", str(folder), {})
    assert parse_run_config({"env_id": f"{path}:words_de"}).env_args == {"benchmark": "words_de"}
    with pytest.raises(ConfigError, match="env_id: there is no file"):
        parse_run_config({"env_id": "nowhere.py:sums"})


def test_a_benchmark_is_evaluated(folder):
    results, asked = evaluated(load_environment(f"{folder / 'my_benches.py'}:sums"), rollouts_per_example=2)
    rows = results["outputs"]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 0.0]
    assert rows[0]["info"] == {"question": "2+2", "answer": "4", "response": "x"}
    assert (rows[0]["extracted_answer"], rows[0]["scoring_details"]) == ("4", {"correct": True, "length": 1})
    assert rows[0]["metrics"] == {"correct": 1.0, "length": 1.0, "verify": 1.0, "num_turns": 1.0}
    assert asked[0]["messages"] == [{"role": "user", "content": "What is 2+2?"}]
    # the metadata of these are named like arguments of verify
    results, _ = evaluated(load_environment(f"{folder / 'my_benches.py'}:products"))
    assert [row["reward"] for row in results["outputs"]] == [0.0, 0.0, 1.0]
    assert results["outputs"][0]["scoring_details"] == {"category": "even"}


class Odd(EvalEnvironment):
    """A benchmark with parts that a test can break; counts the problems that it has seeded."""

    size, result, seeded = 1, VerifyResult(1.0), 0

    async def dataset_size(self):
        return self.size

    async def seed(self, idx):
        self.seeded += 1
        await asyncio.sleep(0)
        return SeedResult("?", "!", images=["https://example.com/a.png"], system="Look.")

    async def verify(self, response, expected, sandbox=None, **metadata):
        return self.result


def test_few_more_problems_are_seeded_than_needed_and_images_and_a_system_prompt_are_sent(seeded):
    _, [asked] = evaluated(seeded.as_environment(Odd()))
    assert asked["messages"][0] == {"role": "system", "content": "Look."}
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert asked["messages"][1]["content"] == [image, {"type": "text", "text": "?"}]
    benchmark = Odd()
    benchmark.size = 100
    evaluated(seeded.as_environment(benchmark), num_examples=5)
    assert benchmark.seeded == 7


def test_seeds_and_answers_that_fail_are_errors_and_not_0(seeded):
    judged, env = VerifyResult(0.0, None, {"needs_judge": True}), Odd()
    for result, message in (
        (None, "not a VerifyResult"), (VerifyResult(float("nan")), "not a finite number"),
        (judged, "needs a judge. Set judge_client"),
    ):  # fmt: skip
        env.result = result
        [row] = evaluated(seeded.as_environment(env))[0]["outputs"]
        assert row["reward"] is None
        assert message in row["error"]["message"]

    class Broken(Odd):
        async def seed(self, idx):
            raise IndexError("list index out of range")

    unknown = Odd()
    unknown.size = -1
    for benchmark, match in ((unknown, "-1"), (Broken(), r"seed\(0\) raised IndexError: list index out of range")):
        with pytest.raises(DatasetError, match=f"'unnamed'.*{match}"):
            evaluated(seeded.as_environment(benchmark))


def test_a_judge_scores_answers_that_need_one(seeded):
    env = Odd()
    env.result = VerifyResult(0.0, None, {"needs_judge": True, "judge_config": {"swap_check": True}})
    with ModelServer(FixedAnswer('{"score": 4}'), keep_requests=10) as judge:
        bridged = seeded.as_environment(env, judge_model="j", judge_base_url=judge.url)
        [row] = evaluated(bridged, answer="SAID")[0]["outputs"]
        asked = [request.body["messages"][0]["content"] for request in judge.requests]
    assert (row["reward"], row["metrics"]["correct"]) == (0.8, 1.0)
    assert [text.index("SAID") < text.index("Reference answer") for text in asked] == [True, False]


def test_prompts_and_rows_of_files_and_functions(seeded, tmp_path):
    (tmp_path / "ask.jinja").write_text("{% for x in xs %}{{ x }};{% endfor %}")
    assert seeded.prompt_of("ask.jinja", tmp_path)({"xs": [1, 2]}) == "1;2;"
    (tmp_path / "ask.txt").write_text("Say {word}.")
    assert seeded.prompt_of("ask.txt", tmp_path)({"word": "yes"}) == "Say yes."
    for prompt in ("{wrod}", "ask.txt"):
        with pytest.raises(DatasetError, match=r"Cannot fill the prompt from a row: KeyError.* The row has: x"):
            seeded.prompt_of(prompt, tmp_path)({"x": 1})
    with pytest.raises(DatasetError, match="'xs' is undefined"):
        seeded.prompt_of("ask.jinja", tmp_path)({})
    with pytest.raises(DatasetError, match="no prompt file"):
        seeded.prompt_of("nowhere.jinja", tmp_path)
    (tmp_path / "a.tsv").write_text("q\tt\n1,5\t2\n")
    (tmp_path / "a.csv").write_text("q,t\n1,2\n3,4\n")
    (tmp_path / "a.jsonl").write_text('{"q": 1}\n{"q": 2}\n')
    assert seeded.load_rows("a.tsv", folder=tmp_path) == [{"q": "1,5", "t": "2"}]
    assert seeded.load_rows("a.csv", 1, tmp_path) == [{"q": "1", "t": "2"}]
    assert seeded.load_rows("a.jsonl", 1, tmp_path) == [{"q": 1}]
    assert seeded.load_rows(lambda num_examples: [{"n": num_examples}], 3) == [{"n": 3}]
    (tmp_path / "b.csv").write_text("q,t\n1\n")
    with pytest.raises(DatasetError, match=r"b\.csv, row 1: it has more or fewer fields"):
        seeded.load_rows("b.csv", folder=tmp_path)
    with pytest.raises(DatasetError, match="no such file"):
        seeded.load_rows("c.csv")
    with pytest.raises(DatasetError, match="unknown part 'spilt'"):
        seeded.load_rows("hf://a/b?spilt=test")


def test_rows_are_prepared_in_order_and_renamed(seeded):
    rows = [{"old": number, "target": "t"} for number in range(3)]
    prepared = seeded.BenchmarkDefinition(
        "b", rows, "{new} {drawn}", field_mapping={"old": "new"},
        prepare_row=lambda row, number, generator: {**row, "drawn": generator.randrange(1000)},
    )  # fmt: skip
    few, all_ = seeded.ByobEnvironment(prepared, num_examples=2), seeded.ByobEnvironment(prepared)
    assert few.dataset == all_.dataset[:2]
    assert asyncio.run(all_.seed(1)).prompt == "1 114"
    with pytest.raises(DatasetError, match="Row 1 of benchmark 'b' has no 'answer', its target_field"):
        asyncio.run(seeded.ByobEnvironment(seeded.BenchmarkDefinition("b", rows, "", "answer")).seed(0))
    with pytest.raises(ConfigError, match="needs: pip install 'no-such-package>=3'"):
        seeded.ByobEnvironment(seeded.BenchmarkDefinition("b", rows, "", requirements=["no-such-package>=3", "pytest"]))


def test_a_scorer_returns_a_number(seeded):
    assert seeded.verified({"method": "text", "score": 0.25}).reward == 0.25
    assert seeded.verified({"first": 1, "correct": False}).reward == 0.0
    assert seeded.verified(True).reward == 1.0
    for scored in ({"method": "text"}, {"correct": "yes"}, None):
        with pytest.raises(ValueError, match="A scorer must return a dict with a number"):
            seeded.verified(scored)


async def test_an_environment_with_one_turn_is_a_benchmark(seeded):
    def right(completion, answer, info):
        return float(completion[-1]["content"] == answer and info == {"unit": "m"})

    rows = [{"question": "2+2?", "answer": "4", "info": {"unit": "m"}}]
    env = SingleTurnEnv(dataset=rows, rubric=Rubric([right]), system_prompt="Be brief.")
    served = seeded.as_benchmark(env)
    seed = await served.seed(0)
    assert (seed.prompt, seed.metadata, len(seed.messages)) == ("2+2?", {"unit": "m", "problem_idx": 0}, 2)
    result = await served.verify("4", seed.expected_answer, **seed.metadata)
    assert (result.reward, result.extracted_answer, result.scoring_details["right"]) == (1.0, "4", 1.0)
    with pytest.raises(IndexError, match=r"idx=1 out of range \[0, 1\)"):
        await served.seed(1)
    benchmark = Odd()
    assert seeded.as_benchmark(seeded.as_environment(benchmark)) is benchmark
