"""The id of a run: drawn with its directory and stored there; older runs get one when they are opened."""

import json
import re
import shutil
from pathlib import Path

import pytest

from nightjar.clients import ClientConfig
from nightjar.engine.runs import RunDirectory, give_new_id, new_run_id
from nightjar.engine.runs.repair import repair
from nightjar.environments import SingleTurnEnv
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ConfigError, NewerRunDirectoryError
from nightjar.model_server import ArithmeticSolver, ModelServer

OLDER = Path(__file__).parents[1] / "durability" / "older_runs"
DRAWN = re.compile(r"[0-9a-f]{12}")


@pytest.fixture(scope="module")
def server():
    with ModelServer(ArithmeticSolver()) as running:
        yield running


class Watched(SingleTurnEnv):
    """Notes what the run directory holds when the first request is about to be made."""

    def __init__(self, examples=3, watched=None):
        rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(examples)]
        right = lambda completion, answer: float(f"{{{answer}}}" in completion[-1].content)  # noqa: E731
        super().__init__(dataset=rows, rubric=Rubric(funcs=[right]))
        self.watched, self.seen = watched, None

    async def setup_state(self, state):
        if self.watched and self.seen is None:
            self.seen = read(self.watched, "config.json")


def evaluate(server, path, env=None, model="m"):
    config = ClientConfig(api_base_url=server.base_url)
    return (env or Watched()).evaluate_sync(config, model, results_path=path)["metadata"]


def read(folder, name):
    return json.loads((folder / name).read_bytes())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def ids(folder):
    return read(folder, "config.json").get("run_id"), read(folder, "metadata.json").get("run_id")


@pytest.fixture
def older(tmp_path, server):
    """A copy of a run that release 0.1.0 made from Python with ``results_path="run"``, of the server of these tests."""
    folder = shutil.copytree(OLDER / "run", tmp_path / "run")
    here = {"base_url": server.base_url}
    (folder / "config.json").write_text(json.dumps(read(folder, "config.json") | here))
    metadata = RunDirectory(folder).read_metadata() | here
    RunDirectory(folder).write_metadata(metadata)
    return folder


def test_the_id_is_drawn_and_stored_before_the_first_request_or_is_the_name_that_nightjar_gave(server, tmp_path):
    env = Watched(watched=tmp_path / "run")
    run_id = evaluate(server, tmp_path / "run", env)["run_id"]
    assert DRAWN.fullmatch(run_id)
    assert (env.seen["run_id"], env.seen["format"]) == (run_id, 2)
    assert ids(tmp_path / "run") == (run_id, run_id)
    assert evaluate(server, tmp_path / "elsewhere" / "run")["run_id"] != run_id
    assert evaluate(server, tmp_path / "0a1b2c3d4e5f")["run_id"] == "0a1b2c3d4e5f"


def test_a_run_without_metadata_keeps_its_id(server, tmp_path):
    before = evaluate(server, tmp_path / "run")["run_id"]
    (tmp_path / "run" / "metadata.json").unlink()
    assert RunDirectory(tmp_path / "run").run_id == before
    assert evaluate(server, tmp_path / "run")["run_id"] == before
    (tmp_path / "run" / "metadata.json").write_text("{")
    assert len(repair(RunDirectory(tmp_path / "run"))) == 1
    assert evaluate(server, tmp_path / "run")["run_id"] == before


def test_an_older_run_known_only_by_its_folder_gets_an_id_when_it_is_opened(server, older, caplog):
    """Release 0.1.0 took the folder's name for the id, and stored it in ``metadata.json`` alone."""
    caplog.set_level("INFO", "nightjar")
    before = contents(older)
    with pytest.raises(Exception, match="model: saved 'model-a', asked for 'model-b'"):
        evaluate(server, older, model="model-b")
    assert contents(older) == before, "a refused resume changes nothing"
    run_id = evaluate(server, older, model="model-a")["run_id"]
    assert DRAWN.fullmatch(run_id)
    assert ids(older) == (run_id, run_id)
    assert [each for each in caplog.messages if all(fact in each for fact in (str(older), "'run'", run_id))]
    assert contents(older)["attempts.jsonl"] == before["attempts.jsonl"], "no request is repeated"
    assert evaluate(server, older, model="model-a")["run_id"] == run_id


@pytest.mark.parametrize(
    "known",
    [
        {"published_at": "2026-11-24T00:14:33+00:00"}, {"original": {"by": "other"}}, {"run_id": "7ea6218f54b3"},
        {"run_id": "7ea6218f54b3.part-2-of-4"}, {"run_id": "nightly.part-1-of-2"},
    ],
    ids=str,
)  # fmt: skip
def test_an_older_run_that_a_warehouse_may_know_or_nightjar_has_named_keeps_its_id(server, older, known):
    RunDirectory(older).write_metadata(RunDirectory(older).read_metadata() | known)
    run_id = known.get("run_id", "run")
    assert evaluate(server, older, model="model-a")["run_id"] == run_id
    assert ids(older) == (run_id, run_id)


def test_an_older_run_that_was_killed_before_its_first_metadata(server, older, tmp_path):
    (older / "metadata.json").unlink()
    named = shutil.copytree(older, tmp_path / "7ea6218f54b3")
    assert DRAWN.fullmatch(evaluate(server, older, model="model-a")["run_id"])
    assert evaluate(server, named, model="model-a")["run_id"] == "7ea6218f54b3"


def test_damaged_metadata_of_an_older_run_keep_the_id_and_newer_ones_are_not_moved_aside(server, older):
    metadata = read(older, "metadata.json")
    (older / "metadata.json").write_text(json.dumps(metadata | {"avg_reward": 0.9}))
    assert len(repair(RunDirectory(older))) == 1
    assert evaluate(server, older, model="model-a")["run_id"] == "run"
    RunDirectory(older).write_metadata(RunDirectory(older).read_metadata() | {"format": 3})
    with pytest.raises(NewerRunDirectoryError):
        repair(RunDirectory(older))
    assert read(older, "metadata.json")["format"] == 3


def test_a_new_id_is_random_stored_and_was_not_published_but_a_part_keeps_its_id(older):
    directory = RunDirectory(older)
    metadata = directory.read_metadata()
    directory.write_metadata(metadata | {"run_id": "0a1b.part-1-of-2"})
    with directory, pytest.raises(ConfigError, match=r"'0a1b\.part-1-of-2'"):
        give_new_id(directory)
    directory = RunDirectory(older)
    directory.write_metadata(metadata | {"published_at": "2026-11-24T00:14:33+00:00"})
    with directory:
        run_id = give_new_id(directory)
    assert DRAWN.fullmatch(run_id)
    assert ids(older) == (run_id, run_id)
    assert RunDirectory(older).run_id == directory.run_id == run_id
    assert "published_at" not in RunDirectory(older).read_metadata()
    assert len({new_run_id() for _ in range(1000)}) == 1000


def test_unknown_fields_of_lines_of_newer_directories_are_ignored(server, tmp_path):
    evaluate(server, tmp_path / "run", Watched(2))
    for name in ("attempts.jsonl", "results.jsonl"):
        path = tmp_path / "run" / name
        rows = [json.loads(line) | {"later": {"a": 1}} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory = RunDirectory(tmp_path / "run")
    directory.write_metadata(directory.read_metadata() | {"digests": directory.digests()})
    again = evaluate(server, tmp_path / "run", Watched(3))
    assert (again["scored"], again["failed"]) == (3, 0)
