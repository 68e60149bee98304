"""A connection's requests in a line: frames are cut, requests decided, answers kept in the requests' order."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

class Owner(Protocol):
    """Whose line it is: a connection."""

    def make_context(self, version: int, client_id: str) -> Any:
        """Who asks, for requests of a version under a client id."""
        ...

    def route(self, api_key: int) -> ApiEntry | None:
        """The route of a key that has none among `routes`, which may get one now; None if the key is not served."""
        ...

    def unsupported(self, api_key: int, version: int) -> tuple[Any, ApiEntry, int]:
        """The response to a request that no route serves, its route, and the version to write it in; or raises."""
        ...

    def failed(self, route: ApiEntry, context: Any, request: Any, error: Exception) -> Any:
        """What a request is answered whose decision raised `error`."""
        ...

    def too_large(self, route: ApiEntry, api: Any, context: Any, request: Any, version: int, error: Exception) -> Any:
        """Returns the response that replaces one of too many bytes.

        Args:
            route: the API that was asked.
            api: what decided the request: the API, or a part of it.
            context: the context of the request.
            request: the request.
            version: the version of the response.
            error: the `MessageTooLargeError`.

        Raises:
            CloseConnectionError: the API has no response that says so.
        """
        ...

    def arrived(self) -> None:
        """An answer came that was waited for: there may be something to take, and requests behind it to serve.

        It is said once until something is taken.
        """
        ...

    def cannot_answer(self, failed: ResponseSlot, error: Exception) -> None:
        """An answer came that was waited for, and it cannot be written."""
        ...

class ApiEntry:
    """An API as a server serves it.

    Args:
        api: the API: its key, its `request_type`, `handle`, and whether its requests repeat.
        min_version: the lowest version that is served.
        max_version: the highest.
        header_versions: of the response's header, by version of the API.
        shorten: cuts what is too long for a response that cannot be written; False if there is nothing to cut.
        limit_bytes: the most bytes of a response, its length field included.
        note: gets the size of every encoded response of more than 16 KiB; it may raise `MessageTooLargeError` if there
            is no memory for it now. None: nobody counts.

    Attributes:
        api: the API.
        fast: the API's fast path, called with the same arguments before `handle`; None if it has none.
        handle: its decision: (context, request) -> a response, a pending one, or None where there is no answer.
        repeats: see `kcore.runtime.Api.caches_requests`.
        brief: see `kcore.runtime.Api.small_responses`.
        shares: see `kcore.runtime.Api.caches_responses`.
        requests: how many requests came.
        errors: the error codes that were answered, and how often.
        walk: counts the error codes of one response; None while nobody asked, or where it can say none.
    """

    api: Any
    fast: Callable[[Any, Any], Any] | None
    handle: Callable[[Any, Any], Any]
    key: int
    min_version: int
    max_version: int
    caches_requests: bool
    small_responses: bool
    caches_responses: bool
    requests: int
    errors: dict[int, int]
    walk: Callable[[Any, dict[int, int]], None] | None
    limit_bytes: int
    note: Callable[[int], None] | None

    def __init__(
        self,
        api: Any,
        *,
        min_version: int,
        max_version: int,
        header_versions: Iterable[int],
        shorten: Callable[[Any], bool],
        limit_bytes: int = ...,
        note: Callable[[int], None] | None = None,
    ) -> None: ...
    def header_version(self, version: int) -> int:
        """The version of the header that goes before a response. IndexError for a version that is not served."""

class ResponseSlot:
    """A place in the row of answers; its frame is there once the request was answered.

    Args:
        line: whose answer.
        route: the API that was asked.
        version: in which version.
        correlation_id: the request's.

    Attributes:
        frame: what will be sent, None as long as it has not come.
    """

    frame: bytes | None

    def __init__(self, queue: RequestQueue, route: ApiEntry, version: int, correlation_id: int) -> None: ...
    def arrive(self, response: Any) -> None:
        """The response came; None: there is none."""
    def complete(self, frame: bytes) -> None:
        """The frame came, whole; b"" sends nothing."""

class RequestQueue:
    """One connection's requests and answers. `kcore.server.reference_queue.ReferenceRequestQueue` defines what every
    method does.

    Args:
        owner: whose line it is.
        routes: what is served, by API key; None for keys that are not, or that nobody asked for yet.
        frame_error: raised for a length that no frame can have.
        max_frame_bytes: the largest length that is accepted.
        buffer_bytes: what may be held of answers before requests wait.
        turn_ns: time after which `serve` leaves further requests to its next call; 0: no limit.
        clock_ns: the clock of `turn_ns`; None: the system's monotonic clock with a resolution of a few milliseconds.

    Attributes:
        late: `serve` stopped because `turn_ns` was over; the owner calls it again after other connections were served.
        gate: gets every frame instead of the routes, while it is set; `request` then serves what it lets through.
        parked: the last request waits for something else than a commit, or its answer may be large: those behind it are
            not looked at.
        stopped: no more requests are served.
        held_bytes: answers that are made and not taken.
    """

    gate: Callable[[bytes], None] | None
    parked: bool
    stopped: bool
    held_bytes: int
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
        """Bytes that arrived and were not taken yet."""
    @property
    def claim_bytes(self) -> int:
        """What is held, or will be once the frame that has begun is whole."""
    @property
    def waiting(self) -> bool:
        """Whether any answer is waited for."""
    @property
    def remembered(self) -> int:
        """How many client ids and requests it remembers: a bounded number, of bounded sizes."""
    def feed(self, data: bytes) -> None:
        """Takes what arrived."""
    def accept(self, max_frame_bytes: int) -> None:
        """Accepts frames of another length from now on."""
    def clear(self) -> None:
        """Forgets what arrived."""
    def forget(self) -> None:
        """Forgets who asked: contexts are made anew."""
    def serve(self) -> bool:
        """Serves whole frames until one parks or there is none left.

        Returns:
            True if it stopped because too much is held: take, and serve again if there is room.

        Raises:
            DecodeError: a request cannot be read.
            Exception: what `frame_error`, the owner, the gate, or the writing of an answer raises.
        """
    def request(self, frame: bytes) -> None:
        """Serves one frame, whatever the gate says."""
    def answer(self, route: ApiEntry, version: int, correlation_id: int, response: Any) -> None:
        """A response that is there at once: it may leave, or waits behind those in front of it."""
    def defer(self, answer: ResponseSlot, *, parked: bool = False) -> None:
        """Keeps a place in the row for an answer that comes later. Keeping the last place again changes nothing."""
    def cut(self, failed: ResponseSlot) -> None:
        """Gives up an answer and all behind it."""
    def take(self) -> bytes | None:
        """What may be sent now; None for nothing."""
    def close(self) -> None:
        """The connection is gone: answers on their way are thrown away, what was asked goes on."""
