"""Whether an object store can be written is found out with real S3 requests, and leaves nothing in it."""

import json
import uuid

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.tables import SCHEMA

s3fs = pytest.importorskip("s3fs", reason="needs pip install 'nightjar-evals[s3]'")
moto_server = pytest.importorskip("moto.server", reason="needs pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def server():
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def files(server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "an-access-key",
        "AWS_SECRET_ACCESS_KEY": "a-secret-key",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    s3fs.S3FileSystem.clear_instance_cache()
    yield s3fs.S3FileSystem(use_listings_cache=False)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(files):
    name = f"team-{uuid.uuid4().hex[:12]}"
    files.mkdir(name)
    return name


def test_nothing_is_left_in_a_bucket_that_can_be_written(files, bucket, run_writer, tmp_path):
    warehouse = Warehouse(f"s3://{bucket}/evals")
    warehouse.check_writable()
    assert files.find(bucket) == []

    warehouse.publish(run_writer.write(tmp_path / "run-1"))
    before = files.find(bucket)
    warehouse.check_writable()
    assert files.find(bucket) == before


def test_a_bucket_that_does_not_exist(files):
    with pytest.raises(WarehouseError, match=r"Cannot write the warehouse s3://no-such-bucket/a: .*bucket"):
        Warehouse("s3://no-such-bucket/a").check_writable()


def test_a_newer_nightjar_wrote_there(files, bucket, run_writer, tmp_path):
    Warehouse(f"s3://{bucket}/evals").publish(run_writer.write(tmp_path / "run-1"))
    [path] = [path for path in files.find(bucket) if path.endswith("segment.json")]
    files.pipe_file(path, json.dumps({**json.loads(files.cat_file(path)), "schema": 99}).encode())
    with pytest.raises(
        WarehouseError, match=rf"is at version 99, this Nightjar knows version {SCHEMA}\. Upgrade Nightjar"
    ):
        Warehouse(f"s3://{bucket}/evals").check_writable()
