"""``StatefulToolEnv``: tools that get arguments from the rollout which the model neither sees nor sets."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from nightjar.envs.tools.schema import convert_func_to_tool_def, filter_signature
from nightjar.envs.tools.tool_env import ToolEnv, ToolFunction
from nightjar.messages import Messages
from nightjar.rollout.state import State

__all__ = ["StatefulToolEnv", "filter_signature"]


class StatefulToolEnv(ToolEnv):
    """A ``ToolEnv`` whose ``update_tool_args`` completes the arguments of every call from the rollout's state.

    Args:
        tools, max_turns, error_formatter, stop_errors, **kwargs: as for ``ToolEnv``. Tools with arguments to hide are
            added with ``add_tool``.

    Attributes:
        skipped_args: the hidden arguments of each tool that was added with ``add_tool``.

    Example:
        >>> import asyncio
        >>> from nightjar.messages import AssistantMessage, ToolCall
        >>> class Notebook(StatefulToolEnv):
        ...     def __init__(self, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.add_tool(self.note, args_to_skip=["notes"])
        ...
        ...     async def note(self, text: str, notes: list) -> str:
        ...         notes.append(text)
        ...         return f"{len(notes)} notes"
        ...
        ...     def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        ...         return {**tool_args, "notes": state["notes"]}
        >>> env = Notebook(dataset=[{"question": "What is worth noting?"}])
        >>> list(env.tool_defs[0].parameters["properties"])
        ['text']
        >>> call = ToolCall(id="call_1", name="note", arguments='{"text": "milk"}')
        >>> answer = env.env_response([AssistantMessage(tool_calls=[call])], State(notes=["bread"]))
        >>> asyncio.run(answer)[0].content
        '2 notes'
    """

    def __init__(
        self,
        tools: Sequence[ToolFunction] | None = None,
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = str,
        stop_errors: Sequence[type[Exception]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tools=tools, max_turns=max_turns, error_formatter=error_formatter, stop_errors=stop_errors, **kwargs
        )
        self.skipped_args: dict[str, list[str]] = {}

    def add_tool(self, tool: ToolFunction, args_to_skip: Collection[str] = ()) -> None:
        """Offers a tool without some of its parameters; ``update_tool_args`` gives them their values.

        Hidden parameters may have any type; no trace of them is in the schema. See the class for an example.
        """
        definition = convert_func_to_tool_def(filter_signature(tool, args_to_skip))
        self._offer(tool, definition)
        self.skipped_args[definition.name] = list(args_to_skip)

    def remove_tool(self, tool: ToolFunction) -> None:
        """Offers a tool no longer.

        Raises:
            ValueError: it is not offered.
        """
        super().remove_tool(tool)
        self.skipped_args = {name: args for name, args in self.skipped_args.items() if name in self.tool_map}

    @abstractmethod
    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: Messages, state: State, **kwargs: Any
    ) -> dict[str, Any] | Awaitable[dict[str, Any] | None] | None:
        """Returns the arguments that a tool is called with; sync, and then quick, or async.

        It is code of the environment: what it raises is not shown to the model but ends the rollout with that error.

        Args:
            tool_name: as the model wrote it; there may be no such tool.
            tool_args: what the model wrote. May be changed, and then None returned.
            messages: the conversation up to the message with the call.
            state: of the rollout; may be changed.
            **kwargs: what ``env_response`` was called with.
        """

    async def _prepare_arguments(
        self, tool_name: str, tool_args: dict[str, Any], messages: Messages, state: State, **kwargs: Any
    ) -> dict[str, Any]:
        updated = self.update_tool_args(tool_name, tool_args, messages, state, **kwargs)
        if inspect.isawaitable(updated):
            updated = await updated
        if updated is None:
            return tool_args
        if not isinstance(updated, dict):
            raise TypeError(f"update_tool_args() of {type(self).__name__!r} returned {updated!r}, expected a dict")
        return updated
