"""``ToolMonitorRubric``: how often a rollout called its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from nightjar.messages import Messages
from nightjar.rubrics import Rubric


class ToolMonitorRubric(Rubric):
    """Records ``total_tool_calls``, and ``{tool}_calls`` of each tool; neither counts in the reward.

    Args:
        tool_names: tools to count from the start.
        **kwargs: as for ``Rubric``.

    Attributes:
        tool_names: the tools that are counted.

    Example:
        >>> rubric = ToolMonitorRubric(["search"])
        >>> [func.__name__ for func in rubric.funcs]
        ['total_tool_calls', 'search_calls']
    """

    def __init__(self, tool_names: Iterable[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tool_names: list[str] = []
        self._counts: dict[str, Callable[..., Any]] = {}
        self.add_metric(self.total_tool_calls)
        for name in tool_names or ():
            self.add_tool_metric(name)

    def add_tool_metric(self, tool_name: str) -> None:
        """Counts the calls of a tool from now on."""
        if tool_name not in self.tool_names:
            self.tool_names.append(tool_name)
            self._counts[tool_name] = self.get_tool_call_count_func(tool_name)
            self.add_metric(self._counts[tool_name])

    def remove_tool_metric(self, tool_name: str) -> None:
        """Counts the calls of a tool no longer."""
        if tool_name in self.tool_names:
            self.tool_names.remove(tool_name)
            position = self.funcs.index(self._counts.pop(tool_name))
            del self.funcs[position], self.weights[position]

    async def total_tool_calls(self, completion: Messages) -> int:
        """Counts the calls of all tools, also those that failed."""
        return sum(1 for _ in _called(completion))

    def get_tool_call_count_func(self, tool_name: str) -> Callable[[Messages], Awaitable[int]]:
        """Returns a metric called ``{tool_name}_calls``."""

        async def count(completion: Messages) -> int:
            return sum(1 for name in _called(completion) if name == tool_name)

        count.__name__ = f"{tool_name}_calls"
        return count


def _called(completion: Messages) -> Iterator[str]:
    """Yields the names of the tools that a model called, in order."""
    for message in completion:
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or ():
                yield call["name"]
