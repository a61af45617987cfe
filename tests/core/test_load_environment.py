"""load_environment: from a name to an environment, or to an error that says what is wrong."""

import importlib
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from nightjar.environments import environment_version, environments_in, installed_environments, load_environment
from nightjar.errors import (
    ConfigError,
    DatasetError,
    EnvironmentImportError,
    EnvironmentLoadError,
    EnvironmentNotFoundError,
    EnvironmentVersionError,
    MissingKeyError,
)

ENVIRONMENT = """
from nightjar.environments import SingleTurnEnv

def load_environment(answer="4", count: int = 1):
    return SingleTurnEnv(dataset=[{"question": "2+2?", "answer": answer}] * count)
"""
LOADS = """
from nightjar.core.extras import import_extra
from nightjar.errors import DatasetError, MissingKeyError
def load_environment(): """
NAMES = (f"local_env_{number}" for number in itertools.count())


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with a folder ``environments``; what is imported from it is forgotten in the end."""
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    yield tmp_path / "environments"
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def write(project):
    """Writes an environment's module into ./environments and returns its module name."""

    def write(source=ENVIRONMENT, is_package=False):
        name = next(NAMES)
        folder = project / name if is_package else project
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        return name

    return write


def test_an_environment_is_found_and_listed_in_the_environments_folder(project):
    names = []
    for layout in ("{0}.py", "{0}/{0}.py", "{0}/{0}/__init__.py", "{0}/src/{0}.py", "{0}/src/{0}/__init__.py",
                   "{0}/__init__.py"):  # fmt: skip
        names.append(name := next(NAMES))
        path = project / layout.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ENVIRONMENT)
        assert load_environment(name).examples[0]["answer"] == "4"
    assert {"arithmetic", *(name.replace("_", "-") for name in names)} <= set(installed_environments())


