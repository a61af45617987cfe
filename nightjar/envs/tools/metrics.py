"""``ToolMonitorRubric``: how often a rollout called its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nightjar.messages import Messages
from nightjar.rubrics import Rubric


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


def _called(completion: Messages) -> list[str]:
    """Returns the names of the tools that a model called, in order."""
    said = [message for message in completion if message["role"] == "assistant"]
    return [call["name"] for message in said for call in message.get("tool_calls") or ()]
