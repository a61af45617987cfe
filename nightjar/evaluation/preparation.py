"""Prepares a run: loads the environment, applies the settings of the run to it and selects its examples."""

from __future__ import annotations

import functools
import inspect
import logging
import random
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from nightjar.core.calling import call
from nightjar.core.calling.functions import run_file
from nightjar.core.parts import Part
from nightjar.core.rollout.state import State
from nightjar.core.secrecy import note_named_secrets
from nightjar.core.text import shortened
from nightjar.engine import Plan
from nightjar.environments import EnvGroup, Environment, SingleTurnEnv, load_environment
from nightjar.environments.data import Examples, example_hash
from nightjar.environments.packages.aliases import preferred
from nightjar.environments.packages.lookup import ALL_EXAMPLES, environments_in, version_info
from nightjar.environments.packages.provided import provide, source_hash
from nightjar.environments.parsers import Parser, noted_answers
from nightjar.environments.rollouts import plan_groups, tear_down_at_exit
from nightjar.environments.rubrics import Rubric, RubricGroup
from nightjar.errors import ConfigError, DatasetError, NightjarError
from nightjar.evaluation.config import RunConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A configuration with its environment and examples.

    ``hashes`` maps the ids of the examples to the hashes of their content, in the order in which they run. ``whole``
    has the examples of all parts, if this run is a part. With ``is_kept``, the environment outlives the run.
    """

    config: RunConfig
    env: Environment
    versions: dict[str, str | None]
    hashes: dict[int, str]
    whole: dict[int, str]
    plan: Plan
    rubric: str | None = None
    is_kept: bool = False


def prepare(config: RunConfig, rubric: str | None = None, env: Environment | None = None) -> Prepared:
    """Loads the environment, or takes ``env``, which is kept for further runs."""
    note_named_secrets([config.env_args, config.extra_env_kwargs])
    if env is not None:
        tear_down_at_exit(env)
        return _prepared(config, env, version_info(config.env_id), rubric, is_kept=True)
    folder = provide(config.env_id, config.env_source, config.environments_dir)
    with environments_in(folder), preferred():
        env = load_environment(config.env_id, **config.env_args)
        versions = version_info(config.env_id)
        if rubric is not None:
            env.rubric = load_rubric(rubric, env.parser)
    return _prepared(config, env, versions, rubric)


def _prepared(
    config: RunConfig, env: Environment, versions: dict[str, str | None], rubric: str | None, *, is_kept: bool = False
) -> Prepared:
    limit = {} if config.timeout is None else {"timeout_seconds": config.timeout}
    apply_settings(env, {**config.extra_env_kwargs, **limit})
    if config.max_sandboxes is not None:
        env.set_max_sandboxes(config.max_sandboxes)
    if config.scoring_timeout is not None:
        env.rubric.set_timeout_seconds(config.scoring_timeout)
    if not env.rubric.has_rewards:
        logger.warning("The rubric of %r has no reward function: every reward will be 0", config.env_id)
    plan = plan_groups(env, config.rollouts_per_example, config.independent_scoring)
    whole = select_examples(env.examples, config)
    if not whole:
        raise DatasetError(f"Environment {config.env_id!r} has no examples")
    versions["scoring_hash"] = scoring_hash(env.rubric, versions["env_hash"])
    part = config.part_of_run
    return Prepared(config, env, versions, _block(part, whole) if part else whole, whole, plan, rubric, is_kept)


_PACKAGE = Path(__file__).parents[1]


def _block(part: Part, whole: dict[int, str]) -> dict[int, str]:
    hashes = dict([*whole.items()][part.block(len(whole))])
    if not hashes:
        raise ConfigError(f"Part {part} has no example: the run has only {len(whole)}. Use fewer parts")
    return hashes


def select_examples(examples: Examples, config: RunConfig) -> dict[int, str]:
    """Returns the ids of the examples of a run with their hashes, in the order in which they run."""
    try:
        order = list(range(len(examples)))
        if config.shuffle_seed is not None:
            random.Random(config.shuffle_seed).shuffle(order)  # noqa: S311 - no secret is made of it
        if config.num_examples != ALL_EXAMPLES:
            order = order[: config.num_examples]
        return {example_id: example_hash(examples[example_id]) for example_id in order}
    except NightjarError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}{_place(error)}"
        raise DatasetError(f"The dataset of environment {config.env_id!r} cannot be built: {reason}") from error


def _place(error: Exception) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE not in Path(frame.filename).parents
    ]
    if not frames:
        return ""
    called = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return f" ({Path(called.filename).name}, line {called.lineno})"


_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
_NOT_OFFERED = {"kwargs", "env_id", "env_args", "own_sampling_args"}


def apply_settings(env: Environment, settings: Mapping[str, Any]) -> None:
    """Changes settings of an environment, through its method ``set_<name>`` or an attribute."""
    known = _settings_of(env)
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(
                f"Environment {env.env_id!r} has no setting {name!r}. Choose one of: {', '.join(sorted(known))}"
            )
        _check_kind(env, name, value)
    env.set_kwargs(**settings)


def _settings_of(env: Environment) -> set[str]:
    known = {name.removeprefix("set_") for name in dir(env) if name.startswith("set_")}
    known |= {name for name, value in vars(env).items() if isinstance(value, _PLAIN) and not name.startswith("_")}
    if isinstance(env, SingleTurnEnv):
        known.discard("max_turns")
    children = env.envs if isinstance(env, EnvGroup) else []
    return known.union(*map(_settings_of, children)) - _NOT_OFFERED


def _check_kind(env: Environment, name: str, value: Any) -> None:
    now = getattr(env, name, None)
    if value is None or not isinstance(now, int | float):
        return
    kinds, what = ((bool,), "true or false") if isinstance(now, bool) else ((int, float), "a number")
    if type(value) not in kinds:
        raise ConfigError(f"Setting {name!r} of environment {env.env_id!r} must be {what}, found {value!r}")


def load_rubric(place: str, parser: Parser) -> Rubric:
    """Loads the rubric, rubric class or reward function at ``path/to/file.py:NAME``. Functions use ``parser``."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"No rubric in {place!r}: expected path/to/file.py:NAME with an existing file")
    try:
        found = getattr(run_file(path), name, None)
        rubric = found() if isinstance(found, type) and issubclass(found, Rubric) else found
    except Exception as error:
        raise ConfigError(f"The rubric of {place!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if isinstance(rubric, Rubric):
        return rubric
    if callable(rubric) and not isinstance(rubric, type):
        return Rubric([rubric], parser=parser)
    what = "has no" if found is None else f"has a {type(found).__name__} as"
    raise ConfigError(f"{str(path)!r} {what} {name!r}: expected a Rubric, a subclass of Rubric or a reward function")


def scoring_hash(rubric: Rubric, env_hash: str | None) -> str:
    """Returns the SHA-256 of the code that scores: the environment, the rubric, its functions and its parser.

    Code without a file, such as a cell of a notebook, counts with its text.
    """
    files, cells = dict[str, Path](), list[str]()
    for scoring in _scoring_code(rubric):
        if (path := _file_of(scoring)) is None:
            continue
        if path.is_file():
            files[f"{path.parent.name}/{path.name}"] = path
        else:
            cells.append(_text_of(scoring))
    return sha256(" ".join([str(env_hash), source_hash(files), *sorted(cells)]).encode()).hexdigest()


def _scoring_code(rubric: Rubric) -> Iterator[Any]:
    """Yields the classes and functions that score."""
    parts = rubric.rubrics if isinstance(rubric, RubricGroup) else [rubric]
    for part in parts:
        for scoring in (type(part), *part.funcs, type(part.parser), getattr(part.parser, "extract_fn", None)):
            bare = scoring.func if isinstance(scoring, functools.partial) else scoring
            yield bare if inspect.isclass(bare) or inspect.isroutine(bare) else type(bare)


def _file_of(code: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        return None
    return Path(file) if file else None


def _text_of(code: Any) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


_LONGEST_ANSWER = 4_000


def keep_parsed_answers(env: Environment) -> list[str]:
    """Makes rollouts keep their parsed answer. Returns the added state columns; none if parsers change no answer."""
    parts = env.rubric.rubrics if isinstance(env.rubric, RubricGroup) else []
    parsers = [env.rubric.parser, *(part.parser for part in parts), env.parser]
    parser = next((one for one in parsers if isinstance(one, Parser) and not one.takes_all), None)
    if parser is None or not env.score_rollouts:
        return []

    async def keep_parsed_answer(state: State) -> None:
        if state["error"] is not None or "parsed_answer" in state:
            return
        completion = state["completion"]
        for noted_by, noted, answer in noted_answers.get() or ():
            if noted_by is parser and noted is completion:
                state["parsed_answer"] = _storable(answer)
                return
        state["parsed_answer"] = await call(_parsed, parser, completion)

    env.rubric.add_cleanup_handler(keep_parsed_answer)
    return ["parsed_answer"]


def _parsed(parser: Parser, completion: Any) -> Any:
    try:
        return _storable(parser.parse_answer(completion))
    except Exception:  # noqa: BLE001 - user code; it has cost no reward, as no reward function was stopped by it
        return None


def _storable(found: Any) -> Any:
    return shortened(found, _LONGEST_ANSWER) if isinstance(found, str) else found
