"""The machine's clocks, and a cached time. The cached time is read once for each request or turn of a loop."""

cimport cython
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef enum:
    STALE_MS = 100          # age of a round's time after which it is read again

cpdef enum:
    LONG_PAUSE_MS = 1_000   # documented in clock.pyi


cdef int64_t read_ms(int which) except? -1:
    cdef timespec now
    if clock_gettime(which, &now) != 0:
        raise OSError("the clock cannot be read")
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


@cython.final
cdef class SystemClock:
    """Documented in clock.pyi."""

    def monotonic_ms(self) -> int:
        return read_ms(CLOCK_MONOTONIC)

    def wall_ms(self) -> int:
        return read_ms(CLOCK_REALTIME)


@cython.final
cdef class Now:
    """Documented in clock.pyi."""

    def __init__(self, clock):
        self.clock = clock
        self.is_system = type(clock) is SystemClock
        self.now_ms = clock.monotonic_ms()
        self.wall_ms = clock.wall_ms()
        self.resumed_ms = self.now_ms - LONG_PAUSE_MS - 1

    cdef int64_t age_ms(self) except? -1:
        """Returns the time since the clock was read."""
        return (read_ms(CLOCK_MONOTONIC) if self.is_system else <int64_t>self.clock.monotonic_ms()) - self.now_ms

    cpdef int64_t update(self) except? -1:
        cdef int64_t now_ms
        if self.is_system:
            self.wall_ms = read_ms(CLOCK_REALTIME)
            now_ms = read_ms(CLOCK_MONOTONIC)
        else:
            self.wall_ms = self.clock.wall_ms()
            now_ms = self.clock.monotonic_ms()
        if now_ms > self.now_ms:
            if now_ms - self.now_ms > LONG_PAUSE_MS:
                self.resumed_ms = now_ms
            self.now_ms = now_ms
        return self.now_ms


@cython.final
cdef class RoundClock:
    """Documented in clock.pyi."""

    def __init__(self, Now now not None, open_round):
        self.now = now
        self.open_round = open_round

    cpdef int begin(self) except -1:
        if not self.read:
            self.now.update()
            self.open_round()
            self.read = True
        elif self.now.age_ms() > STALE_MS:
            self.now.update()
        return 0
