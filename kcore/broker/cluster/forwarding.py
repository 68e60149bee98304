"""Forwards requests that change the metadata to the controller, with the principal of the client (KIP-590)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kcore.broker.cluster.node_access import REFUSED, log_refusal
from kcore.broker.metadata.names import is_internal
from kcore.errors import CloseConnectionError, KafkaError
from kcore.process_logging import limited_logger, log_failure, next_step
from kcore.protocol import DecodeError
from kcore.protocol.api_keys import (
    ApiKey,
    api_name,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.default_principal_data import DefaultPrincipalData
from kcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kcore.runtime.api import Api, RequestContext
from kcore.runtime.pending import Derived, Pending

if TYPE_CHECKING:
    from kcore.broker.cluster.node_access import NodeAccess
    from kcore.clock import Now
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.peers import Peers
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = limited_logger(__name__)

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""The APIs that only the controller serves."""

ALTERATIONS: Final = frozenset({ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS})
"""The APIs in `FORWARDED` whose requests may contain changes that the receiving node decides itself."""

ENVELOPED: Final = FORWARDED | {ApiKey.METADATA}
"""The APIs whose requests an envelope may contain.

They include Metadata: its requests may create topics, and only the controller creates topics.
"""

RETRY_MS: Final = 100
RETRY_FOR_MS: Final = 3_000
"""The time for which a node repeats a failed request, so that clients do not notice a change of the controller.

It is longer than the controller's lease, because some clients do not repeat a request after NOT_CONTROLLER.
"""

UNUSABLE: Final = REFUSED + "%s. The sender is a node of another version, or not a node of this cluster"

OWN_VERSION: Final = 7
"""The version of the CreateTopics requests that a node itself sends to the controller."""
_HEADER = struct.Struct(">hhih")
_MAX_CLIENT_ID_BYTES = 0x7FFF
_CORRELATION_ID = 4


class Forwarded(NamedTuple):
    """A decoded envelope: the client's context, and its request."""

    context: RequestContext
    request: Any


def seal(context: RequestContext, request: Any) -> EnvelopeRequest:
    """Puts a client's request into an envelope."""
    version = context.api_version
    # The replacements of invalid bytes are longer than the client's own bytes.
    client_id = context.client_id.encode()[:_MAX_CLIENT_ID_BYTES].decode(errors="ignore").encode()
    header = _HEADER.pack(request.API_KEY, version, 0, len(client_id)) + client_id
    if request_header_version(request.API_KEY, version) > 1:
        header += b"\0"  # no tagged fields
    kind, _, name = context.principal.partition(":")
    principal = DefaultPrincipalData(type=kind, name=name)
    return EnvelopeRequest(
        request_data=header + request.encode(version),
        request_principal=b"\0\0" + principal.encode(0),
        client_host_address=ip_address(context.client_host.removeprefix("/")).packed,
    )


