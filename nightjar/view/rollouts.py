"""The page of a rollout: its conversation, its score, and another rollout of the same example beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from pydantic import Field

from nightjar.core.failures import failure_class
from nightjar.errors import MissingWarehouseError
from nightjar.reports.rollouts import PARSED, ending
from nightjar.view.agents import agent_of, artifact_path, commands, read_columns, run_directory
from nightjar.view.conversation import (
    MOST_OUTLINED,
    OUTLINED,
    ModelCall,
    as_messages,
    has_colours,
    plain_text,
    raw_text,
    turns,
    with_answer,
    with_model_calls,
)
from nightjar.view.differences import LONGEST_COMPARED, differences, folded_differences
from nightjar.view.live_rollout import growing_page
from nightjar.view.live_run import LiveRun
from nightjar.view.notes import IS_NOTED, notes_of
from nightjar.view.pages import Whole, page, records
from nightjar.view.passages import pretty, value_passage
from nightjar.view.room import Room
from nightjar.view.sample_rows import Chosen, neighbours
from nightjar.view.samples import only_run, run_queries
from nightjar.view.scores import score_of
from nightjar.view.tool_calls import read_call
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import AskedQuery, as_records, value_text

router = APIRouter()

_ROLLOUT = "FROM rollouts WHERE run_id = $run AND example_id = $example AND rollout_index = $index"
_STRIP = f"""
SELECT example_id, rollout_index AS index, reward, correct, error, {IS_NOTED} AS noted FROM rollouts
WHERE run_id = $run AND {{which}} ORDER BY example_id, rollout_index LIMIT 200
"""  # noqa: S608 - built from constants
_PAIRED_HASH = "example_hash IN (SELECT example_hash FROM paired([$own], [$run]) WHERE hash_a = $hash)"
_NEIGHBOURS = """
SELECT
    max([example_id, rollout_index]) FILTER ((example_id, rollout_index) < ($example, $index)) AS prev,
    min([example_id, rollout_index]) FILTER ((example_id, rollout_index) > ($example, $index)) AS next,
    max([example_id, -rollout_index]) FILTER (example_id < $example) AS prev_example,
    min([example_id, rollout_index]) FILTER (example_id > $example) AS next_example
