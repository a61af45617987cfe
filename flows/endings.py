"""How a run ends in Prefect: the state that says why, with the outcome as its data."""

from __future__ import annotations

import logging
from typing import Any

from prefect import State, get_run_logger
from prefect.states import Cancelled, Completed, Failed

from nightjar.errors import NightjarError, RunError
from nightjar.evaluation import Outcome
from nightjar.evaluation.failures import advice_line, failure_class


def final_state(outcome: Outcome) -> State[Outcome]:
    """Returns the state of a flow run whose run has ended; why it failed is in its message, and in its log.

    Raises:
        BaseException: what stopped the run, where that is a bug.
    """
    if outcome.error is not None and not isinstance(outcome.error, RunError):
        raise outcome.error
    message = "\n".join(outcome.reasons)
    if outcome.is_complete:
        summary = outcome.summary
        said = f"Run {outcome.run_id}: {summary.scored} of {summary.rollouts} rollouts scored"
        joined = f". {outcome.joined}" if outcome.joined else ""
        return Completed(message=f"{said}, average reward {summary.avg_reward}{joined}", data=outcome)
    level = logging.INFO if outcome.status == "cancelled" else logging.ERROR  # somebody wanted it
    for reason in outcome.reasons:
        get_run_logger().log(level, reason)
    if outcome.status == "cancelled":
        return Cancelled(message=message, data=outcome)
    return Failed(message=message, data=outcome, name="TimedOut" if outcome.status == "timed_out" else "Failed")


def refused(error: NightjarError) -> State[Any]:
    """Returns the state of a flow run that could not begin its run, or go on with it."""
    get_run_logger().error(str(error))
    return Failed(message=f"{error}\n{advice_line(failure_class(error))}", data=error)
