"""What a served API is: a key, its request and response, how to decide it, and what it answers when it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.api_keys import ApiKey
    from kcore.protocol.schema import Message

Request = TypeVar("Request")
Response = TypeVar("Response")


class RequestContext(NamedTuple):
    """Who asks: made once a connection, client id and API version, and shared by all requests that look the same.

    Attributes:
        api_version: the version in which the request came (it decides between answers in some APIs).
        client_id: the client's name for itself; "" where the header had null.
        client_host: the peer's address as Kafka shows it, with a leading slash: "/127.0.0.1".
        listener: the name of the listener the request came through; FindCoordinator answers with its address.
        principal: "User:ANONYMOUS" where nobody authenticated.
        connection_id: tells connections apart, for what belongs to one (fetch sessions, closed waiters).
    """

    api_version: int
    client_id: str = ""
    client_host: str = "/127.0.0.1"
    listener: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    connection_id: int = 0


class Api(ABC, Generic[Request, Response]):
    """One API. Each subclass has its own file, named after the API.

    `handle` serves any request: authorize, validate, route, decide. Coordinator APIs split it: `handle` finds the shard
    and calls `shard.run(self, context, request)`, which calls `decide` with the shard's state machine.

    Attributes:
        fast: the fast path, or None. It is called before `handle` with the same arguments, and returns what `handle`
            would return, or None if the request is not the common case; then it has changed nothing.
    """

    __slots__ = ()

    fast: Callable[[RequestContext, Any], Any] | None = None

    key: ClassVar[ApiKey]
    request_type: ClassVar[type[Message]]
    response_type: ClassVar[type[Message]]
    versions: ClassVar[tuple[int, int]]
    """The versions that are served and advertised, lowest and highest."""
    differs: ClassVar[str] = ""
    """In what it differs from Apache Kafka, for people; "" if it does not. Shown in docs/apis.md."""
    caches_requests: ClassVar[bool] = False
    """Whether a client asks the same again and again, byte for byte (heartbeats, look-ups). Requests of such an API may
    be decoded once for many times, and the bytes of a response be sent again if it is given out again: neither may ever
    be changed."""
    caches_responses: ClassVar[bool] = False
    """Whether different requests are often answered with the very same response object. The bytes of such a response
    are sent again: it may never be changed."""
    small_responses: ClassVar[bool] = False
    """Whether an answer is about as long as its request at most. A connection may have any number of such answers wait
    for one commit. Behind another one that waits, its requests wait too: a few bytes can ask for a million."""
    storage_error: ClassVar[ErrorCode] = ErrorCode.NOT_COORDINATOR
    """What is answered if the commit fails. For coordinators it is Kafka's mapping of KAFKA_STORAGE_ERROR: clients
    look for the coordinator again, and retry."""

    @abstractmethod
    def handle(self, context: RequestContext, request: Request) -> Any:
        """Serves one request.

        Returns:
            The response, a `Pending` if it comes later, or None where the protocol has no answer (Produce, acks=0).

        Raises:
            KafkaError: mapped to `error(context, request, code)` by the engine.
        """

    def decide(self, machine: Any, context: RequestContext, request: Request) -> Any:
        """Decides within a shard: reads `machine`, changes nothing durable.

        Returns:
            A response, a parked `Pending`, or an `Outcome` of records and one of these.

        Raises:
            KafkaError: mapped to `error(context, request, code)` by the shard.
        """
        raise TypeError(f"{type(self).__name__} does not run in a shard")

    @abstractmethod
    def error(self, context: RequestContext, request: Request, code: ErrorCode, message: str | None = None) -> Response:
        """The response that says `code` in the way of this API (at the top, or for each thing asked for)."""