def own_request(topic: str) -> EnvelopeRequest:
    """Returns the Envelope request by which a node itself creates a topic of the coordinators, without a principal."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)])
    envelope = seal(RequestContext(OWN_VERSION, "kcore"), request)
    envelope.request_principal = None
    return envelope


def unseal(envelope: EnvelopeRequest, listener: str, max_elements: int) -> Forwarded:
    """Decodes an envelope.

    The client is not connected to this node. If the client exceeds a quota, the node of the client mutes the client's
    connection; the connection between the two nodes is never muted.

    Args:
        envelope: the Envelope request.
        listener: the listener that received it.
        max_elements: the largest number of array elements of the request.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE for an unreadable principal, INVALID_REQUEST for a request that
            cannot be read or forwarded, or has too many elements.
    """
    principal = envelope.request_principal
    if principal is None or principal[:2] != b"\0\0":
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        owner = DefaultPrincipalData.decode(principal, 0, 2)
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    client, request = _decode(envelope, max_elements)
    principal_name = f"{owner.type}:{owner.name}"
    context = RequestContext(client.version, client.client_id, client.host, listener, principal_name, forwarded=True)
    return Forwarded(context, request)


class _Client(NamedTuple):
    """The client of a forwarded request: version of the request, client id, and address with a leading slash."""

    version: int
    client_id: str
    host: str


def _decode(envelope: EnvelopeRequest, max_elements: int) -> tuple[_Client, Any]:
    """Decodes the request of an envelope; raises KafkaError as `unseal`."""
    data = envelope.request_data
    try:
        api_key, version, _, size = _HEADER.unpack_from(data)
        if api_key not in ENVELOPED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"requests of API key {api_key} cannot be forwarded")
        position = _HEADER.size + max(0, size)
        client_id = data[_HEADER.size : position].decode()
        position += request_header_version(api_key, version) - 1
        request = request_class(api_key).decode(data, version, position, max_elements)
        address = str(ip_address(envelope.client_host_address))
    except (struct.error, DecodeError, UnicodeDecodeError, ValueError) as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the request in the envelope cannot be decoded: {error}"
        ) from error
    return _Client(version, client_id, f"/{address}"), request


class Forwarder:
    """The sender of forwarded requests to the controller.

    Args:
        cluster: gives the current controller.
        peers: sends requests to the controller.
        wheel: arms the timers of retries.
        now: the clock, which the driver reads once for each round of requests.
        mute: mutes the connection of a client for the throttle time in the controller's response, in ms.
    """

    __slots__ = ("_cluster", "_mute", "_now", "_peers", "_wheel")

    def __init__(
        self,
        cluster: ClusterView,
        peers: Peers,
        wheel: TimerWheel,
        now: Now,
        mute: Callable[[RequestContext, int], None] = lambda context, ms: None,
    ) -> None:
        self._cluster = cluster
        self._peers = peers
        self._wheel = wheel
        self._now = now
        self._mute = mute

    def forward(self, api: Api[Any, Any], context: RequestContext, request: Any) -> Pending:
        """Returns a `Pending` for the controller's response. The response has NOT_CONTROLLER if the controller cannot
        be reached.

        As in Kafka, the request is sent again after a failure, even though a controller may have served it already.
        """
        pending = Pending(api, context, request, parked=True)
        until_ms = self._now.now_ms + RETRY_FOR_MS

        def arrived(response: Any | None) -> None:
            if pending.done:
                return  # an exception has completed it
            if response is not None:
                try:
                    self._mute(context, getattr(response, "throttle_time_ms", 0))
                finally:
                    pending.complete(response)
            elif self._now.now_ms >= until_ms:
                pending.fail(ErrorCode.NOT_CONTROLLER)
            else:
                try:
                    self._wheel.add(self._now.now_ms + RETRY_MS, again)
                except Exception:
                    pending.fail(ErrorCode.NOT_CONTROLLER)
                    raise

        def again() -> None:
            try:
                self.send(context, request, arrived)
            except Exception as error:  # the client waits for a response
                if not pending.done:
                    pending.fail(ErrorCode.NOT_CONTROLLER)  # first: there may be no memory for the line
                log_failure(
                    logger,
                    error,
                    "cluster: the second attempt to forward %s of client %r to the controller failed; the client gets "
                    "NOT_CONTROLLER and tries again%s",
                    api_name(request.API_KEY),
                    context.client_id,
                    next_step(error),
                )

        self.send(context, request, arrived)
        return pending

    def send(self, context: RequestContext, request: Any, done: Callable[[Any | None], None]) -> None:
        """Forwards a request. Calls `done` with the controller's response, or with None if there is no response."""
        controller = self._cluster.controller_id

        def arrived(envelope: EnvelopeResponse | None) -> None:
            if envelope is None or envelope.error_code or envelope.response_data is None:
                done(None)  # first: there may be no memory for the line
                if envelope is not None and envelope.error_code != ErrorCode.NOT_CONTROLLER:
                    _log_refused(controller, request, envelope.error_code)
                return
            position = _CORRELATION_ID + response_header_version(request.API_KEY, context.api_version)
            try:
                response = response_class(request.API_KEY).decode(envelope.response_data, context.api_version, position)
            except (DecodeError, MemoryError) as error:  # the caller waits for `done`
                done(None)
                log_failure(
                    logger,
                    error,
                    "cluster: cannot decode the response of the controller, node %d, to %s of client %r; this node "
                    "handles the response as lost; check that all nodes run the same version of kcore",
                    controller,
                    api_name(request.API_KEY),
                    context.client_id,
                )
                return
            done(response)

        if controller < 0:
            done(None)
        else:
            self._peers.send(controller, seal(context, request), 0, arrived)

    def notify(self, context: RequestContext, request: Any) -> None:
        """Forwards a request for its side effect, such as the creation of a topic. Discards the response."""
        self._notify(seal(context, request))

    def request_topic(self, name: str) -> None:
        """Requests that the controller creates a coordinators' topic. Discards the controller's response."""
        self._notify(own_request(name))

    def _notify(self, envelope: EnvelopeRequest) -> None:
        controller = self._cluster.controller_id
        if controller >= 0:
            self._peers.send(controller, envelope, 0, lambda response: None)


