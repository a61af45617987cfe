"""Every public class and function says what it does; what is called or subclassed shows it, and every example runs.

An example is what follows ``>>>`` in a docstring.
"""

import ast
import contextlib
import doctest
import inspect
import io
import logging
import os
import re
import sys
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import is_typeddict

import pytest
from pydantic import BaseModel

import nightjar

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = ("guides/environments.md", "guides/turns-and-tools.md", "guides/without-a-run.md")
"""The pages about environments, in reading order: each continues the code of the pages before it."""
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


@contextlib.contextmanager
def as_it_was(folder):
    """Enters an empty folder, and at the end takes back what examples change in this process."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "meta_path", list(sys.meta_path))
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


@pytest.mark.long
def test_the_examples_of_all_modules_run(tmp_path):
    found = os.walk(ROOT / "nightjar", followlinks=True)
    paths = sorted(Path(folder, name) for folder, _, names in found for name in names if name.endswith(".py"))
    ran, report = 0, []
    for path in (path for path in paths if ">>>" in path.read_text(encoding="utf-8")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name in NEEDED_BY and find_spec(NEEDED_BY[name]) is None:
            continue
        with as_it_was(tmp_path / name):
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
            for example in doctest.DocTestFinder(exclude_empty=True).find(import_module(name)):
                ran += runner.run(example, out=report.append).attempted
    assert not report, "".join(report)
    assert ran > 100


def docstring(value):
    """Returns the docstring somebody wrote: not a parent's, and not the signature that a dataclass writes itself."""
    written = (value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)) or ""
    return "" if written.startswith(f"{value.__name__}(") else written


def methods_without_docstring(kind):
    """Returns a class's own public methods and properties without a docstring of their own, or of their parents'."""
    own = {name: getattr(kind, name) for name in vars(kind) if not name.startswith("_")}
    methods = {name: value for name, value in own.items() if inspect.isroutine(value) or isinstance(value, property)}
    return [name for name, method in methods.items() if not inspect.getdoc(method)]


def is_shown(value):
    """Says whether an example is due: of records, errors and protocols it would only repeat the words."""
    if not inspect.isclass(value):
        return True
    is_record = is_dataclass(value) or is_typeddict(value) or issubclass(value, (BaseException, BaseModel, Enum))
    return not (is_record or getattr(value, "_is_protocol", False) or value.__name__ in SHOWN_ELSEWHERE)


def lacks(where, value):
    found = docstring(value)
    lacking = [] if found else [f"{where} has no docstring"]
    lacking += [f"{where} has no example"] if found and ">>>" not in found and is_shown(value) else []
    if inspect.isclass(value):
        lacking += [f"{where}.{name} has no docstring" for name in methods_without_docstring(value)]
    return lacking


def test_what_the_modules_offer_is_documented_with_an_example():
    stub = ast.parse((ROOT / "nightjar" / "__init__.pyi").read_text(encoding="utf-8"))
    public = [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    lacking = []
    for module in ("nightjar", *PUBLIC_MODULES):
        for name in public if module == "nightjar" else import_module(module).__all__:
            value = getattr(import_module(module), name)
            if inspect.isclass(value) or inspect.isroutine(value):  # others cannot have a docstring
                lacking += lacks(f"{module}.{name}", value)
    assert not lacking, "\n".join(lacking)


def test_the_guides_print_what_they_say(tmp_path):
    """Runs the guides' Python from top to bottom, as one program; a comment after ``print(...)`` is what it prints."""
    guide = ModuleType("guide")
    with as_it_was(tmp_path / "guide"):
        for name in GUIDES:
            text = (DOCS / name).read_text(encoding="utf-8")
            for found in re.finditer(r"```python\n(.*?)```", text, flags=re.DOTALL):
                block, line = found[1], text.count("\n", 0, found.start()) + 1
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile("\n" * line + block, name, "exec"), vars(guide))
                expected = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
                assert printed.getvalue().splitlines() == expected, (name, line)


def test_defaults_and_attributes_in_the_reference_are_those_of_the_code():
    settings = (DOCS / "reference" / "environment-settings.md").read_text(encoding="utf-8")
    defaults = re.findall(r"`([\w.]+)\((\w+)=([^)]*)\)`", settings)
    attributes = re.findall(r"`(\w+)\(\)\.(\w+) = ([^`]*)`", settings)
    assert defaults
    assert attributes
    for owner, name, default in defaults:
        value = attrgetter(owner)(nightjar)
        assert inspect.signature(value).parameters[name].default == ast.literal_eval(default)
    for owner, name, default in attributes:
        assert getattr(getattr(nightjar, owner)(), name) == ast.literal_eval(default)
