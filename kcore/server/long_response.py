"""Encodes long responses in slices, between which other requests are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.server.errors import shorten_messages
from kcore_ext.codec.long_frame import LongFrame

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kcore.runtime import RequestContext
    from kcore.server.connection import Connection
    from kcore_ext.server.api_entry import ApiEntry
    from kcore_ext.server.request_queue import ResponseSlot

SLICE_BYTES = 524_288
"""Number of bytes that one slice encodes. A slice takes about 5 ms. A larger response is encoded in several slices."""


class LongResponse(NamedTuple):
    """A response to be encoded.

    Attributes:
        connection: the connection of the client.
        slot: the position of the response in the connection's queue.
        route: the table entry of the request's API, which encodes the response.
        api: the API that processed the request.
        context: the context of the request.
        request: the request that the API processed.
        version: the version of the request.
        correlation_id: the correlation id of the request.
    """

    connection: Connection
    slot: ResponseSlot
    route: ApiEntry
    api: Any
    context: RequestContext
    request: Any
    version: int
    correlation_id: int

    def write(self, response: Any) -> Iterator[None]:
        """Encodes the response, one slice in each step of this generator, and completes the response's slot."""
        connection, route = self.connection, self.route
        try:
            try:
                frame = yield from self._frame(response)
                if route.reserve_memory is not None:
                    route.reserve_memory(len(frame))
            except MessageTooLargeError as error:
                response = connection.too_large(route, self.api, self.context, self.request, self.version, error)
                frame = route.whole_frame(response, self.version, self.correlation_id)
        except Exception as error:
            connection.response_failed(self.slot, error)
        else:
            self.slot.complete(frame)

    def _frame(self, response: Any) -> Generator[None, None, bytes]:
        """Encodes the response; shortens its error messages if they are too long to be encoded."""
        try:
            frame = yield from self._steps(response)
        except EncodeError as error:
            if isinstance(error, MessageTooLargeError) or not shorten_messages(response):
                raise
            frame = yield from self._steps(response)
        return frame

    def _steps(self, response: Any) -> Generator[None, None, bytes]:
        version, route = self.version, self.route
        writer = LongFrame(response, version, self.correlation_id, route.header_version(version), route.limit_bytes)
        while True:
            frame = writer.step(SLICE_BYTES)
            if frame is not None:
                return frame
            yield
