"""Common parts of the delegation token APIs (KIP-48), which refuse every request: this node issues no tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext

ANONYMOUS = "User:ANONYMOUS"
NO_TIMESTAMP_MS = -1


def timestamp_of(code: ErrorCode) -> int:
    """Returns the timestamps in a response with an error: 0 if tokens are disabled, as Kafka's controller, else -1."""
    return 0 if code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else NO_TIMESTAMP_MS


def refusal(context: RequestContext) -> ErrorCode:
    """Returns the error code for a request. The code depends on whether the client is authenticated."""
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def principal_parts(context: RequestContext) -> tuple[str, str]:
    """Splits the principal into type and name: "User:alice" gives ("User", "alice")."""
    kind, _, name = context.principal.partition(":")
    return kind, name
