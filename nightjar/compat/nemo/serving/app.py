"""``generate_app`` serves a benchmark over HTTP, in the protocols of ``nel serve`` and of Gym clients.

::

    GET  /health          {status, benchmark, dataset_size, protocol}
    GET  /dataset_size    {size}
    POST /seed_session    {idx}                                     → {prompt, expected_answer, metadata, messages, …}
    POST /verify          {response, expected, metadata}            → {reward, extracted_answer, scoring_details, …}
    POST /verify          {response, expected_answer, metadata, …}  → the same for Gym clients

``nightjar serve ENV`` and ``uvicorn.run(generate_app(env), port=9090)`` serve ``env``. An invalid request gets a 4xx
response with ``{"detail": …}``. Anyone who can reach the port can read the expected answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.requests import ClientDisconnect

from nightjar.compat.nemo.environments.gym_protocol import extract_assistant_text
from nightjar.core.json_bytes import json_bytes
from nightjar.environments.seeded.bridge import messages_of, seeded, size_of
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.rows import image_url
from nightjar.errors import InfraError

logger = logging.getLogger(__name__)
MOST_BYTES = 8 * 1024 * 1024
_MOST_DRAINED_BYTES = 16 * MOST_BYTES
ModelT = TypeVar("ModelT", bound=BaseModel)
_AT_ONCE = 256
_SUFFIXES = (".jsonl", ".json")


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")  # noqa: TRY004 - pydantic reports a ValueError
    return value


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Reference = Annotated[str, BeforeValidator(_number_as_text)]


class SeedSessionRequest(BaseModel):
    idx: Annotated[int, BeforeValidator(_not_a_bool)] = 0


class VerifyRequest(BaseModel):
    """An answer from a client of ``nel serve``."""

    response: str
    expected: Reference
    metadata: dict[str, Any] = Field(default_factory=dict)


class GymVerifyRequest(BaseModel):
    """An answer from a Gym client."""

    response: str | dict[str, Any]
    expected_answer: Reference = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    responses_create_params: dict[str, Any] | None = None


def generate_app(env: EvalEnvironment, gym_compat: bool = False, data_export_dir: str | None = None) -> FastAPI:
    """Returns the application that serves a benchmark. It prepares the benchmark at its start and closes it at its end.

    With ``gym_compat``, ``/health`` reports ``gym``; both formats are always accepted. Unless ``data_export_dir`` is
    None, the problems are written to ``NAME.jsonl`` in that folder at the start.
    """

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        await env.prepare()
        if data_export_dir is not None:
            await export_data(env, data_export_dir)
        yield
        await env.close()

    app = FastAPI(title=env.name, lifespan=living)
    routes = _Routes(env, "gym" if gym_compat else "evaluator")
    app.add_api_route("/health", routes.health)
    app.add_api_route("/dataset_size", routes.dataset_size)
    app.add_api_route("/seed_session", routes.seed_session, methods=["POST"])
    app.add_api_route("/verify", routes.verify, methods=["POST"])
    app.add_exception_handler(Exception, _failed)
    return app


class _Routes:
    def __init__(self, env: EvalEnvironment, protocol: str) -> None:
        self._env = env
        self._protocol = protocol

    async def health(self) -> Response:
        """The name of the benchmark, its number of problems, and the protocol."""
        size = await size_of(self._env)
        return answered({"status": "ok", "benchmark": self._env.name, "dataset_size": size, "protocol": self._protocol})

    async def dataset_size(self) -> Response:
        """The number of problems."""
        return answered({"size": await size_of(self._env)})

    async def seed_session(self, request: Request) -> Response:
        """The prompt, the expected answer and the metadata of a problem. The body is ``{"idx": 0}``."""
        number = parsed(SeedSessionRequest, await read_body(request)).idx
        size = await size_of(self._env)
        if not 0 <= number < size:
            raise HTTPException(400, f"idx={number} out of range [0, {size})")
        with _errors_as_responses(f"seed({number})"):
            seed = await self._env.seed(number)
        return answered(_seed_as_json(seed))

    async def verify(self, request: Request) -> Response:
        """The reward of a response, with details. The body has the response, the expected answer and the metadata."""
        body = await read_body(request)
        if "expected" in body:
            answer = parsed(VerifyRequest, body)
            return answered(dataclasses.asdict(await self._score(answer.response, answer.expected, answer.metadata)))
        gym = parsed(GymVerifyRequest, body)
        try:
            text = extract_assistant_text(gym.response)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        result = await self._score(text, gym.expected_answer, gym.metadata)
        verdict = {name: getattr(result, name) for name in ("reward", "extracted_answer", "scoring_details")}
        echoed = {
            name: body[name] for name in ("responses_create_params", "response") if isinstance(body.get(name), dict)
        }
        return answered({**echoed, "expected_answer": gym.expected_answer, **verdict})

    async def _score(self, response: str, expected: str, metadata: dict[str, Any]) -> VerifyResult:
        with _errors_as_responses("verify()"):
            return await self._env.verify_row(response, expected, metadata)


@contextmanager
def _errors_as_responses(what: str) -> Iterator[None]:
    """Turns an error of the benchmark into a response: 503 if another try may succeed, else 500."""
    try:
        yield
    except asyncio.CancelledError:
        raise HTTPException(503, f"{what} was not finished: the server is shutting down") from None
    except Exception as error:
        logger.warning("%s raised %s: %s", what, type(error).__name__, error, exc_info=True)
        status = 503 if isinstance(error, InfraError) else 500
        raise HTTPException(status, f"{what} raised {type(error).__name__}: {error}") from error


def _seed_as_json(seed: SeedResult) -> dict[str, Any]:
    """Returns a problem in the protocol's form; ``images`` are an extension of the protocol."""
    spec = seed.sandbox_spec
    content = {
        "prompt": seed.prompt,
        "expected_answer": "" if seed.expected_answer is None else str(seed.expected_answer),
        "metadata": seed.metadata,
        "messages": seed.messages,
        "system": seed.system,
        "sandbox_spec": spec if isinstance(spec, dict) or dataclasses.is_dataclass(spec) else None,
    }
    return content | ({"images": [image_url(image) for image in seed.images]} if seed.images else {})


