"""``failed_where``: which failed rollouts of a run are to be done again, by a condition in SQL or a class."""

from __future__ import annotations

from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.failures import FailureClass, class_called, failure_class
from nightjar.rollout.records import Key
from nightjar.runs import RunDirectory
from nightjar.scratch import scratch_folder
from nightjar.warehouse import Warehouse

# As "error" stands every class of the chain in turn, and the empty text for none of them: a condition that holds for
# that names errors to leave out, and has to hold for each class; any other has to hold for one.
_FAILED = """
WITH named AS (
    SELECT * REPLACE (unnest([''] || string_split(error_chain, ' -> ')) AS error) FROM rollouts WHERE error IS NOT NULL
), asked AS (
    SELECT example_id, rollout_index, error, coalesce((
{}
    ), false) AS holds FROM named
)
SELECT example_id, rollout_index FROM asked GROUP BY ALL
HAVING if(bool_or(holds) FILTER (error = ''), bool_and(holds), bool_or(holds))
"""


_CLASSED = (
    "SELECT example_id, rollout_index, error_chain || ': ' || error_message FROM rollouts WHERE error IS NOT NULL"
)


def failed_where(directory: RunDirectory, condition: str) -> frozenset[Key]:
    """Returns the failed rollouts of a run for which a condition holds, or whose failure is of a class.

    It is asked of the run directory as it is now, published or not, in the words of the warehouse: by a locked query
    to a warehouse of this run alone.

    Args:
        directory: the run directory.
        condition: SQL over the columns of ``rollouts``, such as ``error = 'RateLimitError'``. There ``error`` is any
            class of the error's chain: what a provider's SDK raised, too. Or the name of a ``FailureClass``.

    Raises:
        ConfigError: there is no run, the condition is wrong, or it holds for no failed rollout.
        WarehouseError: the run directory is damaged.
    """
    if not directory.has_metadata():
        raise ConfigError(f"The condition {condition!r} is of a run that is gone on with: there is none to retry")
    with scratch_folder() as folder:
        alone = Warehouse(folder / "warehouse")
        alone.publish(directory.path, tidies=False)
        try:
            kind = class_called(condition)
            found = _of_class(alone, kind) if kind else alone.query(_FAILED.format(condition)).rows
            chosen = frozenset(Key(int(example_id), int(index)) for example_id, index in found)
        except (WarehouseError, TypeError, ValueError) as error:
            raise ConfigError(f"The condition {condition!r} cannot be used: {error}") from error
    if not chosen:
        raise ConfigError(
            f"No failed rollout of run {directory.run_id!r} meets {condition!r}. What failed, and why: "
            f"nightjar eval get {directory.run_id}"
        )
    return chosen


def _of_class(alone: Warehouse, kind: FailureClass) -> list[tuple[int, int]]:
    rows = alone.query(_CLASSED).rows
    return [(example_id, index) for example_id, index, error in rows if failure_class(error) is kind]
