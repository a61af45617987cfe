"""What is known of environment packages without running them: the list, and the defaults that they set for runs."""

import sys

import pytest

from nightjar.environments.packages.catalog import list_environments
from nightjar.environments.packages.lookup import eval_defaults
from nightjar.errors import ConfigError
from nightjar.evaluation.config import parse_run_config

RAISES = 'raise RuntimeError("it was run")\ndef load_environment(): ...\n'


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path):
    """Writes files below ./environments."""

    def write(path, text):
        (tmp_path / "environments" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "environments" / path).write_text(text)

    return write


@pytest.fixture
def site_packages(tmp_path, monkeypatch):
    """A folder of installed packages, and a function that puts one into it as pip does."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name, requires, files, version="1.0", summary="Made up."):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        wanted = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        head = f"Metadata-Version: 2.3\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
        (info / "METADATA").write_text(head + wanted)
        for path, text in files.items():
            place = info / path.removeprefix("dist-info/") if path.startswith("dist-info/") else site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files if not path.startswith("dist-info/")))

    return install


def listed():
    return {package.env_id: package for package in list_environments()}


class TestList:
    def test_local_ones_with_what_their_project_says(self, write):
        write("my_env/my_env.py", RAISES)
        write(
            "my_env/pyproject.toml",
            '[project]\nname = "my-env"\nversion = "0.3"\ndescription = "Sums."\ntags = ["math"]',
        )
        package = listed()["my-env"]
        assert (package.version, package.description, package.tags) == ("0.3", "Sums.", ("math",))
        assert (package.origin, package.location) == ("local", "environments/my_env")

    def test_a_file_alone_says_it_in_its_docstring(self, write):
        write("alone.py", '"""Sums of two.\n\nMore."""\n' + RAISES)
        assert (listed()["alone"].description, listed()["alone"].version) == ("Sums of two.", None)

    @pytest.mark.parametrize(
        "path", ["test_my_env.py", "conftest.py", "prompts.py", "notes/readme.md", "x/outputs/y.py"]
    )
    def test_other_files_are_none(self, write, path):
        write(path, "from my_env import load_environment" if path != "prompts.py" else "PROMPT = 1")
        assert listed().keys() == {package.env_id for package in list_environments() if package.origin != "local"}

    @pytest.mark.parametrize(
        "source",
        [
            "def load_environment(): ...",
            "from my_env.code import load_environment",
            "from .code import make as load_environment",
            "from .code import *",
            "load_environment = print",
            "try:\n    from a import load_environment\nexcept ImportError:\n    pass",
            "def load_environment(:",
        ],
    )
    def test_the_function_may_come_from_anywhere(self, write, source):
        write("my_env/my_env.py", source)
        assert "my-env" in listed()

    def test_a_broken_project_is_named_and_hides_no_other(self, write):
        write("my_env/my_env.py", RAISES)
        write("my_env/pyproject.toml", "[project")
        write("other.py", RAISES)
        assert listed()["my-env"].description.startswith("Broken: environments/my_env/pyproject.toml is not valid TOML")
        assert "other" in listed()

    @pytest.mark.parametrize("framework", ["verifiers>=0.1.9", "nightjar-evals", "Verifiers[all]"])
    def test_installed_ones_depend_on_a_framework(self, site_packages, framework):
        site_packages("installed_env", ["numpy", framework], {"installed_env.py": RAISES})
        package = listed()["installed-env"]
        assert (package.origin, package.version, package.description) == ("installed", "1.0", "Made up.")
        assert "installed_env" not in sys.modules

    def test_the_module_may_be_called_otherwise(self, site_packages):
        site_packages("vf-wiki", ["verifiers"], {"wiki_search/__init__.py": RAISES, "wiki_search/data.py": ""})
        assert listed()["wiki-search"].distribution == "vf-wiki"

    @pytest.mark.parametrize(
        ("requires", "source"), [(["numpy"], RAISES), (["verifiers-extras"], RAISES), (["verifiers"], "x = 1")]
    )
    def test_other_distributions_are_none(self, site_packages, requires, source):
        site_packages("no_env", requires, {"no_env.py": source})
        assert "no-env" not in listed()

    def test_the_local_one_is_the_one_that_is_loaded(self, write, site_packages):
        site_packages("my_env", ["verifiers"], {"my_env.py": RAISES}, version="2.0")
        write("my_env.py", RAISES)
        assert (listed()["my-env"].origin, listed()["my-env"].installed_version) == ("local", "2.0")


class TestDefaults:
    @pytest.mark.parametrize(
        ("further", "given", "expected"),
        [
            ("other = 1", None, (20, 4)),
            ("", 7, (7, 4)),
            ("[tool.nightjar.eval]\nnum_examples = -1", None, (-1, 4)),
        ],
        ids=["of verifiers", "overridden by the run", "overridden by Nightjar's own table"],
    )
    def test_of_a_local_project(self, write, further, given, expected):
        write("my_env/my_env.py", RAISES)
        theirs = "[tool.verifiers.eval]\nnum_examples = 20\nrollouts_per_example = 4\n"
        write("my_env/pyproject.toml", theirs + further)
        config = parse_run_config({"env_id": "owner/my-env", "num_examples": given})
        assert (config.num_examples, config.rollouts_per_example) == expected

    def test_in_another_folder(self, tmp_path, write):
        write("../elsewhere/my_env/my_env.py", RAISES)
        write("../elsewhere/my_env/pyproject.toml", "[tool.verifiers.eval]\nnum_examples = 20")
        assert parse_run_config({"env_id": "my-env", "env_dir_path": "elsewhere"}).num_examples == 20

    @pytest.mark.parametrize("env_id", ["arithmetic", "no-such-env"])
    def test_without_a_project_there_are_nightjars_own(self, env_id):
        config = parse_run_config({"env_id": env_id})
        assert (config.num_examples, config.rollouts_per_example) == (5, 3)

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"dist-info/extra_metadata/pyproject.toml": ""}, 20),
            ({"pyproject.toml": '[project]\nname = "Some.Env"\n'}, 20),
            ({"pyproject.toml": '[project]\nname = "other-env"\n'}, None),
            ({"some_env/__init__.py": RAISES, "some_env/pyproject.toml": ""}, 20),
        ],
        ids=["among the metadata", "next to the module", "of another environment", "in a package folder"],
    )
    def test_travel_with_the_package(self, site_packages, files, expected):
        table = "[tool.verifiers.eval]\nnum_examples = 20"
        written = {path: text + table * path.endswith(".toml") for path, text in files.items()}
        module = {} if "some_env/__init__.py" in files else {"some_env.py": RAISES}
        site_packages("some_env", ["verifiers"], module | written)
        assert eval_defaults("some-env").num_examples == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[tool.verifiers.eval]\nnum_examples = '5'", r"pyproject\.toml: num_examples of .* \(found '5'\)"),
            ("[tool.verifiers.eval]\nnum_examples = 0", "must be 1 or more, or -1 for all examples"),
            ("[tool.nightjar.eval]\nrollouts_per_example = 0", "rollouts_per_example of .*greater than or equal to 1"),
            ("[tool.nightjar.eval]\nnum_example = 5", "num_example of .*not permitted"),
            ("[tool.verifiers]\neval = 5", r"\[tool\.verifiers\.eval\] must be a table, found 5"),
            ("[tool.verifiers.eval", "is not valid TOML"),
        ],
    )
    def test_invalid_defaults_are_errors(self, write, text, message):
        write("my_env/my_env.py", RAISES)
        write("my_env/pyproject.toml", text)
        with pytest.raises(ConfigError, match=message):
            parse_run_config({"env_id": "my-env"})
