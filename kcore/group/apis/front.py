"""What APIs about one group check before they go to its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.protocol.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext

MAX_TEXT_BYTES: Final = 32_767
"""The longest text that requests, responses and records can hold: lengths are an int16."""

UUID_BYTES: Final = 37
"""What a member id has behind the name that it begins with: a dash and a uuid."""

_SURELY_FITS = (MAX_TEXT_BYTES - UUID_BYTES) // 4  # characters: UTF-8 takes four bytes for one at most


def can_name_a_member(text: str | None) -> bool:
    """Whether a member id can be made of a client id or an instance id, and still be written."""
    return text is None or len(text) <= _SURELY_FITS or len(text.encode("utf-8")) <= MAX_TEXT_BYTES - UUID_BYTES


def allowed(authorizer: Authorizer | None, context: RequestContext, operation: Operation, group_id: str) -> bool:
    """Whether the one who asks may do that to the group."""
    return authorizer is None or authorizer.allowed(context, operation, ResourceType.GROUP, group_id)


def visible_topics(authorizer: Authorizer | None, context: RequestContext) -> Callable[[str], bool] | None:
    """Which topics the one who asks may see: a pattern matches these alone (KIP-848). None: all."""
    if authorizer is None:
        return None
    return lambda name: authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
