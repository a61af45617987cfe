"""Runs on disk: the run directory, its ledger (``attempts.jsonl``) and results, and their summary."""

from nightjar.core.rollout.records import Key
from nightjar.engine.runs.directory import (
    OUTPUT_DIR,
    RunDirectory,
    new_run_id,
    run_directories,
    runs_folder,
    runs_folders,
)
from nightjar.engine.runs.identity import give_new_id, id_for
from nightjar.engine.runs.journal import Journal
from nightjar.engine.runs.metadata import RunMetadata, Status, final_status
from nightjar.engine.runs.opening import OpenRun, end_crashed
from nightjar.engine.runs.summary import Summary, summarize, summarize_rows
from nightjar.engine.runs.whereabouts import Whereabouts

__all__ = [
    "OUTPUT_DIR",
    "Journal",
    "Key",
    "OpenRun",
    "RunDirectory",
    "RunMetadata",
    "Status",
    "Summary",
    "Whereabouts",
    "end_crashed",
    "final_status",
    "give_new_id",
    "id_for",
    "new_run_id",
    "run_directories",
    "runs_folder",
    "runs_folders",
    "summarize",
    "summarize_rows",
]
