"""The flags of ``nightjar eval run`` that are fields of ``RunConfig``: one a field, made from the field.

``FLAGS`` says what a flag has besides: short names, or another long one. A field without an entry has its name with
hyphens as its flag; a flag that is no field is a parameter of ``eval_run``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from nightjar.config import RunConfig, groups, parameters, plain_type

Command: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class Flag:
    """What a field's flag has besides its long name.

    Attributes:
        names: short names; a long one among them takes the place of the field's.
        metavar: what stands for the value in the help; None for its type.
        parser: from what is typed to the value; None where the type says it.
    """

    names: tuple[str, ...] = ()
    metavar: str | None = None
    parser: Callable[[str], Any] | None = None


def json_object(text: str) -> dict[str, Any]:
    """Parses the value of an option that takes a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"at character {error.pos + 1} of {text!r}"
        raise typer.BadParameter(f"not valid JSON: {error.msg} {place}") from None
    except RecursionError:
        raise typer.BadParameter("brackets are nested too deeply") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"expected a JSON object such as '{{\"key\": 1}}', found {text!r}")
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


FLAGS = {
    "env_id": Flag(metavar="ENV"),
    "model": Flag(("-m",)),
    "provider": Flag(("-p",)),
    "base_url": Flag(("--api-base-url", "-b")),
    "api_key_var": Flag(("-k",)),
    "max_tokens": Flag(("-t",), metavar="N"),
    "temperature": Flag(("-T",), metavar="N"),
    "sampling_args": Flag(("-S",)),
    "env_args": Flag(("-a",)),
    "extra_env_kwargs": Flag(("-x",)),
    "num_examples": Flag(("-n",)),
    "rollouts_per_example": Flag(("-r",)),
    "max_concurrent": Flag(("-c",)),
    "request_timeout": Flag(metavar="SECONDS"),
    "scoring_timeout": Flag(metavar="SECONDS"),
    "interleave_scoring": Flag(("-N",)),
    "independent_scoring": Flag(("-i",)),
    "state_columns": Flag(("-C",), metavar="NAME,NAME", parser=_names),
    "tags": Flag(("--tag",), metavar="WORD"),
}


def flag_names(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Returns the flags of a field, the long one first; of a field that must be given, what its argument is called."""
    known = FLAGS.get(name, Flag())
    if field.is_required():
        return (known.metavar or name.upper(),)
    has_long_name = any(flag.startswith("--") for flag in known.names)
    long_name = f"--{'no-' * _is_on(field)}{name.replace('_', '-')}"
    return known.names if has_long_name else (long_name, *known.names)


def _is_typed(name: str, context: typer.Context) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _is_on(field: FieldInfo) -> bool:
    """Says whether a flag switches the field off, as it is on without one."""
    return field.default is True


def takes_flags(kind: type[RunConfig] = RunConfig) -> Callable[[Command], Command]:
    """Gives a command a flag for each field of a configuration; those that were typed are its first parameter."""
    fields = parameters(kind)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def taking_flags(context: typer.Context, **given: Any) -> None:
            values = {name: given.pop(name) for name in fields}
            typed = {name: value for name, value in values.items() if _is_typed(name, context)}
            command({name: not value if _is_on(fields[name]) else value for name, value in typed.items()}, **given)

        signature = inspect.signature(command, eval_str=True)
        _, *others = signature.parameters.values()
        flags = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        flags += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **_option(name, fields)) for name in fields]
        taking_flags.__signature__ = signature.replace(parameters=[*flags, *others])  # type: ignore[attr-defined]
        return taking_flags

    return decorate


def _option(name: str, fields: dict[str, FieldInfo]) -> dict[str, Any]:
    """Returns the type of a field's option, with its help, and its default."""
    field, known = fields[name], FLAGS.get(name, Flag())
    if field.is_required():
        argument = typer.Argument(metavar=known.metavar, help=field.description, show_default=False)
        return {"annotation": Annotated[field.annotation, argument]}
    is_json = get_origin(field.annotation) is dict
    option = typer.Option(
        *flag_names(name, field),
        help=_help(field, known),
        rich_help_panel=dict(groups(fields))[name],
        parser=json_object if is_json else known.parser,
        metavar="JSON" if is_json else known.metavar,
    )
    default = None if field.default_factory else field.default
    return {"annotation": Annotated[_typed(field, known), option], "default": False if _is_on(field) else default}


def _typed(field: FieldInfo, known: Flag) -> Any:
    """Returns what the command line makes of a value: the configuration checks it further."""
    is_text = known.parser is not None or get_origin(plain_type(field)) is Literal
    return str | None if is_text else field.annotation | None  # type: ignore[operator]


def _help(field: FieldInfo, known: Flag) -> str:
    text = field.description or ""
    if _is_on(field):
        return f"Switch off: {text}"
    if get_origin(plain_type(field)) is Literal:
        return f"{text} One of: {', '.join(get_args(plain_type(field)))}."
    is_repeated = get_origin(field.annotation) is list and known.parser is None
    return f"{text} May be given several times." if is_repeated else text
