"""Configs and gate policies under the names of ``nemo_evaluator.config``."""

from pathlib import Path

from nightjar.analysis.gates.policy import Direction, GatePolicy, Tier
from nightjar.evaluation.config.nemo.agents import DockerSandbox
from nightjar.evaluation.config.nemo.agents import HarborSolver as HarborSolverConfig
from nightjar.evaluation.config.nemo.composing import compose_config
from nightjar.evaluation.config.nemo.containers import ContainerSolver as ContainerSolverConfig
from nightjar.evaluation.config.nemo.eval_config import (
    BenchmarkConfig,
    EvalConfig,
    LocalCluster,
    NoSandbox,
    OutputConfig,
    SimpleSolver,
    TrajectoriesConfig,
    parse_eval_config,
)
from nightjar.evaluation.config.nemo.interceptors import Interceptor as InterceptorConfig
from nightjar.evaluation.config.nemo.scoring import JudgeMetric, ScorerMetric, ScoringConfig
from nightjar.evaluation.config.nemo.services import ExternalApiService, GenerationConfig, Protocol, ProxyConfig

__all__ = [
    "BenchmarkConfig", "ContainerSolverConfig", "Direction", "DockerSandbox", "EvalConfig", "ExternalApiService",
    "GatePolicy", "GenerationConfig", "HarborSolverConfig", "InterceptorConfig", "JudgeMetric", "LocalCluster",
    "NoSandbox", "OutputConfig", "Protocol", "ProxyConfig", "ScorerMetric", "ScoringConfig", "SimpleSolver", "Tier",
    "TrajectoriesConfig", "compose_config", "default_policy", "load_gate_policy", "parse_eval_config",
]  # fmt: skip


def load_gate_policy(path: str | Path) -> GatePolicy:
    return GatePolicy.read(Path(path))


def default_policy() -> GatePolicy:
    return GatePolicy(version=1)
