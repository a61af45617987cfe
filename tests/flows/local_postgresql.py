"""Debian's PostgreSQL server on loopback, with a password."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "p@ss/w0rd:of-the-database"


def programs():
    """Returns the folder of the server's programs, or None if PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgresql(variable):
    """Starts the server, and yields the URL of a database, in which a reference to the variable is the password."""
    if (folder_of_programs := programs()) is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}  # it refuses to run as root
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nightjar-postgresql-") as folder:
        Path(folder, "password").write_text(PASSWORD)
        if user:
            shutil.chown(folder, **user)
            shutil.chown(f"{folder}/password", **user)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"

        def run(program, *arguments):
            done = subprocess.run(
                [folder_of_programs / program, *arguments],
                cwd=folder,
                env=os.environ | {"PGPASSWORD": PASSWORD},
                capture_output=True,
                text=True,
                timeout=120,
                **user,
            )
            assert done.returncode == 0, done.stderr

        secret = ("--auth=scram-sha-256", f"--pwfile={folder}/password")
        run("initdb", "-D", f"{folder}/data", "-U", "nightjar", *secret, "--no-sync")
        run("pg_ctl", "-D", f"{folder}/data", "-l", f"{folder}/log", "-o", options, "-w", "start")
        try:
            run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "nightjar", "prefect")
            yield f"postgresql://nightjar:${variable}@127.0.0.1:{port}/prefect"
        finally:
            run("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "-w", "stop")
