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
    "nemo_evaluator": [
        "ChatSolver", "EvalEnvironment", "ModelClient", "ScorerInput", "SeedResult", "VerifyResult", "answer_line",
        "benchmark", "exact_match", "fuzzy_match", "get_environment", "multichoice_regex", "numeric_match", "register",
        "run_evaluation", "scorer",
    ],
    "nemo_evaluator.config.gate_policy": ["load_gate_policy"],
    "nemo_evaluator.engine": ["ModelClient", "compare_runs", "run_evaluation", "write_all"],
    "nemo_evaluator.engine.comparison": ["compare_runs", "write_regression"],
    "nemo_evaluator.engine.eval_loop": ["run_evaluation"],
    "nemo_evaluator.engine.gate": ["gate_runs", "write_gate_report"],
    "nemo_evaluator.engine.model_client": ["ModelClient"],
    "nemo_evaluator.environments": ["EvalEnvironment", "SeedResult", "VerifyResult", "register"],
    "nemo_evaluator.environments.container": ["ContainerEnvironment"],
    "nemo_evaluator.environments.gym": ["GymEnvironment"],
    "nemo_evaluator.environments.registry": ["get_environment"],
    "nemo_evaluator.environments.skills": ["SkillsEnvironment"],
    "nemo_evaluator.environments.vlmevalkit": ["VLMEvalKitEnvironment"],
    "nemo_evaluator.metrics": ["bootstrap_ci", "pass_at_k"],
    "nemo_evaluator.metrics.aggregation": ["category_breakdown"],
    "nemo_evaluator.sandbox": ["SandboxSpec"],
    "nemo_evaluator.scoring": ["validate_json_schema"],
    "nemo_evaluator.serving.app": ["generate_app"],
    "nemo_evaluator.solvers": ["ChatSolver", "VLMSolver"],
}  # fmt: skip
WITHOUT = {"from nemo_evaluator.engine.ray_launcher import run_shard"}
"""Imports of the documentation that fail: shards on Ray, in place of which Nightjar has parts of runs."""


def run(program):
    return subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, check=False)


def test_the_names_of_the_documentation_are_found():
    lines = [f"from {module} import {', '.join(names)}" for module, names in NAMES.items()]
    ended = run("\n".join(["import nemo_evaluator.benchmarks", *lines]))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(("line", "message"), [
    ("from nemo_evaluator import nothing", "cannot import name 'nothing' from 'nemo_evaluator'"),
    ("from nemo_evaluator.metrics import nothing", "cannot import name 'nothing' from 'nemo_evaluator.metrics'"),
    ("from nightjar.compat.nemo import nothing", "cannot import name 'nothing' from 'nightjar.compat.nemo'"),
    ("import nemo_evaluator.nothing", "Nightjar replaces nemo_evaluator in this process and has no"),
])  # fmt: skip
def test_the_error_for_a_missing_name_says_which_name(line, message):
    ended = run(line)
    assert message in ended.stderr.splitlines()[-1]
    assert "__path__" not in ended.stderr


def test_all_imports_of_the_documentation_but_one_work():
    if "NEMO_EVALUATOR_SOURCE" not in os.environ:
        pytest.skip("NEMO_EVALUATOR_SOURCE names no checkout of NeMo Evaluator")
    pages = sorted((Path(os.environ["NEMO_EVALUATOR_SOURCE"]) / "docs").rglob("*.mdx"))
    found = {
        line.strip()
        for page in pages
        for line in page.read_text().splitlines()
        if re.match(r"\s*(from|import) nemo_evaluator", line)
    }
    assert len(found) > 20
    ended = run("\n".join(sorted(found - WITHOUT)))
    assert (ended.returncode, ended.stderr) == (0, "")
