"""``nightjar env init``, ``install`` and ``list``, typed in an empty folder with a Python of its own.

Packages are built and installed for real, with pip, offline.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest
from forked import ForkServer

from nightjar.environments.packages.installation import InstallOptions, install, reason
from nightjar.errors import EnvironmentPackageError
from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.long

OFFLINE = ("--no-build-isolation",)
PIP = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "0", "PIP_NO_WARN_CONFLICTS": "0"}
"""Of a flag that switches something off, pip reads 0 as set. To warn of conflicts it reads all packages: 6 s."""

KINDS = {"sums": ["--kind", "single-turn"], "tries": ["--kind", "multi-turn"], "calc": ["--kind", "tool"]}
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "{version}"
dependencies = {dependencies}
[tool.hatch.build]
include = ["*.py"]
dev-mode-dirs = ["."]
"""
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
PYTEST = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"


@dataclass(frozen=True)
class Shell:
    """A folder, and a Python in which Nightjar is installed and more can be.

    Attributes:
        fork: starts the commands, in that Python as it was before the first test.
    """

    python: Path
    fork: ForkServer
    folder: Path

    def run(self, *arguments):
        typed = [self.python, *map(str, arguments)]
        return subprocess.run(typed, cwd=self.folder, timeout=120, capture_output=True, text=True)

    def nightjar(self, *arguments, **env):
        """Types a command of Nightjar in the folder; pip reaches no network, and works as little as possible."""
        variables = {**os.environ, **PIP, "PREFECT_API_URL": "", **env}
        return self._ended(self.fork.nightjar(*arguments, env=variables, cwd=self.folder, stdout=PIPE, stderr=PIPE))

    def pytest(self, *arguments):
        return self._ended(self.fork.python(PYTEST, *arguments, cwd=self.folder, stdout=PIPE, stderr=PIPE))

    def _ended(self, process):
        with process:
            printed, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess((), process.returncode, printed, errors)

    def ok(self, *arguments, **env):
        ended = self.nightjar(*arguments, **env)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def error(self, *arguments, **env):
        """Runs a command that must fail as expected, and returns its one line."""
        ended = self.nightjar(*arguments, **env)
        assert ended.returncode == 1, ended.stderr
        [line] = ended.stderr.splitlines()
        return line

    def write_package(self, name, dependencies=(), version="1.0", source="def load_environment(): ...\n"):
        """Writes a package by hand, beside ./environments."""
        folder = self.folder / name
        folder.mkdir()
        (folder / f"{name.replace('-', '_')}.py").write_text(source)
        text = PYPROJECT.format(name=name, version=version, dependencies=json.dumps(list(dependencies)))
        (folder / "pyproject.toml").write_text(text)
        return folder

    def write_wheel(self, name, **fields):
        """Builds the wheel of a package into ./wheels, which PIP_FIND_LINKS then names."""
        folder = self.write_package(name, **fields)
        process = self.fork.python(BUILD, self.folder / "wheels", cwd=folder, stderr=PIPE)
        with process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    (site / "above.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def its_fork(python):
    server = ForkServer(python)
    yield server
    server.close()


@pytest.fixture
def shell(python, its_fork, tmp_path):
    """An empty folder; what a test installs is removed in the end."""
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    before = set(site.iterdir())
    yield Shell(python, its_fork, tmp_path)
    for path in set(site.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def made(python, its_fork, tmp_path_factory):
    shell = Shell(python, its_fork, tmp_path_factory.mktemp("made"))
    for name, options in {**KINDS, "in-files": ["--kind", "tool", "--multi-file"]}.items():
        shell.ok("env", "init", name, *options)
    return shell


def test_init_says_what_it_made_and_what_to_type_next(shell):
    ended = shell.nightjar("env", "init", "ada/my-env")
    names = ("my_env.py", "test_my_env.py", "pyproject.toml", "README.md")
    assert ended.stdout.splitlines() == [f"environments/my_env/{name}" for name in names]
    assert all((shell.folder / line).is_file() for line in ended.stdout.splitlines())
    assert "python -m pytest environments/my_env" in ended.stderr
    assert "nightjar eval run my-env" in ended.stderr


def test_what_init_made_passes_its_tests_and_runs_with_its_own_defaults(made):
    ended = made.pytest("-q", "-p", "no:asyncio", "environments")
    assert ended.returncode == 0, ended.stdout
    with ModelServer(ArithmeticSolver()) as server:
        ended = made.ok("eval", "run", "in-files", "-m", "m", "-b", server.url, "--direct", "--json")
    outcome = json.loads(ended)
    assert (outcome["avg_reward"], outcome["num_examples"], outcome["rollouts_per_example"]) == (1.0, 5, 3)
    assert (outcome["env_id"], outcome["env_version"]) == ("in-files", "0.1.0")


def test_the_readme_names_each_argument_and_metric_and_the_list_each_environment(made):
    for name, words in {
        "sums": ["`num_problems`", "`system_prompt`", "`correct_answer`", "`boxed_answer`"],
        "tries": ["`max_turns`", "`solved`", "`first_try`"],
        "calc": ["`max_turns`", "`calculate_calls`", "`total_tool_calls`"],
    }.items():
        readme = (made.folder / "environments" / name / "README.md").read_text()
        assert all(f"| {word} |" in readme for word in words)
        assert f"nightjar eval run {name} " in readme
    shown = [line.split() for line in made.ok("env", "list", COLUMNS="200").splitlines()]
    assert ["Benchmark", "Description", "Examples", "Licence", "Data"] in shown
    assert ["Environment", "Version", "From", "Description"] in shown
    assert ["calc", "0.1.0", "environments/calc", "Computations", "with", "a", "calculator."] in shown


def test_init_refuses_a_name_that_would_not_work(shell):
    for name in ("My.Env", "2nd", "my--env", "my-env@1.0", "../my-env/", "class", "json", "pytest"):
        assert repr(name) in shell.error("env", "init", name)
    assert not (shell.folder / "environments").exists()


def test_init_overwrites_nothing_but_the_readme_on_request(shell):
    shell.ok("env", "init", "my-env", "--path", "here")
    folder = shell.folder / "here" / "my_env"
    for name in ("README.md", "my_env.py"):
        (folder / name).write_text("mine")
    line = shell.error("env", "init", "my-env", "--path", "here", "--kind", "tool")
    assert "here/my_env already has my_env.py, test_my_env.py, pyproject.toml, README.md" in line
    assert shell.ok("env", "init", "my-env", "--path", "here", "--rewrite-readme") == "here/my_env/README.md\n"
    assert (folder / "my_env.py").read_text() == "mine"
    assert "--env-dir-path here" in (folder / "README.md").read_text()


def test_local_environments_and_folders_are_installed_together_and_stay_editable(shell):
    shell.ok("env", "init", "my-env")
    shell.write_package("by-hand", ["verifiers>=0.1.9"])
    ended = shell.nightjar("env", "install", "by-hand", "ada/my-env", "--json", *OFFLINE)
    [one, other] = json.loads(ended.stdout)
    assert (one["env_id"], one["version"], one["left_out"]) == ("by-hand", "1.0", ["verifiers>=0.1.9"])
    assert one["editable_from"].endswith("by-hand")
    assert (other["asked"], other["env_id"], other["distribution"]) == ("ada/my-env", "my-env", "my-env")
    ended = shell.nightjar("env", "install", "my-env", *OFFLINE)
    folder = shell.folder / "environments" / "my_env"
    assert ended.stdout == f"my-env 0.1.0 (installed, editable from {folder})\n"
    assert "Next: nightjar eval run my-env" in ended.stderr
    (folder / "my_env.py").write_text("def load_environment(): raise LookupError('changed')")
    loaded = shell.run("-c", "import os, nightjar; os.chdir('/'); nightjar.load_environment('my-env')")
    assert "LookupError: changed" in loaded.stderr


def test_an_installed_wheel_keeps_its_defaults(shell, tmp_path):
    shell.ok("env", "init", "my-env", "--multi-file")
    project = shell.folder / "environments" / "my_env" / "pyproject.toml"
    project.write_text(project.read_text().replace("num_examples = 5", "num_examples = 2"))
    assert shell.ok("env", "install", "my-env", "--no-editable", *OFFLINE) == "my-env 0.1.0 (installed)\n"
    elsewhere = Shell(shell.python, shell.fork, tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    with ModelServer(ArithmeticSolver()) as server:
        ended = elsewhere.ok("eval", "run", "my-env", "-m", "m", "-b", server.url, "--direct", "--json")
    assert json.loads(ended)["num_examples"] == 2
    [listed] = [row for row in json.loads(elsewhere.ok("env", "list", "--json")) if row["env_id"] == "my-env"]
    assert (listed["origin"], listed["version"]) == ("installed", "0.1.0")
    assert listed["tags"] == ["single-turn", "math", "eval"]


def test_verifiers_is_not_installed_and_other_dependencies_are(shell):
    shell.write_wheel("needed", source="x = 1")
    shell.write_package("by-hand", ["verifiers>=0.1.9", "needed>=1.0", "packaging"])
    ended = shell.nightjar("env", "install", "./by-hand", *OFFLINE, PIP_FIND_LINKS="wheels")
    assert ended.returncode == 0, ended.stderr
    assert "Not installed, because Nightjar replaces it: verifiers>=0.1.9\n" in ended.stderr
    assert shell.run("-c", "import needed").returncode == 0


def test_install_of_a_name_from_the_index_in_a_version(shell):
    shell.write_wheel("far-env", dependencies=["verifiers"], version="1.2.0")
    links = {"PIP_FIND_LINKS": "wheels"}
    (shell.folder / "far-env").rename(shell.folder / "source")
    assert shell.ok("env", "install", "ada/far-env@1.2", **links) == "far-env 1.2.0 (installed)\n"
    line = shell.error("env", "install", "far-env@1.3", **links)
    assert re.search(r"'far-env@1.3'.* far-env==1.3 \(from versions: 1.2.0\)", line)


def test_what_nightjar_could_not_work_with_is_refused(shell):
    shell.write_package("by-hand", ["verifiers", "pydantic<2"])
    shell.write_wheel("pydantic", source="x = 1", version="1.10")
    assert "'pydantic<2'" in shell.error("env", "install", "./by-hand", *OFFLINE, PIP_FIND_LINKS="wheels")


def test_what_cannot_be_installed(shell):
    (shell.folder / "environments").mkdir()
    (shell.folder / "empty").mkdir()
    (shell.folder / "environments" / "alone.py").write_text("def load_environment(): ...")
    shell.write_package("by-hand", ["verifiers"], source="x = 1")
    (shell.write_package("broken") / "pyproject.toml").write_text("[project")
    for name, message in {
        "./nowhere": "'./nowhere'", "empty/": "'empty' .* pyproject.toml", "alone": "nightjar eval run alone",
        "no such name": "'no such name'", "my-env@newest": "'newest' in 'my-env@newest'",
        "no-such-env": "the requirement no-such-env", "./broken": "TOMLDecodeError",
        "./by-hand": "'by-hand' 1.0 is installed, but is not an environment",
    }.items():  # fmt: skip
        assert re.search(message, shell.error("env", "install", name, *OFFLINE))
    shown = shell.nightjar("env", "install", "./broken", "--verbose", *OFFLINE)
    assert len(shown.stderr.splitlines()) > 5


LOADS = """
import needed
import nightjar as vf
def load_environment():
    return vf.SingleTurnEnv(dataset=[{"question": "1 + 1", "answer": "2"}])
"""


def evaluate(shell, url, *arguments, **env):
    size = ("-n", "1", "-r", "1", "-m", "m", "-b", url)
    home = {"NIGHTJAR_HOME": str(shell.folder / "home"), "PIP_FIND_LINKS": "wheels", **env}
    return shell.nightjar("eval", "run", *arguments, *size, "--direct", "--json", **home)


def test_a_run_installs_a_version_a_wheel_or_a_commit_each_in_a_folder_of_its_own(shell):
    shell.write_wheel("needed", source="x = 1")
    shell.write_wheel("far-env", dependencies=["verifiers", "needed"], version="1.2.0", source=LOADS)
    repository, [wheel] = shell.folder / "far-env", (shell.folder / "wheels").glob("far_env-*.whl")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "First"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=repository, check=True)
    repository.rename(shell.folder / "repository")
    url = f"git+{(shell.folder / 'repository').as_uri()}@main"
    with ModelServer(ArithmeticSolver()) as server:
        for source in ([], ["--env-source", str(wheel)], ["--env-source", url]):
            asked = ["far-env" if source else "ada/far-env@1.2", *source]
            first = evaluate(shell, server.url, *asked, PIP_NO_BUILD_ISOLATION="0")
            assert (first.returncode, "Installing" in first.stderr) == (0, True), first.stderr
            second = evaluate(shell, server.url, *asked, PIP_FIND_LINKS="")
            assert (second.returncode, "Installing" in second.stderr) == (0, False), second.stderr
            versions, again = (json.loads(ended.stdout)["version_info"] for ended in (first, second))
            assert versions == again
            assert (versions["env_version"], len(versions["env_hash"])) == ("1.2.0", 64)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=url[11:-5], capture_output=True, text=True, check=True)
    assert versions["env_commit"] == head.stdout.strip()
    assert shell.run("-c", "import far_env").returncode == 1


def test_a_run_refuses_what_would_change_the_packages_that_are_here(shell):
    shell.write_wheel("far-env", dependencies=["verifiers", "pydantic<2"], source=LOADS)
    shell.write_wheel("pydantic", source="x = 1", version="1.10")
    ended = evaluate(shell, "http://127.0.0.1:9", "ada/far-env@1.0")
    assert (ended.returncode, "Cannot install 'pydantic<2'" in ended.stderr) == (1, True), ended.stderr


def test_uv_stands_in_for_pip_and_without_either_there_is_a_way(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentPackageError, match=r"has no pip, and there is no uv\. Try: .* -m ensurepip"):
        install(["my-env"])
    (tmp_path / "uv").write_text('#!/bin/sh\necho "error: $*"\nexit 2\n')
    (tmp_path / "uv").chmod(0o755)
    wanted = f"pip install --python {sys.executable} --color never --no-deps --no-build-isolation my-env==1.2"
    with pytest.raises(EnvironmentPackageError, match=f"Cannot install 'my-env@1.2': {wanted}"):
        install(["my-env@1.2"], options=InstallOptions(build_isolation=False))


def test_the_reason_of_a_failure_is_found_in_the_log_of_an_installer():
    expected = {
        "ERROR: Cannot install a and b.\nERROR: ResolutionImpossible: see": "Cannot install a and b",
        "  error: exited-with-error\n      ValueError: no files\nERROR: Failed to build x": "ValueError: no files",
        "  × No solution found:\n  ╰─▶ Because x was not found, it ends.": "Because x was not found, it ends",
        "": "the installer said nothing",
    }
    assert {log: reason(log.splitlines()) for log in expected} == expected
