"""A warehouse in an object store: real S3 requests to moto's server, from several processes at once."""

import itertools
import json
import os
import signal
import socket
import uuid
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from subprocess import PIPE

import pytest
from drawing import drawn
from programs import PUBLISH, READ

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.backend import open_store
from nightjar.warehouse.pruning import prune
from nightjar.warehouse.reading.querying import run_query
from nightjar.warehouse.storage import object_store, remote_files
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.records import price
from nightjar.warehouse.storage.tables import SCHEMA
from nightjar.warehouse.writing.packing import merge, pack_everything

PUBLISH_ALL_BUT_THE_LAST_FILE = """
import sys, time
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage import object_store
def wait(*_):
    print("uploaded", flush=True)
    time.sleep(60)
object_store.ObjectStore._write = wait
Warehouse(sys.argv[1]).publish(sys.argv[2])
"""

KINDS = ("rollouts", "attempts", "metrics", "examples", "leaderboard")
CONTENTS = {"runs": "SELECT * EXCLUDE (version, published_at, run_dir) FROM runs ORDER BY ALL"}
CONTENTS |= {kind: f"FROM {kind} ORDER BY ALL" for kind in KINDS}


def contents(warehouse):
    return {name: warehouse.query(sql).rows for name, sql in CONTENTS.items()}


def ask_here(warehouse, sql):
    """Asks in this process, where a test has changed something."""
    return warehouse._backend.ask(lambda connection: run_query(connection, sql, None)).rows


def runs(warehouse):
    return [run_id for (run_id,) in warehouse.query("SELECT run_id FROM runs ORDER BY run_id").rows]


@pytest.fixture
def start(fork):
    fork.prepare("s3fs")
    with ExitStack() as started:

        def start(script, *arguments, **environment):
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), PIPE)
            return started.enter_context(fork.python(script, *arguments, env={**os.environ, **environment}, **streams))

        yield start


def finish(process):
    _, errors = process.communicate(timeout=90)
    return process.returncode, errors


def s3_files():
    return pytest.importorskip("s3fs", reason="needs pip install 'nightjar-evals[s3]'").S3FileSystem()


def memory_files():
    return pytest.importorskip("fsspec").filesystem("memory")


@pytest.fixture
def bucket(s3_variables, monkeypatch):
    for name, value in s3_variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    name = f"team-{uuid.uuid4().hex[:12]}"
    s3_files().mkdir(name)
    return name


@pytest.fixture
def location(bucket):
    return f"s3://{bucket}/evals/warehouse"


@pytest.fixture
def warehouse(location):
    return Warehouse(location)


def objects(location):
    files = s3_files()
    files.invalidate_cache()
    return sorted(path.partition("/evals/warehouse/")[2] for path in files.find(location))


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory, run_writer):
    """Four runs; no test changes them."""
    folder = tmp_path_factory.mktemp("runs")
    return [run_writer.write(folder / f"run-{i}", run_id=f"run-{i}") for i in range(4)]


@pytest.fixture(scope="module")
def published(run_dirs):
    """The objects of a warehouse to which the four were published, by their paths in it."""
    url = f"memory://{uuid.uuid4().hex}/warehouse"
    for run_dir in run_dirs:
        Warehouse(url).publish(run_dir)
    files = memory_files()
    return {path.partition("/warehouse/")[2]: files.cat_file(path) for path in files.find(url)}


@pytest.fixture
def filled(warehouse, location, published):
    """A warehouse in the bucket with the four runs."""
    files = s3_files()
    for path, content in published.items():
        files.pipe_file(f"{location}/{path}", content)
    return warehouse


def test_any_run_id_works_and_prices_are_kept_in_the_bucket(warehouse, location, tmp_path, run_writer):
    name = "gsm8k/a b%2F'ü?*[1]#"
    warehouse.publish(run_writer.write(tmp_path / "run", run_id=name))
    assert runs(warehouse) == [name]
    assert warehouse.query("FROM prices").rows == []
    open_store(location).write_prices([price("openai/gpt-4.1-mini", "2026-01-01", 2.0, 10.0)])
    assert warehouse.query("SELECT cost FROM runs").rows == [((300 * 2 + 60 * 10) / 1e6,)]


def test_nothing_but_the_warehouse_can_be_read(warehouse, bucket, run_dirs, tmp_path):
    warehouse.publish(run_dirs[0])
    (tmp_path / "secret.txt").write_text("secret")
    for place in (tmp_path / "secret.txt", f"s3://{bucket}/evals/warehouse/prices.csv", "memory://a"):
        with pytest.raises(WarehouseError, match="disabled by configuration"):
            warehouse.query(f"FROM read_text('{place}')")
    with pytest.raises(WarehouseError, match="is in no segment"):
        warehouse.query("FROM read_parquet('segments://other/runs.parquet')")


