"""From the result of an MCP tool to the content of a tool message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents


def tool_content(result: CallToolResult) -> str | list[dict[str, Any]]:
    """Returns a result as text, blocks joined by newlines; as content parts where there are images in it.

    An error that a tool reports is a text like any other.
    """
    parts = [_part(block) for block in result.content]
    if any(part["type"] != "text" for part in parts):
        return parts
    if parts:
        return "\n".join(part["text"] for part in parts)
    if result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "No result returned from tool"


def _part(block: ContentBlock) -> dict[str, Any]:
    if block.type == "text":
        return _text(block.text)
    if block.type == "image":
        return _image(block.mime_type, block.data)
    if block.type == "resource":
        return _resource(block.resource)
    if block.type == "resource_link":
        return _text(f"{block.name}: {block.uri}")
    return _text(f"[{block.mime_type}]")


def _resource(resource: TextResourceContents | BlobResourceContents) -> dict[str, Any]:
    from mcp.types import TextResourceContents

    if isinstance(resource, TextResourceContents):
        return _text(resource.text)
    kind = resource.mime_type or "data"
    return _image(kind, resource.blob) if kind.startswith("image/") else _text(f"[{kind}: {resource.uri}]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(mime_type: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
