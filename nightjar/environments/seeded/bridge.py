"""``SeededEnv`` runs a benchmark of NeMo Evaluator as an environment; another program evaluates a ``BatchEnv``.

``environment_of_uri`` and ``benchmark_in`` find the benchmark that a URI names or a file registers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from nightjar.clients.client import AnyClient
from nightjar.clients.config import resolve_client_config
from nightjar.clients.credentials import NO_KEY, resolve_api_key
from nightjar.core.calling.decorators import teardown
from nightjar.core.calling.loops import HomeLoop
from nightjar.core.environment_id import EnvironmentId, listed_name, module_of
from nightjar.core.messages import Response, ResponseMessage
from nightjar.core.rollout.state import State
from nightjar.environments.environment import Environment
from nightjar.environments.multiturn import SingleTurnEnv
from nightjar.environments.parsers import last_text
from nightjar.environments.rollouts import tear_down_at_exit
from nightjar.environments.rubrics import Rubric
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.judge import Judge, JudgeScoringConfig, chosen_judge, judge_score
from nightjar.environments.seeded.registry import ENVIRONMENT_SCHEMES, Registered, benchmark_of_uri, registered_in
from nightjar.environments.seeded.rows import image_url
from nightjar.errors import DatasetError, EnvironmentLoadError, Error, NightjarError

logger = logging.getLogger(__name__)

_SEEDED_AT_ONCE = 32
_EXTRACTED, _DETAILS, SETTLED = "extracted_answer", "scoring_details", "settled"


class SeededRows(Sequence[dict[str, Any]]):
    """The problems of a benchmark as rows. Each is seeded once, on first use, and kept by its number in ``seeds``.

    ``system_prompt`` returns the system prompt that replaces the benchmark's; None keeps the benchmark's.
    """

    def __init__(self, benchmark: EvalEnvironment, loop: HomeLoop, system_prompt: Callable[[], str | None]) -> None:
        self._benchmark = benchmark
        self._loop = loop
        self._system_prompt = system_prompt
        self.seeds: dict[int, SeedResult] = {}
        self._size = loop.run(self._prepared())

    async def _prepared(self) -> int:
        with _explained(self._benchmark, "prepare()"):
            await self._benchmark.prepare()
        return await size_of(self._benchmark)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, position: Any) -> Any:
        if position not in self.seeds:
            self._loop.run(self._seed_from(position))
        return row_of(self.seeds[position], self._system_prompt())

    async def _seed_from(self, position: int) -> None:
        """Seeds a problem, and at most as many problems after it as were seeded before."""
        count = min(_SEEDED_AT_ONCE, len(self.seeds) + 1)
        wanted = [number for number in range(position, min(position + count, self._size)) if number not in self.seeds]
        found = await asyncio.gather(*(_seeded(self._benchmark, number) for number in wanted), return_exceptions=True)
        if isinstance(found[0], BaseException):
            raise found[0]
        self.seeds |= {n: seed for n, seed in zip(wanted, found, strict=True) if not isinstance(seed, BaseException)}


class SeededEnv(SingleTurnEnv):
    """A benchmark as an environment. ``seed`` runs in an event loop of its own, ``verify`` in that of the run."""

    state_columns: Sequence[str] = (_EXTRACTED, _DETAILS)

    def __init__(
        self, benchmark: EvalEnvironment, judge: Judge | None = None, rows: Sequence[Any] | None = None, **kwargs: Any
    ) -> None:
        self.benchmark = benchmark
        self._loop = HomeLoop("nightjar-benchmark")
        made = (lambda: rows) if rows is not None else self._seeded
        super().__init__(eval_dataset=made, rubric=VerifyRubric(benchmark, judge), **kwargs)

    def _seeded(self) -> SeededRows:
        tear_down_at_exit(self)  # closes what seeding opens, even if there is no run
        return SeededRows(self.benchmark, self._loop, lambda: self.system_prompt)

    @teardown
    async def close_benchmark(self) -> None:
        if self._loop.is_running:
            await self._loop.call(self.benchmark.close())
            self._loop.stop()
        else:
            await self.benchmark.close()


class VerifyRubric(Rubric):
    """Scores an answer with a benchmark's ``verify``, and with a judge if the benchmark asks for a judge."""

    def __init__(self, benchmark: EvalEnvironment, judge: Judge | None = None) -> None:
        super().__init__()
        self._benchmark = benchmark
        self._judge = judge
        self.add_reward_func(self.verify)

    async def verify(self, state: State) -> float:
        """Returns the reward; numbers and booleans in the details become metrics."""
        result = settled_result(state) or await self._verified(state)
        details = {name: value for name, value in result.scoring_details.items() if not name.startswith("_")}
        state[_EXTRACTED], state[_DETAILS] = result.extracted_answer, _as_json(details)
        measured = {name: value for name, value in details.items() if isinstance(value, int | float)}
        measured.pop("needs_judge", None)  # a mark
        state["metrics"].update({name: float(value) for name, value in measured.items() if math.isfinite(value)})
        return float(result.reward)

    async def _verified(self, state: State) -> VerifyResult:
        response, metadata = last_text(state.get("completion") or []), state.get("info") or {}
        result = await self._benchmark.verify_row(response, state.get("answer", ""), metadata)
        if not isinstance(result, VerifyResult):
            raise TypeError(f"verify() returned {type(result).__name__}, not a VerifyResult")
        if not result.scoring_details.get("needs_judge"):
            return result
        config = result.scoring_details.get("judge_config")
        judged = await judge_score(
            last_text(state["prompt"], "user"), response, state.get("answer") or None, self._judge,
            JudgeScoringConfig(**config) if isinstance(config, Mapping) else config,
        )  # fmt: skip
        details = {name: value for name, value in result.scoring_details.items() if name != "judge_config"}
        details |= {"judge": {**judged, "model": getattr(self._judge, "model", None)}, "correct": judged["correct"]}
        return VerifyResult(judged["normalized_score"], result.extracted_answer, details, result.metadata)