def test_only_the_needed_parts_of_large_files_are_fetched(warehouse, tmp_path, run_writer, monkeypatch):
    monkeypatch.setattr(remote_files, "SMALL_BYTES", 10_000)
    texts = [run_writer.rollout(i, 0, 1.0, completion=[{"content": os.urandom(2000).hex()}]) for i in range(2000)]
    warehouse.publish(run_writer.write(tmp_path / "run", texts))
    fetched, read = [], remote_files.RemoteFiles.read_range

    def read_range(self, path, start, end):
        fetched.append(end - start)
        return read(self, path, start, end)

    monkeypatch.setattr(remote_files.RemoteFiles, "read_range", read_range)
    assert ask_here(warehouse, "SELECT sum(reward) FROM rollouts") == [(2000.0,)]
    assert 0 < sum(fetched) < 500_000
    assert ask_here(warehouse, "SELECT sum(length(completion)) FROM rollouts")[0][0] > 8_000_000
    assert sum(fetched) > 4_000_000


def test_a_file_is_fetched_once(filled, monkeypatch):
    before = [ask_here(filled, CONTENTS[name]) for name in ("runs", "rollouts")]
    monkeypatch.setattr(remote_files.RemoteFiles, "_fetch", lambda *_: pytest.fail("fetched again"))
    assert [ask_here(filled, CONTENTS[name]) for name in ("runs", "rollouts")] == before


def test_a_segment_that_is_removed_meanwhile_is_found_in_its_pack(filled, location, monkeypatch):
    reader, other = Warehouse(location), open_store(location)
    assert ask_here(reader, "SELECT count(*) FROM runs") == [(4,)]
    store = reader._backend.store
    listing, listed_before = store.catalog, [store.catalog()]
    old = list(other.catalog().segments)
    pack_everything(other)
    for name in old:
        other.remove(name)
    monkeypatch.setattr(store, "catalog", lambda: listed_before.pop() if listed_before else listing())
    assert ask_here(reader, "SELECT count(*) FROM rollouts") == [(16,)]
    assert listed_before == []


@pytest.mark.long
def test_machines_publish_and_read_at_once(start, warehouse, location, run_dirs, tmp_path, run_writer):
    warehouse.publish(run_dirs[0])
    others = [run_writer.write(tmp_path / f"other-{i}", run_id=f"other-{i}") for i in range(3)]
    processes = [start(PUBLISH, location, *own) for own in (run_dirs, [*others, run_dirs[0]])]
    processes.append(start(READ, location, 7))
    assert [finish(process) for process in processes] == [(0, "")] * 3
    assert runs(warehouse) == [*(f"other-{i}" for i in range(3)), *(f"run-{i}" for i in range(4))]
    assert warehouse.query("SELECT count(*) FROM rollouts").rows == [(28,)]


def test_two_that_publish_the_same_leave_it_once(warehouse, location, run_dirs, monkeypatch):
    for finds in ("is_held", "is_same"):  # as where both look before either has published
        monkeypatch.setattr(f"nightjar.warehouse.writing.publishing.{finds}", lambda *_: False)
    for _ in range(2):
        assert Warehouse(location).publish(run_dirs[0]).is_new
    assert len(open_store(location).catalog().segments) == 2
    assert warehouse.query("SELECT count(*) FROM rollouts").rows == [(4,)]


def test_a_publisher_killed_in_an_upload_leaves_nothing_to_see(start, warehouse, location, run_dirs, monkeypatch):
    warehouse.publish(run_dirs[0])
    before = objects(location)
    process = start(PUBLISH_ALL_BUT_THE_LAST_FILE, location, run_dirs[1])
    assert process.stdout.readline() == "uploaded\n"
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    assert len(objects(location)) == len(before) + 4
    assert runs(warehouse) == ["run-0"]
    pack_everything(open_store(location))
    assert len(objects(location)) == len(before) + 4, "another machine may be uploading these"
    monkeypatch.setattr(object_store, "LEFTOVER_AFTER", timedelta(0))
    pack_everything(open_store(location))
    assert objects(location) == before
    warehouse.publish(run_dirs[1])
    assert runs(warehouse) == ["run-0", "run-1"]


