"""What ``deployments/`` has for a team: the compose file, the image and the Kubernetes values hold together."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"
DOCKERFILE = (DEPLOYMENTS / "Dockerfile").read_text()


def compose():
    for command in (["docker", "compose"], ["docker-compose"], ["podman-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    pytest.skip("docker compose is not here")


@pytest.fixture
def folder(tmp_path):
    """The compose file with the files beside it that a team writes."""
    shutil.copytree(DEPLOYMENTS, tmp_path / "deployments")
    (tmp_path / "deployments/workers.env").write_text("KEY=secret\n")
    return tmp_path / "deployments"


def config(folder):
    command = [*compose(), "-f", "docker-compose.yaml", "config"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return yaml.safe_load(done.stdout) if done.returncode == 0 else done.stderr


def test_the_compose_file_is_valid_and_says_what_is_to_be_set(folder):
    shutil.copy(folder / "example.env", folder / ".env")
    assert "set it in deployments/.env" in config(folder)
    text = (folder / ".env").read_text().replace("PASSWORD=\n", "PASSWORD=abc\n")
    text = text.replace("STRING=\n", "STRING=us:def\n").replace("TOKEN=\n", "TOKEN=ghi\n")
    (folder / ".env").write_text(text)
    services = config(folder)["services"]
    assert {name: service["image"] for name, service in services.items()} == {
        "database": "postgres:17", "server": "nightjar", "deployments": "nightjar", "worker": "nightjar",
        "view": "nightjar",
    }  # fmt: skip
    for secret, services_with_it in (
        ("abc", {"database", "server"}),
        ("us:def", {"server", "deployments", "worker"}),
        ("ghi", {"view"}),
    ):
        assert {name for name, service in services.items() if secret in json.dumps(service)} == services_with_it
    assert [port for service in services.values() for port in service.get("ports", [])] != []


def test_the_image_has_every_package_and_is_built_from_plain_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
    named = {name for line in copied for name in line.split()}
    assert {*packages, "pyproject.toml", "constraints.txt", project["project"]["readme"]} <= named
    assert all((ROOT / name).exists() for name in named)
    ignored = (DEPLOYMENTS / "Dockerfile.dockerignore").read_text()
    assert {*re.findall(r"^!(.+)$", ignored, re.MULTILINE)} == named
    assert re.findall(r"^FROM (.+)$", DOCKERFILE, re.MULTILINE) == ["python:3.12-slim"]


def test_the_kubernetes_template_uses_the_variables_that_it_declares():
    worker = yaml.safe_load((DEPLOYMENTS / "kubernetes.yaml").read_text())["worker"]
    template = json.loads(worker["config"]["baseJobTemplate"]["configuration"])
    used = re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"]))
    assert {*used} == {*template["variables"]["properties"]}
