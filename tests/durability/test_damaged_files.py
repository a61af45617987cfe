"""Files that a crash or an editor has damaged are repaired where that is safe, and otherwise left unchanged."""

import shutil

import pytest

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

SETTINGS = ("-n", 5, "-r", 2)
FILES = ("attempts.jsonl", "attempts.checksums", "results.jsonl", "results.checksums", "metadata.json", "config.json")


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


@pytest.fixture(scope="module")
def interrupted(nightjar_in, tmp_path_factory):
    """The server and folder of a run that was killed when at least 6 of its 20 rollouts were scored."""
    nightjar = nightjar_in(tmp_path_factory.mktemp("killed"))
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=30)) as server:
        command = nightjar.start_eval("arithmetic", "-n", 10, "-r", 2, "-c", 2, server=server)
        command.wait_until(lambda: nightjar.runs and nightjar.run.count_lines("results.jsonl") >= 6)
        assert command.kill().code == -9
        yield server, nightjar.folder / "outputs"


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


@pytest.fixture
def killed(nightjar, interrupted):
    """A copy of the killed run. Its lines have checksums, because its metadata have none yet."""
    server, folder = interrupted
    shutil.copytree(folder, nightjar.folder / "outputs")
    server.reset_stats()
    return nightjar.run


@pytest.mark.long
@pytest.mark.parametrize(("state", "commands"), [
    ("run", ["eval rescore", "eval stats"]), ("killed", ["eval run --direct --resume", "publish", "eval samples"]),
])  # fmt: skip
def test_a_changed_reward_is_refused_everywhere_until_it_is_set_aside(nightjar, request, state, commands):
    run = request.getfixturevalue(state)
    server = request.getfixturevalue("interrupted")[0] if state == "killed" else request.getfixturevalue("server")
    path, generated, scored = run.path / "results.jsonl", len(run.attempts), len(run.results)
    path.write_bytes(run.content[path.name].replace(b'"reward":1.0', b'"reward":0.5', 1))
    before = [run.content[name] for name in FILES]
    for command in commands:
        refused = nightjar.start(*command.split(), run.path).wait().error
        assert f"{path}, line 1 is damaged: it is not what the run wrote" in refused, command
        assert f"nightjar eval repair {run.path}" in refused
    assert ([run.content[name] for name in FILES], server.stats().received) == (before, 0)
    nightjar.start("eval", "repair", run.path).wait().ok()
    assert len(run.results) == scored - 1
    assert nightjar.start("eval", "run", "--direct", "--resume", run.path).wait().code == 0
    whole = 20 if state == "killed" else 10
    assert (run.metadata["avg_reward"], run.metadata["scored"]) == (1.0, whole)
    assert server.stats().received == whole - generated, "what the ledger holds was asked for again"
    assert [run.content[name].count(b"\n") for name in FILES[:4]] == [whole] * 4


@pytest.mark.long
def test_without_checksums_of_lines_a_changed_file_is_set_aside_as_a_whole(nightjar, server, run):
    resume = ("eval", "run", "--direct", "--resume", run.path)
    for name in ("results.jsonl", "attempts.jsonl"):
        path = run.path / name
        path.with_suffix(".checksums").unlink()
        path.write_bytes(run.content[name].replace(b"boxed{", b"boxed{1", 1))
        changed = f"Error: {path} was changed after the run had ended. "
        assert nightjar.start(*resume).wait().only_line.startswith(changed)
        nightjar.start("eval", "repair", run.path).wait().ok()
        assert run.content[name] == b""
        assert nightjar.start(*resume).wait().code == 0
        assert (run.metadata["avg_reward"], run.metadata["scored"], server.stats().received) == (1.0, 10, 0)


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


def resume(nightjar, run):
    return nightjar.start("eval", "run", "--direct", "--resume", run.path).wait()


@pytest.mark.long
def test_removed_lines_of_a_killed_run_are_found(nightjar, killed):
    names = ("attempts.jsonl", "results.jsonl")
    for name in names:
        lines = killed.content[name].splitlines(keepends=True)
        (killed.path / name).write_bytes(b"".join([*lines[:2], *lines[3:]]))
    first = killed.path / names[0]
    assert f"{first}, line 3 is damaged: it is not what the run wrote" in resume(nightjar, killed).only_line
    repaired = nightjar.start("eval", "repair", killed.path).wait().ok().stdout
    told = "lines of {} were moved or removed. The other lines are kept"
    assert [name for name in names if told.format(name) not in repaired] == []
    assert resume(nightjar, killed).code == 0
    assert killed.metadata["scored"] == 20


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 3 * 17 + 5], ids=["none", "three and a part"])
def test_a_crash_of_the_machine_may_lose_checksums(nightjar, killed, left):
    for path in killed.path.glob("*.checksums"):
        path.write_bytes(path.read_bytes()[:left].ljust(400, b"\0") if left else b"")
    assert resume(nightjar, killed).code == 0
    assert killed.metadata["scored"] == 20


def test_lines_that_are_missing_at_the_end_are_done_again_with_a_warning(nightjar, killed):
    path = killed.path / "attempts.jsonl"
    path.write_bytes(b"".join(killed.content[path.name].splitlines(keepends=True)[:-2]))
    ended = resume(nightjar, killed).ok()
    assert f"WARNING {path}: the last 2 lines are missing; their work is repeated" in ended.stderr
    assert killed.metadata["scored"] == 20


@pytest.mark.long
@pytest.mark.parametrize(("name", "again"), [("results.jsonl", 0), ("attempts.jsonl", 1)])
def test_a_torn_last_line_of_a_killed_run_is_done_again(nightjar, killed, interrupted, name, again):
    path, (server, _) = killed.path / name, interrupted
    generated = len(killed.attempts)
    path.write_bytes(killed.content[name][:-30])
    if again:  # all answers but the last are in the ledger, and no result
        (killed.path / "results.jsonl").write_bytes(b"")
    ended = resume(nightjar, killed).ok()
    assert f"WARNING {path}: cut off an incomplete last line of " in ended.stderr
    assert (killed.metadata["avg_reward"], killed.metadata["scored"]) == (1.0, 20)
    assert server.stats().received == 20 - generated + again