@pytest.mark.long
def test_packing_on_request_changes_no_answer_nor_does_a_copy_in_a_folder(filled, location, tmp_path, monkeypatch):
    before = contents(filled)
    s3_files().get(location, str(tmp_path / "copy"), recursive=True)
    assert contents(Warehouse(tmp_path / "copy")) == before
    assert len(open_store(location).catalog().segments) == 4
    assert pack_everything(open_store(location)) == 1
    assert contents(filled) == before
    assert contents(Warehouse(location)) == before
    assert len(open_store(location).catalog().segments) == 5, "other machines may be reading the old ones"
    monkeypatch.setattr("nightjar.warehouse.writing.packing.RETIRED_FOR", timedelta(0))
    pack_everything(open_store(location))
    assert [segment.is_pack for segment in open_store(location).catalog().segments.values()] == [True]
    assert contents(filled) == before


@pytest.mark.long
def test_of_two_packs_of_the_same_either_may_go(filled, location, monkeypatch):
    before, store = contents(filled), open_store(location)
    published = list(store.catalog().segments.values())
    seen_by_both = store.catalog()
    monkeypatch.setattr(store, "catalog", lambda: seen_by_both)
    for _ in range(2):
        merge(store, published)
    packs = [name for name in open_store(location).catalog().segments if name.startswith("pack-")]
    assert len(packs) == 2
    assert contents(filled) == before
    monkeypatch.setattr(object_store, "LEFTOVER_AFTER", timedelta(0))
    monkeypatch.setattr("nightjar.warehouse.writing.packing.RETIRED_FOR", timedelta(0))
    pack_everything(open_store(location))
    [kept] = open_store(location).catalog().segments
    assert kept.startswith("pack-")
    assert contents(Warehouse(location)) == before


@pytest.fixture
def three(published):
    """A warehouse with the first three runs, in which two machines work at once, played in every order by one."""
    url = f"memory://{uuid.uuid4().hex}/warehouse"
    for path, content in published.items():
        if "run-3" not in path:
            memory_files().pipe_file(f"{url}/{path}", content)
    return url


@pytest.fixture
def meanwhile(monkeypatch):
    """Does something once when the next pack is about to be committed, or has just been."""

    def arrange(**todo):
        commit = object_store.ObjectStore.commit

        def interrupted(self, segment, scratch):
            todo.pop("before", bool)()
            is_new = commit(self, segment, scratch)
            todo.pop("after", bool)()
            return is_new

        monkeypatch.setattr(object_store.ObjectStore, "commit", interrupted)

    return arrange


@pytest.mark.long
@pytest.mark.parametrize(("moment", "is_packed"), drawn([*itertools.product(("before", "after"), (False, True))], 2))
def test_a_run_that_is_pruned_while_it_is_packed_stays_away(three, run_dirs, meanwhile, moment, is_packed):
    if is_packed:
        pack_everything(open_store(three))
        Warehouse(three).publish(run_dirs[3])
    others = ["run-0", "run-2", *(["run-3"] if is_packed else [])]
    meanwhile(**{moment: lambda: prune(open_store(three), ["run-1"])})
    with suppress(WarehouseError):
        pack_everything(open_store(three))
    assert runs(Warehouse(three)) == others
    pack_everything(open_store(three))
    assert runs(Warehouse(three)) == others
    counts = "SELECT count(DISTINCT run_id), count(prompt) > 0 FROM rollouts"
    assert Warehouse(three).query(counts).rows == [(len(others), True)]


def test_a_packer_reports_a_run_that_is_pruned_meanwhile_and_leaves_no_pack(three, meanwhile):
    meanwhile(before=lambda: prune(open_store(three), ["run-1"]))
    with pytest.raises(WarehouseError) as caught:
        pack_everything(open_store(three))
    assert "run 'run-1' was removed from it meanwhile" in str(caught.value)
    assert not any(segment.is_pack for segment in open_store(three).catalog().segments.values())
    assert pack_everything(open_store(three)) == 1


def test_a_run_that_is_packed_while_it_is_pruned_goes(three, monkeypatch):
    """The pack is committed, and found good, between the pruner's listing and its first removal."""
    remove, todo = object_store.ObjectStore.remove, [lambda: pack_everything(open_store(three))]

    def interrupted(self, segment_id):
        while todo:
            todo.pop()()
        remove(self, segment_id)

    monkeypatch.setattr(object_store.ObjectStore, "remove", interrupted)
    prune(open_store(three), ["run-1"])
    assert runs(Warehouse(three)) == ["run-0", "run-2"]


