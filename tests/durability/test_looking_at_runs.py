"""``nightjar eval list``, ``get``, ``samples`` and ``view-config`` after a few runs."""

import shlex

import pytest

from nightjar.model_server import ArithmeticSolver, Faults, FixedAnswer, ModelServer

pytestmark = pytest.mark.long

LONG_MODEL = "other/model-70B-instruct-with-a-long-name-2026-11-26"
HOSTILE = "\x1b[2J\x1b]0;owned\x07The answer is \\boxed{0}."


@pytest.fixture(scope="module")
def shared(nightjar_in, tmp_path_factory):
    """A folder of three runs: two that are complete, of two models, and one of which some rollouts failed."""
    nightjar = nightjar_in(tmp_path_factory.mktemp("shared"))
    for typed, answerer, faults in (
        (("-n", 2, "-r", 1), ArithmeticSolver(), Faults()),
        (("-n", 2, "-r", 2, "-m", LONG_MODEL), FixedAnswer(HOSTILE), Faults()),
        (("-n", 8, "-r", 1, "--request-retries", 0), ArithmeticSolver(), Faults(rate_malformed=0.5, seed=1)),
    ):
        with ModelServer(answerer, faults=faults) as server:
            nightjar.eval("arithmetic", *typed, server=server)
    return nightjar


def test_runs_are_listed_newest_first_and_filtered(shared):
    ids = [run.metadata["run_id"] for run in shared.runs]
    assert [run["run_id"] for run in shared.json("eval", "list")] == ids[::-1]
    assert [run["run_id"] for run in shared.json("eval", "list", "--model", "other/*")] == [ids[1]]
    assert [run["run_id"] for run in shared.json("eval", "list", "--status", "incomplete")] == [ids[2]]
    assert [run["run_id"] for run in shared.json("eval", "list", "--env", "arithmetic", "--limit", 1)] == [ids[2]]
    assert shared.json("eval", "list", "--env", "gsm8k") == []
    assert [run["run_id"] for run in shared.json("eval", "list", "--status", "incompl*")] == [ids[2]]
    wrong = shared.start("eval", "list", "--status", "nonsense").wait()
    assert (wrong.code, "'nonsense'" in " ".join(wrong.errors)) == (2, True)
    printed = shared.start("eval", "list", COLUMNS="80").wait()
    assert all(one in printed.stdout for one in (*ids, f"arithmetic | {LONG_MODEL}\n", "INCOMPLETE"))
    assert max(map(len, printed.stdout.splitlines())) <= 80


def test_a_run_is_named_by_id_beginning_or_directory(shared):
    run = shared.runs[2]
    run_id = run.metadata["run_id"]
    for name in (run_id, run_id[:9], run):
        assert shared.json("eval", "get", name)["run_id"] == run_id
    assert "no run 'nonsense'" in shared.start("eval", "get", "nonsense").wait().error
    assert "3 runs begin with ''" in shared.start("eval", "get", "").wait().errors[0]


def test_get_says_what_went_wrong_or_stopped_a_run(shared, nightjar):
    metadata = shared.runs[2].metadata
    printed = shared.start("eval", "get", shared.runs[2]).wait().stdout
    assert f"{metadata['scored']}, {metadata['failed']} failed" in printed
    assert next(iter(metadata["error_examples"].values())).partition("\n")[0] in printed
    nightjar.eval("arithmetic", "-m", "m", "-b", "http://127.0.0.1:9/v1")
    printed = nightjar.start("eval", "get", nightjar.run).wait().stdout
    assert "Error:       RunAbortedError: " in printed
    assert "To do:       model API: " in printed


def test_samples_are_paged_and_chosen(shared):
    run = shared.runs[2]
    rows = run.results
    assert [row["example_id"] for row in shared.json("eval", "samples", run, "--limit", 3, "--skip", 2)] == [2, 3, 4]
    failed = [row["example_id"] for row in rows if row["error"]]
    assert 0 < len(failed) < 8
    assert [row["example_id"] for row in shared.json("eval", "samples", run, "--failed", "--limit", 9)] == failed
    both = [row["example_id"] for row in shared.json("eval", "samples", run, "--failed", "--wrong", "--limit", 9)]
    assert both == [row["example_id"] for row in rows if row["error"] or row["reward"] < 0.5]
    assert shared.json("eval", "samples", run, "--example", 3) == [rows[3]]
    printed = shared.start("eval", "samples", run, "--limit", 3).wait()
    assert rows[0]["prompt"][-1]["content"] in printed.stdout
    assert "--page 2" in printed.stderr
    second = [row["example_id"] for row in shared.json("eval", "samples", run, "-n", 3, "-p", 2)]
    assert second == [3, 4, 5]
    assert "--skip 5" in shared.start("eval", "samples", run, "-n", 3, "--skip", 2).wait().stderr


