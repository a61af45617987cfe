"""Classes of failures: of raised errors, of their records, and of messages."""

import pytest

from nightjar import errors
from nightjar.core.failures import FailureClass, advice_line, class_in, failure_class, recorded_failures
from nightjar.core.rollout.records import error_row
from nightjar.environments import load_environment


def caused(error, *causes):
    for effect, cause in zip((error, *causes), causes, strict=False):
        effect.__cause__ = cause
    return error


def test_an_error_and_its_record_have_the_same_class():
    import httpx2
    import openai

    request = httpx2.Request("POST", "http://model")
    response = httpx2.Response(429, request=request)
    for error, expected in (
        (caused(errors.ScoringError("failed"), ZeroDivisionError("division by zero")), "environment code"),
        (caused(errors.ToolCallError("failed"), FileNotFoundError("a.txt")), "environment code"),
        (errors.EnvironmentLoadError("mine", "cannot be loaded: ValueError: no"), "environment code"),
        (errors.DatasetError("Dataset 'a.jsonl' is empty"), "environment code"),
        (AttributeError("x"), "environment code"),
        (errors.ConfigError("The code has ruined the state: info is no dict"), "environment code"),
        (caused(errors.EnvironmentImportError("mine", "no", ""), ModuleNotFoundError("rapidfuzz")), "dependency"),
        (caused(errors.ScoringError("failed"), ImportError("cannot import name")), "dependency"),
        (errors.EnvironmentNotFoundError(["mine"], []), "dependency"),
        (errors.MissingKeyError(["JUDGE_KEY"]), "secret missing"),
        (
            errors.EnvironmentLoadError("mine", "cannot be loaded: KeyError: 'JUDGE_API_KEY' (mine.py:3)"),
            "secret missing",
        ),
        (caused(errors.ScoringError("failed"), KeyError("SEARCH_TOKEN")), "secret missing"),
        (caused(errors.ScoringError("failed"), KeyError("answer")), "environment code"),
        (caused(errors.ScoringError("failed"), errors.JudgeVerdictError("The judge gave no grade: 'banana'")), "judge"),
        (errors.RunTimedOutError("Stopped after 1 minutes"), "timeout"),
        (caused(errors.ToolCallError("slow"), TimeoutError("tool")), "timeout"),
        (caused(errors.ModelError("no"), openai.APITimeoutError(request=request)), "timeout"),
        (TimeoutError(), "timeout"),
        (
            caused(errors.ModelError("no"), openai.RateLimitError("Slow down", response=response, body=None)),
            "rate limit",
        ),
        (errors.RunAbortedError("Stopped: the first 20 requests failed. Error code: 429 - slow down"), "rate limit"),
        (
            caused(errors.ModelError("no"), openai.APIConnectionError(request=request), OSError("refused")),
            "model API",
        ),
        (caused(errors.ModelError("no"), openai.AuthenticationError("No", response=response, body=None)), "model API"),
        (errors.OverlongPromptError("too long"), "model response"),
        (errors.ContentFilteredError("withheld"), "content filter"),
        (errors.RunAbortedError("Stopped: the first 5 requests failed. Connection error."), "model API"),
        (errors.SandboxError("did not answer"), "infrastructure"),
        (caused(errors.SandboxError("No shell"), type("APIError", (Exception,), {})("of docker")), "infrastructure"),
        (caused(errors.DatasetError("Cannot load"), ConnectionResetError("hub")), "infrastructure"),
        (OSError(28, "No space left on device"), "infrastructure"),
        (MemoryError(), "infrastructure"),
        (errors.RunLockedError("held"), "infrastructure"),
        (errors.ServiceError("away"), "infrastructure"),
        (errors.ConfigError("There is no ModelEndpoint block 'x'"), "settings"),
        (errors.BudgetSpentError("spent"), "settings"),
    ):
        assert failure_class(error) == expected, error
        assert failure_class(error_row(error)["error_chain_str"]) == expected, error


def test_a_chain_of_names_a_parent_class_or_an_aborted_run_has_its_classes():
    for error, expected in (
        ("RateLimitError", "rate limit"),
        ("ModelError -> APIConnectionError -> ConnectTimeout", "model API"),
        ("ModelError -> APITimeoutError", "timeout"),
        ("SandboxNotAllowedError", "permission"),
        ("NobodysError", "environment code"),
        ("Process 12, which ran it, is gone. Finished rollouts are kept; Retry resumes it.", "infrastructure"),
        (type("OwnModelError", (errors.ModelError,), {})("no"), "model API"),  # of a user's environment,
    ):
        assert failure_class(error) == expected, error
    stopped = "RunAbortedError: Stopped: 5 rollouts in a row failed in the same way. No"
    recorded = {
        "errors": {"SandboxNotAllowedError": 4, "ModelError -> RateLimitError": 1, "SandboxRefusedError": 1},
        "error_examples": {"SandboxRefusedError": "Not without --allow-sandbox-access"},
    }
    for metadata, expected in (
        (recorded, ["permission", "rate limit"]),
        ({**recorded, "error": stopped}, ["permission", "rate limit"]),
        ({"error": stopped}, ["model API"]),
        ({**recorded, "error": "RunTimedOutError: Stopped after 1 minutes"}, ["timeout", "permission", "rate limit"]),
        ({"error": "RunCancelledError: Cancelled by SIGINT"}, []),
        ({}, []),
    ):
        assert recorded_failures(metadata) == expected
    assert class_in("Something happened.") is None
    for kind in FailureClass:
        assert class_in(f"Something happened.\n{advice_line(kind)}") is kind
        assert "\n" not in kind.advice


def test_errors_of_loading_an_environment_have_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environments").mkdir()
    for name, line, expected in (
        ("needs_key", "os.environ['PLANTED_API_KEY']", "secret missing"),
        ("needs_package", "import nobody_has_this", "dependency"),
        ("not_there", "", "dependency"),
    ):
        if line:
            (tmp_path / "environments" / f"{name}.py").write_text(f"import os\ndef load_environment():\n    {line}\n")
        with pytest.raises(errors.ConfigError) as raised:
            load_environment(name)
        assert failure_class(raised.value) == expected
