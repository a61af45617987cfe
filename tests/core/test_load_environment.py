"""load_environment: from a name to an environment, or to an error that says what is wrong."""

import importlib
import itertools
import sys

import pytest

from nightjar.envs import environment_version, installed_environments, load_environment
from nightjar.errors import ConfigError, DatasetError, EnvironmentNotFoundError

ENVIRONMENT = """
from nightjar.envs import SingleTurnEnv

def load_environment(answer="4", count: int = 1):
    return SingleTurnEnv(dataset=[{"question": "2+2?", "answer": answer}] * count)
"""
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


class TestWhereItIsFound:
    @pytest.mark.parametrize("is_package", [False, True], ids=["module", "folder"])
    def test_in_the_environments_folder(self, write, is_package):
        env = load_environment(write(is_package=is_package))
        assert env.examples[0]["answer"] == "4"

    def test_by_its_name_with_dashes(self, write):
        name = write().replace("_", "-")
        assert load_environment(name).env_id == name

    def test_with_an_owner(self, write):
        name = f"owner/{write()}"
        assert load_environment(name).env_id == name

    def test_among_the_built_in_benchmarks(self):
        assert len(load_environment("arithmetic", num_problems=3).examples) == 3

    def test_a_local_one_comes_before_a_built_in_one_of_the_same_name(self, project):
        (project / "arithmetic.py").write_text(ENVIRONMENT)
        assert load_environment("arithmetic").examples[0]["question"] == "2+2?"

    def test_all_are_listed(self, write):
        name = write(is_package=True).replace("_", "-")
        assert {"arithmetic", "gsm8k", name} <= set(installed_environments())


class TestArguments:
    def test_are_passed_on_and_kept(self, write):
        env = load_environment(write(), answer="5", count=2)
        assert (env.examples[1]["answer"], env.env_args) == ("5", {"answer": "5", "count": 2})

    def test_unknown_ones_are_refused_with_what_it_takes(self, write):
        with pytest.raises(ConfigError, match=r"unexpected keyword argument 'colour'\. It takes \(answer='4', count"):
            load_environment(write(), colour="red")

    def test_missing_ones_are_refused(self, write):
        name = write("def load_environment(path): ...")
        with pytest.raises(ConfigError, match="missing a required argument: 'path'"):
            load_environment(name)


class TestWhatCanBeWrong:
    def test_an_unknown_name_lists_what_is_there(self, project):
        with pytest.raises(
            EnvironmentNotFoundError, match=r"'gms8k' is not installed\. Installed here: arithmetic, gsm8k"
        ):
            load_environment("gms8k")

    @pytest.mark.parametrize("name", ["", "a b", "../x", "a.b", "1st"])
    def test_a_name_that_no_module_can_have(self, project, name):
        with pytest.raises(EnvironmentNotFoundError):
            load_environment(name)

    def test_a_module_without_the_function(self, write):
        name = write("x = 1")
        with pytest.raises(ConfigError, match=rf"Module '{name}' has no function load_environment\(\)"):
            load_environment(name)

    def test_a_module_that_raises_on_import(self, write):
        name = write("1 / 0")
        with pytest.raises(ConfigError, match="cannot be imported: ZeroDivisionError: division by zero") as caught:
            load_environment(name)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_a_module_that_imports_what_is_not_installed(self, write):
        name = write("import no_such_package")
        with pytest.raises(
            ConfigError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such_package'"
        ):
            load_environment(name)

    def test_a_function_that_raises(self, write):
        name = write("def load_environment(): raise LookupError('no words')")
        with pytest.raises(ConfigError, match="cannot be loaded: LookupError: no words"):
            load_environment(name)

    def test_an_error_of_nightjar_stays_what_it_is(self, write):
        source = "from nightjar.errors import DatasetError\ndef load_environment(): raise DatasetError('empty')"
        with pytest.raises(DatasetError, match=r"^empty$"):
            load_environment(write(source))

    def test_a_function_that_returns_something_else(self, write):
        with pytest.raises(ConfigError, match="returned int, not an Environment"):
            load_environment(write("def load_environment(): return 7"))


class TestVersion:
    def test_of_an_installed_package(self):
        assert environment_version("owner/pytest") == pytest.__version__

    def test_of_what_is_no_package(self):
        assert environment_version("no-such-environment") is None