def test_examples_whose_rollouts_disagree_are_grouped_and_chosen(nightjar, serve):
    nightjar.eval("arithmetic", "-n", 6, "-r", 4, server=serve(ArithmeticSolver(error_rate=0.5, seed=5)))
    run = nightjar.run
    by_example = {}
    for row in run.results:
        by_example.setdefault(row["example_id"], []).append(row["reward"])
    groups = nightjar.json("eval", "samples", run, "--grouped")
    assert [[each["reward"] for each in group["rollouts"]] for group in groups] == [*by_example.values()]
    assert [group["mean"] for group in groups] == [sum(rewards) / 4 for rewards in by_example.values()]
    flipped = [example for example, rewards in by_example.items() if 0 < sum(rewards) < 4]
    assert len(flipped) > 0
    assert [group["example_id"] for group in nightjar.json("eval", "samples", run, "--grouped", "--flipped")] == flipped
    wrong = nightjar.json("eval", "samples", run, "--flipped", "--wrong", "-n", 100)
    assert {(row["example_id"], row["reward"]) for row in wrong} == {(example, 0.0) for example in flipped}
    printed = nightjar.start("eval", "samples", run, "-g", "-n", 2, COLUMNS="80").wait()
    assert run.results[0]["prompt"][-1]["content"][:8] in printed.stdout
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert "--page 2" in printed.stderr


def test_a_long_text_is_cut_unless_all_is_asked_for_and_never_reaches_a_screen_raw(shared, nightjar, serve):
    printed = shared.start("eval", "samples", shared.runs[1]).wait().stdout
    assert "\\boxed{0}" in printed
    assert not set("\x1b\x07") & set(printed)
    nightjar.eval("arithmetic", "-n", 1, "-r", 1, server=serve(FixedAnswer("word " * 1000)))
    assert "3,500 more characters: --full" in nightjar.start("eval", "samples", nightjar.run).wait().stdout
    assert "word " * 1000 in nightjar.start("eval", "samples", nightjar.run, "--full").wait().stdout


def test_the_command_of_a_run_runs_it_again(nightjar, serve):
    server = serve()
    settings = ("-T", 0.3, "-t", 77, "-S", '{"top_p": 0.9}', "-a", '{"num_problems": 9}', "--tag", "a", "--tag", "b c")
    more = ("-C", "task,trajectory_id", "-N", "-i", "-c", 5, "--shuffle-seed", 4, "--max-retries", 2,
            "--header", "X-Team: $TEAM", "--header-from-state", "X-Example: example_id", "--seed", 3)  # fmt: skip
    nightjar.env["TEAM"] = "blue"
    assert nightjar.eval("arithmetic", "-n", 4, "-r", 2, *settings, *more, server=server).code == 0
    first = nightjar.json("eval", "view-config", nightjar.run)
    _, *command = first["command"]
    assert nightjar.start(*command, "--direct").wait().code == 0
    assert nightjar.json("eval", "view-config", nightjar.runs[1])["config"] == first["config"]
    printed = nightjar.start("eval", "view-config", nightjar.runs[0]).wait().stdout
    assert shlex.split(printed.splitlines()[-1]) == first["command"]


def test_a_run_of_which_the_directory_is_gone_is_read_from_the_warehouse(shared):
    run = shared.runs[0]
    first, results = run.metadata, run.results
    rows = [{name: row[name] for name in ("prompt", "completion", "reward", "answer")} for row in results]
    away = run.path.rename(shared.folder / "away")
    assert [run["path"] for run in shared.json("eval", "list")][-1] is None
    got = shared.json("eval", "get", first["run_id"])
    assert (got["avg_reward"], got["path"]) == (first["avg_reward"], None)
    assert [{name: row[name] for name in rows[0]} for row in shared.json("eval", "samples", first["run_id"])] == rows
    assert "its directory is not here" in shared.start("eval", "view-config", first["run_id"]).wait().error
    away.rename(run.path)
