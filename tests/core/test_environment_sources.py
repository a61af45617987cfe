"""The files of an environment: which they are, what their hash says, and how they are sent elsewhere."""

import hashlib

import pytest

from nightjar.environments import load_environment
from nightjar.environments.packages.catalog import find_environment
from nightjar.environments.packages.lookup import environment_hash, environments_in
from nightjar.environments.packages.provided import SENT, has_sent, keep_sent, pack, provide, source_files, source_hash
from nightjar.errors import ConfigError, EnvironmentPackageError

LOADS = "import nightjar as vf\n\n\ndef load_environment():\n    return vf.SingleTurnEnv(dataset=[{'question': '?'}])\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder with ./environments, and a home of Nightjar's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    return tmp_path / "environments"


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files_of(env_id):
    return source_files(find_environment(env_id))


PROJECT = {
    "my_env/pyproject.toml": '[project]\nname = "my-env"\nversion = "0.1"\n',
    "my_env/my_env.py": LOADS,
    "my_env/prompts/judge.md": "Be strict.",
}


def test_the_files_of_an_environment_of_each_layout_without_generated_files_and_tests(folder, tmp_path, monkeypatch):
    made = ["outputs/x.json", "__pycache__/x.pyc", ".venv/x.py", "dist/x.whl", "tests/test_it.py", "test_x.py"]
    left_out = {f"my_env/{name}": "x" for name in [*made, "README.md"]}
    write(folder, {**PROJECT, **left_out, "my_env/prompts/tests/README.md": "kept"})
    assert set(files_of("my-env")) == {*PROJECT, "my_env/prompts/tests/README.md"}
    layouts = {
        "a project": (PROJECT, "my-env", set(PROJECT)),
        "a project in another spelling": (
            {name.replace("my_env/", "my-env/", 1): text for name, text in PROJECT.items()}, "my-env", set(PROJECT),
        ),
        "a folder without pyproject.toml": (
            {"bare_env/bare_env.py": LOADS, "bare_env/rows.jsonl": "{}"}, "bare-env",
            {"bare_env/bare_env.py", "bare_env/rows.jsonl"},
        ),
        "a package": (
            {"whole_env/__init__.py": LOADS, "whole_env/rubric.py": ""}, "whole-env",
            {"whole_env/__init__.py", "whole_env/rubric.py"},
        ),
        "a file, with what it imports from beside it": (
            {
                "alone.py": f"import near\n{LOADS}", "near.py": "from parts.more import x", "parts/__init__.py": "",
                "parts/more.py": "import json\nx = 1", "other.py": "", "rows.jsonl": "{}",
            },
            "alone", {"alone.py", "near.py", "parts/__init__.py", "parts/more.py"},
        ),
    }  # fmt: skip
    for layout, (files, env_id, expected) in layouts.items():
        place = tmp_path / layout
        place.mkdir()
        monkeypatch.chdir(place)
        write(place / "environments", files)
        assert set(files_of(env_id)) == expected, layout


def test_the_hash_is_of_names_and_contents(folder):
    write(folder, {"alone.py": LOADS, **PROJECT})
    line = f"alone.py\0{hashlib.sha256(LOADS.encode()).hexdigest()}\n"
    assert environment_hash("alone") == hashlib.sha256(line.encode()).hexdigest()
    seen = {environment_hash("my-env")}
    for change in ({"my_env/prompts/judge.md": "Be kind."}, {"my_env/rubric.py": ""}):
        write(folder, change)
        seen.add(environment_hash("my-env"))
    assert len(seen) == 3


def test_a_sent_environment_is_loaded_with_the_same_hash(folder, tmp_path):
    write(folder, {"sent_env/pyproject.toml": '[project]\nname = "sent-env"', "sent_env/sent_env.py": LOADS})
    files = files_of("sent-env")
    source, archive = SENT + source_hash(files), pack(files)
    folder.rename(tmp_path / "elsewhere")
    assert not has_sent(source)
    with pytest.raises(EnvironmentPackageError, match="was not sent to this machine"):
        provide("sent-env", source, folder)
    keep_sent(source, archive)
    keep_sent(source, archive)  # the second run that brings it
    with environments_in(provide("sent-env", source, folder)):
        assert load_environment("sent-env").env_id == "sent-env"
        assert SENT + str(environment_hash("sent-env")) == source


def test_unavailable_damaged_and_too_large_sources_are_errors(folder):
    write(folder, {"alone.py": LOADS})
    source = f"{SENT}{environment_hash('alone')}"
    for damaged in (pack(files_of("alone"))[:-40], pack({}), b"no zip"):
        with pytest.raises(EnvironmentPackageError, match=source):
            keep_sent(source, damaged)
        assert not has_sent(source)
    for source, message in {
        "my-env": "has no version",
        "ada/my-env@latest": "has no version",
        "git+file:///no/such/repository@main": "git cannot find 'main'",
        "./no-such.whl": "'./no-such.whl'",
        "no such name": "neither a folder nor a package name",
    }.items():
        with pytest.raises(ConfigError, match=message):
            provide("my-env", source, folder)
    write(folder, PROJECT)
    with (folder / "my_env" / "rows.jsonl").open("wb") as rows:
        rows.truncate(60_000_000)
    with pytest.raises(EnvironmentPackageError, match=r"60 MB of files.*my_env/rows.jsonl.*50 MB"):
        pack(files_of("my-env"))
    write(folder, PROJECT)
    assert provide("ada/my-env@0.1", "", folder) == folder
    assert provide("my-env@0.2", "", folder) == folder  # nothing is installed unasked: that is no version to be had
