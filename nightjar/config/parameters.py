"""The fields of ``RunConfig`` as a person fills them in: on a command line, or in a form made of a signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from copy import copy
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Concatenate, NamedTuple, TypeAlias, TypeVar, get_args

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.fields import FieldInfo

from nightjar.config.run_config import LEFT_EMPTY, RunConfig, parse_run_config, refuse_secrets

T = TypeVar("T")
AsyncFunction: TypeAlias = Callable[..., Coroutine[Any, Any, T]]

GROUPS = {
    "env_id": "Most used",
    "base_url": "Model",
    "env_source": "Environment",
    "max_concurrent": "Pace",
    "tags": "Results",
    "env_dir_path": "Rare",
}
"""The field that each group begins with; what is needed often comes first."""


class After(NamedTuple):
    """Marks a parameter that a form shows after another; one that is not marked is shown last."""

    parameter: str


def parameters(kind: type[RunConfig] = RunConfig) -> dict[str, FieldInfo]:
    """Returns the fields of a configuration as they are filled in: empty where the environment says what they are.

    Example:
        >>> field = parameters()["num_examples"]
        >>> field.default, field.description
        (None, "How many examples; -1 for all (default: what the environment's pyproject.toml says, else 5).")
    """
    known = kind.model_fields
    return {
        name: _left_empty(field, LEFT_EMPTY[name]) if name in LEFT_EMPTY else field for name, field in known.items()
    }


def plain_type(field: FieldInfo) -> Any:
    """Returns the type of a field where it is not None."""
    kinds = get_args(field.annotation)
    return kinds[0] if NoneType in kinds else field.annotation


def groups(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Gives each field with the group that it is shown in.

    Example:
        >>> dict(groups(RunConfig.model_fields))["max_retries"]
        'Pace'
    """
    group = ""
    for name in names:
        group = GROUPS.get(name, group)
        yield name, group


def _left_empty(field: FieldInfo, source: str) -> FieldInfo:
    empty = copy(field)
    empty.annotation, empty.default = field.annotation | None, None  # type: ignore[operator, assignment]
    note = source.format(default=field.default)
    empty.description = f"{(field.description or '').rstrip('.')} (default: {note})."
    return empty


def takes_fields(
    kind: type[RunConfig] = RunConfig,
) -> Callable[[Callable[Concatenate[Any, ...], Coroutine[Any, Any, T]]], AsyncFunction[T]]:
    """Gives a function of a configuration, its first parameter ``config``, the fields of that as parameters of its own.

    For what makes a form of a function: it gets the fields' types, defaults, bounds and groups from the signature, and
    their texts from the docstring, where the line of ``config`` makes way for a line for each field.

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
        flat = {name: _parameter(name, field) for name, field in fields.items()}
        taking_fields.__signature__ = _Form(_in_groups(_placed(flat, others)))  # type: ignore[attr-defined]
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
    plain = plain_type(field)
    annotation: Any = Annotated[plain, *field.metadata] if field.metadata else plain
    if default is None:
        default = inspect.Parameter.empty
        annotation = Annotated[annotation, WrapValidator(_unless_none), Field(default_factory=NoneType)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _unless_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return None if value is None else check(value)


def _placed(flat: dict[str, inspect.Parameter], others: list[inspect.Parameter]) -> list[inspect.Parameter]:
    order = [*flat]
    for other in others:
        marks = [mark.parameter for mark in get_args(other.annotation) if isinstance(mark, After)]
        order.insert(order.index(marks[0]) + 1 if marks else len(order), other.name)
        flat[other.name] = other.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    return [flat[name] for name in order]


def _in_groups(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Writes the group before the name of each parameter that is not among the most used: a form has no headings."""
    group_by_name = dict(groups(parameter.name for parameter in parameters))
    first, *_ = GROUPS.values()
    return [
        parameter if group_by_name[parameter.name] == first else _titled(parameter, group_by_name[parameter.name])
        for parameter in parameters
    ]


def _titled(parameter: inspect.Parameter, group: str) -> inspect.Parameter:
    title = Field(json_schema_extra={"title": f"{group}: {parameter.name}"})
    return parameter.replace(annotation=Annotated[parameter.annotation, title])
