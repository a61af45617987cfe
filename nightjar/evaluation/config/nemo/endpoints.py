"""The variables of NeMo Evaluator that name an endpoint and its key, and URLs with the route of a protocol."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from nightjar.clients.protocols import PROTOCOLS
from nightjar.clients.providers import is_loopback, is_same_host

ENDINGS: tuple[str, ...] = (".yaml", ".yml")
"""The endings of a config's file."""
KEYS = ("NEMO_API_KEY", "NVIDIA_API_KEY")
"""Variables that hold the key of an endpoint that does not name a variable."""
URL = "NEMO_MODEL_URL"
"""The variable that names an endpoint. If it is set, the key in ``NEMO_API_KEY`` belongs to this endpoint."""
_OF_NVIDIA = ".nvidia.com"
CLIENTS = {protocol.nemo_name: client_type for client_type, protocol in PROTOCOLS.items() if protocol.nemo_name}


def without_route(url: str, protocol: str = "chat_completions") -> str:
    return url.rstrip("/").removesuffix(PROTOCOLS[CLIENTS[protocol]].route).rstrip("/")


def usual_key(base_url: str) -> str | None:
    """Returns the variable of ``KEYS`` that is set and holds the key of this host."""
    nemo, nvidia = KEYS
    own = os.environ.get(URL)
    is_nvidia = is_loopback(base_url) or f".{urlsplit(base_url).hostname}".endswith(_OF_NVIDIA)
    allowed = [nemo] * (not own or is_same_host(own, base_url)) + [nvidia] * is_nvidia
    return next((name for name in allowed if os.environ.get(name)), None)
