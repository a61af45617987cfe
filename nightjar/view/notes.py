"""Notes of users on rollouts. ``/notes`` shows all notes, ``/notes?run=…&example=…&index=…`` the notes of a rollout.

The page of a rollout includes ``notes.html`` with ``noted=notes_of(request, run_id, example_id, rollout_index)``.
"""

from __future__ import annotations

import getpass
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, get_args
from urllib.parse import parse_qsl, quote, unquote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from nightjar.view.pages import PageNumber, Whole, one_of, page, records
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import NOTES, Mark, Note

router = APIRouter()

ROWS = 50
AUTHOR_COOKIE = "nightjar_author"
_YEAR_SECONDS = 365 * 24 * 3600
_MOST_BYTES = 100_000
NOTED = """
SELECT
    run_id,
    count(DISTINCT (example_id, rollout_index)) AS rollouts,
    coalesce(any_value(found.overruled), 0) AS overruled
FROM notes
LEFT JOIN (SELECT run_id, count(*) AS overruled FROM overruled_rollouts GROUP BY run_id) AS found USING (run_id)
GROUP BY run_id
"""
"""For each run, the number of rollouts with notes and with overruled rewards."""
IS_NOTED = "(run_id, example_id, rollout_index) IN (SELECT (run_id, example_id, rollout_index) FROM notes)"
_ROLLOUT = """
SELECT count(*) AS found
FROM segments.rollouts
WHERE run_id = $run AND example_id = $example AND rollout_index = $index
"""
_NOTES_OF = """
FROM notes WHERE run_id = $run AND example_id = $example AND rollout_index = $index ORDER BY written_at DESC, note_id
"""
_NOTES = """
WITH shown AS MATERIALIZED (
    SELECT *, count(*) OVER () AS found
    FROM notes
    WHERE ($mark IS NULL OR mark = $mark) AND ($author IS NULL OR author = $author)
    ORDER BY written_at DESC, note_id
    LIMIT $limit OFFSET $offset
)
SELECT shown.*, runs.env_id, runs.model, rollouts.reward
FROM shown
LEFT JOIN segments.runs AS runs USING (run_id)
LEFT JOIN segments.rollouts AS rollouts USING (run_id, example_id, rollout_index)
ORDER BY written_at DESC, note_id
"""


class Asked(BaseModel):
    mark: Annotated[str, one_of(get_args(Mark))] = ""
    author: str = ""
    page: PageNumber = 1
    run: str = ""
    example: Whole = 0
    index: Whole = 0


class Written(BaseModel):
    run: str = Field(max_length=500)
    example: Whole
    index: Whole
    mark: Mark
    author: str = Field("", max_length=100)
    comment: str = Field("", max_length=10_000)
    overruled_reward: str = Field("", max_length=40)

    @property
    def reward(self) -> float | None:
        """The reward, or None if the field is empty. Raises 400 if the text is not a number."""
        if not self.overruled_reward.strip():
            return None
        with suppress(ValueError):
            if isfinite(found := float(self.overruled_reward)):
                return found
        raise HTTPException(400, f"A reward is a number, such as 0.5; found {self.overruled_reward!r}.")


async def form(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"A note may have at most {_MOST_BYTES:,} bytes.")
    return dict(parse_qsl(body.decode("utf-8", "replace"), errors="replace"))


def written_note(sent: Annotated[dict[str, str], Depends(form)]) -> Written:
    try:
        return Written.model_validate(sent)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def by_run(noted: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in noted}


@dataclass(frozen=True)
class Noted:
    """The notes of a rollout, newest first, and the defaults of the form for a new one."""

    run_id: str
    example_id: int
    rollout_index: int
    notes: list[dict[str, Any]]
    author: str
    marks: tuple[str, ...] = get_args(Mark)


def notes_of(request: Request, run_id: str, example_id: int, rollout_index: int) -> Noted:
    warehouse: Warehouse = request.app.state.warehouse
    notes = records(warehouse, _NOTES_OF, {"run": run_id, "example": example_id, "index": rollout_index})
    return Noted(run_id, example_id, rollout_index, notes, _author(request))


@router.get("/notes")
def show_notes(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    if asked.run:
        noted = notes_of(request, asked.run, asked.example, asked.index)
        return page(request, "rollout_notes.html", noted=noted)
    warehouse: Warehouse = request.app.state.warehouse
    filters = {"mark": asked.mark or None, "author": asked.author or None}
    found = records(warehouse, _NOTES, {**filters, "limit": ROWS, "offset": ROWS * (asked.page - 1)})
    return page(
        request,
        "all_notes.html",
        notes=found,
        overruled=records(warehouse, "FROM overruled_runs"),
        authors=[row["author"] for row in records(warehouse, "SELECT DISTINCT author FROM notes ORDER BY author")],
        marks=get_args(Mark),
        asked=asked,
        count=found[0]["found"] if found else 0,
        rows=ROWS,
    )


@router.post("/notes")
def add_note(request: Request, written: Annotated[Written, Depends(written_note)]) -> RedirectResponse:
    warehouse: Warehouse = request.app.state.warehouse
    rollout = {"run": written.run, "example": written.example, "index": written.index}
    [there] = records(warehouse, _ROLLOUT, rollout)
    if not there["found"]:
        raise HTTPException(404, f"There is no rollout {written.index} of example {written.example} in this run.")
    author = written.author.strip() or _author(request)
    if not author:
        raise HTTPException(400, "A note needs an author. Enter your name.")
    note = Note(
        note_id=uuid.uuid4().hex,
        run_id=written.run,
        example_id=written.example,
        rollout_index=written.index,
        mark=written.mark,
        author=author,
        written_at=datetime.now(UTC),
        comment=written.comment.strip(),
        overruled_reward=written.reward,
    )
    warehouse.write_rows(NOTES, [note])
    response = _back(note)
    response.set_cookie(AUTHOR_COOKIE, quote(author), max_age=_YEAR_SECONDS, httponly=True, samesite="strict")
    return response


@router.post("/notes/withdraw")
def withdraw_note(request: Request, sent: Annotated[dict[str, str], Depends(form)]) -> RedirectResponse:
    """Withdraws a note. The note stays in the file, but no view shows the note."""
    warehouse: Warehouse = request.app.state.warehouse
    note = next((one for one in warehouse.rows(NOTES) if one.note_id == sent.get("note_id")), None)
    if note is None:
        raise HTTPException(404, "The warehouse has no such note.")
    warehouse.write_rows(NOTES, [replace(note, is_withdrawn=True)])
    return _back(note)


def _back(note: Note) -> RedirectResponse:
    address = f"/runs/{quote(note.run_id, safe='')}/{note.example_id}/{note.rollout_index}#notes"
    return RedirectResponse(address, 303)


def _author(request: Request) -> str:
    """Returns the author of the user's last note. On the user's own machine, the default is the login name, else ""."""
    last: Any = request.cookies.get(AUTHOR_COOKIE)
    if last or not request.state.is_own_machine:
        return unquote(last or "")
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in some containers the user has no name
        return ""
