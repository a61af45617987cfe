"""Runs on disk: the run directory, its ledger and results, and what they add up to."""

from nightjar.rollout.records import Key
from nightjar.runs.crashed import end_crashed
from nightjar.runs.directory import OUTPUT_DIR, RunDirectory, new_run_id, runs_folder, runs_folders
from nightjar.runs.finding import run_directories
from nightjar.runs.journal import Journal
from nightjar.runs.metadata import RunMetadata, Status, final_status
from nightjar.runs.opening import OpenRun
from nightjar.runs.summary import Summary, summarize, summarize_rows
from nightjar.runs.whereabouts import Whereabouts

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
    "new_run_id",
    "run_directories",
    "runs_folder",
    "runs_folders",
    "summarize",
    "summarize_rows",
]