FROM rollouts WHERE run_id = $run
"""
_ATTEMPTS = """
FROM attempts WHERE run_id = $run AND example_id = $example AND rollout_index = $index ORDER BY attempt
"""


class Asked(Chosen):
    """The filters of the page of samples from which the rollout was opened, and another rollout to show beside it.

    With ``raw``, the rollout is returned as JSON, or the text of its ``message`` with this number.
    """

    raw: bool = False
    message: Annotated[int | None, Field(ge=1)] = None
    beside: str | None = None
    other: Whole | None = None


@router.get("/runs/{run_id}/{example_id}/{rollout_index}")
def show_rollout(
    request: Request, run_id: str, example_id: Whole, rollout_index: Whole, asked: Annotated[Asked, Query()]
) -> Response:
    key = {"run": run_id, "example": example_id, "index": rollout_index}
    warehouse: Warehouse = request.app.state.warehouse
    try:
        if asked.raw:
            return _raw(_record(warehouse, key), asked.message)
        shown = _published(request, warehouse, key, asked)
    except (HTTPException, MissingWarehouseError):
        live: LiveRun | None = request.app.state.live.find(run_id, is_urgent=True)
        if live and (growing := growing_page(request, live, example_id, rollout_index)):
            return growing
        found = live.read_rollout(example_id, rollout_index) if live else None
        if live is None or found is None:
            raise
        if asked.raw:
            return _raw(found, asked.message)
        shown = _unpublished(live, found)
    return page(request, "rollout.html", asked=asked, **shown)


@router.get("/runs/{run_id}/{example_id}/{rollout_index}/artifacts/{number}")
def download_artifact(
    request: Request, run_id: str, example_id: Whole, rollout_index: Whole, number: int
) -> FileResponse:
    """Sends a file that the rollout left. Browsers save it and never show it as a page of this server."""
    found, run_dir = _stored(request, {"run": run_id, "example": example_id, "index": rollout_index})
    artifacts = read_columns(found["state"] or {}).get("artifacts", [])
    path = artifact_path(run_dir, artifacts[number].file) if 0 <= number < len(artifacts) else None
    if path is None:
        raise HTTPException(404, f"Rollout {rollout_index} of example {example_id} has no artifact {number} here.")
    name = PurePosixPath(artifacts[number].path).name.encode("utf-8", "replace").decode()
    return FileResponse(path, media_type="application/octet-stream", filename=name or "artifact")


def _stored(request: Request, key: dict[str, Any]) -> tuple[dict[str, Any], Path | None]:
    """Returns a rollout and its run directory, from the warehouse or from the disk."""
    run_id, example_id, rollout_index = key.values()
    try:
        queries: list[AskedQuery] = [(_ROLLOUT, key), *run_queries(run_id)]
        rollouts, runs, _ = request.app.state.warehouse.query_all(queries)
        found = _only_rollout(as_records(rollouts), key)
        return found, _directory_of(only_run(runs.records(), run_id), found)
    except (HTTPException, MissingWarehouseError):
        live: LiveRun | None = request.app.state.live.find(run_id, is_urgent=True)
        unpublished = live.read_rollout(example_id, rollout_index) if live else None
        if live is None or unpublished is None:
            raise
        return unpublished, live.directory.path


def _raw(rollout: Mapping[str, Any], number: int | None) -> Response:
    if number is not None:
        messages = [*as_messages(rollout["prompt"]), *as_messages(rollout["completion"])]
        if number > len(messages):
            raise HTTPException(404, f"The rollout has no message {number}, only {len(messages)}.")
        return PlainTextResponse(raw_text(messages[number - 1]).encode("utf-8", "replace"))
    return Response(json.dumps(rollout, default=value_text, indent=2), media_type="application/json")


def _published(request: Request, warehouse: Warehouse, key: dict[str, Any], asked: Asked) -> dict[str, Any]:
    run_id, example_id, rollout_index = key.values()
    strip_query = (_STRIP.format(which="example_id = $example"), {"run": run_id, "example": example_id})
    queries: list[AskedQuery] = [strip_query, (_NEIGHBOURS, key), (_ATTEMPTS, key), *run_queries(run_id)]
    rollouts, *others = warehouse.query_all([(_ROLLOUT, key), *queries])
    found = _only_rollout(as_records(rollouts), key)
    strip, [around], attempts, runs, comparable = (rows.records() for rows in others)
    run = only_run(runs, run_id)
    return {
        "run": run,
        "is_published": True,
        "rollout": readable(found, json.loads(run["reward_weights"] or "null"), _directory_of(run, found)),
        "strip": strip,
        "neighbours": around,
        "among": neighbours(warehouse, run_id, asked, example_id, rollout_index) if asked.chosen else None,
        "attempts": attempts,
        "noted": notes_of(request, run_id, example_id, rollout_index),
        "others": comparable,
        "beside": _beside(warehouse, found, asked) if asked.beside else None,
    }


def _unpublished(live: LiveRun, found: dict[str, Any]) -> dict[str, Any]:
    strip = next(one["strip"] for one in live.examples() if one["example_id"] == found["example_id"])
    return {
        "run": live.record,
        "is_published": False,
        "rollout": readable(found, live.metadata.get("reward_weights"), live.directory.path),
        "strip": strip,
        "neighbours": dict.fromkeys(("prev", "next", "prev_example", "next_example")),
        "among": None,
        "attempts": [],
        "beside": None,
    }


def readable(found: Mapping[str, Any], weights: object, run_dir: Path | None = None) -> dict[str, Any]:
    """Returns a row of ``rollouts`` with parsed JSON: turns for messages, and readable text for other values.

    ``weights`` are the ``reward_weights`` of the run. ``run_dir`` is the directory with the artifacts of an agent, if
    it is on this machine.
    """
    state = found["state"] or {}
    agent, calls = agent_of(state, run_dir), [_call(step) for step in found["trajectory"] or ()]
    prompt = turns(found["prompt"], commands() if agent else read_call)
    after = len(as_messages(found["prompt"])) + 1
    count = after - 1 + len(as_messages(found["completion"]))
    parsed = next((_state_text(name, state[name]) for name in PARSED if name in state), None)
    completion = turns(found["completion"], commands(agent.steps) if agent else read_call, after)
    completion = with_answer(completion, parsed)
    own, room = {*PARSED, *(agent.columns if agent else ())}, Room()
    return {
        **found,
        "prompt": prompt,
        "completion": with_model_calls(completion, calls) if len(calls) > 1 else completion,
        "outline": [*prompt, *completion][:MOST_OUTLINED] if count > OUTLINED else [],
        "has_terminal": agent is not None or has_colours([*prompt, *completion]),
        "agent": agent,
        "score": score_of(found, weights),
        "info": value_passage(pretty(found["info"]), room) if found["info"] else None,
        "tool_defs": value_passage(pretty(found["tool_defs"]), room) if found["tool_defs"] else None,
        "failure": failure_class(f"{found['error_chain']}: {found['error_message']}") if found["error"] else None,
        "calls": calls,
        "parsed": parsed,
        "ended": ending(found["stop_condition"], sum(turn.role == "assistant" for turn in completion)),
        "state": {
            name: value_passage(_state_text(name, value), room)
            for name, value in state.items()
            if value is not None and name not in own
        },
    }


def _directory_of(run: Mapping[str, Any], found: Mapping[str, Any]) -> Path | None:
    has_artifacts = bool((found["state"] or {}).get("artifacts"))
    return run_directory(run["run_dir"], run["run_id"]) if has_artifacts else None


def _record(warehouse: Warehouse, key: Mapping[str, Any]) -> dict[str, Any]:
    return _only_rollout(as_records(warehouse.query(_ROLLOUT, key)), key)


def _only_rollout(found: list[dict[str, Any]], key: Mapping[str, Any]) -> dict[str, Any]:
    if not found:
        raise HTTPException(404, f"Run {key['run']!r} has no rollout {key['index']} of example {key['example']}.")
    return found[0]


def _call(step: Mapping[str, Any]) -> ModelCall:
    response = step.get("response") or {}
    usage = response.get("usage") or {}
    return ModelCall(
        None if step.get("latency_ms") is None else step["latency_ms"] / 1000,
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        response.get("finish_reason"),
    )


def _state_text(name: str, value: object) -> str:
    """Returns a value of the state as text.

    A judge's responses, which are kept by prompt, are shown without prompts.
    """
    if value is None:
        return ""
    if name == "judge_response" and isinstance(value, Mapping):
        return "\n\n".join(map(pretty, value.values()))
    return pretty(value)


def _beside(warehouse: Warehouse, found: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    if found["example_hash"] is None:
        which, values = "example_id = $example", {"example": found["example_id"]}
    else:
        which, values = "example_hash = $hash", {"hash": found["example_hash"]}
    strip = records(warehouse, _STRIP.format(which=which), {"run": asked.beside, **values})
    if not strip and "hash" in values:
        values["own"] = found["run_id"]
        strip = records(warehouse, _STRIP.format(which=_PAIRED_HASH), {"run": asked.beside, **values})
    own = (found["run_id"], found["example_id"], found["rollout_index"])
    choices = [one for one in strip if (asked.beside, one["example_id"], one["index"]) != own]
    if not choices:
        return {"strip": strip, "rollout": None}
    chosen = next((one for one in choices if one["index"] == asked.other), choices[0])
    other = _record(warehouse, {"run": asked.beside, "example": chosen["example_id"], "index": chosen["index"]})
    before, after = plain_text(other["completion"]), plain_text(found["completion"])
    return {
        "strip": choices,
        "rollout": other,
        "changes": folded_differences(differences(before, after)),
        "most_characters": LONGEST_COMPARED if max(len(before), len(after)) > LONGEST_COMPARED else None,
    }
