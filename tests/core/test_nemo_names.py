"""The names that NeMo Evaluator's documentation imports, under ``nemo_evaluator`` in a process without this package.

``NEMO_EVALUATOR_SOURCE`` may name a checkout of NeMo Evaluator; then all imports of its documentation are tried.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("nemo_evaluator") is not None, reason="nemo_evaluator itself is installed"),
]

START = "from nightjar.environments.packages.aliases import install_where_needed as install\ninstall()\n"
NAMES = {
    "": "ChatSolver EvalEnvironment ModelClient ScorerInput SeedResult VerifyResult answer_line benchmark exact_match "
    "fuzzy_match get_environment multichoice_regex numeric_match register run_evaluation scorer",
    "config": "EvalConfig BenchmarkConfig GatePolicy load_gate_policy parse_eval_config",
    "config.benchmarks": "BenchmarkConfig", "config.clusters": "LocalCluster", "config.compose": "compose_config",
    "config.eval_config": "EvalConfig parse_eval_config",
    "config.gate_policy": "Direction GatePolicy Tier default_policy load_gate_policy",
    "config.output": "OutputConfig TrajectoriesConfig", "config.sandboxes": "DockerSandbox NoSandbox",
    "config.scoring": "JudgeMetric ScoringConfig",
    "config.services": "ExternalApiService GenerationConfig ProxyConfig",
    "config.solvers": "HarborSolverConfig SimpleSolver",
    "engine": "ModelClient compare_runs run_evaluation write_all", "engine.bundles": "match_bundles",
    "engine.comparison": "compare_runs write_regression", "engine.eval_loop": "run_evaluation",
    "engine.gate": "GateReport gate_runs write_gate_report", "engine.model_client": "ModelClient",
    "engine.sharding": "merge_results", "environments": "EvalEnvironment SeedResult VerifyResult register",
    "environments.container": "ContainerEnvironment", "environments.gym": "GymEnvironment",
    "environments.registry": "get_environment", "environments.skills": "SkillsEnvironment",
    "environments.vlmevalkit": "VLMEvalKitEnvironment", "metrics": "bootstrap_ci pass_at_k",
    "metrics.aggregation": "category_breakdown", "metrics.confidence": "bootstrap_ci",
    "metrics.headline": "headline_score_metrics", "metrics.paired_tests": "mcnemar_test",
    "metrics.pass_at_k": "pass_at_k", "reports.eval": "RENDERERS", "reports.gate": "write_gate_markdown",
    "reports.regression": "write_report", "sandbox": "SandboxSpec", "scoring": "validate_json_schema",
    "serving.app": "generate_app", "solvers": "ChatSolver VLMSolver",
}  # fmt: skip
"""Submodule → names that programs import from it."""
WITHOUT = {"from nemo_evaluator.engine.ray_launcher import run_shard"}
"""Imports of the documentation that fail: shards on Ray, in place of which Nightjar has parts of runs."""


def run(program):
    return subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, check=False)


def test_programs_find_the_names_of_each_module():
    modules = {".".join(filter(None, ("nemo_evaluator", module))): names.split() for module, names in NAMES.items()}
    lines = [f"from {module} import {', '.join(names)}" for module, names in modules.items()]
    ended = run("\n".join(["import nemo_evaluator.benchmarks", *lines]))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_error_for_a_missing_name_says_which_name():
    messages = {
        "from nemo_evaluator import nothing": "cannot import name 'nothing' from 'nemo_evaluator'",
        "from nemo_evaluator.metrics import nothing": "cannot import name 'nothing' from 'nemo_evaluator.metrics'",
        "from nightjar.compat.nemo import nothing": "cannot import name 'nothing' from 'nightjar.compat.nemo'",
        "import nemo_evaluator.nothing": "Nightjar replaces nemo_evaluator in this process and has no",
    }
    tried = "".join(f"try:\n    {line}\nexcept ImportError as error:\n    print(error)\n" for line in messages)
    said = run(tried).stdout
    assert [message in told for message, told in zip(messages.values(), said.splitlines(), strict=True)] == [True] * 4
    assert "__path__" not in said


def test_all_imports_of_the_documentation_but_one_work():
    if "NEMO_EVALUATOR_SOURCE" not in os.environ:
        pytest.skip("NEMO_EVALUATOR_SOURCE names no checkout of NeMo Evaluator")
    pages = sorted((Path(os.environ["NEMO_EVALUATOR_SOURCE"]) / "docs").rglob("*.mdx"))
    found = {
        line
        for page in pages
        for line in re.findall(r"(?m)^\s*((?:from|import) nemo_evaluator.*?)\s*$", page.read_text())
    }
    assert len(found) > 20
    ended = run("\n".join(sorted(found - WITHOUT)))
    assert (ended.returncode, ended.stderr) == (0, "")
