"""What a failed attempt means: try again, stop the run, or neither."""

import httpx2
import openai
import pytest

from nightjar import errors
from nightjar.clients.failures import Failure, classify
from nightjar.engine import RetryPolicy
from nightjar.engine.requests import FailureGuard
from nightjar.sandboxes import SandboxRefusedError

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1")
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
    response = httpx2.Response(status, request=REQUEST, headers=headers)
    return caused_by(openai.APIStatusError("no", response=response, body=None))


TEMPORARY, CONNECTION, OVERLOAD = {"is_retryable"}, {"is_retryable", "is_connection"}, {"is_retryable", "is_overload"}


class TestClassify:
    @pytest.mark.parametrize(
        ("error", "flags"),
        [
            *((status_error(status), TEMPORARY) for status in (408, 409, 500, 502)),
            *((status_error(status), OVERLOAD) for status in (429, 503, 529)),
            *((status_error(status), {"is_permanent"}) for status in (400, 404, 422)),
            *((status_error(status), {"is_permanent", "is_refusal"}) for status in (401, 403)),
            (caused_by(openai.APIConnectionError(request=REQUEST)), CONNECTION),
            (caused_by(ConnectionResetError("x")), CONNECTION),
            (caused_by(openai.APITimeoutError(request=REQUEST)), TEMPORARY),
            (caused_by(TimeoutError()), TEMPORARY),
            (caused_by(openai.APIResponseValidationError(httpx2.Response(200, request=REQUEST), None)), TEMPORARY),
            *(
                (error, TEMPORARY)
                for error in (errors.EmptyModelResponseError("e"), errors.InfraError("i"), errors.SandboxError("s"))
            ),
            *((error, set()) for error in (ValueError("v"), errors.ToolCallError("t"), errors.ModelError("m"))),
            (caused_by(status_error(400).__cause__, errors.OverlongPromptError("too long")), set()),
            (SandboxRefusedError("install bubblewrap"), {"is_permanent", "is_refusal"}),
        ],
        ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else repr(value.__cause__ or value)[:40],
    )
    def test_an_error_is_temporary_permanent_or_neither(self, error, flags):
        failure = classify(error)
        known = ("is_retryable", "is_permanent", "is_connection", "is_overload", "is_refusal")
        assert {name for name in known if getattr(failure, name)} == flags

    @pytest.mark.parametrize(
        ("asked", "seconds"),
        [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), (None, None)],
    )
    def test_the_wait_that_the_endpoint_asks_for(self, asked, seconds):
        error = status_error(429, **({"retry-after": asked} if asked else {}))
        assert classify(error).retry_after_seconds == seconds

    @pytest.mark.parametrize(("error", "message"), [(KeyError(), "KeyError"), (errors.ToolCallError("t"), "t")])
    def test_the_message_is_that_of_the_error_or_its_class(self, error, message):
        assert classify(error).message == message


class TestGuard:
    @pytest.mark.parametrize(
        ("failure", "limit", "has_succeeded"),
        [
            *((failure, 5, False) for failure in (REFUSED, GONE, BAD_REQUEST)),
            (OVERLOADED, 20, False),
            *((failure, 50, True) for failure in (REFUSED, BAD_REQUEST)),
        ],
        ids=str,
    )
    def test_failures_of_several_examples_in_a_row_stop_the_run(self, failure, limit, has_succeeded):
        guard = FailureGuard(has_succeeded)
        for number in range(limit - 1):
            guard.failed(failure, number)
        guard.check()
        with pytest.raises(errors.RunAbortedError, match=rf"{limit} .*{failure.message}"):
            guard.failed(failure, limit)
        with pytest.raises(errors.RunAbortedError):
            guard.check()

    def test_a_refused_key_of_one_example_stops_the_run(self):
        guard = FailureGuard()
        for _ in range(4):
            guard.failed(REFUSED, 7)
        with pytest.raises(errors.RunAbortedError):
            guard.failed(REFUSED, 7)

    def test_a_success_starts_the_count_anew(self):
        guard = FailureGuard()
        for number in range(120):
            guard.succeeded()
            guard.failed(REFUSED, number)

    @pytest.mark.parametrize(
        ("failure_of", "example_of"),
        [
            (lambda _: BAD_REQUEST, lambda _: 7),
            (lambda number: Failure(f"no {number}", is_permanent=True), int),
            (lambda _: Failure("environment broke"), int),
        ],
        ids=["the same example", "different refusals", "failures of the environment"],
    )
    def test_failures_that_may_be_the_examples_own_do_not_stop_the_run(self, failure_of, example_of):
        guard = FailureGuard()
        for number in range(1000):
            guard.failed(failure_of(number), example_of(number))


class TestGuardOfRequests:
    """Before the first response every request counts, so that a run does not wait for all retries of five rollouts."""

    @pytest.mark.parametrize(("failure", "limit"), [(GONE, 5), (REFUSED, 5), (BROKEN, 20)], ids=str)
    def test_failed_requests_stop_the_run(self, failure, limit):
        guard = FailureGuard()
        for _ in range(limit - 1):
            guard.request_failed(failure)
        with pytest.raises(errors.RunAbortedError, match=f" {limit} "):
            guard.request_failed(failure)

    @pytest.mark.parametrize(
        ("failure", "has_answered"), [(OVERLOADED, False), (BAD_REQUEST, False), (GONE, True)], ids=str
    )
    def test_overload_bad_requests_and_failures_after_a_response_do_not(self, failure, has_answered):
        guard = FailureGuard()
        if has_answered:
            guard.answered()
        for _ in range(1000):
            guard.request_failed(failure)


@pytest.mark.parametrize(
    ("attempts", "asked", "least", "most"),
    [(1, None, 1, 2), (2, None, 2, 3), (3, None, 4, 5), (5, None, 16, 17), (8, None, 60, 60), (10_000, None, 60, 60),
     (1, 7.0, 7, 8), (1, 86_400.0, 60, 60)],
)  # fmt: skip
def test_waits_double_with_jitter_or_are_what_the_endpoint_asks_for_up_to_a_limit(attempts, asked, least, most):
    policy = RetryPolicy(max_retries=9, initial_seconds=1.0, max_seconds=60.0)
    waits = [policy.wait_seconds(attempts, Failure("m", retry_after_seconds=asked)) for _ in range(200)]
    assert least <= min(waits) <= max(waits) <= most
    assert len(set(waits)) > 1 or least == most
