"""Run directories that release 0.1.0 wrote, in ``older_runs``: everything that can be done with a run, on a copy."""

import json
import shutil
from pathlib import Path

import pytest

from nightjar.engine.runs import RunDirectory

pytestmark = pytest.mark.long

OLDER = Path(__file__).parent / "older_runs"
RUN_ID = "7ea6218f54b3"
FOLDER = Path("outputs/evals/arithmetic--local") / RUN_ID
COMMANDS = [
    "eval run --direct --resume", "eval retry", "eval repair", "eval rescore", "eval get", "publish",
    "publish --new-id",
]  # fmt: skip


@pytest.fixture
def older(nightjar, serve):
    """A copy of the run of the command line: 3 examples of two rollouts, of a server that is there."""
    server = serve()
    path = shutil.copytree(OLDER / "arithmetic--local" / RUN_ID, nightjar.folder / FOLDER)
    change(path, base_url=server.url)
    return server


def change(path, **values):
    """Changes both the configuration and the metadata of a run."""
    config = json.loads((path / "config.json").read_bytes())
    (path / "config.json").write_text(json.dumps(config | values))
    directory = RunDirectory(path)
    directory.write_metadata(directory.read_metadata() | values)


def test_the_fixture_is_of_the_first_version():
    for name in ("config.json", "metadata.json"):
        assert "format" not in json.loads((OLDER / "run" / name).read_bytes())
        assert "format" not in json.loads((OLDER / "arithmetic--local" / RUN_ID / name).read_bytes())


def test_it_is_listed_read_published_and_extended(nightjar, older):
    [run] = nightjar.json("eval", "list")
    assert (run["run_id"], run["status"], run["avg_reward"]) == (RUN_ID, "completed", 0.5)
    assert RUN_ID in nightjar.start("eval", "get", RUN_ID).wait().ok().stdout
    nightjar.start("publish", FOLDER).wait().ok()
    assert "Already there" in nightjar.start("publish", FOLDER).wait().ok().stdout
    nightjar.start("eval", "run", "--resume", FOLDER, "--direct").wait().ok()
    assert older.stats().received == 0, "nothing is left to do"
    assert nightjar.sql("SELECT run_id, scored FROM runs") == [(RUN_ID, 6)]
    nightjar.start("eval", "run", "--resume", FOLDER, "-n", 5, "--direct").wait().ok()
    assert older.stats().received == 4, "two rollouts of two more examples"
    assert nightjar.sql("SELECT run_id, num_examples, scored FROM runs") == [(RUN_ID, 5, 10)]
    written = [json.loads((nightjar.folder / FOLDER / name).read_bytes()) for name in ("config.json", "metadata.json")]
    assert [(each["run_id"], each["format"]) for each in written] == [(RUN_ID, 2)] * 2


def test_a_killed_run_is_resumed_from_its_ledger(nightjar, older):
    path = nightjar.folder / FOLDER
    (path / "metadata.json").unlink()
    for name, kept in (("attempts.jsonl", 5), ("results.jsonl", 2)):
        (path / name).write_bytes(b"".join((path / name).read_bytes().splitlines(keepends=True)[:kept]))
    nightjar.start("eval", "run", "--resume", FOLDER, "--direct").wait().ok()
    assert older.stats().received == 1
    assert nightjar.sql("SELECT run_id, scored FROM runs") == [(RUN_ID, 6)]


def test_it_is_scored_again_compared_pushed_and_pulled(nightjar, older, nightjar_in, tmp_path_factory):
    nightjar.start("publish", FOLDER).wait().ok()
    printed = nightjar.json("eval", "rescore", RUN_ID)
    assert printed["rescored_from"] == RUN_ID
    assert nightjar.sql("SELECT count(*), count(DISTINCT avg_reward) FROM runs") == [(2, 1)]
    assert nightjar.json("compare", RUN_ID, printed["run_id"])["pairs"] == 3
    there = nightjar_in(tmp_path_factory.mktemp("there"))
    exchange = str(tmp_path_factory.mktemp("exchange") / "warehouse")
    nightjar.start("eval", "push", FOLDER, "--to", exchange).wait().ok()
    there.start("eval", "pull", RUN_ID, "--from", exchange).wait().ok()
    assert there.sql("SELECT run_id, scored FROM runs") == [(RUN_ID, 6)]
    assert there.run.results == next(run.results for run in nightjar.runs if run.path.name == RUN_ID)
    assert older.stats().received == 0


def test_a_directory_of_a_newer_release_is_refused_and_stays_as_it_is(nightjar, older):
    shutil.copytree(nightjar.folder / FOLDER, nightjar.folder / FOLDER.with_name("older"))
    change(nightjar.folder / FOLDER, format=3)
    before = [run.content for run in nightjar.runs]
    for command in COMMANDS:
        said = nightjar.start(*command.split(), FOLDER).wait().error
        assert all(fact in said for fact in (" 3", " 2", "pip install --upgrade nightjar-evals")), command
        assert [run.content for run in nightjar.runs] == before, command
    listed = nightjar.start("eval", "list", "--json").wait().ok()
    assert [run["run_id"] for run in json.loads(listed.stdout)] == [RUN_ID]
    assert RUN_ID in listed.stderr, "the list names it and shows the other runs"
    assert older.stats().received == 0
