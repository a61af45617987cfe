"""``ToolEnv``: the model calls Python functions until it answers without calling one."""

from __future__ import annotations

import inspect
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from nightjar.calling import call, function_name
from nightjar.calling.decorators import stop
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.envs.tools.schema import convert_func_to_tool_def, is_valid_tool_content_parts
from nightjar.errors import ToolCallError, ToolError, ToolParseError
from nightjar.messages import Messages, Tool, ToolMessage
from nightjar.rollout.state import State
from nightjar.rubrics import Rubric

__all__ = ["ToolEnv", "ToolFunction", "ToolMonitorRubric", "convert_func_to_tool_def", "is_valid_tool_content_parts"]

logger = logging.getLogger(__name__)

ToolFunction = Callable[..., Any]

_STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class ToolMonitorRubric(Rubric):
    """Records ``total_tool_calls``, and ``{tool}_calls`` of each of ``tool_names``; neither counts in the reward.

    Example:
        >>> rubric = ToolMonitorRubric(["search"])
        >>> [func.__name__ for func in rubric.funcs]
        ['total_tool_calls', 'search_calls']
    """

    def __init__(self, tool_names: Iterable[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._counts: dict[str, Callable[..., Any]] = {}
        self.add_metric(self.total_tool_calls)
        for name in tool_names or ():
            self.add_tool_metric(name)

    @property
    def tool_names(self) -> list[str]:
        """The tools that are counted."""
        return list(self._counts)

    def add_tool_metric(self, tool_name: str) -> None:
        """Counts the calls of a tool from now on."""
        if tool_name not in self._counts:
            count = self._counts[tool_name] = self.get_tool_call_count_func(tool_name)
            self.add_metric(count)

    def remove_tool_metric(self, tool_name: str) -> None:
        """Counts the calls of a tool no longer."""
        if (count := self._counts.pop(tool_name, None)) is not None:
            position = self.funcs.index(count)
            del self.funcs[position], self.weights[position]

    async def total_tool_calls(self, completion: Messages) -> int:
        """Counts the calls of all tools, also those that failed."""
        return len(_called(completion))

    def get_tool_call_count_func(self, tool_name: str) -> Callable[[Messages], Awaitable[int]]:
        """Returns a metric called ``{tool_name}_calls``."""

        async def count(completion: Messages) -> int:
            return _called(completion).count(tool_name)

        count.__name__ = f"{tool_name}_calls"
        return count


class ToolEnv(MultiTurnEnv):
    """Lets the model call Python functions; ends when it answers without a call, or after ``max_turns``.

    Calls of one message run one after another, and each becomes a tool message: the text of what the function
    returned, or its content parts (a list of ``{"type": "text"}`` and ``{"type": "image_url"}``). What goes wrong
    (bad JSON, no such tool, an exception) becomes a tool message too, so that the model can try again.

    Args:
        tools: functions, methods or callables. Async ones run in the event loop, others in threads, where they may
            block but not use what belongs to another thread, such as a ``sqlite3`` connection. Schemas come from
            their type hints and docstrings, see ``convert_func_to_tool_def``.
        max_turns: model calls at the most; -1 for no limit.
        error_formatter: makes the text of a tool message from an exception.
        stop_errors: exceptions that end the rollout with an error instead: ``ToolParseError`` where the arguments
            cannot be read, ``ToolCallError`` where the call failed; the exception is the cause.
        **kwargs: as for ``MultiTurnEnv``.

    Attributes:
        tool_defs: what the model is offered.
        tool_map: from a name to its function.
        tool_monitor_rubric: records ``total_tool_calls``, and ``{tool}_calls`` of each tool.

    Example:
        >>> import asyncio
        >>> def square(x: int) -> int:
        ...     return x * x
        >>> env = ToolEnv(tools=[square], dataset=[{"question": "What is 4 squared?"}])
        >>> asyncio.run(env.call_tool("square", {"x": 4}, "call_1")).content
        '16'
    """

    def __init__(
        self,
        tools: Sequence[ToolFunction] | None = None,
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = str,
        stop_errors: Sequence[type[Exception]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **kwargs)
        self.tools: list[ToolFunction] = []
        self.tool_defs: list[Tool] = []
        self.tool_map: dict[str, ToolFunction] = {}
        self.error_formatter = error_formatter
        self.stop_errors = list(stop_errors or [])
        self.tool_monitor_rubric = ToolMonitorRubric()
        self.add_rubric(self.tool_monitor_rubric)
        for tool in tools or []:
            ToolEnv.add_tool(self, tool)

    def add_tool(self, tool: ToolFunction) -> None:
        """Offers another tool as well; one of the same name is replaced."""
        self._offer(tool, convert_func_to_tool_def(tool))

    def remove_tool(self, tool: ToolFunction) -> None:
        """Offers a tool no longer; ``ValueError`` where it is not offered."""
        name = function_name(tool)
        if tool not in self.tools:
            raise ValueError(f"Tool {name!r} is not offered. Choose one of: {', '.join(self.tool_map) or 'none'}")
        self.tools.remove(tool)
        self.tool_defs = [offered for offered in self.tool_defs if offered.name != name]
        self.tool_map.pop(name, None)
        self.tool_monitor_rubric.remove_tool_metric(name)

    def _offer(self, tool: ToolFunction, definition: Tool) -> None:
        if definition.name in self.tool_map:
            logger.warning("Two tools are called %r: the later one replaces the earlier one", definition.name)
            self.remove_tool(self.tool_map[definition.name])
        self.tools.append(tool)
        self.tool_defs.append(definition)
        self.tool_map[definition.name] = tool
        self.tool_monitor_rubric.add_tool_metric(definition.name)

    @stop
    async def no_tools_called(self, state: State) -> bool:
        """Stops when the model answered without calling a tool."""
        said = state["trajectory"][-1]["completion"] if state["trajectory"] else []
        return bool(said) and said[-1]["role"] == "assistant" and not said[-1].get("tool_calls")

    async def call_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        tool_call_id: str,
        **kwargs: Any,  # noqa: ARG002
    ) -> ToolMessage:
        """Calls a tool and returns its result as a message; raises what it raises, ``KeyError`` where there is none."""
        tool = self.tool_map[tool_name]
        positional, named = _spread(tool, tool_args)
        result = await call(tool, *positional, **named)
        content = result if is_valid_tool_content_parts(result) else str(result)
        return ToolMessage(content=content, tool_call_id=tool_call_id)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Makes the calls that the last message asks for, one after another, and returns a tool message for each.

        ``ToolError`` where it asks for none, or one failed with one of ``stop_errors``.
        """
        calls = messages[-1].get("tool_calls") if messages else None
        if not calls:
            raise ToolError(
                f"env_response() of {type(self).__name__!r} needs tool calls, found {messages[-1:]!r}. "
                "Answer messages without tool calls before it is called."
            )
        return [await self._answer(asked, messages, state, **kwargs) for asked in calls]

    async def _answer(self, asked: Mapping[str, Any], messages: Messages, state: State, **kwargs: Any) -> Any:
        try:
            arguments = _parse_arguments(asked["arguments"])
        except Exception as error:  # noqa: BLE001 - the model sees what is wrong
            return self._failure(asked["id"], error, ToolParseError)
        arguments = await self._prepare_arguments(asked["name"], arguments, messages, state, **kwargs)
        try:
            return await self.call_tool(asked["name"], arguments, asked["id"])
        except Exception as error:  # noqa: BLE001 - tools are user code
            return self._failure(asked["id"], error, ToolCallError)

    async def _prepare_arguments(
        self,
        tool_name: str,  # noqa: ARG002 - for subclasses
        tool_args: dict[str, Any],
        messages: Messages,  # noqa: ARG002
        state: State,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Returns the arguments that a tool is called with; subclasses may change the model's."""
        return tool_args

    def _should_stop_for_error(self, error: Exception) -> bool:
        return isinstance(error, tuple(self.stop_errors))

    def _failure(self, tool_call_id: str, error: Exception, stop_error: type[ToolError]) -> ToolMessage:
        if self._should_stop_for_error(error):
            raise stop_error(f"{type(error).__name__}: {error}") from error
        return ToolMessage(content=self.error_formatter(error), tool_call_id=tool_call_id)


def _parse_arguments(text: str) -> dict[str, Any]:
    arguments = json.loads(text)
    if not isinstance(arguments, dict):
        raise ValueError(  # noqa: TRY004 - what programs expect in stop_errors
            f"Expected tool arguments to be a dict, got {type(arguments).__name__}: {arguments}"
        )
    return arguments


def _spread(tool: ToolFunction, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns arguments as they are passed: a model writes ``*args`` as a list and ``**kwargs`` as an object."""
    code = getattr(tool, "__code__", None)
    if code is None or not (code.co_flags & _STARRED or code.co_posonlyargcount):
        return (), arguments
    signature = inspect.signature(tool)
    known = {name: value for name, value in arguments.items() if name in signature.parameters}
    bound = inspect.BoundArguments(signature, OrderedDict(known))
    bound.apply_defaults()
    return bound.args, {**bound.kwargs, **{name: arguments[name] for name in arguments.keys() - known.keys()}}


def _called(completion: Messages) -> list[str]:
    """Returns the names of the tools that a model called, in order."""
    said = [message for message in completion if message["role"] == "assistant"]
    return [call["name"] for message in said for call in message.get("tool_calls") or ()]
