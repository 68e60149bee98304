"""The objects that a running engine references: transient objects must be freed once all clients are gone."""

from __future__ import annotations

import gc
from collections import Counter
from types import FunctionType, ModuleType
from typing import Any, Final

from kcore.runtime import Pending
from kcore.runtime.commit import BackgroundCommit
from kcore_ext.server.request_queue import RequestQueue, ResponseSlot

TRANSIENT: Final = (Pending, BackgroundCommit, RequestQueue, ResponseSlot)
"""Types whose objects belong to a request or a connection, and must not outlive it."""
MESSAGES: Final = "kcore.protocol.messages."
MAX_RESPONSES: Final = 400
"""Maximum number of response messages, including their rows, in memory. Each API keeps its last response for later
requests.
"""


def reachable_types(root: Any, stop: tuple[str, ...] = ("tools.simulate",)) -> Counter[type]:
    """Returns the number of objects, by type, that an object references directly or indirectly.

    Leaves out modules, types, texts, bytes, integers, and the globals of functions.

    Args:
        root: the object, which also counts.
        stop: packages. References from objects whose type is in one of these packages are not followed.
    """
    counts: Counter[type] = Counter()
    seen = {id(root)}
    stack = [root]
    while stack:
        found = stack.pop()
        kind = type(found)
        counts[kind] += 1
        referents: list[Any]
        if kind is FunctionType:
            referents = [cell.cell_contents for cell in found.__closure__ or () if _is_filled(cell)]
        else:
            referents = gc.get_referents(found)
        for each in referents:
            if id(each) in seen or isinstance(each, (type, ModuleType, str, bytes, int)):
                continue
            if (type(each).__module__ or "").startswith(stop):
                continue
            seen.add(id(each))
            stack.append(each)
    return counts


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def leaked(engine: Any) -> dict[str, int]:
    """Returns the objects of requests and connections that an engine still references: name of the type -> number.

    Args:
        engine: an engine without clients.
    """
    counts = reachable_types(engine)
    leaks = {kind.__qualname__: count for kind, count in counts.items() if _is_transient(kind)}
    responses = sum(count for kind, count in counts.items() if _is_message(kind) and "Response" in kind.__name__)
    if responses > MAX_RESPONSES:
        leaks["responses"] = responses
    return leaks


def _is_message(kind: type) -> bool:
    return kind.__module__.startswith(MESSAGES)


def _is_transient(kind: type) -> bool:
    return issubclass(kind, TRANSIENT) or (_is_message(kind) and kind.__name__.endswith("Request"))
