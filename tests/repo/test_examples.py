"""Every public class and function says what it does; what is called or subclassed shows it, and every example runs.

An example is what follows ``>>>`` in a docstring. ``python -m pytest tests/repo/test_examples.py -k rubric`` runs those
of the modules with "rubric" in their name.
"""

import ast
import contextlib
import doctest
import inspect
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import pytest
from pydantic import BaseModel

import nightjar

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = {
    name: (DOCS / name).read_text(encoding="utf-8")
    for name in ("guides/environments.md", "guides/turns-and-tools.md", "guides/without-a-run.md")
}
"""The pages about environments, in reading order: each continues the code of the pages before it."""
SETTINGS = (DOCS / "reference" / "environment-settings.md").read_text(encoding="utf-8")
PUBLIC_MODULES = (
    "nightjar.environments", "nightjar.environments.rubrics", "nightjar.environments.parsers", "nightjar.clients",
    "nightjar.environments.data", "nightjar.model_server",
    "nightjar.sandboxes", "nightjar.compat.verifiers",
)  # fmt: skip
NEEDED_BY = {
    "nightjar.environments.games.reasoninggym_env": "reasoning_gym",
    "nightjar.environments.games.textarena_env": "textarena",
}
"""Modules whose examples import something that only an extra brings along."""
SHOWN_ELSEWHERE = {
    "AnthropicMessagesClient": "Client", "EnvGroupRubric": "EnvGroup", "EpisodicSumRubric": "GymEnv",
    "MultiTurnMonitorRubric": "MultiTurnEnv", "OpenAIChatCompletionsClient": "Client",
    "OpenAICompletionsClient": "resolve_client", "OpenAIResponsesClient": "Client",
    "OpenEnvEnv": "tests/processes/test_openenv_env.py", "OpenEnvEpisodicSumRubric": "GymEnv",
    "PythonMonitorRubric": "PythonEnv", "SandboxMonitorRubric": "SandboxEnv",
}  # fmt: skip
"""Classes that are made for their users, or that need more than an example can hold, and what shows them."""


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test in an empty folder, and takes back what examples change in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    environ, imported = dict(os.environ), set(sys.modules)
    loggers = [logging.getLogger(name) for name in ("", "nightjar", "verifiers")]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers
    for name in sys.modules.keys() - imported:
        if name.partition(".")[0] in {"verifiers", "nemo_evaluator"}:
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environ)


def modules_with_examples() -> list[str]:
    found = os.walk(ROOT / "nightjar", followlinks=True)
    paths = sorted(Path(folder, name) for folder, _, names in found for name in names if name.endswith(".py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name, path in zip(names, paths, strict=True) if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.long
@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_run(name: str) -> None:
    needed = NEEDED_BY.get(name)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    for example in doctest.DocTestFinder(exclude_empty=True).find(import_module(name)):
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


def docstring(value: Any) -> str:
    """Returns the docstring somebody wrote: not a parent's, and not the signature that a dataclass writes itself."""
    written = (value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)) or ""
    return "" if written.startswith(f"{value.__name__}(") else written


def methods_without_docstring(kind: type) -> list[str]:
    """Returns a class's own public methods and properties without a docstring of their own, or of their parents'."""
    own = {name: getattr(kind, name) for name in vars(kind) if not name.startswith("_")}
    methods = {name: value for name, value in own.items() if inspect.isroutine(value) or isinstance(value, property)}
    return [name for name, method in methods.items() if not inspect.getdoc(method)]


def is_shown(value: Any) -> bool:
    """Says whether an example is due: of records, errors and protocols it would only repeat the words."""
    if not inspect.isclass(value):
        return True
    is_record = is_dataclass(value) or is_typeddict(value) or issubclass(value, (BaseException, BaseModel, Enum))
    return not (is_record or getattr(value, "_is_protocol", False) or value.__name__ in SHOWN_ELSEWHERE)


def lacks(where: str, value: Any) -> list[str]:
    found = docstring(value)
    lacking = [] if found else [f"{where} has no docstring"]
    lacking += [f"{where} has no example"] if found and ">>>" not in found and is_shown(value) else []
    if inspect.isclass(value):
        lacking += [f"{where}.{name} has no docstring" for name in methods_without_docstring(value)]
    return lacking


@pytest.mark.parametrize("module", ["nightjar", *PUBLIC_MODULES])
def test_what_a_module_offers_is_documented_with_an_example(module: str) -> None:
    stub = ast.parse((ROOT / "nightjar" / "__init__.pyi").read_text(encoding="utf-8"))
    public = [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = public if module == "nightjar" else import_module(module).__all__
    offered = {f"{module}.{name}": getattr(import_module(module), name) for name in names}
    # type aliases and plain constants cannot have a docstring
    code = {name: value for name, value in offered.items() if inspect.isclass(value) or inspect.isroutine(value)}
    lacking = [line for name, value in code.items() for line in lacks(name, value)]
    assert not lacking, "\n".join(lacking)


@pytest.mark.long
def test_everything_can_be_imported_without_extras() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('docker', 'gymnasium', 'nltk', 'reasoning_gym', 'textarena')))\n"
        "from nightjar import *\n"
        "print(TextArenaEnv.__name__, 'datasets' in sys.modules)"
    )
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (imported.stdout, imported.stderr) == ("TextArenaEnv False\n", "")


def test_the_guides_print_what_they_say() -> None:
    """Runs the guides' Python from top to bottom, as one program; a comment after ``print(...)`` is what it prints."""
    guide = ModuleType("guide")
    for name, line, block in blocks():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * line + block, name, "exec"), vars(guide))
        expected = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        assert printed.getvalue().splitlines() == expected, (name, line)


def blocks() -> Iterator[tuple[str, int, str]]:
    """Yields the Python blocks of the guides, with page and line."""
    for name, text in GUIDES.items():
        for found in re.finditer(r"```python\n(.*?)```", text, flags=re.DOTALL):
            yield name, text.count("\n", 0, found.start()) + 1, found.group(1)


@pytest.mark.parametrize(("owner", "name", "default"), re.findall(r"`([\w.]+)\((\w+)=([^)]*)\)`", SETTINGS))
def test_a_default_in_the_guide_is_that_of_the_code(owner: str, name: str, default: str) -> None:
    value: Any = nightjar
    for part in owner.split("."):
        value = getattr(value, part)
    assert inspect.signature(value).parameters[name].default == ast.literal_eval(default)


@pytest.mark.parametrize(("owner", "name", "default"), re.findall(r"`(\w+)\(\)\.(\w+) = ([^`]*)`", SETTINGS))
def test_an_attribute_in_the_guide_is_that_of_the_code(owner: str, name: str, default: str) -> None:
    assert getattr(getattr(nightjar, owner)(), name) == ast.literal_eval(default)