def test_other_runs_survive_a_packer_that_was_suspended(three, monkeypatch, meanwhile):
    """All that its pack replaces is gone when it wakes up: the pack is the only one that holds the runs."""
    monkeypatch.setattr("nightjar.warehouse.writing.packing.RETIRED_FOR", timedelta(0))
    meanwhile(after=lambda: pack_everything(open_store(three)))
    pack_everything(open_store(three))
    assert runs(Warehouse(three)) == ["run-0", "run-1", "run-2"]


def test_a_pruned_pack_goes_with_its_segments_but_its_files_stay_for_readers(three):
    pack_everything(open_store(three))
    with Warehouse(three).connect() as elsewhere:
        prune(open_store(three), ["run-1"])
        assert elsewhere.execute("SELECT count(DISTINCT run_id) FROM rollouts").fetchall() == [(3,)]
    assert runs(Warehouse(three)) == ["run-0", "run-2"]
    prune(open_store(three), ["run-0", "run-2"])
    assert open_store(three).catalog().segments == {}


def test_a_server_that_is_away_for_a_moment_is_waited_for(start, warehouse, location, run_dirs):
    with closing(socket.create_server(("127.0.0.1", 0))) as away:
        port = away.getsockname()[1]
        publisher = start(PUBLISH, location, run_dirs[0], AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
        away.accept()[0].close()
    moto_server = pytest.importorskip("moto.server", reason="needs pip install -e '.[dev]'")
    back = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)  # with the same buckets
    back.start()
    try:
        assert finish(publisher) == (0, "")
    finally:
        back.stop()
    assert runs(warehouse) == ["run-0"]


def test_a_server_that_stays_away_is_an_error_in_one_line(bucket, run_dirs, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3_files().clear_instance_cache()
    house = Warehouse(f"s3://{bucket}/elsewhere")
    for action in (lambda: house.publish(run_dirs[0]), lambda: house.query("FROM runs")):
        one_line = f"^[^\n]*s3://{bucket}/elsewhere: Could not connect[^\n]*$"
        with pytest.raises(WarehouseError, match=one_line) as caught:
            action()
        assert "a-secret-key" not in str(caught.value)
    s3_files().clear_instance_cache()


def test_a_file_that_cannot_be_read_is_an_error_in_one_line(warehouse, location, run_dirs, monkeypatch):
    warehouse.publish(run_dirs[0])

    class Unwilling:
        def cat(self, *_, **__):
            raise OSError("Slow Down,\nsays the store to a-secret-key")

    monkeypatch.setattr(warehouse._backend.store._files, "_filesystem", Unwilling())
    named = rf"{location}: cannot read segments/run-0\..*/runs.parquet.*: Slow Down, says the store to \*\*\*$"
    with pytest.raises(WarehouseError, match=named):
        ask_here(warehouse, "FROM runs")


def test_a_bucket_that_does_not_exist(bucket, run_dirs):
    house = Warehouse("s3://no-such-bucket/a")
    for action in (lambda: house.publish(run_dirs[0]), house.check_writable):
        with pytest.raises(WarehouseError, match=r"Cannot write the warehouse s3://no-such-bucket/a: .*bucket"):
            action()


def test_the_check_before_a_run_leaves_nothing_and_refuses_segments_of_a_newer_nightjar(warehouse, location, run_dirs):
    warehouse.check_writable()
    assert objects(location) == []
    warehouse.publish(run_dirs[0])
    before = objects(location)
    warehouse.check_writable()
    assert objects(location) == before
    path = f"{location}/{next(path for path in before if path.endswith('segment.json'))}"
    files = s3_files()
    files.pipe_file(path, json.dumps({**json.loads(files.cat_file(path)), "schema": 99}).encode())
    with pytest.raises(WarehouseError, match=rf"at version 99, this Nightjar knows version {SCHEMA}"):
        Warehouse(location).check_writable()


def test_a_file_url_is_a_folder(run_dirs, tmp_path):
    house = Warehouse((tmp_path / "a house").as_uri())
    house.publish(run_dirs[0])
    assert house.folder == tmp_path / "a house"
    assert isinstance(open_store((tmp_path / "a house").as_uri()), Folder)
    assert runs(Warehouse(tmp_path / "a house")) == ["run-0"]


def test_a_password_that_a_library_repeats_without_the_url_is_hidden():
    pytest.importorskip("s3fs")
    with pytest.raises(WarehouseError, match=r'Invalid bucket name "\*\*\*@127') as caught:
        Warehouse("s3://ann:tell-nobody@127.0.0.1:9/runs").query("FROM runs")
    assert "tell-nobody" not in str(caught.value)
