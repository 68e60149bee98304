"""Maps request headers to APIs, and makes the responses to unsupported requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kcore.errors import CloseConnectionError, KcoreError
from kcore.process_logging import fields, limited_logger
from kcore.protocol.api_keys import ApiKey, response_header_version
from kcore.protocol.error_codes import ErrorCode
from kcore.server.errors import error_counter, shorten_messages
from kcore.server.long_response import SLICE_BYTES
from kcore.server.request_meter import EXEMPT
from kcore_ext.server.api_entry import ApiEntry
from kcore_ext.server.api_times import ApiTimes

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.engine import Engine
    from kcore.runtime import Api
    from kcore.server.request_meter import RequestMeter


logger = limited_logger(__name__)

LONGEST_FRAME = 0x7FFFFFFF + 4
"""Maximum size of a frame in bytes: the largest int32, plus four bytes of the length field."""

ENVELOPE_BYTES = 128 * 1024
"""Maximum number of bytes that an Envelope request adds to the request that it contains. The client's id and principal
have at most 64 KB.
"""


class RefusedError(KcoreError):
    """A request to which the protocol has no response: an unknown API key or an unsupported version."""


class Served(ApiEntry):
    """The entry of an API that the server serves.

    For metrics, it counts errors after a call of `Dispatch.count_errors`, and measures times after a call of
    `Dispatch.time_requests`.

    Args:
        api: processes the requests.
        limit_bytes: the largest response in bytes, including its length field.
        reserve_memory: called with the size in bytes of every encoded response of more than 16 KiB. It raises
            `MessageTooLargeError` if not enough memory is left. None: the sizes are not reported.
        max_request_bytes: the largest request in bytes.
        max_request_elements: the largest number of array elements and tagged fields in a request.
        slice_bytes: the size in bytes above which a response is encoded in slices; 0: all responses are encoded in one
            step.

    Attributes:
        all_times: the times of all measured requests. `times` is this object while the server measures requests, and
            otherwise None.
    """

    __slots__ = ("all_times",)

    def __init__(
        self,
        api: Api[Any, Any],
        limit_bytes: int = LONGEST_FRAME,
        reserve_memory: Callable[[int], None] | None = None,
        *,
        max_request_bytes: int = LONGEST_FRAME,
        max_request_elements: int = LONGEST_FRAME,
        slice_bytes: int = 0,
    ) -> None:
        # Some APIs advertise more versions than the server can decode (Produce, KAFKA-18659). It serves only the
        # versions that it can decode.
        max_version = min(api.versions[1], api.request_type.MAX_VERSION)
        super().__init__(
            api,
            min_version=max(api.versions[0], api.request_type.MIN_VERSION),
            max_version=max_version,
            header_versions=[response_header_version(int(api.key), v) for v in range(max_version + 1)],
            shorten=shorten_messages,
            limit_bytes=limit_bytes,
            reserve_memory=reserve_memory,
            max_request_bytes=max_request_bytes,
            max_request_elements=max_request_elements,
            slice_bytes=slice_bytes,
        )
        self.all_times = ApiTimes()


class Dispatch:
    """The APIs that the server serves, and the responses to other requests.

    Args:
        engine: processes the requests.
        reserve_memory: reserves memory for each long response; None disables accounting. Fetch responses do not use it,
            because they reserve memory when they read the log.

    Attributes:
        routes: API key -> entry; None for keys that were not used yet and for keys that are not served.
    """

    __slots__ = ("_counts_errors", "_meter", "_reserve_memory", "_served", "_times_requests", "engine", "routes")

    def __init__(self, engine: Engine, reserve_memory: Callable[[int], None] | None = None) -> None:
        self.engine = engine
        self._reserve_memory = reserve_memory
        self._served: dict[int, Served] = {}
        self._counts_errors = False
        self._times_requests = False
        self._meter: RequestMeter | None = None
        self.routes: list[ApiEntry | None] = [None] * (max(engine.apis) + 1)

    def __iter__(self) -> Iterator[Served]:
        """Iterates over the served APIs that have received a request."""
        return iter(self._served.values())

    def count_errors(self) -> None:
        """Starts to count error codes in responses."""
        self._counts_errors = True
        for served in self:
            served.count_errors = error_counter(served.api.response_type)

    def time_requests(self, on: bool) -> None:
        """Starts or stops the measurement of request times. Requests that began before the start are not measured."""
        self._times_requests = on
        for served in self:
            served.times = served.all_times if on else None

    def measure(self, meter: RequestMeter | None) -> None:
        """Makes `meter` measure all later requests except requests of `EXEMPT` APIs. None ends the measurement."""
        self._meter = meter
        for served in self:
            served.meter = None if served.key in EXEMPT else meter

    def requests(self) -> Iterator[tuple[int, int]]:
        """Yields the number of requests by API key, for every served API."""
        for key in self.engine.apis:
            served = self._served.get(key)
            yield key, 0 if served is None else served.requests

    def route(self, api_key: int) -> Served | None:
        """Returns the table entry of an API key, or None if the server does not serve the API.

        The first call for a key creates its entry.
        """
        served = self._served.get(api_key)
        if served is None and api_key in self.engine.apis:
            fetches = api_key == ApiKey.FETCH
            config = self.engine.config
            served = Served(
                self.engine.apis[api_key],
                self._limit_bytes(fetches),
                reserve_memory=None if fetches else self._reserve_memory,
                max_request_bytes=_max_request_bytes(config, api_key),
                max_request_elements=config.kcore_max_request_elements,
                slice_bytes=0 if fetches else SLICE_BYTES,  # a fetch copies records, which is fast
            )
            guard = self.engine.guard(served.api)
            if guard is not None:
                served.fast, served.handle, served.lease, served.checked = guard
            if self._counts_errors:
                served.count_errors = error_counter(served.api.response_type)
            if self._times_requests:
                served.times = served.all_times
            if api_key not in EXEMPT:
                served.meter = self._meter
            self._served[api_key] = self.routes[api_key] = served
        return served

    def _limit_bytes(self, fetches: bool) -> int:
        """Returns the maximum size of an API's responses in bytes.

        The limit of Fetch is higher, because a Fetch response must have room for one batch of any size.
        """
        config = self.engine.config
        limit_bytes = config.kcore_max_response_bytes
        return min(limit_bytes + config.socket_request_max_bytes if fetches else limit_bytes, LONGEST_FRAME)

    def too_large(self, api: Api[Any, Any], context: Any, request: Any, version: int) -> Any:
        """Returns the error that replaces an oversized response.

        Args:
            api: the API that processed the request.
            context: the context of the request.
            request: the request with the oversized response.
            version: the version of the response.

        Raises:
            CloseConnectionError: the response has no field for an error in this version.
        """
        limit_bytes = self.engine.config.kcore_max_response_bytes
        response = api.error(
            context, request, ErrorCode.POLICY_VIOLATION, "the response is longer than kcore.max.response.bytes allows"
        )
        if not _carries_error(response, version):
            raise CloseConnectionError(
                f"the response to {api.name} has more than {limit_bytes} bytes (kcore.max.response.bytes), and version "
                f"{version} of this API has no field for the error"
            )
        logger.warning(
            "%s of client %r fails with POLICY_VIOLATION: its response has more than %d bytes "
            "(kcore.max.response.bytes); request fewer items at a time, or raise the setting",
            api.name,
            context.client_id,
            limit_bytes,
            extra=fields(connection=context.connection_id),
        )
        return response

    def find(self, api_key: int, version: int) -> Served | None:
        """Returns the table entry of an API, or None if the server does not serve the API in this version."""
        served = self.route(api_key)
        if served is None or not served.min_version <= version <= served.max_version:
            return None
        return served

    def unsupported(self, api_key: int, version: int) -> tuple[Any, Served, int]:
        """Returns the response to a request for which `find` returns None. Only ApiVersions has such a response, in
        version 0 (KIP-511).

        Returns:
            The response, its API, and the version to encode it in.

        Raises:
            RefusedError: the request is for any other API; the caller closes the connection.
        """
        served = self.route(api_key) if api_key == ApiKey.API_VERSIONS else None
        if served is not None:
            return served.api.unsupported(), served, 0
        raise RefusedError(f"API key {api_key}, version {version}, is not supported")


def _carries_error(response: Any, version: int) -> bool:
    """Returns True if a client can read an error in the response.

    Some versions have no error field at the top level, and an empty array has no element with an error.
    """
    kind = type(response)
    code = getattr(response, "error_code", ErrorCode.NONE)
    if code and kind.decode(kind(error_code=code).encode(version), version).error_code:
        return True
    counts: dict[int, int] = {}
    count_errors = error_counter(kind)
    if count_errors is not None:
        count_errors(response, counts)
    return sum(counts.values()) > bool(code)


def _max_request_bytes(config: Config, api_key: int) -> int:
    """Returns the maximum size of a request in bytes.

    Produce requests contain the records of clients, so only `socket.request.max.bytes` limits them. The limit of other
    requests allows the largest records of a group. The limit of Envelope requests is higher, because an envelope may
    contain another request of the maximum size.
    """
    if api_key == ApiKey.PRODUCE:
        return LONGEST_FRAME
    limit_bytes: int = max(config.kcore_max_request_bytes, 2 * config.message_max_bytes)
    return limit_bytes + ENVELOPE_BYTES if api_key == ApiKey.ENVELOPE else limit_bytes
