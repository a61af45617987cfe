"""An extension of Griffe for the reference of Python: sections ``Example:`` are read like ``Examples:``."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class ReadExamples(Extension):
    def on_object(self, *, obj: Object, **_kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
