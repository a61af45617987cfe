"""What a failed attempt means: try again, stop the run, or neither."""

import httpx2
import openai
import pytest

from nightjar.clients.failures import Failure, classify
from nightjar.engine import RetryPolicy
from nightjar.engine.requests import FailureGuard
from nightjar.errors import (
    EmptyModelResponseError,
    InfraError,
    ModelError,
    OverlongPromptError,
    RunAbortedError,
    SandboxError,
    ToolCallError,
)
from nightjar.sandboxes import SandboxRefusedError

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1")
BROKEN = Failure("The server had an error", is_retryable=True, is_repeatable=True)
OVERLOADED = Failure("overloaded", is_retryable=True, is_overload=True)
GONE = Failure("gone", is_retryable=True, is_repeatable=True, is_connection=True)
REFUSED = Failure("Incorrect API key provided", is_permanent=True, is_refusal=True)
BAD_REQUEST = Failure("no such model", is_permanent=True)
ODD = Failure("environment broke")


def caused_by(cause, error=None):
    error = error or ModelError("m")
    error.__cause__ = cause
    return error


def status_error(status, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, request=REQUEST, headers=names)
    return caused_by(openai.APIStatusError("no", response=response, body=None))


class TestClassify:
    @pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
    def test_statuses_that_can_heal(self, status):
        failure = classify(status_error(status))
        assert (failure.is_retryable, failure.is_permanent) == (True, False)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_statuses_that_stay(self, status):
        failure = classify(status_error(status))
        assert (failure.is_retryable, failure.is_permanent) == (False, True)

    @pytest.mark.parametrize(("status", "is_overload"), [(429, True), (503, True), (500, False), (408, False)])
    def test_statuses_that_ask_for_less(self, status, is_overload):
        assert classify(status_error(status)).is_overload is is_overload

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None)],
    )
    def test_retry_after_in_seconds(self, value, seconds):
        assert classify(status_error(429, retry_after=value)).retry_after_seconds == seconds

    def test_no_retry_after(self):
        assert classify(status_error(429)).retry_after_seconds is None

    @pytest.mark.parametrize(
        "cause",
        [
            openai.APIConnectionError(request=REQUEST),
            ConnectionResetError("x"),
        ],
        ids=lambda cause: type(cause).__name__,
    )
    def test_an_endpoint_that_does_not_answer(self, cause):
        failure = classify(caused_by(cause))
        assert (failure.is_retryable, failure.is_connection, failure.is_permanent) == (True, True, False)

    @pytest.mark.parametrize("late", [openai.APITimeoutError(request=REQUEST), TimeoutError()], ids=["SDK", "Python"])
    def test_a_request_that_takes_too_long_is_worth_another_try_and_no_outage(self, late):
        failure = classify(caused_by(late))
        assert (failure.is_retryable, failure.is_connection, failure.is_permanent) == (True, False, False)

    @pytest.mark.parametrize("error", [EmptyModelResponseError("e"), InfraError("i"), SandboxError("s")], ids=repr)
    def test_what_else_can_heal(self, error):
        assert classify(error) == Failure(str(error), is_retryable=True)

    @pytest.mark.parametrize("error", [ValueError("v"), ToolCallError("t"), ModelError("m")], ids=repr)
    def test_what_else_stays(self, error):
        assert classify(error) == Failure(str(error))

    def test_a_prompt_that_is_too_long_says_nothing_of_other_requests(self):
        error = caused_by(status_error(400).__cause__, OverlongPromptError("too long"))
        assert classify(error) == Failure("too long")

    def test_an_answer_in_another_shape_is_worth_another_try(self):
        response = httpx2.Response(200, request=REQUEST)
        cause = openai.APIResponseValidationError(response=response, body=None, message="no JSON")
        failure = classify(caused_by(cause))
        assert (failure.is_retryable, failure.is_permanent) == (True, False)

    def test_a_machine_that_can_make_no_sandbox_stays_so_for_every_rollout(self):
        failure = classify(SandboxRefusedError("install bubblewrap"))
        assert (failure.is_permanent, failure.is_refusal, failure.is_retryable) == (True, True, False)

    def test_an_error_without_words_is_named_by_its_class(self):
        assert classify(KeyError()).message == "KeyError"


