"""Classes of failures: what an error is about, and what to do about it.

An error is known by the names of its classes and of its causes', which are also what results keep of it
(``error_chain_repr``); where these do not tell, by what it says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from nightjar.errors import error_chain, error_text


class FailureClass(StrEnum):
    """What a failure is about; the value is its name in messages, filters and artifacts."""

    SECRET = "secret missing"  # noqa: S105 - the name of a class
    PERMISSION = "permission"
    DEPENDENCY = "dependency"
    RATE_LIMIT = "rate limit"
    TIMEOUT = "timeout"
    MODEL = "model API"
    INFRASTRUCTURE = "infrastructure"
    SETTINGS = "settings"
    JUDGE = "judge"
    ENVIRONMENT = "environment code"

    @property
    def advice(self) -> str:
        """Says what to do."""
        return _ADVICE[self]


_ADVICE = {
    FailureClass.SECRET: "Set the variable where the run happens, or give it to the run: a block of secrets "
    "('secrets'), or --custom-secrets with --hosted",
    FailureClass.PERMISSION: "Run it again with the flag that is named, if its code may do that",
    FailureClass.DEPENDENCY: "Name what is missing under 'dependencies' in the environment's pyproject.toml, or "
    "install it where the run happens",
    FailureClass.RATE_LIMIT: "Ask for less at once (--max-concurrent) or later, and retry; where an account is used "
    "up, fill it up",
    FailureClass.TIMEOUT: "Give it more time (--timeout-minutes, --request-timeout, --scoring-timeout) or fewer "
    "examples, and retry",
    FailureClass.MODEL: "Look at the endpoint, its key and the name of the model; after an outage, retry",
    FailureClass.INFRASTRUCTURE: "Look at the machine, its disk, network and services; then retry",
    FailureClass.SETTINGS: "Change what was asked for as the message says, and run it again",
    FailureClass.JUDGE: "Look at the judge: its model, its prompt, its max_tokens; then score the answers again: "
    "nightjar eval rescore RUN",
    FailureClass.ENVIRONMENT: "Correct the environment's code, and run it again; tracebacks: nightjar eval samples RUN "
    "--failed",
}

_NAMES = {
    FailureClass.SECRET: {"MissingKeyError"},
    FailureClass.PERMISSION: {"SandboxNotAllowedError"},
    FailureClass.DEPENDENCY: {
        "EnvironmentImportError", "EnvironmentNotFoundError", "EnvironmentPackageError", "EnvironmentVersionError",
        "ImportError", "MissingEnvironmentsError", "ModuleNotFoundError",
    },
    FailureClass.RATE_LIMIT: {"RateLimitError"},
    FailureClass.TIMEOUT: {
        "APITimeoutError", "CommandTimeoutError", "OverdueError", "RunTimedOutError", "TimeoutError",
    },
    FailureClass.MODEL: {
        "APIConnectionError", "APIError", "APIResponseValidationError", "APIStatusError", "AuthenticationError",
        "BadRequestError", "ConflictError", "EmptyModelResponseError", "InternalServerError",
        "InvalidModelResponseError", "ModelError", "NotFoundError", "OverlongPromptError", "PermissionDeniedError",
        "RunAbortedError", "UnprocessableEntityError",
    },
    FailureClass.INFRASTRUCTURE: {
        "BrokenPipeError", "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError",
        "ConnectionResetError", "HubError", "InfraError", "MemoryError", "RunDirectoryError", "RunLockedError",
        "SandboxCreationError", "SandboxError", "SandboxNotReadyError", "SandboxRefusedError", "ServerUnreachableError",
        "ServiceError", "TunnelError", "WarehouseError",
    },
    FailureClass.JUDGE: {"JudgeVerdictError"},
    FailureClass.ENVIRONMENT: {"DatasetError", "EnvironmentLoadError", "ScoringError", "ToolError"},
    FailureClass.SETTINGS: {"BudgetSpentError", "ConfigError", "ParameterTypeError", "ResumeMismatchError"},
}  # fmt: skip
"""Names of errors; a chain of them is of the first of these classes that has one of its names."""

_PHRASES = {
    FailureClass.SECRET: re.compile(
        r"\(--custom-secrets\) are gone|Environment variables? '\w+'.* not set"
        r"|KeyError\(?:? ?['\"]\w*(API_?KEY|TOKEN|SECRET|PASSWORD)\w*['\"]"
        r"|(API_?KEY|TOKEN|SECRET|PASSWORD)\w*\W+(is |are |must be )?(not set|missing|required)"
    ),
    FailureClass.PERMISSION: re.compile("--allow-(sandbox|instances)-access"),
    FailureClass.RATE_LIMIT: re.compile(r"Error code: 429|exceeded your current quota|insufficient_quota"),
    FailureClass.INFRASTRUCTURE: re.compile(r"No space left on device|process is gone|, is gone\.|exited with status"),
    FailureClass.SETTINGS: re.compile("Validation failed for|parameters failed with error"),
    FailureClass.ENVIRONMENT: re.compile("The code has ruined the state"),
}
"""What errors say whose names do not tell."""

_NAME = re.compile(r"(?:^|-> )([A-Za-z_]\w*)")
_LINE = "What to do"
_LINES = re.compile(rf"^{_LINE} \(([a-zA-Z ]+)\): ", re.MULTILINE)
_ABORTED, _CANCELLED = "RunAbortedError", ("RunCancelledError", "CancelledError")


def failure_class(error: str | BaseException) -> FailureClass:
    """Returns what an error is about.

    Args:
        error: an error; or of a recorded one the name of its class, the chain of names, or such a chain with what the
            errors say. What nothing is known of comes from the environment's code.

    Example:
        >>> failure_class("ModelError -> RateLimitError").value
        'rate limit'
        >>> failure_class("ScoringError -> ZeroDivisionError").value
        'environment code'
    """
    if isinstance(error, BaseException):
        chain = list(error_chain(error))
        names = {kind.__name__ for cause in chain for kind in type(cause).__mro__}
        text = " -> ".join(f"{type(cause).__name__}: {error_text(cause)}" for cause in chain)
    else:
        names, text = {*_NAME.findall(error)}, error
    said = (kind for kind, phrase in _PHRASES.items() if phrase.search(text))
    return next(said, None) or next((kind for kind, known in _NAMES.items() if known & names), FailureClass.ENVIRONMENT)


def class_called(name: str) -> FailureClass | None:
    """Returns the class that a name means, whichever way it is written; None where there is none.

    Example:
        >>> class_called("rate-limit").value, class_called("Model API").value, class_called("weather")
        ('rate limit', 'model API', None)
    """
    plain = name.replace("-", " ").replace("_", " ").casefold()
    return next((kind for kind in FailureClass if kind.casefold() == plain), None)


def class_of_chain(chain: str, examples: Mapping[str, str]) -> FailureClass:
    """Returns what errors are about whose chain of names a run counts; ``examples`` holds what one of them says."""
    return failure_class(f"{chain}: {examples.get(chain, '')}")


def recorded_failures(metadata: Mapping[str, Any]) -> list[FailureClass]:
    """Returns what a run failed with by class: what stopped it first, then what most rollouts failed with.

    Where it was stopped because rollouts failed alike, they say better why. Who cancels a run does not fail it.

    Args:
        metadata: what ``metadata.json`` says: its ``error``, ``errors`` and ``error_examples``.
    """
    counts: Counter[FailureClass] = Counter()
    for chain, count in (metadata.get("errors") or {}).items():
        counts[class_of_chain(chain, metadata.get("error_examples") or {})] += count
    found = [kind for kind, _ in counts.most_common()]
    error = metadata.get("error")
    if not error or error.startswith(_CANCELLED) or (error.startswith(_ABORTED) and found):
        return found
    return list(dict.fromkeys([failure_class(error), *found]))


def advice_line(kind: FailureClass) -> str:
    """Returns the line of a message that says what class a failure is of, and what to do; ``class_in`` reads it.

    Example:
        >>> advice_line(FailureClass.SETTINGS)
        'What to do (settings): Change what was asked for as the message says, and run it again'
    """
    return f"{_LINE} ({kind}): {kind.advice}"


def classes_in(message: str) -> set[FailureClass]:
    """Returns the classes that a message names in such lines; where it has none, the one that it is about."""
    found = {FailureClass(name) for name in _LINES.findall(message)}
    return found or {failure_class(message)}


def class_in(message: str) -> FailureClass | None:
    """Returns the class that a message names in its first such line; None where it names none."""
    found = _LINES.findall(message)
    return FailureClass(found[0]) if found else None
