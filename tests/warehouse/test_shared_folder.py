"""A warehouse in a folder of several people: root publishes first, then another user."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

import pytest

import nightjar.warehouse
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root may")

NOBODY = 65534

AS_NOBODY = f"""
import json, logging, os, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.repair import described_segments
from nightjar.warehouse.storage.folder import Folder
with TemporaryDirectory() as beside:  # imports what root alone may read where Python is its own
    Warehouse(beside).publish(Path(sys.argv[1]).parent / "one")
    Warehouse(beside)._backend.ask(id)
    [segment] = os.listdir(beside + "/segments")
    Folder(Path(beside)).remove(segment)
logging.basicConfig(format="%(message)s")
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.umask(int(sys.argv[2], 8))
house, folder = Warehouse(sys.argv[1]), Folder(Path(sys.argv[1]))
try:
    print(json.dumps(eval(sys.argv[3]), default=str))
except WarehouseError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture
def place():
    """A folder that everybody may write, which one of pytest's is not."""
    with TemporaryDirectory(prefix="nightjar-shared-") as path:
        Path(path).chmod(0o777)
        yield Path(path)


@pytest.fixture
def shared(place):
    """A warehouse that everybody may write."""
    (place / "shared" / "segments").mkdir(parents=True)
    for path in (place / "shared", place / "shared" / "segments"):
        path.chmod(0o777)
    return place / "shared"


@pytest.fixture
def as_nobody(shared, place, fork):
    """Evaluates an expression as another user; gives its value, or the message of its error, and what was logged."""

    sources = Path(nightjar.warehouse.__file__).parent / "writing" / "publish.sql"
    if subprocess.run(["test", "-r", sources], user=NOBODY, check=False).returncode:
        pytest.skip("others may not read Nightjar's files")

    def evaluate(expression, umask="002"):
        environment = {**os.environ, "HOME": str(place), "TMPDIR": str(place)}
        asked = fork.python(AS_NOBODY, shared, umask, expression, env=environment, stdout=PIPE, stderr=PIPE)
        printed, logged = asked.communicate()
        assert asked.returncode == 0, logged
        return json.loads(printed), logged.strip()

    return evaluate


def segments(shared):
    return sorted((shared / "segments").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("umask", ["002", "077"])
def test_everybody_publishes(shared, place, write_run, as_nobody, umask):
    import duckdb

    Warehouse(shared).publish(write_run(place, "one"))
    write_run(place, "two")
    assert as_nobody(f"house.publish({str(place / 'two')!r}).is_new", umask) == (True, "")
    with duckdb.connect(str(shared / "nightjar.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall() == [("one",), ("two",)]
    assert [oct(path.stat().st_mode)[-3:] for path in segments(shared)] == ["777", "777"]
    assert {oct(path.stat().st_mode)[-3:] for path in shared.glob("segments/*/*")} == {"444"}


def test_a_segment_of_another_user_is_removed(shared, place, write_run, as_nobody):
    Warehouse(shared).publish(write_run(place, "one"))
    [segment] = segments(shared)
    assert as_nobody(f"folder.remove({segment.name!r})") == (None, "")
    assert segments(shared) == []


def test_files_that_cannot_be_removed_stay_until_their_owner_removes_them(shared, place, write_run, as_nobody):
    from nightjar.warehouse.storage.folder import Folder

    Warehouse(shared).publish(write_run(place, "one"))
    [segment] = segments(shared)
    segment.chmod(0o755)
    _, log = as_nobody(f"folder.remove({segment.name!r})")
    [grave] = segments(shared)
    assert log.startswith(f"Segment {segment.name!r} is no longer part of the warehouse, but its files cannot be remov")
    assert log.endswith(f"nightjar warehouse doctor --fix --warehouse {shared}")
    assert str(grave) in log
    Folder(shared).remove_leftovers()
    assert segments(shared) == []


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["house._backend.ask(id)", "described_segments(folder)"])
def test_a_segment_that_may_not_be_read_is_named(shared, place, write_run, as_nobody, asked):
    """It may be sound: the doctor does not set it aside."""
    Warehouse(shared).publish(write_run(place, "one"))
    [segment] = segments(shared)
    segment.chmod(0o700)
    message, _ = as_nobody(asked)
    assert message.startswith(f"Cannot read segment {segment.name!r} of the warehouse {shared}: segment.json: Permiss")
    assert message.endswith(f"chmod -R a+rX {shlex.quote(str(segment))}")


def test_prices_that_may_not_be_read_are_named(shared, place, write_run, as_nobody):
    from nightjar.warehouse.storage.folder import Folder

    Warehouse(shared).publish(write_run(place, "one"))
    Folder(shared).write_prices([])
    [prices] = shared.glob("prices*")
    prices.chmod(0o600)
    assert as_nobody("house._backend.ask(id)")[0] == f"Cannot read {prices}: Permission denied"
