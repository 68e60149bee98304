"""Requests from this node to other nodes of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending

CLIENT_ID = "kcore-node"
NODE_PREFIX = f"{CLIENT_ID}/"
"""Start of the client id on a node's connections to other nodes. The node's secret follows."""

REQUEST_TIMEOUT_MS = 10_000
"""Time in ms after which a request to another node counts as lost."""


class Peers(Protocol):
    """The interface through which a node sends requests to other nodes. The node's driver implements it."""

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        """Sends a request after all earlier requests to the same node.

        Args:
            node_id: the receiver.
            request: the request message.
            version: the API version of the request.
            done: called once, in a later round, with the response. The argument is None if the node is unknown, cannot
                be reached, or does not respond within `REQUEST_TIMEOUT_MS`; the node may still have served the request.
        """
        ...


class NoPeers:
    """The `Peers` of a node that cannot reach other nodes."""

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        """Reports that the node cannot be reached."""
        done(None)


class _Codes:
    """A class that takes the place of an `Api`. Its error response is the error code itself."""

    storage_error = ErrorCode.NOT_COORDINATOR

    def error(self, context: object, request: object, code: ErrorCode, message: str | None = None) -> ErrorCode:
        """Returns the code itself."""
        return code


_CODES: Any = _Codes()
_CONTEXT = RequestContext(0)


def pending_code(parked: bool = True) -> Pending:
    """Returns a `Pending` whose response will be an error code.

    If the `Pending` waits for a commit that fails, the code is NOT_COORDINATOR.

    Args:
        parked: True if the response waits for something other than a commit.
    """
    return Pending(_CODES, _CONTEXT, None, parked=parked)
