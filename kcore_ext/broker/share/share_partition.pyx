"""A share partition's work for every fetch: reading log batches and acquiring their records.

`kcore.broker.share.share_partition` has all other code of a share partition. It also reads further batches if the first
read has too few records, and finds the records of aborted transactions.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from kcore_ext.batch.layout cimport HEADER_BYTES, LAST_DELTA_AT
from kcore_ext.broker.producers cimport any_aborted
from kcore_ext.broker.share.acquire cimport Acquired
from kcore_ext.log.partition cimport LogCore
from kcore_ext.util.byte_order cimport read_int32, read_int64

cdef enum:
    # size of the first read of a fetch; each further read is twice as large, until the fetch has enough records
    FIRST_READ_BYTES = 4_096
    BATCH_COST_BYTES = 512      # additional cost of each log batch; reading this many bytes takes the same time

cdef Delivery NOTHING = Delivery.__new__(Delivery)
NOTHING.records = b""
NOTHING.ranges = []


@cython.final
@cython.freelist(16)
cdef class Delivery:
    """Documented in share_partition.pyi."""

    def __init__(self):
        raise TypeError("a Delivery is made by acquire_records")


cdef class SharePartitionCore(ShareRuns):
    """Documented in share_partition.pyi."""

    def __init__(self, str group_id not None, PartitionCore partition not None, services, state, error):
        self.group_id = group_id
        self.partition = partition
        self.state = state
        self.error = error
        self._services = services
        self._wheel = services.wheel
        self._now = services.now
        self._counters = services.counters
        self._purgatory = services.purgatory

    # ---- fetching

    def readable_end(self, settings):
        return self.end_of(settings)

    cdef int64_t end_of(self, object settings) except -1:
        return self.partition.last_stable_offset if settings.read_committed else self.partition.high_watermark

    def has_records(self):
        return self.has(self._services.settings_of(self.group_id))

    cdef bint has(self, object settings) except -1:
        """Returns True if a fetch would probably acquire records."""
        return self.next_offset() < self.end_of(settings) and self.may_acquire(settings.max_locks)

    def acquire_records(self, params, int64_t max_records, int64_t max_bytes):
        return self.deliver(
            params.member_id, params.batch_size, params.record_limit, max_records, max_bytes,
            self._services.settings_of(self.group_id),
        )

    cdef Delivery deliver(
        self, str member, int64_t batch_size, bint record_limit, int64_t max_records, int64_t max_bytes, object settings
    ):
        """Acquires and reads records; `acquire_records` documents it."""
        cdef PartitionCore partition = self.partition
        cdef int64_t max_locks = settings.max_locks
        cdef int64_t log_start, offset, end
        cdef Delivery delivery
        cdef Acquired acquired
        cdef list batches
        aborted = ()
        if isinstance(partition.log, LogCore):
            log_start = (<LogCore>partition.log).log_start_offset
        else:
            log_start = partition.log.log_start_offset
        self.examined_bytes = 0
        offset, end = self.next_offset(), self.end_of(settings)
        if offset < log_start:
            # As in Kafka, the next fetch delivers records. Acquired records below the log's start stay acquired until a
            # fetch would read there.
            self.move_log_start(log_start)
            return NOTHING
        if offset >= end or max_records <= 0 or not self.may_acquire(max_locks):
            return NOTHING
        batches = self.first_batches(offset, end, min(max_records, max_locks), max_bytes)
        for batch in batches:
            self.examined_bytes += PyBytes_GET_SIZE(<bytes?>batch) + BATCH_COST_BYTES
        if settings.read_committed and len(batches) and any_aborted(partition.producers):
            aborted = self._aborted(batches, offset)
        try:
            acquired = self.take(
                member, batches, offset, self._wheel, self._now.now_ms + <int64_t>settings.lock_ms, max_records,
                batch_size, record_limit, max_locks, settings.max_deliveries, aborted,
            )
        except Exception as error:
            self._drop_after(error)
            raise
        if not len(acquired.ranges):
            return NOTHING
        delivery = Delivery.__new__(Delivery)
        delivery.ranges = acquired.ranges
        delivery.acquired = acquired.count
        if acquired.stop_batch - acquired.first_batch == 1:
            delivery.records = <bytes>batches[acquired.first_batch]
        else:
            delivery.records = b"".join(batches[acquired.first_batch:acquired.stop_batch])
        self._counters.count_ranges(acquired.ranges)
        partition.traffic.sent(
            <const unsigned char*>PyBytes_AS_STRING(delivery.records), PyBytes_GET_SIZE(delivery.records)
        )
        return delivery

    cdef list first_batches(self, int64_t offset, int64_t end, int64_t max_records, int64_t max_bytes):
        """Reads log batches until they have enough records to acquire."""
        cdef list batches = self.partition.log.read(offset, min(max_bytes, <int64_t>FIRST_READ_BYTES), end, True)
        cdef bytes last
        cdef int64_t size = 0, behind
        for batch in batches:
            size += PyBytes_GET_SIZE(<bytes?>batch)
        if not PyList_GET_SIZE(batches) or size >= max_bytes:
            return batches
        last = <bytes>batches[PyList_GET_SIZE(batches) - 1]
        if PyBytes_GET_SIZE(last) < HEADER_BYTES:
            raise ValueError(f"a record batch has at least {HEADER_BYTES} bytes, found {PyBytes_GET_SIZE(last)}")
        behind = read_int64(<const unsigned char*>PyBytes_AS_STRING(last))
        behind += read_int32(<const unsigned char*>PyBytes_AS_STRING(last) + LAST_DELTA_AT) + 1
        if behind < end and self.acquirable(offset, behind - 1) < max_records:
            self._read_more(batches, size, offset, end, max_records, max_bytes)
        return batches
