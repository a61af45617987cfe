"""Every error that Nightjar raises on purpose, in one tree.

::

    NightjarError                     what the command line prints as one line, without a traceback
    ├── Error                         a rollout failed; recorded in its row, the run goes on
    │   ├── ModelError                the endpoint gave no usable answer
    │   │   └── InvalidModelResponseError   it answered, but not in the protocol's shape
    │   │       └── EmptyModelResponseError   it answered with nothing
    │   ├── OverlongPromptError       the prompt does not fit the model's context
    │   ├── ToolError                 a tool call failed
    │   │   ├── ToolParseError        its arguments are not valid JSON
    │   │   └── ToolCallError         the tool raised
    │   ├── InfraError                something around the rollout broke; worth another try
    │   │   ├── TunnelError           a tunnel to a sandbox broke
    │   │   └── SandboxError          a sandbox did not start or answer
    │   └── ScoringError              the rubric could not score the rollout
    ├── ConfigError                   what was asked for cannot be done as stated
    │   ├── EnvironmentNotFoundError  no environment of that name is installed
    │   ├── EnvironmentVersionError   it is installed in another version than asked for
    │   ├── EnvironmentImportError    something that it imports is missing
    │   ├── EnvironmentLoadError      its code raised, or it is no environment
    │   ├── EnvironmentPackageError   an environment package cannot be made or installed
    │   ├── MissingKeyError           an API key's variable is not set
    │   └── DatasetError              a dataset is missing or broken
    ├── RunError                      a run cannot start or go on
    │   ├── RunAbortedError           every request fails in the same permanent way
    │   ├── RunLockedError            another process writes this run directory
    │   ├── RunDirectoryError         a run directory is missing, unwritable or damaged
    │   └── ResumeMismatchError       the run on disk is not the run that was asked for
    ├── ServiceError                  Prefect's server or a local service does not do its part
    └── WarehouseError                the warehouse refused a statement or cannot be opened

The names below ``Error`` are those of verifiers 0.1, so that environments can catch them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_TEXT = 10_000


class NightjarError(Exception):
    """Anything that Nightjar raises on purpose.

    Example:
        >>> import nightjar
        >>> try:
        ...     nightjar.load_environment("no-such-environment")
        ... except NightjarError as error:
        ...     print(str(error)[:50])
        Environment 'no-such-environment' is not installed
    """


class Error(NightjarError):
    """A rollout failed. Raised in environment code, it becomes the rollout's error.

    Example:
        >>> class IllegalMoveError(Error): ...
        >>> isinstance(IllegalMoveError("e2 is empty"), NightjarError)
        True
    """


class ModelError(Error):
    """The endpoint gave no usable answer; the provider's error is the cause (``__cause__``).

    Example:
        >>> import asyncio
        >>> from nightjar.clients import ClientConfig, resolve_client
        >>> from nightjar.messages import UserMessage
        >>> from nightjar.testing import Faults, FixedAnswer, ModelServer
        >>> async def ask(url):
        ...     async with resolve_client(ClientConfig(api_base_url=url)) as client:
        ...         try:
        ...             await client.get_response([UserMessage(content="2+2?")], "local", {})
        ...         except ModelError as error:
        ...             print(error.__cause__.status_code)
        >>> with ModelServer(FixedAnswer("4"), faults=Faults(rate_500=1.0)) as server:
        ...     asyncio.run(ask(server.base_url))
        500
    """


class InvalidModelResponseError(ModelError):
    """The endpoint answered, but not in the shape that its protocol promises.

    Example:
        >>> issubclass(InvalidModelResponseError, ModelError)
        True
    """


class EmptyModelResponseError(InvalidModelResponseError):
    """The endpoint answered without text, reasoning or tool calls.

    Example:
        >>> issubclass(EmptyModelResponseError, InvalidModelResponseError)
        True
    """


class OverlongPromptError(Error):
    """The prompt does not fit the model's context.

    Example:
        >>> issubclass(OverlongPromptError, ModelError)
        False
    """


class ToolError(Error):
    """A tool call failed.

    Example:
        >>> issubclass(ToolParseError, ToolError) and issubclass(ToolCallError, ToolError)
        True
    """


class ToolParseError(ToolError):
    """The arguments of a tool call are not valid JSON.

    Example:
        >>> import asyncio
        >>> from nightjar.envs import ToolEnv
        >>> from nightjar.messages import AssistantMessage, ToolCall
        >>> from nightjar.rollout.state import State
        >>> env = ToolEnv(dataset=[{"question": "What is 2+2?"}], stop_errors=[ValueError])
        >>> asked = AssistantMessage(tool_calls=[ToolCall(id="call_1", name="add", arguments="2 and 2")])
        >>> try:
        ...     asyncio.run(env.env_response([asked], State()))
        ... except ToolParseError as error:
        ...     print(error)
        JSONDecodeError: Extra data: line 1 column 3 (char 2)
    """


class ToolCallError(ToolError):
    """A tool raised.

    Example:
        >>> import asyncio
        >>> from nightjar.envs import ToolEnv
        >>> from nightjar.messages import AssistantMessage, ToolCall
        >>> from nightjar.rollout.state import State
        >>> def search(query: str) -> str:
        ...     raise ConnectionError("The index is down")
        >>> env = ToolEnv([search], dataset=[{"question": "Where is it?"}], stop_errors=[ConnectionError])
        >>> asked = AssistantMessage(tool_calls=[ToolCall(id="call_1", name="search", arguments='{"query": "it"}')])
        >>> try:
        ...     asyncio.run(env.env_response([asked], State()))
        ... except ToolCallError as error:
        ...     print(error)
        ConnectionError: The index is down
    """


class InfraError(Error):
    """Something around the rollout broke, and another try may succeed.

    Example:
        >>> isinstance(InfraError("The browser is gone"), Error)
        True
    """


class TunnelError(InfraError):
    """A tunnel to a sandbox broke.

    Example:
        >>> issubclass(TunnelError, InfraError)
        True
    """


class SandboxError(InfraError):
    """A sandbox did not start or did not answer.

    Example:
        >>> issubclass(SandboxError, InfraError)
        True
    """


class ScoringError(Error):
    """The rubric could not score the rollout; what was raised is the cause.

    Example:
        >>> import asyncio
        >>> from nightjar.rubrics import Rubric
        >>> from nightjar.rollout.state import State
        >>> def number(completion):
        ...     return float(completion)
        >>> state = State(completion="four")
        >>> asyncio.run(Rubric([number]).score_group([state]))
        >>> state["reward"], type(state["error"]).__name__, type(state["error"].__cause__).__name__
        (None, 'ScoringError', 'ValueError')
    """


class ConfigError(NightjarError):
    """What was asked for cannot be done as stated.

    Example:
        >>> from nightjar.messages import from_raw_message
        >>> try:
        ...     from_raw_message({"role": "user"})
        ... except ConfigError as error:
        ...     print(error)
        Not a chat message: {'role': 'user'}: user.content: Field required
    """


class EnvironmentNotFoundError(ConfigError, ValueError):
    """No environment of that name is installed.

    Attributes:
        env_id: the name that was asked for.
        available: the names that are there.

    Example:
        >>> print(EnvironmentNotFoundError("gsm9k", ["arithmetic", "gsm8k"]))
        Environment 'gsm9k' is not installed. Installed here: arithmetic, gsm8k. See 'nightjar env list'.
    """

    def __init__(self, env_id: str, available: Sequence[str]) -> None:
        self.env_id = env_id
        self.available = list(available)
        super().__init__(env_id, available)

    def __str__(self) -> str:
        names = ", ".join(self.available) or "none"
        return f"Environment {self.env_id!r} is not installed. Installed here: {names}. See 'nightjar env list'."


class EnvironmentVersionError(ConfigError, ValueError):
    """An environment is there, in another version than asked for.

    Attributes:
        env_id: the name that was asked for, version included.
        found: what is there, and where.

    Example:
        >>> print(EnvironmentVersionError("chess@2.0", "version 1.0 in ./environments"))
        Environment 'chess@2.0' was asked for, found version 1.0 in ./environments. Try: nightjar env install chess@2.0
    """

    def __init__(self, env_id: str, found: str) -> None:
        self.env_id = env_id
        self.found = found
        super().__init__(env_id, found)

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} was asked for, found {self.found}. Try: nightjar env install {self.env_id}"


class EnvironmentImportError(ConfigError, ValueError):
    """An environment imports what is not installed; the ``ImportError`` is the cause.

    Attributes:
        env_id: the environment.
        reason: what is missing.
        hint: what to do; empty where the reason says it.

    Example:
        >>> print(EnvironmentImportError("chess", "No module named 'board'", "Install it: pip install board"))
        Environment 'chess' cannot be imported: No module named 'board'. Install it: pip install board
    """

    def __init__(self, env_id: str, reason: str, hint: str) -> None:
        self.env_id = env_id
        self.reason = reason
        self.hint = hint
        super().__init__(env_id, reason, hint)

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} cannot be imported: {self.reason}{self.hint and f'. {self.hint}'}"


class EnvironmentLoadError(ConfigError, RuntimeError):
    """The code of an environment raised while it was loaded (the cause), or does not give an environment.

    Attributes:
        env_id: the environment.
        problem: what is wrong with it, as the rest of a sentence.

    Example:
        >>> print(EnvironmentLoadError("chess", "cannot be loaded: load_environment() returned a dict"))
        Environment 'chess' cannot be loaded: load_environment() returned a dict
    """

    def __init__(self, env_id: str, problem: str) -> None:
        self.env_id = env_id
        self.problem = problem
        super().__init__(env_id, problem)

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} {self.problem}"


class EnvironmentPackageError(ConfigError):
    """An environment package cannot be made, read or installed.

    Example:
        >>> issubclass(EnvironmentPackageError, ConfigError)
        True
    """


class MissingKeyError(ConfigError, ValueError):
    """Environment variables that hold credentials are not set.

    Attributes:
        keys: the names of the missing variables.

    Example:
        >>> print(MissingKeyError(["SEARCH_API_KEY"]))
        Environment variable 'SEARCH_API_KEY' not set. Set it with: export SEARCH_API_KEY="..."
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(keys)

    def __str__(self) -> str:
        names = ", ".join(repr(key) for key in self.keys)
        noun = "variable" if len(self.keys) == 1 else "variables"
        exports = " ".join(f'{key}="..."' for key in self.keys)
        return f"Environment {noun} {names} not set. Set it with: export {exports}"


