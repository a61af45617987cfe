"""generate, evaluate and friends: requests, results, run directories and resuming."""

import asyncio

import orjson
import pytest
import pytest_asyncio

from nightjar import __version__
from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.messages import UserMessage
from nightjar.environments import SingleTurnEnv
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ConfigError, InfraError, ResumeMismatchError
from nightjar.model_server import Answer, ModelServer, last_user_text

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Shouting:
    """Answers in capitals."""

    def answer(self, messages):
        question = last_user_text(messages)
        return Answer(question=question, text=question.upper())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running():
    """A model server, and a client of it, which stays connected."""
    with ModelServer(Shouting()) as server:
        async with resolve_client(ClientConfig(api_base_url=server.base_url)) as client:
            yield server, client


@pytest.fixture
def server(running):
    """The server, which has not been asked yet."""
    running[0].reset_stats()
    return running[0]


@pytest.fixture
def endpoint(running, server):
    """The client of the server."""
    return running[1]


def questions(*texts, **columns):
    return [{"question": text, "answer": text.upper(), **columns} for text in texts]


def right(completion, answer):
    return float(completion[-1].content == answer)


def make_env(*texts, func=right, **kwargs):
    return SingleTurnEnv(dataset=questions(*(texts or "abc")), rubric=Rubric(funcs=[func]), **kwargs)


def an_input(text="a", example_id=0, **columns):
    return {"prompt": [UserMessage(content=text)], "example_id": example_id, "answer": text.upper(), **columns}


async def test_rows_are_those_of_the_first_examples_in_order(endpoint, server):
    results = await make_env().evaluate(endpoint, "m", rollouts_per_example=2)
    keys = [(row["example_id"], row["rollout_index"]) for row in results["outputs"]]
    assert keys == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    results = await make_env().generate([], endpoint, "m")
    assert (results["outputs"], results["metadata"]["avg_reward"]) == ([], None)
    env = make_env()
    dataset = env.make_dataset(await env.generate(env.get_dataset(), endpoint, "m"))
    assert (dataset["reward"], dataset["example_id"]) == ([1.0] * 3, [0, 1, 2])
    for num_examples, asked in ((2, "ab"), (99, "abc"), (-1, "abc")):
        server.reset_stats()
        await make_env().evaluate(endpoint, "m", num_examples=num_examples)
        assert server.stats().questions == dict.fromkeys(asked, 1)
    with pytest.raises(TypeError, match=r"'num_exmples'.*max_concurrent"):
        await make_env().evaluate(None, "m", num_exmples=2)


async def test_metadata_describe_the_run(endpoint, server):
    env = make_env(func=lambda completion: completion[-1].content == "A", env_id="letters", pass_threshold=0.9)
    how = {"rollouts_per_example": 2, "state_columns": ["board"]}
    metadata = (await env.evaluate(endpoint, "m", {"temperature": 0.5}, **how))["metadata"]
    expected = {
        "env_id": "letters", "env_args": {}, "model": "m", "base_url": server.base_url, "num_examples": 3,
        "rollouts_per_example": 2, "sampling_args": {"temperature": 0.5}, "pass_threshold": 0.9, "rollouts": 6,
        "scored": 6, "failed": 0, "coverage": 1.0, "avg_error": 0.0, "state_columns": ["board"],
        "reward_weights": {"<lambda>": 1.0, "num_turns": 0.0},
        "path_to_save": None, "status": "completed", "usage": {"input_tokens": 6, "output_tokens": 6},
    }  # fmt: skip
    assert {name: metadata[name] for name in expected} == expected
    assert metadata["avg_reward"] == pytest.approx(1 / 3)
    assert metadata["pass_at_k"] == pytest.approx({"1": 1 / 3, "2": 1 / 3})
    assert metadata["avg_metrics"] == pytest.approx({"<lambda>": 1 / 3, "num_turns": 1.0})
    assert metadata["version_info"]["nightjar_version"] == __version__
    assert 0 < metadata["time_ms"] < 60_000
    assert metadata["started_at"].startswith(f"{metadata['date']}T{metadata['time']}")
    assert metadata["finished_at"] >= metadata["started_at"]


async def test_a_failed_rollout_is_counted_and_has_no_reward_as_all_have_none_without_scoring(endpoint):
    results = await make_env(func=lambda answer: {"A": 1.0, "B": 0.5}[answer]).evaluate(endpoint, "m")
    assert [row["reward"] for row in results["outputs"]] == [1.0, 0.5, None]
    found = [results["metadata"][name] for name in ("avg_reward", "scored", "failed", "coverage", "avg_error")]
    assert found == pytest.approx([0.75, 2, 1, 2 / 3, 1 / 3])
    results = await make_env(func=lambda completion: 1 / 0, score_rollouts=False).evaluate(endpoint, "m")
    assert [(row["reward"], row["error"]) for row in results["outputs"]] == [(None, None)] * 3
    assert (results["metadata"]["scored"], results["metadata"]["avg_reward"]) == (3, None)