def as_environment(
    benchmark: EvalEnvironment,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    judge_api_key_var: str | None = None,
) -> SeededEnv:
    """Returns a benchmark as an environment.

    ``judge_model``, at OpenAI by default, scores answers that need a judge. If None, the user's configured judge does.
    """
    judge = chosen_judge(judge_model, judge_base_url, judge_api_key_var)
    made: SeededEnv = (benchmark.environment_class or SeededEnv)(benchmark, judge)
    return made


def environment_of_uri(uri: str, env_args: dict[str, Any]) -> Environment:
    if place := ENVIRONMENT_SCHEMES.get(uri.partition("://")[0]):
        environment: Environment = pkgutil.resolve_name(place)(uri, **env_args)
        return environment
    return _as_environment(partial(benchmark_of_uri, uri), env_args)


def benchmark_in(module: ModuleType, env_id: str, env_args: dict[str, Any]) -> Callable[..., SeededEnv] | None:
    """Returns a function that makes the benchmark of a module, or None if the module has none.

    Takes the name of the benchmark out of the arguments.
    """
    found = registered_in(Path(module.__file__ or ""))
    if not found:
        return None
    benchmark = _select_benchmark(env_id, found, env_args.pop("benchmark", None))
    return lambda **own: _as_environment(benchmark.make, own)


def _select_benchmark(env_id: str, found: list[Registered], name: str | None) -> Registered:
    wanted = (name or EnvironmentId.parse(env_id).name).lower()
    spellings = {wanted, module_of(wanted), listed_name(wanted)}
    named = [each for each in found if each.name in spellings]
    names = ", ".join(each.name for each in found)
    if name and not named:
        raise EnvironmentLoadError(env_id, f"has no benchmark {name!r}. Choose one of: {names}")
    if len(found) > 1 and not named:
        raise EnvironmentLoadError(env_id, f"is ambiguous: {found[0].file} has {names}. Choose one: FILE.py:NAME")
    return (named or found)[0]


def _as_environment(make: Callable[..., EvalEnvironment], env_args: dict[str, Any]) -> SeededEnv:
    """Creates a benchmark and wraps it as an environment; ``judge_…`` arguments go to the benchmark's judge."""
    of_judge = inspect.signature(as_environment).parameters
    own = {name: value for name, value in env_args.items() if name not in of_judge}
    judge = {name: value for name, value in env_args.items() if name in of_judge}
    return as_environment(make(**own), **judge)


