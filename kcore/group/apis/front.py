"""What APIs about one group check before they go to its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.protocol.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext

MAX_TEXT_BYTES: Final = 32_767
"""The longest text that a record can hold: its length is an int16. Compact strings in requests may be longer."""

_SURELY_FITS = MAX_TEXT_BYTES // 4  # characters: UTF-8 takes four bytes for one at most


def fits_in_record(text: str | None) -> bool:
    """Whether a text of a request can be written into a record."""
    return text is None or len(text) <= _SURELY_FITS or len(text.encode("utf-8", "replace")) <= MAX_TEXT_BYTES


def allowed(authorizer: Authorizer | None, context: RequestContext, operation: Operation, group_id: str) -> bool:
    """Whether the one who asks may do that to the group."""
    return authorizer is None or authorizer.allowed(context, operation, ResourceType.GROUP, group_id)
