"""Runs move from one installation to another through a folder or an object store."""

import uuid

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long


@pytest.fixture
def location(request, tmp_path, nightjar, there, fork):
    """A place that both installations reach."""
    if request.param == "folder":
        return str(tmp_path / "exchange")
    s3fs = pytest.importorskip("s3fs", reason="needs pip install 'nightjar-evals[s3]'")
    fork.prepare("s3fs")
    variables = request.getfixturevalue("s3_variables")
    for each in (nightjar, there):
        each.env |= variables
    name = f"team-{uuid.uuid4().hex[:12]}"
    key, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=variables["AWS_ENDPOINT_URL"]).mkdir(name)
    return f"s3://{name}/exchange"


@pytest.fixture
def there(tmp_path_factory, nightjar_in):
    return nightjar_in(tmp_path_factory.mktemp("there"))


def tree(folder):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock" and "logs" not in path.parts]
    return {path: path.read_bytes() for path in paths if "nightjar.duckdb" not in path.name and path.suffix != ".lock"}


@pytest.mark.parametrize("location", ["store"], indirect=True)
def test_an_incomplete_run_is_resumed_elsewhere(nightjar, there, serve, opinionated, location):
    server = serve(opinionated, faults=Faults(rate_500=0.4, seed=3))
    asked = ("-n", 8, "-r", 2, "--request-retries", 0)
    assert nightjar.eval("arithmetic", *asked, server=server).code == 1
    run_id = nightjar.run.metadata["run_id"]
    assert nightjar.json("eval", "push", run_id, "--to", location)["is_new"]
    assert not nightjar.json("eval", "push", run_id[:6], "--to", location)["is_new"]
    assert there.runs == []
    pulled = there.json("eval", "pull", run_id[:6], "--from", location)
    assert pulled["is_new"]
    assert (there.run.results, there.run.attempts) == (nightjar.run.results, nightjar.run.attempts)
    before = tree(there.folder)
    assert not there.json("eval", "pull", run_id, "--from", location)["is_new"]
    assert tree(there.folder) == before
    done = server.stats().answered
    assert there.start("eval", "run", "--resume", there.run, "--direct", "--request-retries", 20).wait().code == 0
    assert server.stats().answered == 16
    assert done < 16
    assert there.json("eval", "push", run_id, "--to", location)["is_new"]
    assert not nightjar.json("eval", "push", run_id, "--to", location)["is_new"], "an older copy replaces nothing"
    assert nightjar.json("eval", "pull", run_id, "--from", location)["is_new"]
    assert nightjar.run.results == there.run.results
    statement = "SELECT * EXCLUDE (version, run_dir, published_at, metadata) FROM runs"
    assert nightjar.sql(statement) == there.sql(statement)


@pytest.mark.parametrize("location", ["folder"], indirect=True)
def test_results_without_a_run_directory_move_too(nightjar, there, serve, location):
    assert nightjar.eval("arithmetic", "-n", 3, "-r", 2, server=serve()).code == 0
    run_id = nightjar.run.metadata["run_id"]
    nightjar.run.path.rename(nightjar.folder / "away")
    assert nightjar.json("eval", "push", run_id, "--to", location) == {"run_id": run_id, "path": None, "is_new": True}
    assert there.json("eval", "pull", run_id, "--from", location) == {"run_id": run_id, "path": None, "is_new": True}
    assert not there.json("eval", "pull", run_id, "--from", location)["is_new"]
    assert there.runs == []
    statement = "SELECT * FROM rollouts ORDER BY ALL"
    assert there.sql(statement) == nightjar.sql(statement)
    assert len(there.json("eval", "samples", run_id)) > 0


def test_what_was_damaged_on_its_way_is_refused(nightjar, there, serve, tmp_path):
    server = serve()
    for model in ("one", "two"):
        assert nightjar.eval("arithmetic", "-n", 3, "-r", 1, "-m", model, server=server).code == 0
    _, alone = nightjar.runs
    alone.path.rename(nightjar.folder / "away")
    names = [run["run_id"] for run in nightjar.json("eval", "list")]
    for run_id in names:
        nightjar.json("eval", "push", run_id, "--to", str(tmp_path / "exchange"))
    [archive] = (tmp_path / "exchange/directories").iterdir()
    content = bytearray(archive.read_bytes())
    content[len(content) // 3] ^= 4
    archive.write_bytes(content)
    for path in (tmp_path / "exchange").rglob("rollouts.parquet"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-9])
    for run_id in names:
        ended = there.start("eval", "pull", run_id, "--from", tmp_path / "exchange").wait()
        [line] = ended.errors
        assert ended.code == 1
        assert "damaged" in line
        assert there.runs == []
    assert there.start("eval", "pull", "0a1b", "--from", tmp_path / "nowhere").wait().code == 1
