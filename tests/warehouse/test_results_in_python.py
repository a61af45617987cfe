"""Runs and results from Python: what ``evaluate`` returns, and what the other functions say about it."""

import asyncio
import json
import linecache
import os
import signal
import threading

import pytest

import nightjar as nj
from nightjar.engine import open_runs
from nightjar.errors import ConfigError, RunAbortedError, WarehouseError
from nightjar.model_server import Answer, Faults, ModelServer, last_user_text

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"
QUESTIONS = [{"question": question, "answer": question.upper()} for question in ("a", "b", "c", "d")]


class HalfRight:
    """Answers a and b in capitals, as is right, and other questions unchanged. c also gets some HTML."""

    def answer(self, messages):
        question = last_user_text(messages)
        return Answer(question=question, text={"a": "A", "b": "B", "c": HOSTILE}.get(question, question))


class Interrupting(HalfRight):
    """Interrupts this process at the twelfth question: with four at once, some are answered and scored by then."""

    asked = 0

    def answer(self, messages):
        self.asked += 1
        if self.asked == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return super().answer(messages)


def is_equal(completion, answer):
    return float(completion[-1].content == answer)


def environment(reward=is_equal, env_id="capitals"):
    return nj.SingleTurnEnv(dataset=QUESTIONS, rubric=nj.Rubric([reward]), env_id=env_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("results")
        patch.chdir(folder)
        patch.setenv("NIGHTJAR_HOME", str(folder / "home"))
        patch.setenv("COLUMNS", "100")
        yield folder


@pytest.fixture(scope="module")
def run(folder):
    """A run of four examples with two rollouts each; two examples are right."""
    with ModelServer(HalfRight()) as server:
        return nj.evaluate(environment(), model=HOSTILE, base_url=server.url, rollouts_per_example=2)


@pytest.fixture
def server(folder):
    with ModelServer(HalfRight()) as server:
        yield server


def test_a_run_is_on_disk_in_the_list_and_in_the_warehouse(run, folder, tmp_path):
    assert run.path == folder.joinpath("outputs", "evals").glob(f"*/{run.id}").__next__().relative_to(folder)
    assert run.id in [found.id for found in nj.runs(env="capitals")]
    assert nj.sql("SELECT env_id, status FROM runs WHERE run_id = ?", run.id).rows == [("capitals", "completed")]
    assert nj.open_run(run.id[:8]).id == nj.open_run(run.path).id == run.id
    only_on_disk = nj.open_run(run.path, warehouse=tmp_path / "another")
    assert only_on_disk.summary == run.summary
    assert only_on_disk.to_df("arrow").num_rows == 8
    with pytest.raises(ConfigError, match="There is no run 'zzz'"):
        nj.open_run("zzz")


def test_the_summary_of_a_run_is_what_two_of_four_right_examples_give(run):
    summary = run.summary
    # the examples' means are 1, 1, 0 and 0: standard deviation sqrt(1/3), standard error sqrt(1/12)
    assert (summary.mean, summary.stderr) == pytest.approx((0.5, 0.288675), abs=1e-6)
    # 0.5 ± 3.182 (Student's t with 3 degrees of freedom) × 0.2887 is more than all rewards
    assert (summary.interval.low, summary.interval.high) == (0.0, 1.0)
    assert (summary.examples, summary.rollouts, summary.scored, summary.failed, summary.coverage) == (4, 8, 8, 0, 1)
    assert (summary.pass_at_k, summary.pass_all_k) == ({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5})
    assert summary.metrics["is_equal"] == 0.5
    assert (summary.errors, summary.cost) == ({}, None)


def test_rollouts_and_tables_of_a_run_have_the_same_rewards(run):
    rewards = [row["reward"] for row in run.rollouts()]
    assert rewards == [1, 1, 1, 1, 0, 0, 0, 0]
    assert run.to_df()["reward"].tolist() == rewards
    assert run.to_df("polars")["reward"].to_list() == rewards
    assert run.to_df("arrow")["reward"].to_pylist() == rewards
    with pytest.raises(ConfigError, match="Choose one of: pandas, polars, arrow"):
        run.to_df("spark")


def test_a_run_prints_its_scores_and_plots_them_and_its_html_is_escaped(run):
    assert repr(run).splitlines()[0] == f"capitals | {HOSTILE}, run {run.id}: completed"
    assert " reward     0.5000  [0.0000, 1.0000]" in repr(run).splitlines()
    assert "&lt;img src=x" in run._repr_html_()
    scores, rewards = run.plot().to_dict()["hconcat"]
    assert scores["data"]["values"][0] == {"score": "reward", "mean": 0.5, "low": 0.0, "high": 1.0}
    assert [tuple(bar.values()) for bar in rewards["data"]["values"]] == [(0.0, 0.0, 4), (1.0, 1.0, 4)]
    assert "<img" not in run._repr_html_() + run.plot().to_html()


def test_a_run_links_to_the_view_that_a_variable_names_or_to_one_of_this_machine_that_shows_it(run, serve, monkeypatch):
    from nightjar.hosting.state import ServicesState, forget_state, write_state
    from nightjar.view.server import Access
    from nightjar.warehouse import Warehouse

    other = nj.open_run(run.path)
    shown, another = (Warehouse(f"outputs/{name}") for name in ("warehouse", "another"))
    with serve(shown, Access()) as there, serve(another, Access()) as elsewhere:
        for view, page in ((f"{there}/", f"{there}/runs/{run.id}"), (f"{elsewhere}/", None)):
            write_state(ServicesState("http://127.0.0.1:1/api", ".", "pool", {}, view_url=view))
            assert other.view_url == page
    assert other.view_url is None
    forget_state()
    monkeypatch.setenv("NIGHTJAR_VIEW_URL", "https://view.example/nightjar/")
    assert run.view_url == f"https://view.example/nightjar/runs/{run.id}"
    assert f'href="https://view.example/nightjar/runs/{run.id}"' in run._repr_html_()
    assert repr(run).endswith(f"Open in nightjar view: https://view.example/nightjar/runs/{run.id}")


async def test_two_runs_at_once_in_async_code_leave_its_event_loop_free(folder, http_server):
    message = {"role": "assistant", "content": "4"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}  # fmt: skip
    both = threading.Barrier(2)  # each run sends one request at a time: a run is answered only while the other runs

    def reply(request, sent):
        both.wait(300)
        return 200, body, {}

    asked = {"num_examples": 4, "rollouts_per_example": 1, "max_concurrent": 1, "base_url": f"{http_server(reply)}/v1"}
    began = [nj.evaluate_async("arithmetic", model=model, **asked) for model in ("first", "second")]
    runs = await asyncio.gather(*began)
    assert [(run.model, run.status) for run in runs] == [("first", "completed"), ("second", "completed")]


async def test_cancelling_its_task_stops_the_run_keeps_what_is_finished_and_raises(folder):
    asked = {"model": "cancelled", "num_examples": 400, "rollouts_per_example": 1, "max_concurrent": 4}
    with ModelServer(HalfRight(), faults=Faults(latency_ms=200)) as server:
        task = asyncio.create_task(nj.evaluate_async("arithmetic", base_url=server.url, **asked))
        while not any(run.progress.scored for run in open_runs()):  # noqa: ASYNC110 - it is in another thread
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    [stopped] = nj.runs(model="cancelled")
    assert (stopped.status, 1 <= stopped.summary.scored < 400) == ("cancelled", True)


def test_an_interrupt_keeps_what_is_finished_and_resume_does_the_rest(folder):
    asked = {"model": "slow", "num_examples": 100, "rollouts_per_example": 1, "max_concurrent": 4}
    with ModelServer(Interrupting(), faults=Faults(latency_ms=100)) as server:
        with pytest.raises(KeyboardInterrupt, match="resume=True"):
            nj.evaluate("arithmetic", base_url=server.url, **asked)
        [stopped] = nj.runs(model="slow")
        finished = stopped.summary.scored
        assert (stopped.status, 1 <= finished < 100) == ("cancelled", True)
        before = server.stats().answered
        run = nj.evaluate("arithmetic", base_url=server.url, resume=True, **asked | {"max_concurrent": 100})
        assert (run.id, run.status, run.summary.scored) == (stopped.id, "completed", 100)
        assert server.stats().answered - before <= 100 - finished


def test_the_same_environment_serves_several_runs_and_resumes_also_where_an_event_loop_runs(server):
    async def in_a_notebook():
        return nj.evaluate(env, model="m", **asked)

    env, asked = environment(), {"base_url": server.url, "rollouts_per_example": 1}
    first = asyncio.run(in_a_notebook())
    assert first.status == "completed"
    for resume in (True, first, first.path, first.id[:8]):
        assert nj.evaluate(env, model="m", resume=resume, **asked).id == first.id
    assert nj.evaluate(env, model="other", **asked).id != first.id
    assert server.stats().answered == 8


def test_a_reward_function_of_a_cell_counts_with_its_text(server):
    def scoring_hash(reward):
        """Defines it as a cell of a notebook does: its code is in no file, but Python knows the text."""
        file, text = f"/no/such/kernel/{reward}.py", f"def score(completion):\n    return {reward}\n"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        cell = {"__name__": "__main__"}
        exec(compile(text, file, "exec"), cell)
        run = nj.evaluate(environment(cell["score"]), model="m", base_url=server.url, rollouts_per_example=1)
        return run.metadata["version_info"]["scoring_hash"]

    zero, again, one = scoring_hash(0.0), scoring_hash(0.0), scoring_hash(1.0)
    assert zero == again != one


def test_failed_rollouts_are_a_status_and_a_warning_and_refused_requests_are_an_error(server, caplog):
    def breaks(answer):
        if answer == "D":
            raise ValueError("no D")
        return 1.0

    run = nj.evaluate(environment(breaks, "broken"), model="m", base_url=server.url, rollouts_per_example=1)
    assert (run.status, run.summary.failed, run.summary.coverage) == ("incomplete", 1, 0.75)
    assert [*run.summary.errors.values()] == [1]
    assert "1 of 4 rollouts failed with ScoringError" in caplog.text
    with ModelServer(HalfRight(), require_key="another") as refusing, pytest.raises(RunAbortedError, match="401"):
        nj.evaluate(environment(), model="refused", base_url=refusing.url, request_retries=0)
    assert [found.status for found in nj.runs(model="refused")] == ["failed"]


async def test_wrong_settings_are_refused_before_any_request(server):
    for env, settings, message in (
        ("arithmetic", {"modell": "m"}, "Unknown setting 'modell'. Did you mean 'model'?"),
        ("arithmetic", {"num_examples": "many"}, "num_examples: .*found 'many'"),
        ("no-such-env", {}, "'no-such-env' is not installed"),
        (environment(), {"env_args": {"a": 1}}, "env_args: set these on the environment"),
    ):
        with pytest.raises(ConfigError, match=message):
            nj.evaluate(env, base_url=server.url, **settings)
        with pytest.raises(ConfigError, match=message):
            await nj.evaluate_async(env, base_url=server.url, **settings)
    assert server.stats().answered == 0


def test_a_run_compared_with_itself_under_another_model_is_identical(run, server):
    other = nj.evaluate(environment(), model="other", base_url=server.url, rollouts_per_example=2)
    for sides in ((run, other), (run.id, other.path), (run.path, other)):
        found = nj.compare(*sides)
        assert (found.difference.mean, len(found), found.decision) == (0.0, 1, "INCONCLUSIVE")
    [row] = found.to_df("arrow").to_pylist()
    assert (row["baseline_mean"], row["candidate_mean"], row["pairs"], row["broken"]) == (0.5, 0.5, 4, 0)
    assert "INCONCLUSIVE" in repr(found)
    assert "<img" not in found._repr_html_()
    assert 'aria-label="Difference +0.0000' in found._repr_html_()
    with pytest.raises(ConfigError, match="There is no run 'zzz'"):
        nj.compare("zzz", "yyy")


def test_runs_are_filtered_and_become_a_table(run):
    assert [found.id for found in nj.runs(model="*onerror*", status="completed")] == [run.id]
    assert nj.runs(suite="none").to_df("arrow").num_rows == 0
    assert (len(nj.runs(limit=1)), len(nj.runs(status="comp*", limit=0))) == (1, 0)
    [row] = nj.runs(model="*onerror*").to_df("polars").to_dicts()
    assert (row["run_id"], row["avg_reward"], row["scored"], row["suite"]) == (run.id, 0.5, 8, None)
    assert {type(found) for found in nj.runs()[:2]} == {nj.Run}
    assert repr(nj.runs(suite="none")) == "0 runs"
    assert "<img" not in nj.runs()._repr_html_()
    for wanted, message in (({"limit": -1}, "0 or more"), ({"status": "bogus"}, "Choose one of: running, completed, ")):
        with pytest.raises(ConfigError, match=message):
            nj.runs(**wanted)


def test_sql_takes_values_by_place_and_by_name_and_named_queries(run):
    by_place = nj.sql("SELECT count(*) AS n FROM rollouts WHERE run_id = ? AND reward = ?", run.id, 1)
    by_name = nj.sql("SELECT count(*) AS n FROM rollouts WHERE run_id = $run AND reward = 1", run=run.id)
    assert by_place.rows == by_name.rows == list(by_name) == [(4,)]
    assert (by_place.columns, len(by_place)) == (["n"], 1)
    assert by_place.to_df("polars").to_dicts() == [{"n": 4}]
    assert len(nj.sql("hardest", env="capitals", limit=2)) == 2
    said = nj.sql("SELECT completion FROM rollouts WHERE run_id = ? AND example_id = 2", run.id)
    assert json.loads(said.rows[0][0])[-1]["content"] == HOSTILE
    assert "<img" not in said._repr_html_()
    assert "onerror" in said._repr_html_()
    refused = {"SELEC 1": "syntax error", "DROP TABLE runs": "DROP is refused", "no_query": "Unknown query"}
    for asked, message in refused.items():
        with pytest.raises(WarehouseError, match=message):
            nj.sql(asked)


def test_a_trend_has_a_point_for_each_run(run):
    found = nj.trend("capitals", model=HOSTILE)
    assert [(point.run_id, point.value) for point in found.series[0].points] == [(run.id, 0.5)]
    assert found.changes == []
    assert found.to_df("arrow")["run_id"].to_pylist() == [run.id]
    assert found.plot().to_dict()["title"] == "capitals: reward"
    assert "<img" not in found.plot().to_html() + found._repr_html_()
    assert "0.5000" in repr(found)
