"""Failures by class: of errors as they are raised, of what results keep of them, and of what a message says."""

from __future__ import annotations

import httpx2
import openai
import pytest

from nightjar.core.failures import (
    FailureClass,
    advice_line,
    class_in,
    failure_class,
    recorded_failures,
)
from nightjar.core.rollout.records import error_row
from nightjar.environments import load_environment
from nightjar.errors import (
    BudgetSpentError,
    ConfigError,
    DatasetError,
    EnvironmentImportError,
    EnvironmentLoadError,
    EnvironmentNotFoundError,
    JudgeVerdictError,
    MissingKeyError,
    ModelError,
    OverlongPromptError,
    RunAbortedError,
    RunLockedError,
    RunTimedOutError,
    SandboxError,
    ScoringError,
    ServiceError,
    ToolCallError,
    error_chain,
)

RESPONSE = httpx2.Response(429, request=httpx2.Request("POST", "http://model"))


class OwnModelError(ModelError):
    """Of somebody's environment."""


def caused(error: Exception, *causes: Exception) -> Exception:
    """Returns an error with its causes."""
    for effect, cause in zip((error, *causes), causes, strict=False):
        effect.__cause__ = cause
    return error


ERRORS = [
    (caused(ScoringError("failed"), ZeroDivisionError("division by zero")), "environment code"),
    (caused(ToolCallError("failed"), FileNotFoundError("a.txt")), "environment code"),
    (EnvironmentLoadError("mine", "cannot be loaded: ValueError: no"), "environment code"),
    (DatasetError("Dataset 'a.jsonl' is empty"), "environment code"),
    (AttributeError("x"), "environment code"),
    (ConfigError("The code has ruined the state: info is no dict"), "environment code"),
    (caused(EnvironmentImportError("mine", "no", ""), ModuleNotFoundError("rapidfuzz")), "dependency"),
    (caused(ScoringError("failed"), ImportError("cannot import name")), "dependency"),
    (EnvironmentNotFoundError("mine", []), "dependency"),
    (MissingKeyError(["JUDGE_KEY"]), "secret missing"),
    (EnvironmentLoadError("mine", "cannot be loaded: KeyError: 'JUDGE_API_KEY' (mine.py:3)"), "secret missing"),
    (caused(ScoringError("failed"), KeyError("SEARCH_TOKEN")), "secret missing"),
    (caused(ScoringError("failed"), KeyError("answer")), "environment code"),
    (caused(ScoringError("failed"), JudgeVerdictError("The judge gave no grade: 'banana'")), "judge"),
    (RunTimedOutError("Stopped after 1 minutes"), "timeout"),
    (caused(ToolCallError("slow"), TimeoutError("tool")), "timeout"),
    (caused(ModelError("no"), openai.APITimeoutError(request=RESPONSE.request)), "timeout"),
    (TimeoutError(), "timeout"),
    (caused(ModelError("no"), openai.RateLimitError("Slow down", response=RESPONSE, body=None)), "rate limit"),
    (RunAbortedError("Stopped: the first 20 requests failed. Error code: 429 - slow down"), "rate limit"),
    (caused(ModelError("no"), openai.APIConnectionError(request=RESPONSE.request), OSError("refused")), "model API"),
    (caused(ModelError("no"), openai.AuthenticationError("No", response=RESPONSE, body=None)), "model API"),
    (OverlongPromptError("too long"), "model API"),
    (RunAbortedError("Stopped: the first 5 requests failed. Connection error."), "model API"),
    (SandboxError("did not answer"), "infrastructure"),
    (caused(DatasetError("Cannot load"), ConnectionResetError("hub")), "infrastructure"),
    (OSError(28, "No space left on device"), "infrastructure"),
    (MemoryError(), "infrastructure"),
    (RunLockedError("held"), "infrastructure"),
    (ServiceError("away"), "infrastructure"),
    (ConfigError("There is no ModelEndpoint block 'x'"), "settings"),
    (BudgetSpentError("spent"), "settings"),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda value: str(value)[:40])
def test_an_error_and_what_is_recorded_of_it_are_of_one_class(error: Exception, expected: str) -> None:
    assert failure_class(error) == expected
    assert failure_class(error_row(error)["error_chain_str"]) == expected


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("RateLimitError", "rate limit"),
        ("ModelError -> APIConnectionError -> ConnectTimeout", "model API"),
        ("ModelError -> APITimeoutError", "timeout"),
        ("SandboxNotAllowedError", "permission"),
        ("NobodysError", "environment code"),
        ("Process 12, which ran it, is gone. Finished rollouts are kept; Retry resumes it.", "infrastructure"),
    ],
)
def test_a_chain_of_names_tells(chain: str, expected: str) -> None:
    assert failure_class(chain) == expected


def test_an_error_of_somebody_s_own_is_what_it_is_made_from() -> None:
    assert failure_class(OwnModelError("no")) == "model API"


def test_what_every_environment_raises_that_asks_for_a_key(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environments").mkdir()
    for name, line in (("asks_os", "os.environ['PLANTED_API_KEY']"), ("needs_lib", "import nobody_has_this")):
        (tmp_path / "environments" / f"{name}.py").write_text(f"import os\ndef load_environment():\n    {line}\n")
    found = {}
    for env_id in ("asks-os", "needs-lib", "not-there"):
        with pytest.raises(ConfigError) as raised:
            load_environment(env_id)
        found[env_id] = str(failure_class(raised.value))
        assert list(error_chain(raised.value))
    assert found == {"asks-os": "secret missing", "needs-lib": "dependency", "not-there": "dependency"}


def test_a_run_that_was_stopped_is_of_the_class_of_its_rollouts() -> None:
    metadata = {
        "errors": {"SandboxNotAllowedError": 4, "ModelError -> RateLimitError": 1, "SandboxRefusedError": 1},
        "error_examples": {"SandboxRefusedError": "Not without --allow-sandbox-access"},
    }
    assert recorded_failures(metadata) == ["permission", "rate limit"]
    stopped = "RunAbortedError: Stopped: 5 rollouts in a row failed alike. No"
    assert recorded_failures({**metadata, "error": stopped}) == ["permission", "rate limit"]
    assert recorded_failures({"error": stopped}) == ["model API"]
    late = "RunTimedOutError: Stopped after 1 minutes"
    assert recorded_failures({**metadata, "error": late}) == ["timeout", "permission", "rate limit"]
    assert recorded_failures({"error": "RunCancelledError: Cancelled by SIGINT"}) == recorded_failures({}) == []


@pytest.mark.parametrize("kind", FailureClass)
def test_a_message_says_its_class_and_what_to_do(kind: FailureClass) -> None:
    assert class_in(f"Something happened.\n{advice_line(kind)}") is kind
    assert class_in("Something happened.") is None
    assert "\n" not in kind.advice
