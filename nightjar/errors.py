"""All errors that Nightjar raises on purpose, in one tree.

::

    NightjarError                     printed as one line, without a traceback
    ├── Error                         a rollout failed; its row records the error, the run continues
    │   ├── ModelError                no usable response from the endpoint
    │   │   ├── ContentFilteredError  the provider's content filter withheld the response
    │   │   └── InvalidModelResponseError   the response does not follow the protocol
    │   │       └── EmptyModelResponseError   the response is empty
    │   ├── OverlongPromptError       the prompt does not fit the model's context
    │   ├── ToolError                 a tool call failed
    │   │   ├── ToolParseError        the arguments are not valid JSON
    │   │   └── ToolCallError         the tool raised
    │   ├── InfraError                infrastructure failed; a retry may succeed
    │   │   ├── TunnelError           a tunnel to a sandbox failed
    │   │   └── SandboxError          a sandbox did not start or respond
    │   ├── ScoringError              the rubric could not score the rollout
    │   │   └── JudgeVerdictError     the judge's output contains no verdict, or several
    │   ├── MiddlewareError           the middleware of an endpoint failed
    │   └── GracefulError             a solver reached its limit; the rollout counts, with the reward 0
    │       └── TurnLimitError        the rollout reached the turn limit of the middleware
    ├── ConfigError                   the request is invalid
    │   ├── EnvironmentNotFoundError  environments are not installed
    │   ├── EnvironmentVersionError   another version of the environment is installed
    │   ├── EnvironmentImportError    a module that the environment imports is missing
    │   ├── EnvironmentLoadError      the environment's code raised, or returned no environment
    │   ├── EnvironmentPackageError   an environment package cannot be created, read or installed
    │   ├── MissingKeyError           the environment variable of an API key is not set
    │   ├── UnsupportedTaskTypeError  the type of an lm-eval task is not supported
    │   └── DatasetError              a dataset is missing or broken
    ├── RunError                      a run cannot start or continue
    │   ├── RunAbortedError           every request fails with the same permanent error
    │   ├── UnscoredError             groups of a shard could not be scored; a retry may succeed
    │   ├── RunCancelledError         the run was stopped
    │   ├── RunTimedOutError          the run exceeded its time limit
    │   ├── BudgetSpentError          the run exceeded its budget
    │   ├── RunLockedError            another process is writing to the run directory
    │   ├── RunDirectoryError         a run directory is missing, unwritable or damaged
    │   │   └── NewerRunDirectoryError   a newer Nightjar wrote the run directory
    │   ├── IncompleteRunError        the flow ``evaluate`` ended with missing rollouts (nightjar.evaluation)
    │   └── ResumeMismatchError       the run on disk has other settings
    ├── FileLockedError               another process holds a lock file for too long
    ├── HubError                      the Hugging Face Hub does not accept the results
    ├── ServiceError                  Prefect's server or a local service failed
    │   └── ServiceAwayError          the server is unavailable; the call can be retried
    └── WarehouseError                the warehouse refused a statement or cannot be opened
        ├── MissingWarehouseError     no warehouse exists at this place yet
        └── RunConflictError          the warehouse contains another run with this id

The names below ``Error`` are those of verifiers 0.1, so that environments can catch them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_VALUE = 200


class NightjarError(Exception):
    """The base of all errors that Nightjar raises on purpose."""


class Error(NightjarError):
    """A rollout failed. Raised in environment code, it becomes the rollout's error."""


class ModelError(Error):
    """The endpoint gave no usable response; the provider's error is the cause (``__cause__``)."""


class ContentFilteredError(ModelError):
    """The provider's content filter refused the prompt or withheld the response; a retry does not help."""


class InvalidModelResponseError(ModelError):
    """The response does not follow the endpoint's protocol."""


class EmptyModelResponseError(InvalidModelResponseError):
    """The response has no text, reasoning or tool calls."""


class OverlongPromptError(Error):
    """The prompt does not fit the model's context."""


class ToolError(Error):
    """A tool call failed."""


