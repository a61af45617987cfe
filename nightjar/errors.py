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
    │   ├── ScoringError              the rubric could not score the rollout
    │   │   └── JudgeVerdictError     what a judge said is no verdict
    │   ├── MiddlewareError           middleware of an endpoint raised
    │   └── GracefulError             a solver has used up what it may; the rollout counts, with the reward 0
    │       └── TurnLimitError        it has asked the model as often as its endpoint's middleware lets it
    ├── ConfigError                   what was asked for cannot be done as stated
    │   ├── EnvironmentNotFoundError  no environment of that name is installed
    │   ├── MissingEnvironmentsError  environments that are to be run are not installed
    │   ├── EnvironmentVersionError   it is installed in another version than asked for
    │   ├── EnvironmentImportError    something that it imports is missing
    │   ├── EnvironmentLoadError      its code raised, or it is no environment
    │   ├── EnvironmentPackageError   an environment package cannot be made or installed
    │   ├── MissingKeyError           an API key's variable is not set
    │   ├── UnsupportedTaskTypeError  a task of lm-eval asks or scores in a way that has no place here
    │   └── DatasetError              a dataset is missing or broken
    ├── RunError                      a run cannot start or go on
    │   ├── RunAbortedError           every request fails in the same permanent way
    │   ├── RunCancelledError         somebody stopped it
    │   ├── RunTimedOutError          it took longer than it may
    │   ├── BudgetSpentError          it has spent what it may
    │   ├── RunLockedError            another process writes this run directory
    │   ├── RunDirectoryError         a run directory is missing, unwritable or damaged
    │   └── ResumeMismatchError       the run on disk is not the run that was asked for
    ├── HubError                      the Hugging Face Hub does not take the results
    ├── ServiceError                  Prefect's server or a local service does not do its part
    │   └── ServiceAwayError          it does not answer, or has no time: later it may
    └── WarehouseError                the warehouse refused a statement or cannot be opened
        └── MissingWarehouseError     nothing was published there yet

The names below ``Error`` are those of verifiers 0.1, so that environments can catch them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_TEXT = 10_000


class NightjarError(Exception):
    """Anything that Nightjar raises on purpose."""


class Error(NightjarError):
    """A rollout failed. Raised in environment code, it becomes the rollout's error."""


class ModelError(Error):
    """The endpoint gave no usable answer; the provider's error is the cause (``__cause__``)."""


class InvalidModelResponseError(ModelError):
    """The endpoint answered, but not in the shape that its protocol promises."""


class EmptyModelResponseError(InvalidModelResponseError):
    """The endpoint answered without text, reasoning or tool calls."""


class OverlongPromptError(Error):
    """The prompt does not fit the model's context."""


class ToolError(Error):
    """A tool call failed."""


class ToolParseError(ToolError):
    """The arguments of a tool call are not valid JSON."""


class ToolCallError(ToolError):
    """A tool raised; what it raised is the cause."""


class InfraError(Error):
    """Something around the rollout broke, and another try may succeed."""


class TunnelError(InfraError):
    """A tunnel to a sandbox broke."""


class SandboxError(InfraError):
    """A sandbox did not start or did not answer."""


class ScoringError(Error):
    """The rubric could not score the rollout; what was raised is the cause."""


class JudgeVerdictError(ScoringError):
    """What a judge said is no verdict, or more than one."""


class GracefulError(Error):
    """A solver has used up what it may: turns, tokens, a budget. The answer counts as 0."""


class TurnLimitError(GracefulError):
    """A rollout has asked the model as often as it may; what was said until then is scored."""


class MiddlewareError(Error):
    """Middleware of an endpoint raised, or gave back something else; what it raised is the cause."""


class ConfigError(NightjarError):
    """What was asked for cannot be done as stated."""


class EnvironmentNotFoundError(ConfigError, ValueError):
    """No environment is called ``env_id``; those in ``available`` are there."""

    def __init__(self, env_id: str, available: Sequence[str]) -> None:
        super().__init__(env_id, available)
        self.env_id, self.available = env_id, list(available)

    def __str__(self) -> str:
        names = ", ".join(self.available) or "none"
        return f"Environment {self.env_id!r} is not installed. Installed here: {names}. See 'nightjar env list'."


