"""The request queue of a connection.

It splits the received bytes into requests, handles each request, and returns the responses in request order.
"""

from collections.abc import Callable
from typing import Any, Protocol

from kcore_ext.server.api_entry import ApiEntry

class QueueOwner:
    """The base of an owner whose `schedule_flush` compiled code calls without Python's method call."""

class Owner(Protocol):
    """The owner of a request queue: a connection."""

    def make_context(self, version: int, client_id: str) -> Any:
        """Creates the context for requests of one version and client id."""
        ...

    def route(self, api_key: int) -> ApiEntry | None:
        """Returns the entry of an API key that is not in `routes`; None if no entry serves the key. May add the entry
        to `routes`.
        """
        ...

    def unsupported(self, api_key: int, version: int) -> tuple[Any, ApiEntry, int]:
        """Makes the response to a request that no entry serves.

        Returns:
            The response, the entry that encodes it, and the version for the encoding.
        """
        ...

    def failed(self, route: ApiEntry, context: Any, request: Any, error: Exception) -> Any:
        """Returns the response to a request whose decision raised `error`."""
        ...

    def too_large(self, route: ApiEntry, api: Any, context: Any, request: Any, version: int, error: Exception) -> Any:
        """Returns the error that replaces an oversized response.

        Args:
            route: the API of the request.
            api: the API object that made the response; it may be a part of the API in `route`.
            context: the client and the API version of the request.
            request: the decoded request.
            version: the version of the response.
            error: the `MessageTooLargeError`.

        Raises:
            CloseConnectionError: the API has no response for this error.
        """
        ...

    def write_later(
        self,
        slot: ResponseSlot,
        route: ApiEntry,
        api: Any,
        context: Any,
        request: Any,
        response: Any,
        version: int,
        correlation_id: int,
    ) -> None:
        """Encodes a long response in slices; calls `slot.complete` with the frame at the end.

        Args:
            slot: the slot of the response in the queue.
            route: the API of the request.
            api: the API that decided the request.
            context: the client and the API version of the request.
            request: the decoded request.
            response: the response to encode.
            version: the version of the request.
            correlation_id: the correlation id of the request.
        """
        ...

    def schedule_flush(self) -> None:
        """Schedules calls of `take` and `serve`, because a response is complete.

        The queue calls this method at most once between two calls of `take`.
        """
        ...

    def response_failed(self, failed: ResponseSlot, error: Exception) -> None:
        """Closes the connection after sending the responses before `failed`, because `failed` cannot be encoded."""
        ...

def has_lost_responses(*, reset: bool = False) -> bool:
    """Returns True if any queue of this process is `lost`, that is, could not store a response for lack of memory.

    Args:
        reset: True if the caller has closed the connections of all such queues. Later calls return False until
            another queue becomes `lost`.
    """

class ResponseSlot:
    """The slot of one response in the queue. Once the response is complete, the slot contains its frame.

    Args:
        queue: the queue of the response.
        route: the API of the request.
        version: the version of the request.
        correlation_id: the correlation id of the request.

    Attributes:
        frame: the bytes to send; None until the response is complete.
    """

    frame: bytes | None

    def __init__(self, queue: RequestQueue, route: ApiEntry, version: int, correlation_id: int) -> None: ...
    def respond(self, response: Any) -> None:
        """Encodes the response; None completes the slot without a frame."""
    def complete(self, frame: bytes) -> None:
        """Sets the frame of the response. With b"", the queue sends nothing for this slot."""

MAX_WAITING_BYTES: int
"""Size of the requests of one connection that wait for their responses, above which the queue serves no further ones.

While a commit takes long, a client could otherwise fill the memory with pipelined requests.
"""

WAITING_OVERHEAD_BYTES: int
"""Size in bytes of the objects of a waiting request that count in addition to its frame."""

class RequestQueue:
    """The requests and responses of one connection. `tests.reference.request_queue` is the reference implementation.

    Args:
        owner: the connection that owns the queue.
        routes: the entries by API key; None for keys that are not served or were not used yet.
        frame_error: creates the exception for an invalid frame length.
        max_frame_bytes: the largest accepted frame length.
        buffer_bytes: while `held_bytes` is above this size, the queue serves no requests.

    Attributes:
        gate: a function that receives every frame, and passes the frames that it accepts to `request`; None: the queue
            serves every frame.
        parked: True while the queue serves no further requests until the last one has its response. The last request
            waits for more than a commit, or its response may be large, or the requests that wait have more than
            `MAX_WAITING_BYTES`.
        stopped: True if the queue serves no more requests.
        lost: True if there was no memory for a response. The connection must be closed.
        muted: True while the queue serves no requests because the client is above a quota.
        held_bytes: the size of the complete responses that `take` has not returned yet.
        turn_ns: the maximum time in ns for the requests of one `serve` call; 0: no limit.
    """

    gate: Callable[[bytes], None] | None
    parked: bool
    stopped: bool
    lost: bool
    muted: bool
    held_bytes: int
    turn_ns: int
    @property
    def late(self) -> bool: ...
    def __init__(
        self,
        owner: Owner,
        routes: list[ApiEntry | None],
        *,
        frame_error: Callable[[str], Exception],
        max_frame_bytes: int,
        buffer_bytes: int,
        turn_ns: int = 0,
        clock_ns: Callable[[], int] | None = None,
    ) -> None: ...
    def __len__(self) -> int:
        """Returns the number of received bytes that the queue has not consumed yet."""
    @property
    def claim_bytes(self) -> int:
        """Returns the memory that the queue needs: the received bytes, or the whole first frame if that is larger."""
    @property
    def waiting(self) -> bool:
        """True if any response is outstanding."""
    @property
    def cache_size(self) -> int:
        """Returns the number of cached client ids and requests. The number has an upper limit."""
    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Sets the largest accepted frame length."""
    def clear(self) -> None:
        """Discards the received bytes."""
    def clear_cache(self) -> None:
        """Clears the cached contexts and requests. The next requests create new contexts."""
    def serve(self) -> bool:
        """Serves complete frames until a request is parked or no frame is left.

        Returns:
            True if the call stopped because of `buffer_bytes`. The caller then calls `take`, sends the bytes, and calls
            `serve` again.

        Raises:
            DecodeError: a request is malformed.
            Exception: raised by `frame_error`, the owner, the gate, or the encoding of a response.
        """
    def request(self, frame: bytes) -> None:
        """Serves one frame, bypassing the gate."""
    def respond(self, route: ApiEntry, version: int, correlation_id: int, response: Any) -> None:
        """Adds a complete response to the queue. `take` returns it after all earlier responses."""
    def defer(self, slot: ResponseSlot, *, parked: bool = False) -> None:
        """Adds the slot of a response that will be completed later. Adding the last slot again changes nothing."""
    def remove_from(self, failed: ResponseSlot) -> None:
        """Removes the slot of a failed response, and all later slots."""
    def take(self) -> bytes | None:
        """Returns the bytes that may be sent now; None if there are none."""
    def close(self) -> None:
        """Closes the queue and discards outstanding responses. The operations of pending requests still complete."""
