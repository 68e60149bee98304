"""A parser of JSON from files, other programs and clients, with a limit on the nesting."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Maximum nesting of lists and objects. Recursive code can process this depth without a RecursionError."""

TOO_DEEP: Final = f"the JSON has more than {MAX_DEPTH} nested levels"


def parse_json(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Parses a document.

    Args:
        text: the document.
        parse_constant: see `json.loads`.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        document = json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    opening = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opening > MAX_DEPTH and _is_too_deep(document):
        raise ValueError(TOO_DEEP)
    return document


def _is_too_deep(document: Any) -> bool:
    level = [document] if isinstance(document, (list, dict)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (list, dict))
        ]
        if not level:
            return False
    return bool(level)