def _log_refused(controller: int, request: Any, code: int) -> None:
    """Logs that the controller has refused the envelope of a client's request."""
    logger.warning(
        "cluster: this node forwarded %s of a client to the controller, node %d, which refused the request with %s; "
        "the log of node %d has the reason",
        api_name(request.API_KEY),
        controller,
        code_name(code),
        controller,
    )


class EnvelopeApi(Api[EnvelopeRequest, EnvelopeResponse]):
    """Handler of forwarded requests on the controller.

    If an envelope has no principal, its sender is a node that needs a topic of the coordinators. The controller then
    checks no ACL, because the nodes of a cluster trust each other.

    Args:
        submit: decides a client's request; called with the client's context and the request.
        make_topic: starts creating a coordinators' topic, by name.
        decides: returns True if this node is certainly the controller.
        access: recognizes requests of other nodes.
        max_elements: the largest number of array elements of a client's request.
    """

    __slots__ = ("_access", "_decides", "_make_topic", "_max_elements", "_submit")

    key: ClassVar[ApiKey] = ApiKey.ENVELOPE
    request_type: ClassVar[type] = EnvelopeRequest
    response_type: ClassVar[type] = EnvelopeResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    storage_error: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER

    def __init__(
        self,
        submit: Callable[[RequestContext, Any], Any],
        make_topic: Callable[[str], object],
        decides: Callable[[], bool],
        access: NodeAccess,
        max_elements: int,
    ) -> None:
        self._submit = submit
        self._make_topic = make_topic
        self._decides = decides
        self._access = access
        self._max_elements = max_elements

    def handle(self, context: RequestContext, request: EnvelopeRequest) -> Any:
        """Handles the client's request that an envelope contains, with the principal of the client.

        An envelope without a principal contains a request that the sending node makes for itself. The method then
        creates the topics that the sending node needs.
        """
        if not self._access.allowed(context, self.key):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not self._decides():
            return self.error(context, request, ErrorCode.NOT_CONTROLLER)
        try:
            if request.request_principal is None:
                return self._create(request)
            inner = unseal(request, context.listener, self._max_elements)
        except KafkaError as error:
            log_refusal(UNUSABLE, context, self.key, error)
            return self.error(context, request, error.code)
        try:
            response = self._submit(*inner)
        except CloseConnectionError as error:  # the connection is that of the node, not of its client
            log_refusal(UNUSABLE, context, self.key, error)
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        if not isinstance(response, Pending):
            return _wrapped(inner, response)
        return Derived(self, context, request, response, lambda value: _wrapped(inner, value))

    def _create(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        """Creates the coordinators' topics that a node itself requests."""
        _, request = _decode(envelope, self._max_elements)
        names = [topic.name for topic in request.topics] if request.API_KEY == ApiKey.CREATE_TOPICS else []
        if not names or not all(map(is_internal, names)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "an envelope without a principal may only create internal topics"
            )
        for name in names:
            self._make_topic(name)
        return EnvelopeResponse()

    def error(
        self, context: RequestContext, request: EnvelopeRequest, code: ErrorCode, message: str | None = None
    ) -> EnvelopeResponse:
        """Makes a response with the error code, and without the client's response."""
        return EnvelopeResponse(error_code=code)


def _wrapped(inner: Forwarded, response: Any) -> EnvelopeResponse:
    """Puts the response to a client's request into the response to its envelope."""
    version = inner.context.api_version
    header = bytes(_CORRELATION_ID + response_header_version(inner.request.API_KEY, version))
    return EnvelopeResponse(response_data=header + response.encode(version))
