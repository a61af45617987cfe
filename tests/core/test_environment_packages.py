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
        place = tmp_path / "environments" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    return write


@pytest.fixture
def site_packages(tmp_path, monkeypatch):
    """Puts a package into a folder of installed packages as pip does."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name, requires, files, version="1.0"):
        info = f"{name}-{version}.dist-info"
        head = f"Metadata-Version: 2.3\nName: {name}\nVersion: {version}\nSummary: Made up.\n"
        head += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        record = "".join(f"{path},,\n" for path in files if not path.startswith("dist-info/"))
        for path, text in {**files, "dist-info/METADATA": head, "dist-info/RECORD": record}.items():
            place = site / path.replace("dist-info", info, 1) if path.startswith("dist-info/") else site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    return install


def listed():
    return {package.env_id: package for package in list_environments()}


def test_local_packages_are_listed_with_what_their_project_or_docstring_says(write):
    write("my_env/my_env.py", RAISES)
    project = '[project]\nname = "my-env"\nversion = "0.3"\ndescription = "Sums."\ntags = ["math"]'
    write("my_env/pyproject.toml", project)
    package = listed()["my-env"]
    assert (package.version, package.description, package.tags) == ("0.3", "Sums.", ("math",))
    assert (package.origin, package.location) == ("local", "environments/my_env")
    write("alone.py", '"""Sums of two.\n\nMore."""\n' + RAISES)
    assert (listed()["alone"].description, listed()["alone"].version) == ("Sums of two.", None)
    write("my_env/pyproject.toml", "[project")
    assert "environments/my_env/pyproject.toml" in listed()["my-env"].description
    assert "alone" in listed(), "a broken project hides no other"


def test_the_function_may_come_from_anywhere_and_files_without_it_are_no_packages(write):
    for path in ("test_my_env.py", "conftest.py", "notes/readme.md", "x/outputs/y.py"):
        write(path, "from my_env import load_environment")
    write("prompts.py", "PROMPT = 1")
    sources = {
        "env_a": "def load_environment(): ...",
        "env_b": "from env_b.code import load_environment",
        "env_c": "from .code import make as load_environment",
        "env_d": "from .code import *",
        "env_e": "load_environment = print",
        "env_f": "try:\n    from a import load_environment\nexcept ImportError:\n    pass",
        "env_g": "def load_environment(:",
    }
    for name, source in sources.items():
        write(f"{name}/{name}.py", source)
    local = {env_id for env_id, package in listed().items() if package.origin == "local"}
    assert local == {name.replace("_", "-") for name in sources}


def test_installed_packages_depend_on_a_framework_and_a_local_one_comes_first(site_packages, write):
    for name, *requires in (
        ("env_a", "numpy", "verifiers>=0.1.9"), ("env_b", "nightjar-evals"), ("env_c", "Verifiers[all]"),
        ("env_d", "numpy"), ("env_e", "verifiers-extras"),
    ):  # fmt: skip
        site_packages(name, requires, {f"{name}.py": RAISES})
    site_packages("env_f", ["verifiers"], {"env_f.py": "x = 1"})
    site_packages("vf-wiki", ["verifiers"], {"wiki_search/__init__.py": RAISES, "wiki_search/data.py": ""})
    packages = listed()
    assert {name for name in packages if name.startswith("env-")} == {"env-a", "env-b", "env-c"}
    found = packages["env-a"]
    assert (found.origin, found.version, found.description) == ("installed", "1.0", "Made up.")
    assert packages["wiki-search"].distribution == "vf-wiki"
    assert "env_a" not in sys.modules
    site_packages("my_env", ["verifiers"], {"my_env.py": RAISES}, version="2.0")
    write("my_env.py", RAISES)
    assert (listed()["my-env"].origin, listed()["my-env"].installed_version) == ("local", "2.0")


def test_defaults_are_those_of_a_project_in_any_folder_or_nightjar_s_own_and_invalid_ones_are_errors(write):
    for env_id in ("arithmetic", "no-such-env"):
        config = parse_run_config({"env_id": env_id})
        assert (config.num_examples, config.rollouts_per_example) == (5, 3)
    theirs = "[tool.verifiers.eval]\nnum_examples = 20\nrollouts_per_example = 4\n"
    for path in ("my_env", "../elsewhere/my_env"):
        write(f"{path}/my_env.py", RAISES)
    for further, given, expected in (
        ("other = 1", None, (20, 4)), ("", 7, (7, 4)), ("[tool.nightjar.eval]\nnum_examples = -1", None, (-1, 4)),
    ):  # fmt: skip
        write("my_env/pyproject.toml", theirs + further)
        config = parse_run_config({"env_id": "owner/my-env", "num_examples": given})
        assert (config.num_examples, config.rollouts_per_example) == expected
    write("../elsewhere/my_env/pyproject.toml", "[tool.verifiers.eval]\nnum_examples = 30")
    assert parse_run_config({"env_id": "my-env", "env_dir_path": "elsewhere"}).num_examples == 30
    write("my_env/my_env.py", RAISES)
    for text, message in (
        ("[tool.verifiers.eval]\nnum_examples = '5'", r"pyproject\.toml: num_examples of .*'5'"),
        ("[tool.verifiers.eval]\nnum_examples = 0", "num_examples of .*-1 for all"),
        ("[tool.nightjar.eval]\nrollouts_per_example = 0", "rollouts_per_example of "),
        ("[tool.nightjar.eval]\nnum_example = 5", "num_example of "),
        ("[tool.verifiers]\neval = 5", r"\[tool\.verifiers\.eval\].*found 5"),
        ("[tool.verifiers.eval", "TOML"),
    ):
        write("my_env/pyproject.toml", text)
        with pytest.raises(ConfigError, match=message):
            parse_run_config({"env_id": "my-env"})


def test_defaults_travel_with_the_package(site_packages):
    table = "[tool.verifiers.eval]\nnum_examples = 20"
    for name, files, expected in (
        ("a_env", {"dist-info/extra_metadata/pyproject.toml": table}, 20),
        ("b_env", {"pyproject.toml": f'[project]\nname = "B.Env"\n{table}'}, 20),
        ("c_env", {"pyproject.toml": f'[project]\nname = "other-env"\n{table}'}, None),
        ("d_env", {"d_env/__init__.py": RAISES, "d_env/pyproject.toml": table}, 20),
    ):
        module = {} if "d_env/__init__.py" in files else {f"{name}.py": RAISES}
        site_packages(name, ["verifiers"], module | files)
        assert eval_defaults(name.replace("_", "-")).num_examples == expected
