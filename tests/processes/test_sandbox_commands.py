"""``nightjar sandbox list`` and ``nightjar sandbox prune``, with the small engine of the contract tests."""

import json
import os
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.core.process_ids import process_host
from nightjar.errors import ConfigError
from nightjar.sandboxes.ownership import OWNER_LABEL, owner_labels

ENGINE = Path(__file__).parents[1] / "contracts" / "docker_engine.py"
HERE = process_host()
OWNERS = {"mine": owner_labels()[OWNER_LABEL], "left": f"{HERE}/{2**22 + 1}/1", "reused": f"{HERE}/{os.getpid()}/1",
          "elsewhere": "another-host/7/1", "boxed": f"{HERE}.1/{2**22 + 1}/1"}  # fmt: skip


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine with a container of each owner, and with one that is not Nightjar's."""
    docker = pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    engine = runpy.run_path(str(ENGINE))["Engine"](tmp_path / "docker.sock")
    client = docker.from_env()
    for name, owner in OWNERS.items():
        client.api.create_container("any", name=name, labels={OWNER_LABEL: owner, "nightjar.task": f"task of {name}"})
    client.api.create_container("any", name="a-database", labels={"team": "x"})
    client.close()
    engine.built = {name: ["nightjar=image"] for name in ("nightjar-task:1", "nightjar-packages:1")} | {
        "team/app:2": []
    }
    yield engine
    engine.close()


def run(*words):
    ended = CliRunner().invoke(app, ["sandbox", *words])
    assert ended.exit_code == 0, ended.output
    return ended


def names(engine):
    return {container.name for container in engine.containers.values()}


def test_list_says_whose_containers_there_are(engine):
    found = {each["name"]: each for each in json.loads(run("list", "--json").stdout)}
    assert {name: each["is_owner_running"] for name, each in found.items()} == {
        "mine": True, "left": False, "reused": False, "elsewhere": None, "boxed": None,
    }  # fmt: skip
    assert found["mine"].items() > {"task": "task of mine", "state": "running", "owner_host": HERE}.items()
    assert (found["mine"]["owner_pid"], found["elsewhere"]["owner_pid"]) == (os.getpid(), 7)
    ended = run("list")
    assert [word for word in ("mine", "task of left", "process 7 on") if word not in ended.stdout] == []
    assert "The owners of 2 containers have ended. To remove them: nightjar sandbox prune" in ended.stderr
    engine.containers.clear()
    assert run("list").stdout == "There are no containers.\n"
    assert json.loads(run("list", "--json").stdout) == []


def test_prune_removes_only_containers_whose_owner_has_ended(engine):
    assert run("prune").stdout.splitlines() == ["Removed 2 containers", "  left", "  reused"]
    assert names(engine) == {"mine", "elsewhere", "boxed", "a-database"}
    assert run("prune").stdout == "Removed 0 containers\n"
    assert len(engine.built) == 3


def test_prune_removes_images_that_nightjar_built_unless_a_container_uses_them(engine):
    mine = next(iter(engine.containers.values()))
    mine.config["Image"] = "nightjar-task:1"
    found = json.loads(run("prune", "--images", "--json").stdout)
    assert found == {"containers": ["left", "reused"], "images": ["nightjar-packages:1"]}
    mine.config["Image"] = "any"
    assert run("prune", "--images").stdout.splitlines()[0] == "Removed 0 containers"
    assert [*engine.built] == ["team/app:2"]
    assert run("prune", "--images").stdout == "Removed 0 containers\nRemoved 0 images\n"


def test_without_an_engine_the_error_says_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    for words in ("list", "prune", "prune --images"):
        ended = CliRunner().invoke(app, ["sandbox", *words.split()])
        assert isinstance(ended.exception, ConfigError)
        assert f"No container engine answers at unix://{tmp_path}/nothing.sock" in str(ended.exception)
        assert "podman" in str(ended.exception)


def test_an_engine_that_refuses_is_an_error(engine):
    engine.faults = [("GET", "/containers/json", 500, "the disk is full")]
    ended = CliRunner().invoke(app, ["sandbox", "list"])
    assert isinstance(ended.exception, ConfigError)
    assert "the disk is full" in str(ended.exception)
