"""The part of a connection that runs for every read of the socket."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from kcore_ext.server.request_queue import QueueOwner, RequestQueue

UNREAD_CHECK_BYTES: int
"""Number of response bytes that a connection collects before it writes them to the socket.

After each write of this many bytes, it also checks the number of sent bytes that the peer has not read.
"""

READ_AHEAD_BYTES: int
"""Number of bytes that a connection reads from the socket while a request waits, to detect a broken connection."""

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
        schedule_round_end: schedules the end of the round.

    Attributes:
        time_budget_ns: the maximum time in ns for requests in one turn of the event loop, for all connections that are
            read together. The connections that are flushed have another budget of this size. A request that has begun
            is completed even if the budget is used up.
    """

    time_budget_ns: int

    def __init__(self, schedule_round_end: Callable[[], None]) -> None: ...
    def __len__(self) -> int: ...
    def discard(self, connection: ConnectionCore) -> None:
        """Removes a connection from the queue, if it is queued."""
    def flush(self) -> None:
        """Lets each queued connection, in order, send its responses and serve further requests.

        Ends when the queue is empty. A connection that raises an exception is closed.
        """
    def renew_time_budget(self) -> None:
        """Begins a new time budget for the connections that are read or flushed next."""

class TurnsCore:
    """The part of `kcore.server.turns.Turns` that connections read for every request.

    Attributes:
        turn_ns: time in ns for the requests of a connection.
        waiting: the connections, in the order of their turns. The values are None.
    """

    turn_ns: int
    waiting: dict[Any, None]

class ConnectionCore(QueueOwner):
    """The part of a connection that runs for every read.

    The remaining requests of a connection wait for a later turn of the event loop in these cases:

    - The connection has sent responses 16 times in this turn.
    - Its requests have taken the time that a connection has in a turn.
    - More than 1 KiB of requests is waiting, and other connections wait for their turns.
    - The requests of all connections that are read, or flushed, in this turn have taken 20 ms.
    - A read returned at least 128 KiB. Without this rule, a connection could serve 32 such reads in a turn of uvloop.

    Args:
        server: the server that accepted the connection.
        queue: the requests and responses of the connection.
        row_bytes: the number of response bytes that are collected before they are written to the socket.

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
        """Feeds received bytes to the request queue, and serves the complete requests."""
    @property
    def lost_response(self) -> bool:
        """True if there was no memory for a response; the connection must be closed."""

    def schedule_flush(self) -> None:
        """Schedules `flush_and_serve` for the end of the round."""
    def flush_and_serve(self, shares_time: bool = True) -> None:
        """Sends ready responses and serves waiting requests.

        Args:
            shares_time: True if other connections share the time budget of this turn, as at the end of a round. False
                in a turn that only this connection uses.
        """
    def _flush(self) -> None:
        """Sends the responses that are complete."""
    def _pace(self) -> None:
        """Pauses or resumes reading from the socket.

        While reading is paused, requests that the peer sends in advance stay in the socket buffers.
        """
    @abstractmethod
    def report_unread(self) -> None:
        """Reports the number of sent bytes that the peer has not read."""
    @abstractmethod
    def _flush_failed(self, error: Exception) -> None:
        """Closes the connection, because `flush_and_serve` raised `error` at the end of a round."""
    @abstractmethod
    def _continue_later(self) -> None:
        """Schedules the remaining requests for a later turn of the event loop."""
    @abstractmethod
    def _serve_failed(self, error: Exception) -> None:
        """Refuses further requests, because serving one raised `error`."""
    @abstractmethod
    def _close_if_done(self) -> None:
        """Closes the connection if the client sends no more requests and has received all responses."""
