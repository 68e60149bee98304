"""What the APIs of delegation tokens (KIP-48) have in common: this node issues none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext

ANONYMOUS = "User:ANONYMOUS"


def refusal(context: RequestContext) -> ErrorCode:
    """The code for whoever asks: one who is not authenticated may not even ask, others learn that tokens are off."""
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def principal_parts(context: RequestContext) -> tuple[str, str]:
    """Type and name of the principal: "User:alice" is ("User", "alice")."""
    kind, _, name = context.principal.partition(":")
    return kind, name
