"""``StatefulToolEnv``: tools that get arguments from the rollout which the model neither sees nor sets."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Collection
from functools import cached_property
from typing import Any

from nightjar.calling import function_name
from nightjar.envs.tools.schema import convert_func_to_tool_def, filter_signature
from nightjar.envs.tools.tool_env import ToolEnv, ToolFunction
from nightjar.messages import Messages
from nightjar.rollout.state import State

__all__ = ["StatefulToolEnv", "filter_signature"]


class StatefulToolEnv(ToolEnv):
    """A ``ToolEnv`` whose ``update_tool_args`` completes the arguments of every call from the rollout's state.

    Tools with arguments to hide are added with ``add_tool``; the constructor's arguments are those of ``ToolEnv``.

    Example:
        >>> class Notebook(StatefulToolEnv):
        ...     def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        ...         return {**tool_args, "notes": state.setdefault("notes", [])}
        >>> def note(text: str, notes: list) -> str:
        ...     notes.append(text)
        ...     return f"{len(notes)} notes"
        >>> env = Notebook(dataset=[{"question": "What is worth noting?"}])
        >>> env.add_tool(note, args_to_skip=["notes"])
        >>> list(env.tool_defs[0].parameters["properties"])
        ['text']
    """

    @cached_property
    def skipped_args(self) -> dict[str, list[str]]:
        """The hidden arguments of each tool that was added with ``add_tool``."""
        return {}

    def add_tool(self, tool: ToolFunction, args_to_skip: Collection[str] = ()) -> None:
        """Offers a tool without some of its parameters, of any type; ``update_tool_args`` gives them their values."""
        definition = convert_func_to_tool_def(filter_signature(tool, args_to_skip))
        self._offer(tool, definition)
        self.skipped_args[definition.name] = list(args_to_skip)

    def remove_tool(self, tool: ToolFunction) -> None:
        """Offers a tool no longer; ``ValueError`` where it is not offered."""
        super().remove_tool(tool)
        self.skipped_args.pop(function_name(tool), None)

    @abstractmethod
    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: Messages, state: State, **kwargs: Any
    ) -> dict[str, Any] | Awaitable[dict[str, Any] | None] | None:
        """Returns the arguments that a tool is called with; sync, and then quick, or async.

        It is code of the environment: what it raises is not shown to the model but ends the rollout with that error.

        There may be no tool of that name. ``tool_args`` may be changed, and then None returned; ``messages`` is the
        conversation up to the message with the call.
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