async def _failed(_: Request, error: Exception) -> Response:
    return answered({"detail": f"{type(error).__name__}: {error}"}, 500)


async def read_body(request: Request) -> dict[str, Any]:
    """Returns the JSON object in a request; an empty object if there is no body."""
    text = await _read(request)
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HTTPException(422, f"The body is a JSON {type(found).__name__}, not an object")
    return found


def parsed(model: type[ModelT], values: dict[str, Any]) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise HTTPException(422, [{**one, "loc": ["body", *one["loc"]]} for one in found]) from None


def answered(value: Any, status: int = 200) -> Response:
    """Returns a value as a JSON response; values that JSON cannot express become strings."""
    try:
        text = json_bytes(value, orjson.OPT_SERIALIZE_NUMPY)
    except (RecursionError, TypeError, ValueError) as error:
        raise HTTPException(422, f"The answer cannot be written as JSON: {error}") from None
    return Response(text, status, media_type="application/json")


async def _read(request: Request) -> bytes:
    # A body that is too long is read to its end: a client that is still sending would miss the response.
    kept, size = bytearray(), 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= MOST_BYTES:
                kept += chunk
            elif size > _MOST_DRAINED_BYTES:
                break
    except ClientDisconnect:
        raise HTTPException(400, "The body is incomplete") from None
    if size > MOST_BYTES:
        raise HTTPException(413, f"The body has more than {MOST_BYTES:,} bytes")
    return bytes(kept)


async def export_data(env: EvalEnvironment, path: str | Path) -> Path:
    """Writes the problems of a prepared benchmark as the JSON lines that Gym clients read, and returns the file."""
    file = _file(Path(path), env.name)
    size = await size_of(env)
    with file.open("wb") as lines:
        for start in range(0, size, _AT_ONCE):
            for number, seed in (await seeded(env, range(start, min(start + _AT_ONCE, size)))).items():
                row = {
                    "responses_create_params": {"input": messages_of(seed)},
                    "expected_answer": seed.expected_answer,
                    "uuid": f"{env.name}-{number}",
                    "metadata": seed.metadata,
                }
                lines.write(bytes(answered(row).body) + b"\n")
    return file


def _file(path: Path, name: str) -> Path:
    if path.suffix not in _SUFFIXES or path.is_dir():
        path /= f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
