"""What a failed attempt means: try again, stop the run, or neither."""

import pytest

from nightjar import errors
from nightjar.clients.failures import Failure, classify
from nightjar.engine import RetryPolicy
from nightjar.engine.requests import FailureGuard
from nightjar.sandboxes import SandboxRefusedError

BROKEN = Failure("The server had an error", is_retryable=True, is_repeatable=True)
OVERLOADED = Failure("overloaded", is_retryable=True, is_overload=True)
GONE = Failure("gone", is_retryable=True, is_repeatable=True, is_connection=True)
REFUSED = Failure("Incorrect API key provided", is_permanent=True, is_refusal=True)
BAD_REQUEST = Failure("no such model", is_permanent=True)


def caused_by(cause, error=None):
    error = error or errors.ModelError("m")
    error.__cause__ = cause
    return error


def status_error(status, **headers):
    import httpx2
    import openai

    response = httpx2.Response(status, request=httpx2.Request("POST", "http://127.0.0.1/v1"), headers=headers)
    return caused_by(openai.APIStatusError("no", response=response, body=None))


TEMPORARY, CONNECTION, OVERLOAD = {"is_retryable"}, {"is_retryable", "is_connection"}, {"is_retryable", "is_overload"}


def test_an_error_is_temporary_permanent_or_neither_and_has_a_message_and_a_wait():
    import openai

    refused, accepted = status_error(400).__cause__, status_error(200).__cause__.response
    request = accepted.request
    known = ("is_retryable", "is_permanent", "is_connection", "is_overload", "is_refusal")
    for error, flags in (
        *((status_error(status), TEMPORARY) for status in (408, 409, 500, 502)),
        *((status_error(status), OVERLOAD) for status in (429, 503, 529)),
        *((status_error(status), {"is_permanent"}) for status in (400, 404, 422)),
        *((status_error(status), {"is_permanent", "is_refusal"}) for status in (401, 403)),
        (caused_by(openai.APIConnectionError(request=request)), CONNECTION),
        (caused_by(ConnectionResetError("x")), CONNECTION),
        (caused_by(openai.APITimeoutError(request=request)), TEMPORARY),
        (caused_by(TimeoutError()), TEMPORARY),
        (caused_by(openai.APIResponseValidationError(accepted, None)), TEMPORARY),
        *(
            (error, TEMPORARY)
            for error in (errors.EmptyModelResponseError("e"), errors.InfraError("i"), errors.SandboxError("s"))
        ),
        *((error, set()) for error in (ValueError("v"), errors.ToolCallError("t"), errors.ModelError("m"))),
        (caused_by(refused, errors.OverlongPromptError("too long")), set()),
        (SandboxRefusedError("install bubblewrap"), {"is_permanent", "is_refusal"}),
    ):
        failure = classify(error)
        assert {name for name in known if getattr(failure, name)} == flags, repr(error.__cause__ or error)
    waits = {"7": 7.0, "0.5": 0.5, "-3": 0.0, "Wed, 21 Oct 2015 07:28:00 GMT": 0.0, "soon": None}
    found = {wait: classify(status_error(429, **{"retry-after": wait})).retry_after_seconds for wait in waits}
    assert (found, classify(status_error(429)).retry_after_seconds) == (waits, None)
    assert [classify(error).message for error in (KeyError(), errors.ToolCallError("t"))] == ["KeyError", "t"]


def test_failures_of_several_examples_in_a_row_or_of_a_refused_key_stop_the_run():
    for failure, limit, has_succeeded in (
        *((failure, 5, False) for failure in (REFUSED, GONE, BAD_REQUEST)),
        (OVERLOADED, 20, False),
        *((failure, 50, True) for failure in (REFUSED, BAD_REQUEST)),
    ):
        guard = FailureGuard(has_succeeded)
        for number in range(limit - 1):
            guard.failed(failure, number)
        guard.check()
        with pytest.raises(errors.RunAbortedError, match=rf"{limit} .*{failure.message}"):
            guard.failed(failure, limit)
        with pytest.raises(errors.RunAbortedError):
            guard.check()
    guard = FailureGuard()
    for _ in range(4):
        guard.failed(REFUSED, 7)
    with pytest.raises(errors.RunAbortedError):
        guard.failed(REFUSED, 7)
    guard = FailureGuard()
    for number in range(120):
        guard.succeeded()
        guard.failed(REFUSED, number)
    one_example, refusals, of_the_environment = FailureGuard(), FailureGuard(), FailureGuard()
    for number in range(1000):
        one_example.failed(BAD_REQUEST, 7)
        refusals.failed(Failure(f"no {number}", is_permanent=True), number)
        of_the_environment.failed(Failure("environment broke"), number)


def test_failed_requests_before_the_first_response_stop_the_run():
    """So a run does not wait for all retries of five rollouts."""
    for failure, limit in ((GONE, 5), (REFUSED, 5), (BROKEN, 20)):
        guard = FailureGuard()
        for _ in range(limit - 1):
            guard.request_failed(failure)
        with pytest.raises(errors.RunAbortedError, match=f" {limit} "):
            guard.request_failed(failure)
    for failure, has_answered in ((OVERLOADED, False), (BAD_REQUEST, False), (GONE, True)):
        guard = FailureGuard()
        if has_answered:
            guard.answered()
        for _ in range(1000):
            guard.request_failed(failure)


def test_waits_double_with_jitter_or_are_what_the_endpoint_asks_for_up_to_a_limit():
    policy = RetryPolicy(max_retries=9, initial_seconds=1.0, max_seconds=60.0)
    for attempts, asked, least, most in (
        (1, None, 1, 2), (2, None, 2, 3), (3, None, 4, 5), (5, None, 16, 17), (8, None, 60, 60), (10_000, None, 60, 60),
        (1, 7.0, 7, 8), (1, 86_400.0, 60, 60),
    ):  # fmt: skip
        waits = [policy.wait_seconds(attempts, Failure("m", retry_after_seconds=asked)) for _ in range(200)]
        assert least <= min(waits) <= max(waits) <= most
        assert len(set(waits)) > 1 or least == most
