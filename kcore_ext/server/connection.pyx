"""The steps that a connection takes for every read of the socket: feed, serve, send, and decide whether to read on.

These steps run Python code only in rare cases: the peer does not read, requests wait for a later turn, or a request is
malformed. `kcore.server.connection` handles these cases in the methods that connection.pyi declares as abstract.
"""

from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport RoundClock
from kcore_ext.server.request_queue cimport QueueOwner, RequestQueue
from kcore_ext.util.monotonic cimport coarse_now_ns

cdef enum:
    UNREAD_CHECK_LIMIT = 16_384
    READ_AHEAD_LIMIT = 16_384
    SINGLE_BYTES = 1_024            # connection.pyi explains this limit and the next two
    BULK_BYTES = 131_072
    MAX_FLUSHES = 16
    TIME_BUDGET_NS = 20_000_000     # time for the requests of all connections that are read, or flushed, in one turn
    AFTER_FIRST = -2                # the time of a turn begins after its first requests; see `RequestQueue._is_late`

UNREAD_CHECK_BYTES = UNREAD_CHECK_LIMIT
READ_AHEAD_BYTES = READ_AHEAD_LIMIT


cdef class Traffic:
    """Documented in connection.pyi."""


cdef class FlushQueue:
    """Documented in connection.pyi."""

    def __init__(self, schedule_round_end):
        self._connections = {}
        self._schedule_round_end = schedule_round_end
        self.time_budget_ns = TIME_BUDGET_NS

    cpdef void renew_time_budget(self) noexcept:
        self._until_ns = coarse_now_ns() + self.time_budget_ns

    def __len__(self):
        return len(self._connections)

    cdef int put(self, object connection) except -1:
        self._connections[connection] = None
        if not self._scheduled:
            self._schedule_round_end()
            self._scheduled = True      # last: if scheduling raised, the next call tries again
        return 0

    def discard(self, connection):
        self._connections.pop(connection, None)

    def flush(self):
        cdef ConnectionCore connection
        cdef dict connections, empty
        while self._connections:
            empty = {}      # allocated before anything changes
            connections, self._connections = self._connections, empty
            self._scheduled = False
            self.renew_time_budget()
            for connection in connections:
                try:
                    connection.flush_and_serve()
                except Exception as error:
                    connection._flush_failed(error)
        self.renew_time_budget()      # the connections that are read next have a new budget


cdef class TurnsCore:
    """Documented in connection.pyi."""


cdef class ConnectionCore(QueueOwner):
    """Documented in connection.pyi."""

    def __init__(self, server, RequestQueue queue not None, Py_ssize_t row_bytes):
        self.server = server
        self._queue = queue
        self._row_bytes = row_bytes
        self._turns = server.turns
        self._memory = server.memory
        self._unserved = server.unserved
        self._traffic = server.traffic
        self._flushes = server.flushes
        self._round_clock = server.driver.round_clock
        self._loop_time = server.loop.time
        self._reading = True
        self._look_at_bytes = UNREAD_CHECK_LIMIT

    def data_received(self, bytes data not None):
        cdef Py_ssize_t size = len(data)
        cdef RequestQueue queue = self._queue
        if self._closing or self._refused:
            return
        self._traffic.received_bytes += size
        self._last_byte_s = self._loop_time()
        queue.feed(data)
        if not self._round_clock.read:
            self._flushes.renew_time_budget()
        self._round_clock.begin()
        self.share_time()
        self.serve()
        if size >= BULK_BYTES and queue.unserved() < size and not self._closing:
            self._continue_later()  # some of the received bytes were served
        self.pace()

    @property
    def lost_response(self):
        return self._queue.lost

    def schedule_flush(self):
        self.flush_later()

    cdef int flush_later(self) except -1:
        return self._flushes.put(self)

    cpdef int flush_and_serve(self, bint shares_time=True) except -1:
        if self._closing:
            return 0
        self.flush()
        if shares_time and self._queue.unserved() and not self._queue.parked:
            self.share_time()
        self.serve()
        self.pace()
        if self._eof:
            self._close_if_done()
        return 0

    cdef int serve(self) except -1:
        """Serves complete frames until a request is parked, the peer stops reading, or no frame is left; sends the
        responses.
        """
        cdef RequestQueue queue = self._queue
        cdef int flushes = 0
        cdef int64_t until_ns = AFTER_FIRST
        if self._unread or self._closing or self._refused or self._continues:
            return 0
        queue.turn_ns = self._turns.turn_ns
        try:
            while queue.serve():
                self.flush()
                if self._unread or queue.held_bytes > self._row_bytes:
                    break
                flushes += 1
                # A long response ends the call of `queue.serve`, which measures only the requests of that call.
                if flushes == MAX_FLUSHES or queue.turn_ns and queue._is_late(&until_ns):
                    self._continue_later()
                    break
            if queue.late:
                self._continue_later()
        except Exception as error:
            self._serve_failed(error)
        return self.flush()

    cdef int share_time(self) except -1:
        """Schedules the requests for a later turn if the time budget is used up.

        Also does so if more than `SINGLE_BYTES` of requests are waiting while other connections wait for a turn.
        """
        if coarse_now_ns() >= self._flushes._until_ns or self._queue.unserved() > SINGLE_BYTES and self._turns.waiting:
            self._continue_later()
        return 0

    cdef int flush(self) except -1:
        cdef object data = self._queue.take()
        if data is None:
            return 0
        self._last_byte_s = self._loop_time()
        self._traffic.sent_bytes += len(<bytes>data)
        self._sent_bytes += len(<bytes>data)
        self._write(data)
        if self._sent_bytes >= self._look_at_bytes:
            self.report_unread()
        return 0

    def _flush(self):
        self.flush()

    cdef int pace(self) except -1:
        """Pauses or resumes reading from the socket.

        While reading is paused, requests that the peer sends in advance stay in the socket buffers.
        """
        cdef RequestQueue queue = self._queue
        cdef bint waits
        cdef bint read
        if self._closing:
            return 0
        if self._claims or queue.unserved() > READ_AHEAD_LIMIT:
            self._claims = self._unserved.claim(self, queue.unserved())
            if self._closing:
                return 0
        if queue.held_bytes > self._row_bytes:
            self.report_unread()
        waits = queue.parked or self._unread or self._continues or queue.held_bytes > self._row_bytes
        read = not (waits and queue.unserved() > READ_AHEAD_LIMIT)
        if self._memory is not None:
            self._memory.claim(self, queue.claim_bytes)
            read = read and self._memory.may_read(self)
        if read != self._reading:
            self._reading = read
            try:
                if read:
                    self.transport.resume_reading()
                else:
                    self.transport.pause_reading()
            except:
                self._reading = not read  # a later call tries again
                raise
        return 0

    def _pace(self):
        self.pace()
