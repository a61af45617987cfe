"""``failed_where``: which failed rollouts of a run are to be done again, by a condition in SQL or a class."""

from __future__ import annotations

from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.failures import FailureClass, class_called, failure_class
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.rollout.records import Key
from nightjar.runs import RunDirectory
from nightjar.scratch import scratch_folder
from nightjar.warehouse import Warehouse

# As "error" stands every class of the chain in turn, and the empty text for none of them: a condition that holds for
# that names errors to leave out, and has to hold for each class; any other has to hold for one.
_FAILED = """
WITH named AS (
    SELECT * REPLACE (unnest([''] || string_split(error_chain, ' -> ')) AS error) FROM rollouts
    WHERE error IS NOT NULL AND run_id = ?
), asked AS (
    SELECT example_id, rollout_index, error, coalesce((
{}
    ), false) AS holds FROM named
)
SELECT example_id, rollout_index FROM asked GROUP BY ALL
HAVING if(bool_or(holds) FILTER (error = ''), bool_and(holds), bool_or(holds))
"""


_CLASSED = """
SELECT example_id, rollout_index, error_chain || ': ' || error_message FROM rollouts
WHERE error IS NOT NULL AND run_id = ?
"""


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
        return _chosen(alone, directory.run_id, condition)


def check_where(run: StoredRun, condition: str) -> None:
    """Makes sure that a condition holds for a failed rollout of a run, as ``failed_where`` does.

    Of a run that is not on disk here, what the warehouse has is asked.

    Raises:
        ConfigError: the condition is wrong, or it holds for no failed rollout.
        WarehouseError: the run directory is damaged.
    """
    if run.path is not None:
        failed_where(run.directory, condition)
    else:
        _chosen(run.warehouse, run.run_id, condition)


def _chosen(warehouse: Warehouse, run_id: str, condition: str) -> frozenset[Key]:
    try:
        kind = class_called(condition)
        found = (
            _of_class(warehouse, run_id, kind) if kind else warehouse.query(_FAILED.format(condition), [run_id]).rows
        )
        chosen = frozenset(Key(int(example_id), int(index)) for example_id, index in found)
    except (WarehouseError, TypeError, ValueError) as error:
        raise ConfigError(f"The condition {condition!r} cannot be used: {error}") from error
    if not chosen:
        raise ConfigError(
            f"No failed rollout of run {run_id!r} meets {condition!r}. What failed, and why: nightjar eval get {run_id}"
        )
    return chosen


def _of_class(warehouse: Warehouse, run_id: str, kind: FailureClass) -> list[tuple[int, int]]:
    rows = warehouse.query(_CLASSED, [run_id]).rows
    return [(example_id, index) for example_id, index, error in rows if failure_class(error) is kind]
