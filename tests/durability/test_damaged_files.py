"""Files that a crash or an editor has damaged are repaired where that is safe, and otherwise left unchanged."""

import shutil

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer

SETTINGS = ("-n", 5, "-r", 2)


@pytest.fixture(scope="module")
def server():
    with ModelServer(ArithmeticSolver()) as server:
        yield server


@pytest.fixture(scope="module")
def complete(nightjar_in, server, tmp_path_factory):
    """The folder of a complete run of ten rollouts."""
    nightjar = nightjar_in(tmp_path_factory.mktemp("complete"))
    assert nightjar.eval("arithmetic", *SETTINGS, server=server).code == 0
    return nightjar.folder / "outputs"


@pytest.fixture
def run(nightjar, server, complete):
    shutil.copytree(complete, nightjar.folder / "outputs")
    server.reset_stats()
    return nightjar.run


@pytest.mark.long
def test_damaged_lines_are_set_aside_and_done_again(nightjar, server, run):
    for name, damage in (("attempts.jsonl", b"{}\n"), ("results.jsonl", b'{"reward": ""}\n')):
        lines = run.content[name].splitlines(keepends=True)
        lines[3] = damage
        (run.path / name).write_bytes(b"".join(lines))
    before = run.content
    refused = nightjar.eval("arithmetic", *SETTINGS, "--resume", run, server=server)
    assert refused.only_line.startswith(f"Error: {run.path / 'attempts.jsonl'}, line 4 is damaged: ")
    assert refused.stderr.endswith(f"nightjar eval repair {run.path}\n")
    assert (run.content, server.stats().received) == (before, 0)
    repaired = nightjar.start("eval", "repair", run.path).wait().ok()
    assert [line.partition(" is damaged: ")[0] for line in repaired.stdout.splitlines()[:2]] == [
        f"Set aside: {run.path / name}, line 4" for name in ("attempts.jsonl", "results.jsonl")
    ]
    assert nightjar.start("eval", "repair", run.path).wait().stdout == "Nothing is damaged.\n"
    assert nightjar.eval("arithmetic", *SETTINGS, "--resume", run, server=server).code == 0
    assert len(run.results_that_count) == 10
    assert server.stats().received == 1, "what a line of the ledger held was asked for again"
    assert (run.path / "results.damaged").read_bytes() == b'{"reward": ""}\n'


def test_a_changed_reward_is_not_published_silently(nightjar, server, run):
    path = run.path / "results.jsonl"
    path.write_bytes(run.content[path.name].replace(b'"reward":1.0', b'"reward":0.5', 1))
    refused = nightjar.start("publish", run.path).wait()
    assert (refused.code, f"{path} was changed after the run had ended" in refused.stderr) == (1, True)
    resumed = nightjar.eval("arithmetic", *SETTINGS, "--resume", run, server=server)
    assert f"WARNING {path} was changed after the run had ended. Its present content is summarized" in resumed.stderr
    assert run.metadata["avg_reward"] == 0.95
    assert nightjar.start("publish", run.path).wait().code == 0


def test_a_changed_number_in_the_metadata_is_damage(nightjar, server, run):
    path = run.path / "metadata.json"
    path.write_bytes(run.content[path.name].replace(b'"avg_reward": 1.0', b'"avg_reward": 0.5', 1))
    refused = nightjar.start("publish", run.path).wait()
    assert refused.code == 1
    assert refused.stderr == f"Error: {path} is damaged: it was changed after it was written\n"
    assert nightjar.start("eval", "repair", run.path).wait().code == 0
    assert nightjar.eval("arithmetic", *SETTINGS, "--resume", run, server=server).code == 0
    assert run.metadata["avg_reward"] == 1.0
    assert server.stats().received == 0


@pytest.mark.parametrize(("name", "requests"), [("results.jsonl", 0), ("attempts.jsonl", 1)])
def test_a_torn_last_line_is_done_again(nightjar, server, run, name, requests):
    whole, path = run.results_that_count, run.path / name
    path.write_bytes(run.content[name][:-30])
    if requests:  # nine answers are in the ledger, and no result
        (run.path / "results.jsonl").write_bytes(b"")
    ended = nightjar.eval("arithmetic", *SETTINGS, "--resume", run, server=server).ok()
    assert f"WARNING {path}: cut off an incomplete last line of " in ended.stderr
    assert run.results_that_count == whole
    assert server.stats().received == requests
