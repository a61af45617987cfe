"""``import verifiers`` gives Nightjar; in separate processes, because the alias cannot be removed."""

import json
import os
import textwrap
from subprocess import PIPE

import pytest

REAL = """
IS_REAL = True
class SingleTurnEnv:
    def __init__(self, **kwargs): ...
class Rubric:
    def __init__(self, **kwargs): ...
"""

ENVIRONMENT = """
import verifiers as vf
from verifiers.types import Messages, State
from verifiers.utils.data_utils import extract_boxed_answer
class Talk(vf.MultiTurnEnv):
    async def env_response(self, messages: Messages, state: State, **kwargs) -> Messages:
        return [{"role": "user", "content": "go on"}]

def load_environment(max_turns: int = 2) -> vf.Environment:
    rubric = vf.Rubric(funcs=[lambda completion: 1.0])
    return Talk(dataset=[{"question": "2+2?", "answer": "4"}], rubric=rubric, max_turns=max_turns)
"""

OLD_ENVIRONMENT = """
import verifiers as vf
def load_environment():
    return vf.SingleTurnEnv(dataset=[{"question": "2+2?"}], rubric=vf.Rubric())
"""


@pytest.fixture
def run(tmp_path, fork):
    """Runs Python code in a process of its own in the test's folder; returns what it prints."""

    def run(code, *, path=(), **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTJAR_")}
        source = f"import sys; sys.path[:0] = {list(map(str, path))}\n{textwrap.dedent(code)}"
        with fork.python(source, env=kept | variables, cwd=tmp_path, stdout=PIPE, stderr=PIPE) as process:
            printed, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return printed.strip()

    return run


@pytest.fixture
def real(tmp_path):
    """A folder with another package called ``verifiers``."""
    package = tmp_path / "real" / "verifiers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REAL)
    return package.parent


@pytest.fixture
def write(tmp_path):
    (tmp_path / "environments").mkdir()
    return (tmp_path / "environments" / "talk.py").write_text


WAYS = [
    "import verifiers as vf; found = vf.types.State", "import verifiers as vf; found = vf.utils.usage_utils.State",
    "import verifiers.types; found = verifiers.types.State", "from verifiers import types; found = types.State",
    "from verifiers import State as found", "from verifiers.types import State as found",
    "from verifiers.types import *; found = State", "from verifiers import *; found = State",
    "from verifiers.types import ChatMessages, ModelResponse, State as found",
    "from verifiers.utils import *; import verifiers.types as types; found = types.State",
    "import importlib; found = importlib.import_module('verifiers.types').State",
]  # fmt: skip

MISSING = {
    "import verifiers.trainers": ("ModuleNotFoundError", "'verifiers.trainers'"),
    "import verifiers.envs.no_env": ("ModuleNotFoundError", "'verifiers.envs.no_env'"),
    "from verifiers import GRPOTrainer": ("ImportError", "'GRPOTrainer' from 'verifiers'"),
    "from verifiers.types import NoType": ("ImportError", "'NoType' from 'verifiers.types'"),
}


@pytest.mark.long
def test_names_and_errors_of_all_modules(run):
    code = f"""
        import importlib, json, sys
        import nightjar
        from nightjar.compat.verifiers import install, is_installed
        from nightjar.compat.verifiers.modules import SOURCES
        before = is_installed()
        install()
        install()
        seen = {{"installed": [before, is_installed()], "ways": {{}}, "missing": {{}}, "differing": []}}
        import verifiers as vf
        from verifiers.types import State, Messages
        vf.SingleTurnEnv, vf.Rubric, vf.XMLParser
        seen["slow"] = [name for name in ("datasets", "torch", "textarena", "prefect") if name in sys.modules]

        def forget():
            for name in [name for name in sys.modules if name.partition(".")[0] == "verifiers"]:
                del sys.modules[name]

        for way in {WAYS!r}:
            forget()
            names = {{}}
            exec(way, names)
            seen["ways"][way] = names["found"] is nightjar.State
        for way in {list(MISSING)!r}:
            forget()
            try:
                exec(way, {{}})
            except ImportError as error:
                seen["missing"][way] = [type(error).__name__, str(error)]
        for submodule, sources in SOURCES.items():
            alias = importlib.import_module(".".join(filter(None, ("verifiers", submodule))))
            taken = set()
            for source in sources:
                module = importlib.import_module(source)
                for name in getattr(module, "__all__", None) or vars(module):
                    value = getattr(module, name)
                    is_public = not name.startswith("_") and value is not None and not hasattr(value, "__spec__")
                    if is_public and name not in taken and getattr(alias, name) is not value:
                        seen["differing"].append(f"{{alias.__name__}}.{{name}}")
                    taken.add(name)
        print(json.dumps(seen))
    """
    seen = json.loads(run(code))
    assert seen["differing"] == []
    assert seen["ways"] == dict.fromkeys(WAYS, True)
    assert seen["missing"].keys() == MISSING.keys()
    for way, (kind, named) in MISSING.items():
        assert (seen["missing"][way][0], named in seen["missing"][way][1]) == (kind, True)
    assert seen["slow"] == [], "it is imported before it is needed"
    assert seen["installed"] == [False, True]


def test_the_alias_must_be_installed_before_the_real_package_is_imported(run, real):
    refusal, is_real, module = run(
        """
        import sys
        import verifiers
        from nightjar.compat.verifiers import install
        from nightjar.errors import ConfigError
        try:
            install()
        except ConfigError as error:
            print(error)
        print(verifiers.IS_REAL)
        del sys.modules["verifiers"]
        install()
        import verifiers
        print(verifiers.Rubric.__module__)
        """,
        path=[real],
    ).splitlines()
    assert f"The package 'verifiers' is already imported, from {real}" in refusal
    assert (is_real, module) == ("True", "nightjar.environments.rubrics.rubric")


LOAD = """
    from nightjar.environments import load_environment
    from nightjar.environments.packages.aliases import preferred
    from nightjar.errors import ConfigError
    def load():
        try:
            env = load_environment("talk")
            print(type(env).__mro__[1].__module__, env.max_turns)
        except ConfigError as error:
            print(error)

"""


def test_an_environment_runs_where_a_patch_of_an_alias_patches_the_original(run, write, tmp_path):
    (tmp_path / "verifiers" / "docs").mkdir(parents=True)  # a folder of that name is no package
    write(ENVIRONMENT)
    printed = run("""
        from nightjar.clients import ClientConfig
        from nightjar.environments import load_environment
        from nightjar.model_server import FixedAnswer, ModelServer
        env = load_environment("talk", max_turns=3)
        with ModelServer(FixedAnswer("4")) as server:
            results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "m")
        [row] = results["outputs"]
        print(row["reward"], row["metrics"], server.stats().answered)
        from verifiers.rubrics import math_rubric
        import nightjar.environments.rubrics.math_rubric
        before = math_rubric.parse
        for value in (print, before):
            math_rubric.parse = value
            print(nightjar.environments.rubrics.math_rubric.parse is value)
    """)
    assert printed.splitlines() == ["1.0 {'<lambda>': 1.0, 'num_turns': 3.0} 3", "True", "True"]


def test_the_alias_is_preferred_by_a_variable_or_a_run(run, write, real):
    write(ENVIRONMENT)
    for last_line, variables in (("load()", {"NIGHTJAR_ALIAS_VERIFIERS": "1"}), ("with preferred(): load()", {})):
        assert run(f"{LOAD}    {last_line}", path=[real], **variables) == "nightjar.environments.multiturn 2"


def test_the_error_with_the_installed_package_names_the_variable(run, write, real):
    write(OLD_ENVIRONMENT)
    code = f'{LOAD}    load()\n    import os; os.environ["NIGHTJAR_ALIAS_VERIFIERS"] = "1"\n    load()\n'
    without, too_late = run(code, path=[real]).splitlines()
    assert "load_environment() returned SingleTurnEnv, not an Environment of Nightjar" in without
    assert "NIGHTJAR_ALIAS_VERIFIERS=1" in without
    assert "The package 'verifiers' is already imported" in too_late


def test_private_names_of_verifiers_read_what_is_registered(run):
    code = """
        import asyncio, json
        from nightjar.compat.verifiers import install
        install()
        import verifiers as vf

        class Env(vf.SingleTurnEnv):
            torn_down = []

            @vf.stop(priority=1000)
            async def early(self, state):
                return True

            @vf.cleanup
            async def tidy(self, state): ...

            @vf.teardown(priority=-1)
            async def last(self):
                self.torn_down.append("last")

            @vf.teardown
            async def first(self):
                self.torn_down.append("first")

        def right(completion): ...
        def near(completion): ...
        group = vf.RubricGroup([vf.Rubric([right], [0.5]), vf.Rubric([near])])
        env = Env(dataset=[{"question": "2+2?"}], rubric=vf.Rubric())
        state = {"trajectory": []}
        asyncio.run(env._teardown())
        print(json.dumps([
            group._get_reward_func_names(), group._get_reward_weights(), group._get_reward_funcs() == [right, near],
            env._stop_conditions[0].__name__, [method.__name__ for method in env._cleanup_handlers],
            [method.__name__ for method in env._teardown_handlers], env.torn_down,
            asyncio.run(env._render_stop(state, env.early)), state["stop_condition"],
        ]))
    """
    assert json.loads(run(code)) == [
        ["right", "near"], [0.5, 1.0], True, "early", ["render_state", "tidy"], ["first", "last"], ["first", "last"],
        True, "early",
    ]  # fmt: skip