async def test_inputs_are_not_changed_and_may_have_the_same_id_and_info_as_json(endpoint):
    inputs = [an_input("a"), an_input("b"), an_input("c", example_id=1)]
    rows = (await make_env().generate(inputs, endpoint, "m"))["outputs"]
    assert [(row["example_id"], row["completion"][0]["content"]) for row in rows] == [(0, "A"), (0, "B"), (1, "C")]
    assert [row["advantage"] for row in rows] == [0.0, 0.0, 0.0]
    assert rows[0]["example_hash"] != rows[2]["example_hash"]

    class Greedy(SingleTurnEnv):
        async def setup_state(self, state):
            state["info"]["seen"] = True
            state["prompt"].append(UserMessage(content="b"))

    given = an_input(info={})
    await Greedy(dataset=questions("a")).generate([given] * 2, endpoint, "m")
    assert given == an_input(info={})
    inputs = [an_input(info='{"level": 3}'), an_input(info="{", example_id=1)]
    good, bad = (await make_env().generate(inputs, endpoint, "m"))["outputs"]
    assert (good["info"], good["error"]) == ({"level": 3}, None)
    assert "'info'" in bad["error"]["message"]


async def test_a_resume_adds_examples(endpoint, server, tmp_path):
    await make_env().evaluate(endpoint, "m", num_examples=1, results_path=tmp_path)
    results = await make_env().evaluate(endpoint, "m", results_path=tmp_path)
    assert server.stats().questions == {"a": 1, "b": 1, "c": 1}
    assert (len(results["outputs"]), results["metadata"]["num_examples"]) == (3, 3)


async def test_rollouts_that_failed_in_scoring_are_scored_again_without_requests(endpoint, server, tmp_path):
    before = await make_env(func=lambda answer: 1 / 0).evaluate(endpoint, "m", results_path=str(tmp_path))
    assert orjson.loads((tmp_path / "metadata.json").read_bytes())["status"] == "incomplete"
    after = await make_env().evaluate(endpoint, "m", results_path=tmp_path)
    assert [row["reward"] for row in (before["outputs"] + after["outputs"])] == [None] * 3 + [1.0] * 3
    assert server.stats().answered == 3


async def test_a_resume_is_of_the_same_run_and_dataset(endpoint, server, tmp_path):
    asked = {"client": endpoint, "model": "m", "results_path": tmp_path}
    for _ in range(2):
        await make_env(env_id="one", env_args={"level": (1, 2)}).evaluate(**asked)
    for change, named in (
        ({"model": "other"}, r"model: .*'m'.*'other'"),
        ({"sampling_args": {"temperature": 1.0}}, r"sampling_args: .*{}.*{'temperature': 1.0}"),
        ({"rollouts_per_example": 2}, r"rollouts_per_example: .*1.*2"),
        ({"num_examples": 2}, r"num_examples: .*3.*2"),
        ({"client": ClientConfig(api_base_url="http://127.0.0.1:9/v1")}, "base_url: .*127.0.0.1:9"),
        ({}, r"env_id: .*'one'.*'two'.*env_args"),
    ):
        how = {"env_id": "one", "env_args": {"level": (1, 2)}} if change else {"env_id": "two"}
        with pytest.raises(ResumeMismatchError, match=named):
            await make_env(**how).evaluate(**asked | change)
    assert server.stats().answered == 3
    for example_id in (0, 1):
        saved, other = ([an_input("a"), an_input(text, example_id)] for text in "bx")
        path = tmp_path / str(example_id)
        await make_env().generate(saved, endpoint, "m", results_path=path)
        with pytest.raises(ResumeMismatchError, match="dataset_fingerprint"):
            await make_env().generate(other, endpoint, "m", results_path=path)


async def test_a_folder_of_verifiers_is_refused_if_its_metadata_differ(endpoint, tmp_path):
    saved = {"env_id": make_env().env_id, "model": "m", "num_examples": 1, "rollouts_per_example": 1}
    how, path = {"num_examples": 1, "results_path": tmp_path}, tmp_path / "metadata.json"
    for change, named in (({"model": "other"}, "model"), ({"num_examples": 2}, r"num_examples.*2.*1")):
        path.write_bytes(orjson.dumps(saved | change))
        with pytest.raises(ValueError, match=f"metadata mismatch .*{named}"):
            await make_env().evaluate(endpoint, "m", **how)
        assert orjson.loads(path.read_bytes()) == saved | change
    path.write_bytes(orjson.dumps(saved))
    assert len((await make_env().evaluate(endpoint, "m", **how))["outputs"]) == 1


