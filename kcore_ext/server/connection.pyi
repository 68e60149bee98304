"""The steps that a connection takes for every read of the socket."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from kcore_ext.server.request_queue import RequestQueue

UNREAD_CHECK_BYTES: int
"""Number of response bytes that are encoded before a write. Also the number of bytes sent between two checks of the
unread bytes.
"""

READ_AHEAD_BYTES: int
"""Number of bytes that a connection reads ahead while a request waits: enough to notice a broken connection."""

class Traffic:
    """The bytes that a server has exchanged with its clients.

    Attributes:
        received_bytes: bytes received from clients.
        sent_bytes: bytes sent to clients.
    """

    received_bytes: int
    sent_bytes: int

class FlushQueue:
    """The connections that send responses at the end of the round.

    Args:
        round_is_open: schedules the end of the round.

    Attributes:
        phase_ns: the time in ns that the requests of all connections may take that are read in one turn of the event
            loop. The connections that are flushed have another such period. A request that has begun is completed.
    """

    phase_ns: int

    def __init__(self, round_is_open: Callable[[], None]) -> None: ...
    def __len__(self) -> int: ...
    def discard(self, connection: ConnectionCore) -> None:
        """Removes a connection from the queue, if it is queued."""
    def flush(self) -> None:
        """Lets each queued connection, in order, send its responses and serve further requests, until the queue is
        empty.

        A connection that raises is closed.
        """
    def begin_phase(self) -> None:
        """Begins a period of `phase_ns` for the connections that are read or flushed next."""

class ConnectionCore:
    """The part of a connection that runs for every read.

    The remaining requests of a connection wait for a later turn of the event loop in these cases:

    - Responses were sent 16 times in this turn.
    - Its requests have taken the time of a turn.
    - A request has more than 1 KiB, and other connections wait for their turns.
    - The requests of other connections that are read, or flushed, in the same turn have taken 20 ms.
    - A read had 128 KiB, because uvloop reads 32 times in a turn.

    Args:
        server: the server that accepted the connection.
        queue: its requests and responses.
        row_bytes: the number of response bytes after which the encoded responses are written to the socket.

    Attributes:
        server: the server that accepted the connection.
        transport: the transport; None until the connection is made.
    """

    server: Any
    transport: Any
    _queue: RequestQueue
    _turns: Any
    _row_bytes: int
    _write: Callable[[bytes], None]
    _closing: bool
    _refused: bool
    _eof: bool
    _unread: bool
    _continues: bool
    _reading: bool
    _last_byte_s: float
    _sent_bytes: int
    _look_at_bytes: int

    def __init__(self, server: Any, queue: RequestQueue, row_bytes: int) -> None: ...
    def data_received(self, data: bytes) -> None:
        """Feeds received bytes to the request queue and serves them."""
    @property
    def lost_response(self) -> bool:
        """True if there was no memory for a response; the connection must be closed."""

    def arrived(self) -> None:
        """Schedules a completed response to be sent at the end of the round."""
    def go_on(self, shares_time: bool = True) -> None:
        """Sends ready responses and serves waiting requests.

        Args:
            shares_time: True at the end of a round, or when the buffer has room again: other connections then share the
                time of this turn. False in a turn that only this connection uses.
        """
    def _flush(self) -> None:
        """Sends the responses that are complete."""
    def _pace(self) -> None:
        """Resumes reading from the socket, or pauses it, so that bytes that the peer sends ahead stay in the peer's
        socket.
        """
    @abstractmethod
    def report_unread(self) -> None:
        """Reports the number of sent bytes that the peer has not read."""
    @abstractmethod
    def _flush_failed(self, error: Exception) -> None:
        """Closes the connection, because `go_on` raised `error` at the end of a round."""
    @abstractmethod
    def _continue_later(self) -> None:
        """Schedules the remaining requests for a later turn of the event loop."""
    @abstractmethod
    def _serve_failed(self, error: Exception) -> None:
        """Refuses further requests, because serving one raised `error`."""
    @abstractmethod
    def _close_if_done(self) -> None:
        """Closes the connection if the client sends no more requests and has received all responses."""
