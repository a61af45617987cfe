"""The fields of ``RunConfig`` as a person fills them in: on a command line, or in a form made of a signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from copy import copy
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Concatenate, TypeAlias, TypeVar, get_args

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from nightjar.config.run_config import RunConfig, parse_run_config, refuse_secrets
from nightjar.packages import EvalDefaults

T = TypeVar("T")
AsyncFunction: TypeAlias = Callable[..., Coroutine[Any, Any, T]]
_Nothing: TypeAlias = SkipJsonSchema[None]


def parameters(kind: type[RunConfig] = RunConfig) -> dict[str, FieldInfo]:
    """Returns the fields of a configuration as they are filled in: empty where the environment says what they are.

    Example:
        >>> field = parameters()["num_examples"]
        >>> field.default, field.description
        (None, "Examples; -1 for all (default: what the environment's pyproject.toml says, else 5).")
    """
    own = EvalDefaults.model_fields
    return {name: _left_empty(field) if name in own else field for name, field in kind.model_fields.items()}


def _left_empty(field: FieldInfo) -> FieldInfo:
    empty = copy(field)
    note = f"(default: what the environment's pyproject.toml says, else {field.default})"
    empty.annotation, empty.default = field.annotation | None, None  # type: ignore[operator, assignment]
    empty.description = f"{(field.description or '').rstrip('.')} {note}."
    return empty


def takes_fields(
    kind: type[RunConfig] = RunConfig,
) -> Callable[[Callable[Concatenate[Any, ...], Coroutine[Any, Any, T]]], AsyncFunction[T]]:
    """Gives a function of a configuration, its first parameter ``config``, the fields of that as parameters of its own.

    For what makes a form of a function: it gets the fields' types, defaults and bounds from the signature, and their
    texts from the docstring, where the line of ``config`` makes way for a line for each field.

    Raises:
        ConfigError: the decorated function was called with a value that is wrong; the field is named.
    """
    fields = parameters(kind)

    def decorate(function: Callable[Concatenate[Any, ...], Coroutine[Any, Any, T]]) -> AsyncFunction[T]:
        @wraps(function)
        async def taking_fields(**given: Any) -> T:
            values = {name: given.pop(name) for name in fields if name in given}
            return await function(parse_run_config(values, kind), **given)

        signature = inspect.signature(function, eval_str=True)
        _, *others = signature.parameters.values()
        flat = [_parameter(name, field) for name, field in fields.items()]
        flat += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
        taking_fields.__signature__ = _Form(flat)  # type: ignore[attr-defined]
        texts = "\n".join(f"    {name}: {field.description}" for name, field in fields.items())
        lines = (inspect.getdoc(function) or "").splitlines()
        taking_fields.__doc__ = "\n".join(texts if line.startswith("    config: ") else line for line in lines)
        return taking_fields

    return decorate


class _Form(inspect.Signature):
    """A signature of which every parameter may be left out: what then holds is the configuration's to say."""

    def bind(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        """Binds the arguments that there are, unless one is a secret: Prefect writes them down next."""
        refuse_secrets(kwargs)
        return self.bind_partial(*args, **kwargs)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """Returns a field as a parameter; one that may be None has one plain type and no default in a form's schema.

    The form of Prefect shows it empty then. A default of None it would send back, and be told that it is no number.
    """
    default = inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
    plain = get_args(field.annotation)[0] if default is None else field.annotation
    annotation: Any = Annotated[plain, *field.metadata] if field.metadata else plain
    if default is None:
        default, annotation = inspect.Parameter.empty, Annotated[annotation | _Nothing, Field(default_factory=NoneType)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
