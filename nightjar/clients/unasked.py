"""``UnaskedClient``: stands for a model that must not be asked."""

from __future__ import annotations

from typing import Any

from nightjar.clients.client import Client
from nightjar.errors import ModelError


class UnaskedClient(Client[None, Any, Any, Any]):
    """Refuses every request, as where rollouts that were generated before are only scored.

    Example:
        >>> import asyncio
        >>> asyncio.run(UnaskedClient().get_response([], "any", {}))
        Traceback (most recent call last):
        nightjar.errors.ModelError: The model is not asked here: its rollouts are only scored
    """

    def __init__(self) -> None:
        super().__init__(None)

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ModelError("The model is not asked here: its rollouts are only scored")

    get_response: Any = _refuse
    get_native_response: Any = _refuse
    to_native_prompt: Any = _refuse
    to_native_tool: Any = _refuse
    from_native_response: Any = _refuse
    raise_from_native_response: Any = _refuse
    setup_client: Any = None

    async def close(self) -> None:
        """Has nothing to close."""
