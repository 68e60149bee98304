"""An API as a server serves it: versions and limits, the decision of its requests, and the frames of its responses."""

from collections.abc import Callable, Iterable
from typing import Any

from kcore_ext.runtime.lease import LocalLease
from kcore_ext.server.api_times import ApiTimes

class ApiEntry:
    """An API as a server serves it.

    Args:
        api: the API: its key, `request_type`, `handle` and caching properties.
        min_version: the lowest served version.
        max_version: the highest served version.
        header_versions: the versions of the response header, by version of the API.
        shorten: shortens the texts of a response that cannot be encoded; returns False if there is nothing to shorten.
        limit_bytes: the largest response in bytes, including its length field.
        reserve_memory: called with the size of every encoded response of more than 16 KiB; it raises
            `MessageTooLargeError` if not enough memory is left. None: the sizes are not reported.
        max_request_bytes: the largest request. The server refuses a longer request once it has received more bytes
            than this.
        max_request_elements: the largest number of array elements and tagged fields in a request.
        slice_bytes: the size in bytes above which the request queue passes a response to `Owner.write_later`, which
            encodes it in slices. 0: all responses are encoded in one step. An API with `caches_responses` always has 0.

    Attributes:
        api: the handler of the API's requests.
        fast: the API's fast path, called before `handle` with the same arguments; None if the API has no fast path.
        handle: handles a request: (context, request) -> a response, a `Pending`, or None for no response.
        lease: the lease of a cluster's node; None if the node is not in a cluster. `fast` is called only while the
            lease is valid.
        checked: checks the lease again before a response of `fast` is sent: (context, request, response) -> the
            response, an error response, or a `Pending` whose response is checked at its completion.
        meter: a function that calls `decide` for each request and measures it; None: requests are not measured.
        times: records the time of each request; None: the time is not measured.
        caches_requests: see `kcore.runtime.Api.caches_requests`.
        small_responses: see `kcore.runtime.Api.small_responses`.
        caches_responses: see `kcore.runtime.Api.caches_responses`.
        requests: number of received requests.
        errors: error code -> number of its occurrences in responses.
        count_errors: a function that adds the error codes of a response to the counts in a dictionary such as `errors`;
            None while counting is off, or if the API's response has no error field.
    """

    api: Any
    meter: Callable[[ApiEntry, Any, Any], Any] | None
    times: ApiTimes | None
    key: int
    min_version: int
    max_version: int
    caches_requests: bool
    small_responses: bool
    caches_responses: bool
    requests: int
    errors: dict[int, int]
    count_errors: Callable[[Any, dict[int, int]], None] | None
    fast: Callable[[Any, Any], Any] | None
    handle: Callable[[Any, Any], Any]
    lease: LocalLease | None
    checked: Callable[[Any, Any, Any], Any] | None
    limit_bytes: int
    reserve_memory: Callable[[int], None] | None
    max_request_bytes: int
    max_request_elements: int
    slice_bytes: int

    def __init__(
        self,
        api: Any,
        *,
        min_version: int,
        max_version: int,
        header_versions: Iterable[int],
        shorten: Callable[[Any], bool],
        limit_bytes: int = ...,
        reserve_memory: Callable[[int], None] | None = None,
        max_request_bytes: int = ...,
        max_request_elements: int = ...,
        slice_bytes: int = ...,
    ) -> None: ...
    def decide(self, context: Any, request: Any) -> Any:
        """Handles a request by `fast`, or else by `handle`; returns the result of that function."""
    def whole_frame(self, response: Any, version: int, correlation_id: int) -> bytes:
        """Encodes a response of any length in one step, and counts its errors.

        Raises:
            MessageTooLargeError: the response exceeds `limit_bytes`, or the memory for responses.
            EncodeError: the response cannot be encoded.
        """
    def decode(self, frame: bytes, version: int, position: int) -> Any:
        """Decodes the request that begins at `position` of a frame. The frame does not include its length field.

        Raises:
            TooManyElementsError: the request has more than `max_request_elements` elements.
            DecodeError: the bytes are not a request of this API and version.
        """
    def header_version(self, version: int) -> int:
        """Returns the version of the response header. Raises IndexError for a version that is not served."""
