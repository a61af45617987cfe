"""One package is installed, ``nightjar``, which works beside a user's own ``flows``, ``tasks`` and ``blocks``."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDERS = ("flows", "tasks", "blocks")
OWN_TEST = """
    from blocks import mine as block
    from flows import mine as flow
    from tasks import mine as task
    from nightjar.blocks import ModelEndpoint
    from nightjar.flows import evaluate
    from nightjar.tasks import generate
    def test_both_can_be_imported():
        assert (flow, task, block) == ("my flow", "my task", "my block")
        assert evaluate.name == "evaluate"
        assert callable(generate) and ModelEndpoint.__name__ == "ModelEndpoint"
"""


def build(source, target, folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [built] = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", folder)) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = (each for each in folder.iterdir() if each.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def python_with_wheel(wheel, tmp_path_factory):
    """A Python with the wheel, and beside it what this one has installed, but for Nightjar."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    places = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", places))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return Path(sysconfig.get_path("scripts", "venv", places)) / "python"


@pytest.fixture
def own_folder(tmp_path):
    """A user's folder, with packages of their own that are called as those at the top of this repository."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'mine = "my {name.removesuffix("s")}"\n')
    (tmp_path / "test_own.py").write_text(dedent(OWN_TEST))
    return tmp_path


def run(python, folder, *arguments):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_the_wheel_holds_nightjar_with_all_its_data_and_nothing_else(wheel):
    held = contents(wheel).keys()
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"nightjar"}
    assert {
        "nightjar/__init__.pyi", "nightjar/blocks/model_endpoint.py", "nightjar/flows/evaluation.py",
        "nightjar/flows/__init__.pyi", "nightjar/py.typed", "nightjar/reports/templates/base.html",
        "nightjar/tasks/evaluation.py", "nightjar/warehouse/storage/tables.sql",
    } <= held  # fmt: skip
    kept = subprocess.run(["git", "ls-files", "nightjar"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    data = {name for name in kept.split() if Path(name).suffix not in {".py", ""}}
    assert len(data) > 50
    assert data <= held
    assert not any("test" in Path(name).parts or Path(name).name.startswith("test_") for name in held)


def test_the_source_distribution_holds_nightjar_and_builds_the_same_wheel(sdist, wheel, tmp_path):
    documents = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md"}
    configuration = {".gitignore", "constraints.txt", "pyproject.toml"}
    assert {path.name for path in sdist.iterdir()} == {"nightjar", *documents, *configuration}
    assert contents(build(sdist, "wheel", tmp_path)) == contents(wheel)


def test_what_the_image_copies_builds_the_same_wheel(wheel, tmp_path):
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "deployments" / "Dockerfile").read_text(), re.MULTILINE)
    for name in (name for line in copied for name in line.split()):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    assert contents(build(tmp_path, "wheel", tmp_path / "dist")) == contents(wheel)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["editable", "wheel"])
def test_an_installation_offers_no_other_package_at_the_top(kind, python_with_wheel, tmp_path):
    names = (*FOLDERS, "tests", "configs", "deployments")
    code = f"from importlib.util import find_spec; print([name for name in {names} if find_spec(name)])"
    ended = run(sys.executable if kind == "editable" else python_with_wheel, tmp_path, "-P", "-c", code)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr


@pytest.mark.long
def test_an_editable_installation_works_behind_a_users_own_packages_in_pytest(own_folder):
    (own_folder / "pytest.ini").write_text("[pytest]\n")
    ended = run(sys.executable, own_folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in ended.stdout, ended.stdout


@pytest.mark.long
def test_an_installed_wheel_works_before_a_users_own_packages(python_with_wheel, own_folder):
    """Without Prefect at first; then every flow and task can be imported, in any order."""
    code = """
        import sys, nightjar
        def loaded():
            return sorted(name for name in sys.modules if name.startswith(("nightjar.", "prefect")))
        print(*loaded())
        import nightjar.flows, nightjar.tasks
        print(*loaded())
        import nightjar.flows.nights, nightjar.flows.maintenance
        from nightjar.flows import benchmark, evaluate, gate, prune, publish_run, query, rescore, retry_failed, upkeep
        from nightjar.tasks import aggregate, generate, load_env, publish, push, score
        flows = benchmark, evaluate, gate, prune, publish_run, query, rescore, retry_failed, upkeep
        print(*(flow.name for flow in flows))
        sys.path.append(".")
        import test_own
        test_own.test_both_can_be_imported()
    """
    ended = run(python_with_wheel, own_folder, "-P", "-c", dedent(code))
    assert ended.returncode == 0, ended.stderr
    alone, light, flows = ended.stdout.splitlines()
    assert (alone, light) == ("", "nightjar.flows nightjar.tasks")
    assert flows == "benchmark evaluate gate prune publish-run query rescore retry-failed upkeep"
