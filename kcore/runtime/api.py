"""The base class of served APIs, and the context of a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from kcore.protocol.api_keys import api_name
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.protocol.api_keys import ApiKey
    from kcore.protocol.schema import Message
    from kcore_ext.runtime.lease import LocalLease

Request = TypeVar("Request")
Response = TypeVar("Response")


class RequestContext(NamedTuple):
    """The client of a request, created once for each connection, client id and API version.

    Attributes:
        api_version: the version of the request; in some APIs the response depends on it.
        client_id: the client id in the request's header; "" for null.
        client_host: the client's address as Kafka shows it, with a leading slash: "/127.0.0.1".
        listener: the name of the listener that received the request; FindCoordinator returns its address.
        principal: the authenticated principal; "User:ANONYMOUS" without authentication.
        connection_id: the connection's number, for state of a connection (fetch sessions, parked requests).
        node_secret: the secret by which another node of the cluster identifies itself; "" for other clients.
        forwarded: True if another node has received the request from the client, and has forwarded it.
    """

    api_version: int
    client_id: str = ""
    client_host: str = "/127.0.0.1"
    listener: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    connection_id: int = 0
    node_secret: str = ""
    forwarded: bool = False


Handler = Callable[[RequestContext, Any], Any]


class Guard(NamedTuple):
    """The functions with which the server of a cluster node handles the requests of an API.

    Attributes:
        fast: the API's fast path, or None. The server calls it only while `lease` is valid.
        handle: the API's `handle`, preceded and followed by a check of the lease.
        lease: the node's lease.
        checked: checks a response of `fast`, because the lease may have ended since the request. It takes context,
            request and response. It returns the response, or an error response if the lease has ended. For a parked
            response it returns a `Pending`, which checks the lease when it is completed.
    """

    fast: Handler | None
    handle: Handler
    lease: LocalLease
    checked: Callable[[RequestContext, Any, Any], Any]


class Api(ABC, Generic[Request, Response]):
    """The base class of APIs. Each subclass has its own file, named after the API.

    `handle` serves any request: authorize, validate, route, decide. In coordinator APIs `handle` finds the shard and
    calls `shard.run(self, context, request)`, which calls `decide` with the shard's state machine.

    Attributes:
        fast: the fast path, or None. It is called before `handle` with the same arguments. It returns the result that
            `handle` would return. If it declines the request, it returns None and has changed nothing.
    """

    __slots__ = ()

    fast: Callable[[RequestContext, Any], Any] | None = None

    key: ClassVar[ApiKey]
    request_type: ClassVar[type[Message]]
    response_type: ClassVar[type[Message]]
    versions: ClassVar[tuple[int, int]]
    """The lowest and the highest version of the API that kcore serves and advertises."""
    differs: ClassVar[str] = ""
    """The API's differences from Apache Kafka, for readers of docs/apis.md; "" if there are none."""
    caches_requests: ClassVar[bool] = False
    """True if clients often repeat a request byte for byte (heartbeats, look-ups).

    The server may decode a repeated request only once, and may send the bytes of a repeated response again. So no code
    may change the request or the response."""
    caches_responses: ClassVar[bool] = False
    """True if different requests often get the same response object.

    The server may send the bytes of a repeated response again, so no code may change the response."""
    small_responses: ClassVar[bool] = False
    """True if a response is at most about as long as its request.

    Any number of a connection's small responses may wait for one commit. While a response of another API waits for a
    commit, the connection's later requests wait too. Otherwise many tiny requests could fill the memory with large
    responses."""
    storage_error: ClassVar[ErrorCode] = ErrorCode.NOT_COORDINATOR
    """The error code of the response if the commit fails.

    For coordinators it is Kafka's mapping of KAFKA_STORAGE_ERROR: clients find the coordinator again and retry."""

    @property
    def name(self) -> str:
        """Kafka's name of the API, such as JoinGroup."""
        return api_name(self.key)

    @abstractmethod
    def handle(self, context: RequestContext, request: Request) -> Any:
        """Serves one request.

        Returns:
            The response, a `Pending` if the response comes later, or None if the protocol has no response (Produce,
            acks=0).

        Raises:
            KafkaError: mapped to `error(context, request, code)` by the engine.
        """

    def require_parsable(self, request: Request) -> None:
        """Refuses a request that Kafka cannot parse. A node also calls this method before it forwards a request.

        Raises:
            CloseConnectionError: a field has a value that Kafka cannot parse.
        """

    def decide(self, machine: Any, context: RequestContext, request: Request) -> Any:
        """Chooses the records and the response of a request, from the state in `machine`. It changes no durable state.

        Returns:
            A response, a parked `Pending`, or an `Outcome`, which has records and a response or `Pending`.

        Raises:
            KafkaError: mapped to `error(context, request, code)` by the shard.
        """
        raise TypeError(f"{type(self).__name__} does not run in a shard")

    @abstractmethod
    def error(self, context: RequestContext, request: Request, code: ErrorCode, message: str | None = None) -> Response:
        """Builds the response that carries `code`: at the top level or in each requested item, as the API defines."""