async def test_a_cancelled_run_is_resumed(endpoint, server, tmp_path):
    def cancel(rows, *_):
        if len(rows) == 3:
            running.cancel()

    env, how = make_env(*"abcdefgh"), {"max_concurrent": 1, "results_path": tmp_path}
    running = asyncio.create_task(env.evaluate(endpoint, "m", on_progress=cancel, **how))
    with pytest.raises(asyncio.CancelledError):
        await running
    results = await env.evaluate(endpoint, "m", **how)
    assert server.stats().received <= 9
    assert [row["reward"] for row in results["outputs"]] == [1.0] * 8


async def test_save_results_makes_a_run_directory_and_nothing_is_written_otherwise(endpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await make_env().evaluate(endpoint, "m")
    assert not list(tmp_path.iterdir())
    results = await make_env(env_id="owner/letters").evaluate(endpoint, "org/m", save_results=True)
    await make_env().evaluate(endpoint, "m", save_results=True)
    [path] = tmp_path.glob("outputs/evals/letters--org--m/*")
    assert len(list(tmp_path.glob("outputs/evals/*/*"))) == 2
    assert results["metadata"]["path_to_save"].resolve() == path
    lines = [orjson.loads(line) for line in (path / "results.jsonl").read_bytes().splitlines()]
    assert lines == results["outputs"]
    saved = orjson.loads((path / "metadata.json").read_bytes())
    assert (saved["status"], saved["avg_reward"], saved["run_id"]) == ("completed", 1.0, path.name)


async def test_on_start_gets_all_inputs_and_the_remaining_groups_or_independent_rollouts(endpoint, tmp_path):
    told, how = [], {"rollouts_per_example": 2}

    def on_start(everything, owed):
        told.append(([i["answer"] for i in everything], [[i["answer"] for i in group] for group in owed]))

    for change in ({"num_examples": 1}, {"on_start": on_start}):
        await make_env("a", "b").evaluate(endpoint, "m", results_path=tmp_path, **how, **change)
    assert told == [(["A", "A", "B", "B"], [["B", "B"]])]
    told = []
    how |= {"independent_scoring": True, "on_start": lambda _, owed: told.extend(each["answer"] for each in owed)}
    await make_env("a").evaluate(endpoint, "m", **how)
    assert told == ["A", "A"]


async def test_on_progress_is_called_after_each_group_and_its_error_ends_the_run(endpoint, tmp_path):
    told, logged = [], []

    def on_progress(rows, new, metadata):
        told.append((len(rows), len(new), metadata["avg_reward"], metadata["model"]))

    how = {"on_progress": [on_progress, lambda *_: told.append("other")], "on_log": logged.append}
    await make_env().evaluate(endpoint, "m", rollouts_per_example=2, **how)
    assert told == [(2, 2, 1.0, "m"), "other", (4, 2, 1.0, "m"), "other", (6, 2, 1.0, "m"), "other"]
    assert logged[0].startswith("6 ")
    told.clear()
    await make_env("a", "b", func=lambda answer: {"A": 1}[answer]).evaluate(endpoint, "m", results_path=tmp_path)
    await make_env("a", "b").evaluate(endpoint, "m", results_path=tmp_path, on_progress=on_progress)
    assert told == [(2, 1, 1.0, "m")], "a resume counts each rollout once"
    with pytest.raises(ZeroDivisionError):
        await make_env().evaluate(endpoint, "m", on_progress=lambda *_: 1 / 0)


async def test_independent_scoring_gives_each_rollout_a_group_of_its_own(endpoint, server):
    for is_independent, advantages in ((False, [-0.5, 0.5]), (True, [0.0, 0.0])):
        scores = iter([0.0, 1.0])
        env = make_env("a", func=lambda completion, scores=scores: next(scores))
        results = await env.evaluate(endpoint, "m", rollouts_per_example=2, independent_scoring=is_independent)
        assert sorted(row["advantage"] for row in results["outputs"]) == advantages
    received = server.stats().received
    env = make_env(func=lambda completions: [1.0] * len(completions))
    with pytest.raises(ConfigError, match="group reward functions"):
        await env.evaluate(endpoint, "m", independent_scoring=True)
    assert server.stats().received == received


async def test_a_reward_function_that_ruins_the_state_or_gives_no_number_costs_its_rollout(endpoint, tmp_path):
    def ruinous(state):
        if state["example_id"] == 1:
            state[ruin] = object()
            del state["completion"]
        return 1.0

    for ruin in ("trajectory", "prompt", "timing", "reward", "input"):
        results = await make_env(func=ruinous).evaluate(endpoint, "m", results_path=tmp_path / ruin)
        assert [row["reward"] for row in results["outputs"]] == [1.0, None, 1.0]
        assert "ruined the state" in results["outputs"][1]["error"]["message"]

    class Own(Rubric):
        async def score_group(self, states):
            for state in states:
                state.update(reward=score, metrics={"mine": score})

    env = make_env("a")
    env.rubric = Own()
    for score, kept in ((True, 1.0), (3, 3.0), ("good", None), (float("nan"), None), ([1], None)):
        results = await env.evaluate(endpoint, "m", results_path=tmp_path / repr(score))
        assert results["outputs"][0]["reward"] == results["metadata"]["avg_reward"] == kept


async def test_no_more_rollouts_run_at_once_than_allowed(endpoint):
    class Counting(SingleTurnEnv):
        now = most = 0

        async def setup_state(self, state):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.wait_for(full.wait(), 60)
            self.now -= 1

    for how, asked, peak in (({"max_concurrent": 3}, "abcdef", 3), ({}, "abcdefgh", 8)):
        full = asyncio.Barrier(peak)
        env = Counting(dataset=questions(*asked))
        results = await env.evaluate(endpoint, "m", **how)
        assert (env.most, [row["error"] for row in results["outputs"]]) == (peak, [None] * len(asked))
    both = await asyncio.gather(make_env("a").evaluate(endpoint, "m"), make_env("b").evaluate(endpoint, "m"))
    assert [results["outputs"][0]["answer"] for results in both] == ["A", "B"]


async def test_run_rollout_and_run_group_give_scored_states_and_retry_as_often_as_asked_for(endpoint, no_waiting):
    class Watching(SingleTurnEnv):
        async def setup_state(self, state):
            held.append(semaphore.locked())

    env, held, semaphore = Watching(dataset=questions("a"), rubric=Rubric(funcs=[right])), [], asyncio.Semaphore(1)
    named = {"input": an_input(), "client": endpoint, "model": "m", "state_columns": ["x"], "sem": semaphore}
    for running in (env.run_rollout(**named), env.run_rollout(semaphore, an_input(), endpoint, "m", {})):
        state = await running
        assert (state["reward"], state["completion"][0].content, state["is_completed"]) == (1.0, "A", True)
    assert (held, semaphore.locked()) == ([True, True], False)

    def rank(completions):
        return [float(position) for position in range(len(completions))]

    states = await make_env(func=rank).run_group([an_input()] * 3, endpoint, "m", {})
    assert [(state["reward"], state["advantage"]) for state in states] == [(0.0, -1.0), (1.0, 0.0), (2.0, 1.0)]
    states = await make_env().run_group([an_input("a"), an_input("b", example_id=7)], endpoint, "m", {})
    assert [(state["example_id"], state["reward"]) for state in states] == [(0, 1.0), (7, 1.0)]
    assert await make_env().run_group([], endpoint, "m", {}) == []

    class Fragile(SingleTurnEnv):
        tries = 0

        async def setup_state(self, state):
            self.tries += 1
            if self.tries < 3:
                raise InfraError("no sandbox")

    for how, attempts, failed in (({"max_retries": 2}, 3, False), ({}, 1, True)):
        [row] = (await Fragile(dataset=questions("a")).evaluate(endpoint, "m", **how))["outputs"]
        assert (row["attempts"], row["error"] is not None) == (attempts, failed)
        state = await Fragile(dataset=questions("a")).run_rollout(an_input(), endpoint, "m", {}, **how)
        assert (state["error"] is not None) is failed


async def test_generate_sync_and_evaluate_sync_work_inside_and_outside_a_loop(server, tmp_path):
    config = ClientConfig(api_base_url=server.base_url)

    def evaluate():
        env = make_env()
        assert env.evaluate_sync(config, "m")["metadata"]["avg_reward"] == 1.0
        assert env.generate_sync([an_input()], config, model="m")["outputs"][0]["reward"] == 1.0
        [row] = make_env("a", func=lambda: {}["no"]).evaluate_sync(config, "m")["outputs"]
        assert row["error"]["error_chain_repr"] == "ScoringError -> KeyError"

    evaluate()
    await asyncio.to_thread(evaluate)
    make_env().evaluate_sync(config, "m", results_path=tmp_path)
    with pytest.raises(ResumeMismatchError):
        make_env().evaluate_sync(config, "other", results_path=tmp_path)