async def size_of(benchmark: EvalEnvironment) -> int:
    with _explained(benchmark, "dataset_size()"):
        size = await benchmark.dataset_size()
    if not isinstance(size, int) or size < 0:
        raise DatasetError(f"Benchmark {benchmark.name!r} has no known number of problems (found {size!r})")
    return size


async def seeded(benchmark: EvalEnvironment, numbers: Sequence[int]) -> dict[int, SeedResult]:
    found = await asyncio.gather(*(_seeded(benchmark, number) for number in numbers))
    return dict(zip(numbers, found, strict=True))


async def _seeded(benchmark: EvalEnvironment, number: int) -> SeedResult:
    with _explained(benchmark, f"seed({number})"):
        return await benchmark.seed(number)


@contextmanager
def _explained(benchmark: EvalEnvironment, what: str) -> Iterator[None]:
    try:
        yield
    except NightjarError:
        raise
    except Exception as error:
        raise DatasetError(f"Benchmark {benchmark.name!r}: {what} raised {type(error).__name__}: {error}") from error


def row_of(seed: SeedResult, system_prompt: str | None = None) -> dict[str, Any]:
    if not isinstance(seed, SeedResult):
        raise DatasetError(f"seed() returned {type(seed).__name__}, not a SeedResult")
    answer = {} if seed.expected_answer is None else {"answer": str(seed.expected_answer)}
    info = {str(name): value for name, value in seed.metadata.items()}
    return {"prompt": messages_of(seed, system_prompt), **answer, "info": info}


def messages_of(seed: SeedResult, system_prompt: str | None = None) -> list[dict[str, Any]]:
    """Returns the first messages of a problem; ``system_prompt`` replaces the problem's, unless it is None."""
    system = system_prompt or seed.system
    if seed.messages:
        has_system = seed.messages[0].get("role") == "system"
        own = seed.messages[1:] if has_system and system_prompt else seed.messages
        return [
            *([{"role": "system", "content": system}] if system and (system_prompt or not has_system) else []),
            *own,
        ]
    content: Any = seed.prompt
    if seed.images:
        parts = [{"type": "image_url", "image_url": {"url": image_url(image)}} for image in seed.images]
        content = [*parts, {"type": "text", "text": seed.prompt}]
    return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": content}]


def settled_result(state: State) -> VerifyResult | None:
    """Returns the result that a solver has already decided; None if the answer has to be verified."""
    settled = state.get(SETTLED)
    return None if settled is None else VerifyResult(settled["reward"], None, dict(settled["scoring_details"]))


def _as_json(details: Mapping[str, Any]) -> Any:
    try:
        return orjson.loads(orjson.dumps(details, default=str, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:  # integers of more than 64 bits, and texts with halves of surrogate pairs
        return {str(name): repr(value) for name, value in details.items()}


class BatchEnv(SeededEnv):
    """A benchmark that another program evaluates as a whole. It has one example; the answer is the scores as JSON.

    The benchmark's ``run_batch`` gets ``base_url``, ``model``, ``api_key`` and ``sampling_args``; its ``verify`` reads
    the scores.
    """

    def __init__(self, benchmark: EvalEnvironment, judge: Judge | None = None, **kwargs: Any) -> None:
        row = {"prompt": [{"role": "user", "content": benchmark.name}], "answer": "", "info": {}}
        super().__init__(benchmark, judge, [row], **kwargs)

    async def get_model_response(self, state: State, *_: Any, **__: Any) -> Response:
        told = {"model": state["model"], "sampling_args": state["sampling_args"] or {}}
        bundle = await self.benchmark.run_batch(None, _endpoint(state["client"]) | told)
        scores = {name: score["value"] for name, score in (bundle or {})["benchmark"]["scores"].items()}
        if not scores:
            raise Error(f"The evaluation of {self.benchmark.name!r} returned no scores")
        message = ResponseMessage(content=json.dumps(scores), finish_reason="stop", is_truncated=False)
        return Response(id="", created=0, model=state["model"], message=message)


def _endpoint(client: AnyClient) -> dict[str, Any]:
    if client.config is None:
        return {}
    config = resolve_client_config(client.config)
    key = resolve_api_key(config)
    return {"base_url": config.api_base_url, "api_key": None if key == NO_KEY else key}
