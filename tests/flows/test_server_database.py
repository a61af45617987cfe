"""``nightjar up --database-url``: which URLs are refused, and a run on PostgreSQL."""

from subprocess import PIPE

import psutil
import pytest
from local_postgresql import PASSWORD, postgresql
from local_services import Services

from nightjar.model_server import ArithmeticSolver, ModelServer


def test_other_databases_and_passwords_are_refused(fork, tmp_path):
    place = {"cwd": tmp_path, "env": Services(tmp_path).environment, "stderr": PIPE}
    for url, said in (
        ("mysql://ann@db/prefect", "--database-url must begin with postgresql://"),
        ("postgresql://ann:planted-0123@db/prefect", "--database-url holds a password"),
        ("postgresql://ann:$NO_SUCH_VARIABLE@db/prefect", "NO_SUCH_VARIABLE"),
    ):
        process = fork.nightjar("up", "--port", "1", "--database-url", url, **place)
        _, errors = process.communicate()
        [line] = errors.splitlines()
        assert (process.returncode, said in line, "planted" in line) == (1, True, False)


@pytest.mark.long
def test_runs_are_in_postgresql_and_its_password_in_no_file(tmp_path):
    with postgresql("DB_PASSWORD") as url, ModelServer(ArithmeticSolver()) as server:
        services = Services(tmp_path)
        services.environment["DB_PASSWORD"] = PASSWORD
        services.database = ("--database-url", url)
        try:
            assert services.up().returncode == 0
            flow_run = services.start("evaluate", {"env_id": "arithmetic", "model": "m", "base_url": server.url})
            assert services.end_of(flow_run) == "COMPLETED"
            commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        finally:
            services.run("down", "--yes")
    assert not (tmp_path / "prefect/prefect.db").exists()
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert all(PASSWORD.encode() not in each.read_bytes() for each in files)
    assert not any(PASSWORD in command for command in commands)