class TestGuard:
    def fail(self, guard, failure, times, example_id=None):
        for number in range(times):
            guard.failed(failure, number if example_id is None else example_id)

    def test_five_in_a_row_before_any_success_stop_the_run_with_the_reason(self):
        guard = FailureGuard()
        self.fail(guard, REFUSED, 4)
        with pytest.raises(RunAbortedError, match=r"5 rollouts in a row failed alike\. Incorrect API key provided"):
            guard.failed(REFUSED, 4)

    def test_afterwards_every_look_raises_again(self):
        guard = FailureGuard()
        self.fail(guard, GONE, 4)
        with pytest.raises(RunAbortedError):
            guard.failed(GONE, 4)
        with pytest.raises(RunAbortedError):
            guard.check()

    def test_fifty_after_a_success(self):
        guard = FailureGuard()
        guard.succeeded()
        self.fail(guard, REFUSED, 49)
        with pytest.raises(RunAbortedError, match="50 rollouts in a row"):
            guard.failed(REFUSED, 49)

    def test_a_success_in_an_earlier_session_counts(self):
        self.fail(FailureGuard(has_succeeded=True), BAD_REQUEST, 49)

    def test_a_success_starts_the_count_anew(self):
        guard = FailureGuard()
        for _ in range(3):
            for number in range(40):
                guard.succeeded()
                guard.failed(REFUSED, number)
        guard.check()

    def test_one_example_that_is_refused_again_and_again_does_not_stop_the_run(self):
        self.fail(FailureGuard(), BAD_REQUEST, 100, example_id=7)

    def test_but_a_rejected_key_does(self):
        with pytest.raises(RunAbortedError):
            self.fail(FailureGuard(), REFUSED, 5, example_id=7)

    def test_refusals_that_say_different_things_do_not_stop_the_run(self):
        guard = FailureGuard()
        for number in range(100):
            guard.failed(Failure(f"no {number}", is_permanent=True), number)

    def test_the_same_refusal_of_five_examples_does(self):
        with pytest.raises(RunAbortedError, match="no such model"):
            self.fail(FailureGuard(), BAD_REQUEST, 5)

    def test_failures_of_the_environment_never_stop_the_run(self):
        self.fail(FailureGuard(), ODD, 1000)

    def test_twenty_in_a_row_that_could_have_healed_do_before_any_success(self):
        guard = FailureGuard()
        self.fail(guard, OVERLOADED, 19)
        with pytest.raises(RunAbortedError):
            guard.failed(OVERLOADED, 19)


class TestGuardOfRequests:
    """Before the first answer every try counts, so that nobody waits for all the retries of five rollouts."""

    @pytest.mark.parametrize(
        ("failure", "limit"), [(GONE, 5), (REFUSED, 5), (BROKEN, 20)], ids=lambda value: str(value)[:20]
    )
    def test_so_many_stop_the_run(self, failure, limit):
        guard = FailureGuard()
        for _ in range(limit - 1):
            guard.request_failed(failure)
        with pytest.raises(RunAbortedError, match=f"the first {limit} requests failed"):
            guard.request_failed(failure)

    def test_those_that_are_only_too_many_are_waited_for(self):
        guard = FailureGuard()
        for _ in range(1000):
            guard.request_failed(OVERLOADED)

    def test_an_answer_ends_the_count(self):
        guard = FailureGuard()
        guard.answered()
        for _ in range(1000):
            guard.request_failed(GONE)

    def test_a_refused_request_may_be_the_example_s_fault(self):
        guard = FailureGuard()
        for _ in range(1000):
            guard.request_failed(BAD_REQUEST)


class TestWaits:
    POLICY = RetryPolicy(max_retries=9, initial_seconds=1.0, max_seconds=60.0)

    def waits(self, attempts, failure=OVERLOADED, policy=POLICY):
        return [policy.wait_seconds(attempts, failure) for _ in range(200)]

    @pytest.mark.parametrize(("attempts", "backoff"), [(1, 1), (2, 2), (3, 4), (5, 16)])
    def test_doubles_each_time_with_jitter_up_to_the_first_wait(self, attempts, backoff):
        waits = self.waits(attempts)
        assert backoff <= min(waits)
        assert max(waits) <= backoff + 1
        assert len(set(waits)) > 1

    @pytest.mark.parametrize("attempts", [8, 100, 10_000])
    def test_never_longer_than_the_longest(self, attempts):
        assert set(self.waits(attempts)) == {60.0}

    def test_what_the_endpoint_asks_for_is_honoured(self):
        waits = self.waits(1, Failure("m", retry_after_seconds=7.0))
        assert 7.0 <= min(waits) <= max(waits) <= 8.0

    def test_what_the_endpoint_asks_for_is_clamped(self):
        assert set(self.waits(1, Failure("m", retry_after_seconds=86_400.0))) == {60.0}
