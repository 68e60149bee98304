"""Checks around the decision of each request: a node of a cluster serves only while its lease is certain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kcore.broker.cluster.alterations import alter
from kcore.broker.cluster.forwarding import ALTERATIONS, FORWARDED
from kcore.errors import CloseConnectionError
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.api import Guard, Handler
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.broker.cluster.forwarding import Forwarder
    from kcore.broker.metadata.topics import Topics
    from kcore.protocol.messages.metadata import MetadataRequest
    from kcore.runtime.api import Api, RequestContext
    from kcore_ext.runtime.lease import LocalLease

LEASELESS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""APIs that a node serves even if it may have lost its lease.

Their responses contain no shared state; clients need them to connect to the cluster.
"""

FIRST_WITH_CHOICE: Final = 4
"""The first version of Metadata with a field that forbids the creation of missing topics."""


class LeaseGuard:
    """The check of the lease before and after the decision of each request.

    `LeaseGuard` also forwards the requests that only the controller decides.

    Args:
        lease: the node's lease by its own clock.
        decides: returns True if this node is certainly the controller.
        forwarder: sends requests to the controller.
        topics: the metadata.
        node_id: the id of this node.
        creates_topics: True if Metadata requests create missing topics.
    """

    __slots__ = ("_creates_topics", "_decides", "_forwarder", "_lease", "_node_id", "_topics")

    def __init__(
        self,
        lease: LocalLease,
        decides: Callable[[], bool],
        forwarder: Forwarder,
        topics: Topics,
        *,
        node_id: int,
        creates_topics: bool,
    ) -> None:
        self._lease = lease
        self._decides = decides
        self._forwarder = forwarder
        self._topics = topics
        self._node_id = node_id
        self._creates_topics = creates_topics

    def guard(self, api: Api[Any, Any]) -> Guard:
        """Returns the functions that a server calls to handle the requests of an API.

        On the generic path, `decide` checks the lease. On the fast path, the server itself checks the lease.
        """
        handle = partial(self.decide, api, api.handle)
        fast = None if api.key in FORWARDED or api.key in LEASELESS else api.fast
        return Guard(fast, handle, self._lease, partial(self._checked, api))

    def decide(self, api: Api[Any, Any], handle: Handler, context: RequestContext, request: Any) -> Any:
        """Handles a request with `handle`, or forwards it to the controller.

        The method checks the lease before the call of `handle`, and again after it. It calls `handle` without a check
        for the APIs in `LEASELESS`. It forwards the requests of the APIs in `FORWARDED` unless this node is certainly
        the controller.

        Returns:
            The response. If the lease has ended, the response is a retriable error, because another node may serve the
            request.

        Raises:
            CloseConnectionError: the lease has ended, and the request has no response. Or the request must be
                forwarded, and has a field that Apache Kafka cannot parse.
        """
        if api.key in LEASELESS:
            if api.key == ApiKey.METADATA and not self._decides():
                self._request_topics(context, request)
            return handle(context, request)
        if not self._lease.is_valid():
            return _refuse(api, context, request)
        if api.key in FORWARDED and not self._decides():
            api.require_parsable(request)  # on the controller, it would close the connection between the nodes
            if api.key in ALTERATIONS:
                return alter(api, handle, context, request, node_id=self._node_id, forwarder=self._forwarder)
            return self._forwarder.forward(api, context, request)
        return self._checked(api, context, request, handle(context, request))

    def _checked(self, api: Api[Any, Any], context: RequestContext, request: Any, response: Any) -> Any:
        """Returns the response, or an error if the lease has ended since the request: another node may have newer
        state.

        A `Pending` that waits for a commit needs no check, because the store refuses a commit after the lease's end.
        """
        if isinstance(response, Pending):
            return self._checked_later(api, context, request, response) if response.parked else response
        return response if self._lease.is_valid() else _refuse(api, context, request)

    def _checked_later(self, api: Api[Any, Any], context: RequestContext, request: Any, response: Pending) -> Pending:
        """Returns a `Pending` that completes with `response`, or with an error if the lease has ended by then."""
        checked = _CheckedPending(api, context, request, self._lease)
        response.on_complete(checked.check)
        return checked

    def _request_topics(self, context: RequestContext, request: MetadataRequest) -> None:
        """Requests the missing topics of a Metadata request from the controller, if the request allows their
        creation.
        """
        if not self._creates_topics or not request.topics:
            return
        if context.api_version >= FIRST_WITH_CHOICE and not request.allow_auto_topic_creation:
            return
        if any(topic.name is not None and self._topics.by_name(topic.name) is None for topic in request.topics):
            self._forwarder.notify(context, request)


def _refuse(api: Api[Any, Any], context: RequestContext, request: Any) -> Any:
    """Returns a retriable error, because the lease has ended and another node may serve the request."""
    response = api.error(context, request, api.storage_error)
    if response is None:
        raise CloseConnectionError("this node's lease has ended")
    return response


class _CheckedPending(Pending):
    """A parked response, or an error if the lease has ended before the response is complete."""

    __slots__ = ("_lease",)

    def __init__(self, api: Api[Any, Any], context: RequestContext, request: Any, lease: LocalLease) -> None:
        super().__init__(api, context, request, parked=True)
        self._lease = lease

    def check(self, response: Any) -> None:
        """Completes the response. If this raises, `Pending.complete` of the caller completes it with an error."""
        if self._lease.is_valid():
            self.complete(response)
        else:
            self.fail(self.api.storage_error)