class MissingEnvironmentsError(ConfigError, ValueError):
    """Environments that are to be run are not installed: ``env_ids``; those in ``available`` are there."""

    def __init__(self, env_ids: Sequence[str], available: Sequence[str]) -> None:
        super().__init__(env_ids, available)
        self.env_ids, self.available = list(env_ids), list(available)

    def __str__(self) -> str:
        commands = "\n".join(f"  nightjar env install {env_id}" for env_id in self.env_ids)
        names = ", ".join(self.available) or "none"
        return (
            f"Missing environments. Install them first:\n{commands}\nInstalled here: {names}. See 'nightjar env list'."
        )


class EnvironmentVersionError(ConfigError, ValueError):
    """An environment is there, in another version than ``env_id`` asks for; ``found`` says what, and where."""

    def __init__(self, env_id: str, found: str) -> None:
        super().__init__(env_id, found)
        self.env_id, self.found = env_id, found

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} was asked for, found {self.found}. Try: nightjar env install {self.env_id}"


class EnvironmentImportError(ConfigError, ValueError):
    """An environment imports what is not installed (the cause); ``hint`` is empty where ``reason`` says what to do."""

    def __init__(self, env_id: str, reason: str, hint: str) -> None:
        super().__init__(env_id, reason, hint)
        self.env_id, self.reason, self.hint = env_id, reason, hint

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} cannot be imported: {self.reason}{self.hint and f'. {self.hint}'}"


class EnvironmentLoadError(ConfigError, RuntimeError):
    """Loading an environment raised (the cause), or gave none; ``problem`` is the rest of that sentence."""

    def __init__(self, env_id: str, problem: str) -> None:
        super().__init__(env_id, problem)
        self.env_id, self.problem = env_id, problem

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} {self.problem}"


class EnvironmentPackageError(ConfigError):
    """An environment package cannot be made, read or installed."""


class MissingKeyError(ConfigError, ValueError):
    """Environment variables that hold credentials are not set; ``keys`` are their names."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self.keys = list(keys)

    def __str__(self) -> str:
        names = ", ".join(repr(key) for key in self.keys)
        noun = "variable" if len(self.keys) == 1 else "variables"
        exports = " ".join(f'{key}="..."' for key in self.keys)
        return f"Environment {noun} {names} not set. Set it with: export {exports}"


class UnsupportedTaskTypeError(ConfigError, RuntimeError):
    """A task of lm-eval asks or scores in a way that has no place here; its name is NeMo Evaluator's."""


class DatasetError(ConfigError):
    """A dataset is missing or broken."""


class RunError(NightjarError):
    """A run cannot start or cannot go on."""


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


class RunCancelledError(RunError):
    """Somebody stopped the run: what is finished is kept."""


class RunTimedOutError(RunError):
    """The run took longer than it may: what is finished is kept."""


class BudgetSpentError(RunError):
    """The run has spent what it may: what is finished is kept, and it goes on with a larger budget."""


class RunLockedError(RunError):
    """Another process writes this run directory."""


class RunDirectoryError(RunError):
    """A run directory is missing, cannot be written, or is damaged."""


class ResumeMismatchError(RunError):
    """The run at ``path`` is not the one asked for; ``differences``: field to (saved value, value asked for)."""

    def __init__(self, path: str, differences: Mapping[str, tuple[Any, Any]]) -> None:
        super().__init__(path, differences)
        self.path, self.differences = path, dict(differences)

    def __str__(self) -> str:
        pairs = self.differences.items()
        fields = "; ".join(f"{name}: saved {saved!r}, asked for {asked!r}" for name, (saved, asked) in pairs)
        return f"Cannot resume {self.path}: {fields}. Use the saved settings, or leave --resume out to start a new run."


class HubError(NightjarError):
    """The Hugging Face Hub does not take the results of a run."""


class ServiceError(NightjarError):
    """Prefect's server or another local service does not do its part."""


class ServiceAwayError(ServiceError):
    """Prefect's server does not answer, or has no time; later it may."""


class WarehouseError(NightjarError):
    """The warehouse refused a statement or cannot be opened."""


class MissingWarehouseError(WarehouseError):
    """Nothing was published there yet."""


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, what caused it, what caused that, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def error_text(error: BaseException) -> str:
    """Returns what an error says: its class where it says nothing, and the beginning of more than 10,000 characters."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code may raise what cannot be shown
        return type(error).__name__
    if len(text) > _LONGEST_TEXT:
        return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
    return text or type(error).__name__