class ToolParseError(ToolError):
    """The arguments of a tool call are not valid JSON."""


class ToolCallError(ToolError):
    """A tool raised an error, which is the cause."""


class InfraError(Error):
    """The infrastructure of a rollout failed; a retry may succeed."""


class TunnelError(InfraError):
    """A tunnel to a sandbox failed."""


class SandboxError(InfraError):
    """A sandbox did not start or did not respond."""


class ScoringError(Error):
    """The rubric could not score the rollout; its error is the cause."""


class JudgeVerdictError(ScoringError):
    """The judge's output contains no verdict, or several."""


class GracefulError(Error):
    """A solver reached its limit of turns, tokens or cost. The rollout counts, with the reward 0."""


class TurnLimitError(GracefulError):
    """A rollout reached its turn limit; the conversation so far is scored."""


class MiddlewareError(Error):
    """The middleware of an endpoint raised an error (the cause), or returned a wrong type."""


class ConfigError(NightjarError):
    """The request is invalid: a setting, an argument or a file."""


class EnvironmentNotFoundError(ConfigError, ValueError):
    """Environments are not installed.

    The message suggests similar names, but no installation by name: a stranger may own a package with a misspelt name.
    """

    def __init__(self, env_ids: Sequence[str], available: Sequence[str]) -> None:
        super().__init__(env_ids, available)
        self.env_ids, self.available = list(env_ids), list(available)

    def __str__(self) -> str:
        near = {env_id: difflib.get_close_matches(env_id, self.available, n=1) for env_id in self.env_ids}
        asked = ", ".join(
            f"{env_id!r} (did you mean {found[0]!r}?)" if found else repr(env_id) for env_id, found in near.items()
        )
        verb, noun = ("is", "Environment") if len(near) == 1 else ("are", "Environments")
        names = ", ".join(self.available) or "none"
        return (
            f"{noun} {asked} {verb} not installed. Installed here: {names}. To install one from its folder: "
            "nightjar env install PATH"
        )


class EnvironmentVersionError(ConfigError, ValueError):
    def __init__(self, env_id: str, found: str) -> None:
        super().__init__(env_id, found)
        self.env_id, self.found = env_id, found

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} was asked for, found {self.found}. Try: nightjar env install {self.env_id}"


class EnvironmentImportError(ConfigError, ValueError):
    """An environment's import failed (the error is the cause). ``hint`` is empty if ``reason`` says what to do."""

    def __init__(self, env_id: str, reason: str, hint: str) -> None:
        super().__init__(env_id, reason, hint)
        self.env_id, self.reason, self.hint = env_id, reason, hint

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} cannot be imported: {self.reason}{self.hint and f'. {self.hint}'}"


class EnvironmentLoadError(ConfigError, RuntimeError):
    """Loading an environment raised an error (the cause) or returned no environment; ``problem`` says which."""

    def __init__(self, env_id: str, problem: str) -> None:
        super().__init__(env_id, problem)
        self.env_id, self.problem = env_id, problem

    def __str__(self) -> str:
        return f"Environment {self.env_id!r} {self.problem}"


class EnvironmentPackageError(ConfigError):
    """An environment package cannot be created, read or installed."""


TYPED_HEADER = "NIGHTJAR_HEADER_"
"""Prefix of the variables that hold header values which were typed in full, not as ``$NAME``."""


class MissingKeyError(ConfigError, ValueError):
    """The environment variables ``keys``, which hold credentials, are not set. ``needed_by`` says what needs them."""

    def __init__(self, keys: Sequence[str], needed_by: str = "") -> None:
        super().__init__(keys, needed_by)
        self.keys, self.needed_by = list(keys), needed_by

    def __str__(self) -> str:
        typed = [key.removeprefix(TYPED_HEADER) for key in self.keys if key.startswith(TYPED_HEADER)]
        if typed:
            headers = " ".join(f"--header '{name.replace('_', '-')}: …'" for name in typed)
            return f"The value of a header is not stored with a run. Give it again: {headers}"
        names = ", ".join(repr(key) for key in self.keys)
        noun = "variable" if len(self.keys) == 1 else "variables"
        exports = " ".join(f'{key}="..."' for key in self.keys)
        owner = f" of {self.needed_by}" if self.needed_by else ""
        return f"Environment {noun} {names}{owner} not set. Set it with: export {exports}"