def test_an_environment_is_found_in_a_folder_whose_project_has_its_name(project):
    name = next(NAMES)
    (project / "checkout").mkdir()
    (project / "checkout" / f"{name}.py").write_text(ENVIRONMENT)
    (project / "checkout" / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
    assert load_environment(name).examples[0]["answer"] == "4"


def test_an_environment_is_found_in_another_folder_that_was_named(project, tmp_path):
    name = next(NAMES)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{name}.py").write_text(ENVIRONMENT)
    with environments_in(tmp_path / "elsewhere"):
        assert load_environment(name).env_id == name


def test_modules_beside_an_environment_are_found_and_hide_nothing(project):
    name = next(NAMES)
    (project / name).mkdir()
    (project / name / f"prompts_of_{name}.py").write_text("ANSWER = '9'")
    (project / name / "colorsys.py").write_text("raise RuntimeError('in the way of the standard library')")
    source = ENVIRONMENT.replace('"4"', f"prompts_of_{name}.ANSWER")
    (project / name / f"{name}.py").write_text(f"import colorsys, prompts_of_{name}\n{source}")
    assert load_environment(name).examples[0]["answer"] == "9"


def test_an_environment_is_found_by_its_name_with_dashes_or_with_an_owner(write):
    name = write().replace("_", "-")
    assert load_environment(name).env_id == name
    assert load_environment(f"owner/{write()}").env_id.startswith("owner/")


def test_a_local_environment_comes_before_a_built_in_one_of_the_same_name(project):
    assert len(load_environment("arithmetic", num_problems=3).examples) == 3
    (project / "arithmetic.py").write_text(ENVIRONMENT)
    assert load_environment("arithmetic").examples[0]["question"] == "2+2?"


def test_several_threads_may_load_an_environment_at_once_and_it_is_loaded_once(write):
    source = "import itertools, time\nnumbers = itertools.count()\ntime.sleep(0.2)\n"
    name = write(source + ENVIRONMENT.replace('"4"', "next(numbers)"))
    with ThreadPoolExecutor(4) as pool:
        assert [env.env_id for env in pool.map(load_environment, [name] * 4)] == [name] * 4
    module = sys.modules[name]
    load_environment(name)
    assert sys.modules[name] is module


def test_arguments_are_passed_on_and_kept(write):
    env = load_environment(write(), answer="5", count=2)
    assert (env.examples[1]["answer"], env.env_args) == ("5", {"answer": "5", "count": 2})


def test_unknown_and_missing_arguments_are_refused_with_what_it_takes(write):
    with pytest.raises(ConfigError, match=r"unexpected keyword argument 'colour'\. It takes \(answer='4', count"):
        load_environment(write(), colour="red")
    name = write("def load_environment(path): ...")
    with pytest.raises(ConfigError, match="missing a required argument: 'path'"):
        load_environment(name)


def test_the_error_of_an_unknown_name_lists_what_is_there(project):
    there = r"'gms8k'.*'gsm8k'.*Installed here: alphabet-sort, arithmetic, drop"
    with pytest.raises(EnvironmentNotFoundError, match=there):
        load_environment("gms8k")
    for name in ("", "a b", "../x", "a.b", "1st"):
        with pytest.raises(EnvironmentNotFoundError):
            load_environment(name)


def test_the_name_of_another_module_that_is_loaded_already_is_refused(project, tmp_path):
    name = next(NAMES)
    for folder in (project, tmp_path):
        (folder / f"{name}.py").write_text(ENVIRONMENT)
    load_environment(name)
    with environments_in(tmp_path), pytest.raises(EnvironmentLoadError, match="this process has another module"):
        load_environment(name)


def test_a_name_of_the_standard_library_is_refused(project):
    for name in ("json", "chunk"):
        with pytest.raises(EnvironmentNotFoundError):
            load_environment(name)
        (project / f"{name}.py").write_text(ENVIRONMENT)
        with pytest.raises(EnvironmentLoadError, match=rf"module '{name}'|'{name}' is a module of Python"):
            load_environment(name)


def test_a_module_that_fails_is_an_error_with_its_cause(write):
    for source, kind, cause, named in [
        ("x = 1", EnvironmentLoadError, type(None), r"has no function load_environment\(\)"),
        ("1 / 0", EnvironmentLoadError, ZeroDivisionError, r"division by zero \(NAME\.py, line 1\)"),
        ("import sys\nsys.exit(3)", EnvironmentLoadError, SystemExit, "SystemExit: 3"),
        ("import no_such_package", EnvironmentImportError, ImportError, r"NAME\.py, line 1\).*pip install no_such"),
        ("\nfrom json import no_such", EnvironmentImportError, ImportError, r"'no_such' .*\(NAME\.py, line 2\)$"),
        (f"{LOADS}raise LookupError('no words')", EnvironmentLoadError, LookupError, "LookupError: no words"),
        (f"{LOADS}raise DatasetError('empty')", EnvironmentLoadError, DatasetError, "empty"),
        (f"{LOADS}raise MissingKeyError(['A_KEY'])", MissingKeyError, type(None), "'A_KEY'"),
        (f"{LOADS}return 7", EnvironmentLoadError, type(None), "int"),
        (f"{LOADS}import_extra('no_such', 'chess', 'C')", EnvironmentImportError, ImportError, r"evals\[chess\]'$"),
    ]:
        name = write(source)
        with pytest.raises(kind, match=named.replace("NAME", name)) as caught:
            load_environment(name)
        assert isinstance(caught.value.__cause__, cause)


def test_the_error_of_a_package_that_imports_what_is_not_installed_says_how_to_install_it(write, project):
    name = write("import no_such_package", is_package=True)
    (project / name / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
    with pytest.raises(EnvironmentImportError, match=f"nightjar env install environments/{name}"):
        load_environment(name)


def test_the_version_of_an_environment_may_be_asked_for(write, project):
    name = write(is_package=True)
    (project / name / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.2.0"\n')
    found = {env_id: environment_version(env_id) for env_id in (f"owner/{name}", "no-such-environment", "arithmetic")}
    assert found == {f"owner/{name}": "1.2.0", "no-such-environment": None, "arithmetic": None}
    assert environment_version("owner/pytest") == pytest.__version__
    wrong = rf"found version '1\.2\.0' \(environments/{name}\)\. Try: nightjar env install owner/{name}@1\.3"
    with pytest.raises(EnvironmentVersionError, match=wrong):
        load_environment(f"owner/{name}@1.3")
    for version in ("1.2.0", "1.2", "latest"):
        assert load_environment(f"owner/{name}@{version}").env_id == f"owner/{name}"