class DatasetError(ConfigError):
    """A dataset is missing or broken.

    Example:
        >>> from nightjar.data import Examples
        >>> try:
        ...     Examples([{"text": "What is 2+2?"}])[0]
        ... except DatasetError as error:
        ...     print(error)
        Example 0 has neither 'prompt' nor 'question'; its columns are ['text']
    """


class RunError(NightjarError):
    """A run cannot start or cannot go on.

    Example:
        >>> issubclass(RunAbortedError, RunError)
        True
    """


class RunAbortedError(RunError):
    """Every request fails in the same permanent way, so asking on is pointless.

    Attributes:
        is_outage: the endpoint has answered before and does not any more, which may heal.
    """

    def __init__(self, message: str, is_outage: bool = False) -> None:
        super().__init__(message, is_outage)
        self.is_outage = is_outage

    def __str__(self) -> str:
        return str(self.args[0])


class RunLockedError(RunError):
    """Another process writes this run directory.

    Example:
        >>> issubclass(RunLockedError, RunError)
        True
    """


class RunDirectoryError(RunError):
    """A run directory is missing, cannot be written, or is damaged.

    Example:
        >>> issubclass(RunDirectoryError, RunError)
        True
    """


class ResumeMismatchError(RunError):
    """The run on disk differs from the run that was asked for.

    Attributes:
        path: the run directory.
        differences: field name to (saved value, value asked for).

    Example:
        >>> print(ResumeMismatchError("outputs/my-run", {"model": ("small", "large")}))  # doctest: +ELLIPSIS
        Cannot resume outputs/my-run: model: saved 'small', asked for 'large'. Use the saved settings, or ...
    """

    def __init__(self, path: str, differences: Mapping[str, tuple[Any, Any]]) -> None:
        self.path = path
        self.differences = dict(differences)
        super().__init__(path, differences)

    def __str__(self) -> str:
        fields = "; ".join(
            f"{name}: saved {saved!r}, asked for {asked!r}" for name, (saved, asked) in self.differences.items()
        )
        return f"Cannot resume {self.path}: {fields}. Use the saved settings, or leave --resume out to start a new run."


class ServiceError(NightjarError):
    """Prefect's server or another local service does not do its part.

    Example:
        >>> issubclass(ServiceError, NightjarError)
        True
    """


class WarehouseError(NightjarError):
    """The warehouse refused a statement or cannot be opened.

    Example:
        >>> issubclass(WarehouseError, NightjarError)
        True
    """


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, what caused it, what caused that, and so on.

    Example:
        >>> try:
        ...     raise ToolCallError("search failed") from ConnectionError("refused")
        ... except ToolCallError as error:
        ...     [str(cause) for cause in error_chain(error)]
        ['search failed', 'refused']
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def error_text(error: BaseException) -> str:
    """Returns what an error says: its class where it says nothing, and the beginning of more than 10,000 characters.

    Example:
        >>> error_text(ValueError("no such move")), error_text(ValueError())
        ('no such move', 'ValueError')
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code may raise what cannot be shown
        return type(error).__name__
    if len(text) > _LONGEST_TEXT:
        return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
    return text or type(error).__name__