class UnsupportedTaskTypeError(ConfigError, RuntimeError):
    """The type of an lm-eval task is not supported. NeMo Evaluator has a class with the same name."""


class DatasetError(ConfigError):
    """A dataset is missing or broken."""


class RunError(NightjarError):
    """A run cannot start or continue."""


class RunAbortedError(RunError):
    """Every request fails with the same permanent error; if ``is_outage``, the endpoint responded before."""

    def __init__(self, message: str, is_outage: bool = False) -> None:
        super().__init__(message, is_outage)
        self.is_outage = is_outage

    def __str__(self) -> str:
        return str(self.args[0])


class UnscoredError(RunError):
    """Groups of a shard could not be scored because a judge, sandbox or service failed; their rollouts failed."""


class RunCancelledError(RunError):
    """The run was stopped; finished rollouts are kept."""


class RunTimedOutError(RunError):
    """The run exceeded its time limit; finished rollouts are kept."""


class BudgetSpentError(RunError):
    """The run exceeded its budget; finished rollouts are kept, and it can be resumed with a larger budget."""


class RunLockedError(RunError):
    """Another process is writing to this run directory."""


class RunDirectoryError(RunError):
    """A run directory is missing, cannot be written, or is damaged."""


class NewerRunDirectoryError(RunDirectoryError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(path, found, known)
        self.path, self.found, self.known = path, found, known

    def __str__(self) -> str:
        return (
            f"The run directory {self.path!r} has version {self.found}; this Nightjar knows version {self.known}. "
            "Upgrade Nightjar: pip install --upgrade nightjar-evals"
        )


class ResumeMismatchError(RunError, ValueError):
    """The run at ``path`` has other settings; ``differences`` maps a field to (saved value, requested value)."""

    def __init__(self, path: str, differences: Mapping[str, tuple[Any, Any]]) -> None:
        super().__init__(path, differences)
        self.path, self.differences = path, dict(differences)

    def __str__(self) -> str:
        pairs = self.differences.items()
        fields = "; ".join(f"{name}: saved {saved!r}, asked for {asked!r}" for name, (saved, asked) in pairs)
        advice = "Use the saved settings, or leave --resume out to start a new run."
        return f"Cannot resume {self.path}: metadata mismatch ({fields}). {advice}"


class FileLockedError(NightjarError, TimeoutError):
    """Another process holds a lock file for longer than this process waits."""


class HubError(NightjarError):
    """The Hugging Face Hub does not accept the results of a run."""


class ServiceError(NightjarError):
    """Prefect's server or another local service failed."""


class ServiceAwayError(ServiceError):
    """The Prefect server is unavailable; the call can be retried."""


class WarehouseError(NightjarError):
    """The warehouse refused a statement or cannot be opened."""


class MissingWarehouseError(WarehouseError):
    """No warehouse exists at this place yet."""


class RunConflictError(WarehouseError):
    """A warehouse or folder holds another run with this id; ``differences`` maps fields to (existing, new) values."""

    def __init__(self, run_id: str, place: str, differences: Mapping[str, tuple[Any, Any]], remedy: str = "") -> None:
        super().__init__(run_id, place, differences, remedy)
        self.run_id, self.place, self.differences, self.remedy = run_id, place, dict(differences), remedy

    def __str__(self) -> str:
        pairs = self.differences.items()
        fields = "; ".join(f"{name}: held {_short(held)}, offered {_short(offered)}" for name, (held, offered) in pairs)
        refused = f"{self.place} holds another run {self.run_id!r}: {fields}. Nothing was published"
        return f"{refused}. {self.remedy}" if self.remedy else refused


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, its cause, the cause of its cause, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
