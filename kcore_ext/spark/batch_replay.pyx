"""Replays events directly from Arrow buffers.

The replay makes one object for each committed offset.

For each event, the replay does the work of `kcore.spark.state.partition_state.PartitionState.apply` and
`kcore.spark.state.completeness.Completeness.add`. Non-transactional committed offsets, which are nearly all events of a
coordinator's log, go directly to the dictionaries that the engine's own recovery fills. All other events are passed to
a function as the fields of a row.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from kcore_ext.util.byte_order cimport read_int32
from kcore_ext.spark.column_store cimport Bytes, Input
from kcore_ext.group.offsets cimport OffsetAndMetadata, OffsetDecoder, read_value

cdef enum:
    CREATE_TIME = 0
    US_IN_MS = 1000


@cython.final
cdef class EventInput:
    """Columns of a batch of events. Columns of numbers and booleans may be missing."""

    cdef Py_ssize_t size
    cdef Input key
    cdef Input value
    cdef Input offset
    cdef Input timestamp
    cdef Input producer_id
    cdef Input producer_epoch
    cdef Input last_sequence
    cdef Input transactional
    cdef Input control
    cdef Input batch_only

    def __cinit__(
        self, Py_ssize_t size, Input key not None, Input value not None, Input offset not None, Input timestamp,
        Input producer_id, Input producer_epoch, Input last_sequence, Input transactional, Input control,
        Input batch_only
    ):
        self.size = size
        self.key = key
        self.value = value
        self.offset = offset
        self.timestamp = timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.transactional = transactional
        self.control = control
        self.batch_only = batch_only


@cython.final
cdef class EventReplay:
    cdef object topic
    cdef object partition
    cdef object partitions_of
    cdef object other
    cdef object missing                 # None: the log may have gaps
    cdef set keys                       # None: `watch_keys` is False, or a repeated key was found
    cdef OffsetDecoder decoder
    cdef bytes names                    # the group and topic of `offsets`
    cdef dict offsets
    cdef int64_t stop, latest_ms
    cdef readonly int64_t log_first     # -1: no event yet
    cdef readonly int64_t log_last
    cdef readonly int64_t first
    cdef readonly int64_t last
    cdef readonly int64_t last_timestamp_ms
    cdef readonly int64_t largest_timestamp_ms
    cdef readonly int64_t repeated_at
    cdef readonly int64_t last_gap
    cdef readonly Py_ssize_t fast_records
    cdef readonly Py_ssize_t added
    cdef readonly bint gaps
    cdef readonly bint cut

    def __cinit__(
        self, str topic not None, int32_t partition, int64_t stop, int64_t latest_ms, bint watch_keys, partitions_of,
        other
    ):
        self.topic = topic
        self.partition = partition
        self.stop = stop
        self.latest_ms = latest_ms
        self.keys = set() if watch_keys else None
        self.partitions_of = partitions_of
        self.other = other
        self.decoder = OffsetDecoder.__new__(OffsetDecoder)
        self.log_first = self.log_last = self.first = self.last = self.last_timestamp_ms = -1
        self.repeated_at = self.last_gap = self.largest_timestamp_ms = -1

    def resume(self, int64_t first, int64_t last, int64_t last_timestamp_ms, int64_t largest_timestamp_ms,
               int64_t log_first, int64_t last_gap, missing):
        self.first, self.last, self.last_timestamp_ms = first, last, last_timestamp_ms
        self.largest_timestamp_ms = largest_timestamp_ms
        self.log_first, self.log_last, self.last_gap = log_first, last, last_gap
        self.missing = missing

    def replay(self, EventInput events not None):
        cdef Py_ssize_t row
        cdef int64_t offset, timestamp_ms
        cdef bint control, beyond
        cdef Bytes key
        for row in range(events.size):
            offset = number_at(events.offset, row, -1)
            if offset <= self.log_last:
                continue
            timestamp_ms = ms_at(events.timestamp, row)
            beyond = self.cut
            if offset >= self.stop or timestamp_ms > self.latest_ms:
                self.cut = True
            if self.missing is not None and not self.cut and offset != self.log_last + 1:
                self.missing(self.log_last + 1, offset)
            control = flag_at(events.control, row)
            events.key.get(row, &key)
            self._saw(offset, &key, control, beyond)
            if self.cut:
                continue
            if self.first < 0:
                self.first = offset
            self.last = offset
            self.last_timestamp_ms = timestamp_ms
            if timestamp_ms > self.largest_timestamp_ms:
                self.largest_timestamp_ms = timestamp_ms
            if control or not self._put(events, row, &key, offset):
                # The call may change any state: the cached dictionary of offsets is not valid any more.
                self.names = None
                self.other(self._fields(events, row, &key, control))

    cdef int _saw(self, int64_t offset, Bytes* key, bint control, bint beyond) except -1:
        """Tracks the completeness of the log, as `Completeness.add` does."""
        cdef bytes data
        if self.log_first < 0:
            self.log_first = offset
            self.gaps = offset > 0
        elif offset - 1 != self.log_last:
            self.gaps = True
            if not beyond:
                self.last_gap = offset
        self.log_last = offset
        if self.keys is not None and not control and key.at != NULL:
            data = PyBytes_FromStringAndSize(<const char*>key.at, key.size)
            if data in self.keys:
                self.repeated_at = offset
                self.keys = None
            else:
                self.keys.add(data)
        return 0

    cdef bint _put(self, EventInput events, Py_ssize_t row, Bytes* key, int64_t offset) except -1:
        """Replays an event if it is a non-transactional committed offset. Returns False for other events."""
        cdef OffsetAndMetadata entry
        cdef const uint8_t* end
        cdef Bytes value
        cdef Py_ssize_t size
        if self.partitions_of is None or key.at == NULL or number_at(events.producer_id, row, -1) >= 0:
            return False
        events.value.get(row, &value)
        if value.at == NULL or flag_at(events.batch_only, row):
            return False
        entry = None
        if self.decoder._read_names(key.at, key.size):
            entry = read_value(value.at, value.size)
        if entry is None:
            return False
        entry.record_offset = offset
        if self.names is not self.decoder.names:
            self.offsets = self.partitions_of(self.decoder.group, self.decoder.topic)
            self.names = self.decoder.names
        end = key.at + key.size - 4  # the partition
        size = len(self.offsets)
        self.offsets[read_int32(end)] = entry
        self.added += len(self.offsets) - size
        self.fast_records += 1
        return True

    cdef tuple _fields(self, EventInput events, Py_ssize_t row, Bytes* key, bint control):
        """Returns the fields of an `EventRow`. A replay needs neither timestamp type nor headers."""
        cdef Bytes value
        events.value.get(row, &value)
        return (
            as_bytes(key), as_bytes(&value), self.topic, self.partition, self.log_last, self.last_timestamp_ms,
            CREATE_TIME, (), number_at(events.producer_id, row, -1), int_at(events.producer_epoch, row, -1),
            int_at(events.last_sequence, row, -1), flag_at(events.transactional, row), control,
            flag_at(events.batch_only, row),
        )


cdef inline bytes as_bytes(Bytes* found):
    return None if found.at == NULL else PyBytes_FromStringAndSize(<const char*>found.at, found.size)


cdef inline bint flag_at(Input column, Py_ssize_t row) noexcept:
    return column is not None and column.is_true(row)


cdef inline int64_t number_at(Input column, Py_ssize_t row, int64_t otherwise) noexcept:
    if column is None or not column.is_valid(row):
        return otherwise
    return (<const int64_t*>column.views[2].buf)[column.first + row]


cdef inline int32_t int_at(Input column, Py_ssize_t row, int32_t otherwise) noexcept:
    if column is None or not column.is_valid(row):
        return otherwise
    return (<const int32_t*>column.views[2].buf)[column.first + row]


cdef inline int64_t ms_at(Input column, Py_ssize_t row) noexcept:
    """Returns a timestamp in ms, rounded down; -1 for null."""
    cdef int64_t us
    if column is None or not column.is_valid(row):
        return -1
    us = (<const int64_t*>column.views[2].buf)[column.first + row]
    return us // US_IN_MS - (us % US_IN_MS < 0)
