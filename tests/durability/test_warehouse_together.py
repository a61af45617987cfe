"""Many processes publish, query and pack at once: every run counts, whole and once, and nobody is refused.

The same with publishers that are killed with -9 at random moments.
"""

import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest
from drawing import drawn
from programs import PUBLISH, READ

from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

EXAMPLES = 2
ROLLOUTS = 2 * EXAMPLES
PATIENCE_SECONDS = 600
SIZES = [(3, 6, False), (2, 6, True), *drawn([(8, 10, False), (2, 12, True)], 0)]

PACKER = """
import sys
import time
from pathlib import Path
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.writing.packing import pack_everything
folder = Folder(Path(sys.argv[1]))
packed = 0
while not Path(sys.argv[2]).exists():
    packed += pack_everything(folder)
    time.sleep(0.02)
print(packed)
"""


def finish(process):
    out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")
    return out


@pytest.fixture
def run_dirs(tmp_path, run_writer):
    whole = {"num_examples": EXAMPLES, "rollouts": ROLLOUTS, "scored": ROLLOUTS, "failed": 0, "status": "completed"}

    def make(publishers, runs_each):
        rollouts = [run_writer.rollout(example, index) for example in range(EXAMPLES) for index in range(2)]
        attempts = [run_writer.attempt(example, index) for example in range(EXAMPLES) for index in range(2)]
        folders = [tmp_path / "runs" / str(publisher) for publisher in range(publishers)]
        for publisher, folder in enumerate(folders):
            for number in range(runs_each):
                run_id = f"{publisher}-{number:02}"
                run_writer.write(folder / run_id, rollouts, attempts, run_id=run_id, **whole)
        return folders

    return make


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "warehouse" / "segments").mkdir(parents=True)
    return tmp_path / "warehouse"


@pytest.fixture
def start(fork):
    with ExitStack() as started:

        def start(script, *arguments):
            strict = f"import warnings; warnings.simplefilter('error'){script}"
            return started.enter_context(fork.python(strict, *arguments, stdout=PIPE, stderr=PIPE))

        yield start


def check(folder, runs):
    from nightjar.warehouse.doctor import diagnose
    from nightjar.warehouse.storage.folder import Folder

    warehouse = Warehouse(folder)
    counts = "SELECT count(*), count(DISTINCT run_id) FROM"
    assert warehouse.query(f"{counts} runs").rows == [(runs, runs)]
    assert warehouse.query(f"{counts} rollouts").rows == [(ROLLOUTS * runs, runs)]
    assert warehouse.query(f"{counts} attempts").rows == [(ROLLOUTS * runs, runs)]
    twice = "SELECT 1 FROM rollouts GROUP BY run_id, example_id, rollout_index HAVING count(*) > 1"
    assert warehouse.query(twice).rows == []
    assert warehouse.query("SELECT count(*) FROM examples").rows == [(EXAMPLES,)]
    diagnosis = diagnose(Folder(folder), deep=True)
    assert [finding for finding in diagnosis.findings if finding.needs_action] == []


def hidden(folder):
    return [path.name for path in folder.rglob(".*")]


@pytest.mark.parametrize(("publishers", "runs_each", "is_packed"), SIZES)
def test_many_publish_while_others_query(folder, run_dirs, start, tmp_path, publishers, runs_each, is_packed):
    """``is_packed``: another process packs all the time, and removes at once what it packed."""
    done = tmp_path / "done"
    packer = start(PACKER, folder, done) if is_packed else None
    readers = [start(READ, folder, publishers * runs_each) for _ in range(publishers // 2)]
    writers = [start(PUBLISH, folder, *sorted(own.iterdir())) for own in run_dirs(publishers, runs_each)]
    for process in writers + readers:
        finish(process)
    done.touch()
    assert packer is None or int(finish(packer)) > 2
    check(folder, publishers * runs_each)
    assert list(folder.glob("segments/pack-*")), "packing happened meanwhile"
    assert hidden(folder) == []


@pytest.mark.parametrize("seed", drawn([1, 2, 3], 1))
def test_publishers_are_killed_at_random_moments(folder, run_dirs, start, seed):
    """Ten kills in some seconds; a killed publisher restarts and publishes all of its runs again."""
    moments = random.Random(seed)
    publishers, runs_each = 3, 6
    own = run_dirs(publishers, runs_each)
    reader = start(READ, folder, publishers * runs_each)
    running = {number: start(PUBLISH, folder, *sorted(own[number].iterdir())) for number in range(publishers)}
    for _ in range(10):
        time.sleep(moments.uniform(0.05, 0.6))
        number = moments.randrange(publishers)
        running[number].kill()
        running[number].communicate()
        running[number] = start(PUBLISH, folder, *sorted(own[number].iterdir()))
    for process in running.values():
        finish(process)
    finish(reader)
    check(folder, publishers * runs_each)
    last = next(own[0].iterdir())
    metadata = json.loads((last / "metadata.json").read_bytes())
    (last / "metadata.json").write_text(json.dumps({**metadata, "finished_at": "2026-11-21T00:00:00Z"}))
    assert Warehouse(folder).publish(last).is_new
    assert hidden(folder) == [], "the next publish removes what the dead left"
    check(folder, publishers * runs_each)


def test_a_retired_segment_stays_for_those_who_read_it(folder, run_dirs, monkeypatch):
    """A connection reads its segments for an hour, whatever is packed."""
    from nightjar.warehouse.writing import packing

    monkeypatch.setattr(packing, "FAN_IN", 4)
    assert packing.RETIRED_FOR.total_seconds() == 3600
    [own] = run_dirs(1, 5)
    warehouse = Warehouse(folder)
    published = sorted(own.iterdir())
    for run_dir in published[:2]:
        warehouse.publish(run_dir)
    with warehouse.connect() as connection:
        for run_dir in published[2:]:
            warehouse.publish(run_dir)
        packed = [path for path in Path(folder / "segments").iterdir() if path.name.startswith("pack-")]
        assert len(packed) == 1
        assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(2 * ROLLOUTS,)]
