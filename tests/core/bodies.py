"""Bodies of successful responses in four protocols."""

MESSAGE = {"role": "assistant", "content": "4"}
MISSING = object()


def chat(message=MESSAGE, finish_reason="stop", **fields):
    """Returns the body of a chat completion; a field set to MISSING is left out."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    body = {"id": "c1", "object": "chat.completion", "created": 17, "model": "served", "choices": [choice], **fields}
    return {name: value for name, value in body.items() if value is not MISSING}


def without_text(**fields):
    return {"role": "assistant", "content": None, **fields}


def text(said="4", finish_reason="stop", choice=None, **fields):
    choices = [{"index": 0, "text": said, "finish_reason": finish_reason, "logprobs": None, **(choice or {})}]
    return {"id": "c1", "object": "text_completion", "created": 17, "model": "served", "choices": choices, **fields}


def response(*items, status="completed", **fields):
    head = {"id": "r1", "object": "response", "created_at": 17.5, "model": "served"}
    return {**head, "status": status, "output": [*items], **fields}


def said(*parts):
    content = [{"type": "output_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def message(*content, stop_reason="end_turn", **fields):
    head = {"id": "m1", "type": "message", "role": "assistant", "model": "served", "stop_sequence": None}
    usage = {"input_tokens": 5, "output_tokens": 7}
    return {**head, "content": list(content), "stop_reason": stop_reason, "usage": usage, **fields}


def block(words):
    return {"type": "text", "text": words}
