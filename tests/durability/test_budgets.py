"""Budgets hold before each request, over resumes, and include judges."""

import pytest

pytestmark = pytest.mark.long

TOKENS_OF_A_REQUEST = 30
JUDGED = """
import nightjar as vf
def load_environment(judge_url: str) -> vf.Environment:
    rubric = vf.JudgeRubric(judge_client=vf.ClientConfig(api_base_url=judge_url), judge_model="judge")

    async def right(judge, prompt, completion, answer, state) -> float:
        await judge(prompt, completion, answer, state)
        return 1.0

    rubric.add_reward_func(right)
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]
    return vf.SingleTurnEnv(dataset=rows, rubric=rubric)
"""


def spent(run):
    return sum(run.metadata["usage"].values())


@pytest.mark.parametrize(("at_once", "examples"), [(1, 30), (16, 90)])
def test_a_run_stops_when_its_tokens_are_spent_and_goes_on_with_more(nightjar, serve, at_once, examples):
    server = serve()
    limits, most = ("-n", examples, "-r", 1, "-c", at_once), 10 * examples
    ended = nightjar.eval("arithmetic", *limits, "--max-total-tokens", most, server=server)
    assert f"of {most} tokens (max_total_tokens)" in ended.error
    assert nightjar.run.metadata["status"] == "incomplete"
    assert most <= spent(nightjar.run) <= most + at_once * TOKENS_OF_A_REQUEST, "what was in flight is paid for"
    asked = server.stats().received
    again = nightjar.eval("arithmetic", *limits, "--resume", "--max-total-tokens", most, server=server)
    assert (again.code, server.stats().received) == (1, asked), "what was spent before counts"
    assert nightjar.eval("arithmetic", *limits, "--resume", "--max-total-tokens", 10**6, server=server).code == 0
    assert (nightjar.run.metadata["scored"], server.stats().received) == (examples, examples)


def test_a_judge_spends_of_the_same_budget(nightjar, serve):
    server = serve()
    nightjar.write_environment("judged", JUDGED)
    args = f'{{"judge_url": "{server.url}"}}'
    ended = nightjar.eval("judged", "-n", 60, "-r", 1, "-c", 4, "-a", args, "--max-total-tokens", 1500, server=server)
    assert (ended.code, "The budget is spent" in ended.errors[0]) == (1, True)
    run = nightjar.run
    assert 0 < run.metadata["scored"] < 30
    assert spent(run) < 1200, "the judge took the rest"
    assert {row["error"] for row in run.results} == {None}, "what is not judged yet has not failed"
    assert nightjar.eval("judged", "-n", 60, "-r", 1, "-a", args, "--resume", server=server).code == 0
    assert nightjar.run.metadata["scored"] == 60
    assert server.stats().received == 120


def test_a_judge_is_not_asked_more_at_once_than_rollouts_are_scored(nightjar, serve):
    judge, server = serve(), serve()
    nightjar.write_environment("judged", JUDGED)
    args = f'{{"judge_url": "{judge.url}"}}'
    limits = ("-n", 15, "-r", 4, "-c", 32, "--max-concurrent-scoring", 3)
    assert nightjar.eval("judged", *limits, "-a", args, server=server).code == 0
    assert (judge.stats().received, judge.stats().peak_in_flight <= 3) == (60, True)


SUITE = """
model = "m"
base_url = "{url}"
num_examples = 60
rollouts_per_example = 1
max_concurrent = 8

[[eval]]
env_id = "arithmetic"

[[eval]]
env_id = "arithmetic"
name = "again"
shuffle_seed = 1

[[ablation]]
env_id = "arithmetic"
[ablation.sweep]
shuffle_seed = [2, 3]
"""


def test_the_evaluations_of_a_suite_spend_one_budget(nightjar, serve):
    server = serve()
    (nightjar.folder / "two.toml").write_text(SUITE.format(url=server.url))
    ended = nightjar.start("eval", "run", "two.toml", "--direct", "--max-total-tokens", 1500).wait()
    assert ended.code == 1
    assert len([line for line in ended.errors if "The budget is spent" in line]) == 4
    tokens = sum(spent(run) for run in nightjar.runs)
    assert 1500 <= tokens <= 1500 + 8 * TOKENS_OF_A_REQUEST


def test_a_cost_is_reckoned_with_the_prices_of_the_warehouse(nightjar, serve):
    server = serve()
    limits = ("-n", 60, "-r", 1, "-c", 4, "-m", "m", "--max-cost-usd", 0.2)
    unknown = nightjar.eval("arithmetic", *limits, server=server)
    assert (unknown.code, "the price of model 'm' is not known" in unknown.errors[0]) == (1, True)
    assert server.stats().received == 0
    nightjar.start("warehouse", "prices", "set", "m", "--input", 100, "--output", 1000).wait()
    ended = nightjar.eval("arithmetic", *limits, server=server)
    assert ended.errors[0].startswith("Error: The budget is spent: $0.2")
    [(cost,)] = nightjar.sql("SELECT sum(cost) FROM runs")
    assert 0.2 <= cost <= 0.2 + 4 * TOKENS_OF_A_REQUEST * 1000 / 1e6
