"""Imports point one way, and stand at the top of files; those inside functions and for typing alone count."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PREFECT_SIDE = ("nightjar.hosting", "nightjar.flows", "nightjar.tasks", "nightjar.blocks")

LATE = {
    "1.6 s, and rows may be lists": "datasets", "0.3 s, and an extra, for containers alone": "docker",
    "0.15 s, which who asks the warehouse leaves to the process that answers": "duckdb nightjar.warehouse.backend "
    "nightjar.warehouse.database nightjar.warehouse.exported_runs nightjar.warehouse.reading "
    "nightjar.evaluation.part_runs",
    "0.5 s, FastAPI and the pages, which pass while the query process starts": "nightjar.view.server",
    "Prefect, 2.5 s, which reads its settings when it is imported": "nightjar.flows.dask_rescoring "
    "nightjar.flows.evaluation nightjar.tasks.away nightjar.tasks.sent_environments",
    "Prefect, 2.5 s: spent while its server starts, after usage errors are found": "nightjar.hosting.deployments",
    "0.1 s, for object stores and parts of runs alone": "fsspec nightjar.warehouse.storage",
    "0.15 s, for tools that have a docstring": "griffe", "0.3 s, for who pushes a run alone": "huggingface_hub",
    "0.7 s, for MathRubric alone": "math_verify", "1.7 s, for MCPEnv alone": "mcp",
    "0.5 s, DuckDB and the engine, for which 'eval run --help' need not wait": "nightjar.cli.eval.exchange "
    "nightjar.cli.eval.dry_run nightjar.cli.eval.hosted nightjar.cli.eval.live nightjar.cli.eval.running "
    "nightjar.hosting.submitting",
    "0.2 s, prompt_toolkit, for a terminal alone": "nightjar.cli.sql.prompt",
    "for 'eval rescore --dask' alone": "nightjar.hosting.flow_runs",
    "0.1 s, for 'list --source' alone": "nightjar.compat.nemo.environments.lm_eval_task "
    "nightjar.compat.nemo.environments.skills",
    "as nightjar.runs.jsonl": "nightjar.warehouse.pricing nightjar.warehouse.served nightjar.warehouse.writing",
    "0.2 s, for example data sets and columns of the warehouse alone": "numpy",
    "2 s, scipy.stats, for the bootstrap, the method of Benjamini and Hochberg and DROP's spans alone": "scipy",
    "not there on Windows": "resource termios tty", "0.1 s, for one function of the names of verifiers": "rich",
    "0.1 s, for --debug alone": "tqdm tqdm.contrib.logging",
    "1 s, the SDKs, for environments that ask for their clients alone": "nightjar.clients.anthropic_sdk "
    "nightjar.clients.openai_sdk nightjar.clients.sdk_client",
    "0.1 s, Jinja and the judges, for benchmarks of NeMo Evaluator alone": "nightjar.environments.seeded.bridge",
    "for runs with scorers by name alone": "nightjar.environments.seeded.scorers",
    "0.1 s, for YAML configs of NeMo Evaluator alone": "nightjar.evaluation.config.nemo.file",
    "0.1 s, for runs that have middleware alone": "nightjar.clients.middleware_client",
    "0.5 s, NumPy and the comparison of runs, for nights alone": "nightjar.flows.judging nightjar.reports.nights",
    "for 'config set' alone": "tomlkit", "for --cache alone": "nightjar.clients.answer_cache",
    "for environments that require packages alone": "packaging.requirements",
    "for tasks in images alone": "nightjar.sandboxes.providers",
}  # fmt: skip
"""What is imported inside functions, with all that is in it, by reason: the CPU time that its import takes."""


@pytest.mark.slow
def test_every_import_inside_a_function_has_a_reason():
    late = {module for modules in LATE.values() for module in modules.split()}
    found, used = defaultdict(set), set()
    for module, imported in late_imports():
        keys = {key for key in late if imported == key or imported.startswith(f"{key}.")}
        used |= keys
        if not keys:
            found[module].add(imported)
    assert dict(found) == {}
    assert used == late


def test_no_module_imports_itself_by_way_of_others():
    graph = imports()
    in_circle = {
        module
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if graph.chain_exists(importer=imported, imported=module)
    }
    assert in_circle == set()


def test_layers_have_no_exceptions():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        assert not {"ignore_imports", "exhaustive_ignores", "unmatched_ignore_imports_alerting"} & contract.keys()
    [library] = [contract for contract in contracts if contract["name"] == "Layers of the library"]
    assert library["exhaustive"]
    layers = {f"nightjar.{name.strip()}" for level in library["layers"] for name in level.split("|")}
    assert layers == imports().find_children("nightjar")


def test_prefect_is_used_by_its_client_side_alone():
    graph = imports()
    used = {"prefect", *(module for module in graph.modules if module.split(".")[0] in PREFECT_SIDE)}
    users = {user for module in used for user in graph.find_modules_that_directly_import(module)}
    assert "nightjar.tasks.evaluation" in users
    assert [user for user in users if not user.startswith(PREFECT_SIDE)] == []


def test_duckdb_is_used_by_the_warehouse_and_for_data_of_the_hub_alone():
    users = imports().find_modules_that_directly_import("duckdb")
    others = {user for user in users if not user.startswith("nightjar.warehouse.")}
    assert others == {"nightjar.environments.data.parquet"}


@pytest.mark.long
def test_modules_load_only_what_they_need():
    """One process imports them in turn, the lightest first."""
    needed = (
        ("nightjar.hosting.server, nightjar.hosting.supervisor, nightjar.hosting.flow_runs", {"prefect"}),
        ("nightjar.evaluation, nightjar.benchmarks.gsm8k", {"prefect"}),
        ("nightjar.cli.app, nightjar.cli.eval.running, nightjar.evaluation.nights", {"scipy"}),
        (
            "nightjar; nightjar.evaluate, nightjar.runs, nightjar.compare, nightjar.trend, nightjar.sql",
            {"prefect", "altair", "pandas", "polars", "datasets"},
        ),
        ("nightjar; from nightjar import *", {"datasets"}),
        (
            "nightjar.flows; from nightjar.flows import query",
            {"nightjar.flows.evaluation", "nightjar.flows.nights", "nightjar.tasks.flow_runs"},
        ),
    )
    code = "\n".join(f"import {modules}\nprint(*sys.modules)" for modules, _ in needed)
    ended = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    for (modules, absent), loaded in zip(needed, ended.stdout.splitlines(), strict=True):
        assert absent.isdisjoint(loaded.split()), modules


@cache
def imports():
    import grimp

    return grimp.build_graph("nightjar", include_external_packages=True)


def late_imports():
    """Gives what is imported inside functions: the module where, and the module that."""
    found = os.walk(ROOT / "nightjar", followlinks=True)
    for path in sorted(Path(folder, name) for folder, _, names in found for name in names if name.endswith(".py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        if re.search(r"^[ \t]+(?:from|import) ", text, re.MULTILINE):
            for node in inside_functions(ast.parse(text)):
                if isinstance(node, ast.Import):
                    yield from ((module, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield module, node.module or ""


def inside_functions(node, is_inside=False):
    """Gives the statements below a node that a function contains; no import stands in an expression."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            if is_inside:
                yield child
            yield from inside_functions(child, is_inside or isinstance(child, FUNCTIONS))
