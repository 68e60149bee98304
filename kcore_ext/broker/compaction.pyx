"""The second half of a compaction pass: removes records from each batch and merges small adjacent batches.

This module copies records with new deltas and otherwise unchanged bytes. It leaves transactional batches, and
compressed batches that lose records, to its caller. `kcore.broker.compaction.cleaner` describes the rules.
`with_records` in `tests.reference.compaction` is the reference implementation of `filtered`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kcore_ext.batch.header cimport BatchHeader
from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    put_varint,
    varint_size,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64, write_int16, write_int32, write_int64
from kcore_ext.batch.records cimport RecordReader, RecordView, open_reader
from kcore_ext.broker.compaction_map cimport OffsetMap
from kcore_ext.batch.crc32c cimport crc32c_of

from kcore_ext.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef enum:
    DELTA_BYTES = 20            # maximum growth of a record: wider deltas, and so a wider length
    LARGE_PACKED_BYTES = 4096   # compressed bytes that may become 4 MB and take 10 ms with gzip
    WORK_BYTES = 512            # bytes of a batch that count as one work unit, like a record
    MAX_OFFSET_DELTA = 0x7FFFFFFF
    SMALLEST_RECORD = 7         # seven one-byte fields
    LARGE_BATCH_RECORDS = 4096  # a batch with more records is rewritten in a slice of its own

cdef Py_ssize_t NO_LIMIT = 1 << 62
cdef Py_ssize_t max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES


cdef class Writer:
    """Builder of a batch, with enough memory for all of its records."""

    cdef unsigned char* start
    cdef unsigned char* at
    cdef int64_t base_timestamp_ms
    cdef int64_t max_timestamp_ms
    cdef int32_t count

    def __cinit__(self, Py_ssize_t size_bytes):
        self.start = <unsigned char*>PyMem_Malloc(HEADER_BYTES + size_bytes)
        if self.start is NULL:
            raise MemoryError
        memset(self.start, 0, HEADER_BYTES)
        self.at = self.start + HEADER_BYTES

    def __dealloc__(self):
        PyMem_Free(self.start)

    cdef void append(self, RecordView* record, int64_t timestamp_ms, int64_t offset_delta) noexcept:
        cdef int64_t delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self.base_timestamp_ms)
        cdef Py_ssize_t rest = record.end - record.headers
        cdef Py_ssize_t size = 1 + varint_size(delta) + varint_size(offset_delta) + varint_size(record.header_count)
        cdef unsigned char* at
        size += varint_size(record.key_size) + varint_size(record.value_size) + rest
        size += max(record.key_size, 0) + max(record.value_size, 0)
        at = put_varint(self.at, size)
        at[0] = 0  # attributes: none are in use
        at = put_varint(at + 1, delta)
        at = put_varint(at, offset_delta)
        at = put_varint(at, record.key_size)
        if record.key_size > 0:
            memcpy(at, record.key, record.key_size)
            at += record.key_size
        at = put_varint(at, record.value_size)
        if record.value_size > 0:
            memcpy(at, record.value, record.value_size)
            at += record.value_size
        at = put_varint(at, record.header_count)
        memcpy(at, record.headers, rest)
        self.at = at + rest
        if self.count == 0 or timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.count += 1

    cdef bytes seal(self, int16_t attributes, int32_t last_offset_delta):
        """Completes the header and returns the batch; the caller has written the other fields of the header."""
        cdef Py_ssize_t size = self.at - self.start
        if size - LENGTH_OVERHEAD > 0x7FFFFFFF:
            raise ValueError(
                f"compaction: a rewritten batch of {size} bytes exceeds the largest length in its header, 2**31 - 1"
            )
        write_int32(self.start + LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
        self.start[MAGIC_AT] = 2
        write_int16(self.start + ATTRIBUTES_AT, attributes)
        write_int32(self.start + LAST_DELTA_AT, last_offset_delta)
        write_int64(self.start + BASE_TIMESTAMP_AT, self.base_timestamp_ms)
        write_int64(self.start + MAX_TIMESTAMP_AT, self.max_timestamp_ms)
        write_int32(self.start + COUNT_AT, self.count)
        write_int32(self.start + CRC_AT, <int32_t>crc32c_of(self.start + CHECKED_FROM, size - CHECKED_FROM, 0))
        return PyBytes_FromStringAndSize(<char*>self.start, size)


cdef inline int64_t timestamp_of(RecordReader reader) noexcept:
    if reader.header.attributes & LOG_APPEND_TIME_BIT:
        return reader.header.max_timestamp_ms
    return <int64_t>(<uint64_t>reader.header.base_timestamp_ms + <uint64_t>reader.record.timestamp_delta)


cdef bytes filter_records(bytes batch, const unsigned char* stays, Py_ssize_t count, int64_t horizon_ms):
    cdef RecordReader reader = open_reader(batch, 0, None, 0)
    cdef BatchHeader header = reader.header
    cdef Writer out = Writer(PyBytes_GET_SIZE(batch) + DELTA_BYTES * count)
    cdef int16_t attributes = header.attributes & ~DELETE_HORIZON_BIT
    cdef Py_ssize_t at = 0
    cdef int64_t timestamp_ms
    cdef bint first = True
    if header.attributes & CODEC_BITS:
        raise ValueError(
            f"compaction: the batch at offset {header.base_offset} is compressed: it cannot be filtered in place"
        )
    if header.record_count != count:
        raise ValueError(
            f"compaction: {count} flags do not match the {header.record_count} records of the batch at offset "
            f"{header.base_offset}"
        )
    memcpy(out.start, PyBytes_AS_STRING(batch), HEADER_BYTES)
    if horizon_ms >= 0:
        attributes |= DELETE_HORIZON_BIT
    while reader.move():
        if stays[at]:
            timestamp_ms = timestamp_of(reader)
            if first:
                first = False
                # A horizon is stored in the field of the base timestamp.
                out.base_timestamp_ms = timestamp_ms
                if horizon_ms >= 0 and not attributes & LOG_APPEND_TIME_BIT:
                    out.base_timestamp_ms = horizon_ms
            out.append(&reader.record, timestamp_ms, reader.record.offset_delta)
        at += 1
    if first:
        raise ValueError(
            f"compaction: no record of the batch at offset {header.base_offset} remains: delete the batch instead"
        )
    if horizon_ms >= 0:
        out.base_timestamp_ms = horizon_ms
    return out.seal(attributes, header.last_offset_delta)


def filtered(bytes batch not None, bytes stays not None, int64_t horizon_ms):
    return filter_records(
        batch, <const unsigned char*>PyBytes_AS_STRING(stays), PyBytes_GET_SIZE(stays), horizon_ms
    )


def merged(list batches not None):
    cdef Py_ssize_t size = 0
    cdef RecordReader reader
    cdef Writer out
    cdef int64_t base = 0, last = 0, timestamp_ms
    cdef int32_t leader_epoch = -1
    cdef const unsigned char* at
    cdef bytes batch
    cdef bint first = True
    for given in batches:
        batch = <bytes?>given
        at = <const unsigned char*>PyBytes_AS_STRING(batch)
        if PyBytes_GET_SIZE(batch) < HEADER_BYTES or read_int16(at + ATTRIBUTES_AT) or read_int32(at + COUNT_AT) < 0:
            raise ValueError("compaction: only complete batches without producer and attributes can be merged")
        if read_int32(at + COUNT_AT) > (PyBytes_GET_SIZE(batch) - HEADER_BYTES) // SMALLEST_RECORD:
            raise ValueError(f"{PyBytes_GET_SIZE(batch)} bytes are too few for {read_int32(at + COUNT_AT)} records")
        size += PyBytes_GET_SIZE(batch) + DELTA_BYTES * <Py_ssize_t>read_int32(at + COUNT_AT)
    out = Writer(size)
    for batch in batches:
        reader = open_reader(batch, 0, None, 0)
        if batch is <bytes>batches[0]:
            base = reader.header.base_offset
            leader_epoch = reader.header.partition_leader_epoch
        last = reader.header.base_offset + reader.header.last_offset_delta
        while reader.move():
            timestamp_ms = timestamp_of(reader)
            if first:
                first = False
                out.base_timestamp_ms = timestamp_ms
            out.append(&reader.record, timestamp_ms, reader.header.base_offset + reader.record.offset_delta - base)
    if not 0 <= last - base <= MAX_OFFSET_DELTA:
        raise ValueError(f"compaction: the offsets {base} to {last} do not fit in one batch: merge fewer batches")
    write_int64(out.start, base)
    write_int32(out.start + LEADER_EPOCH_AT, leader_epoch)
    write_int64(out.start + PRODUCER_ID_AT, -1)
    write_int16(out.start + PRODUCER_EPOCH_AT, -1)
    write_int32(out.start + BASE_SEQUENCE_AT, -1)
    return out.seal(0, <int32_t>(last - base))


@cython.final
cdef class Sweep:
    """Documented in compaction.pyi."""

    def __cinit__(
        self, OffsetMap map not None, dict changes not None, int64_t now_ms, int64_t delete_retention_ms,
        Py_ssize_t max_merged_bytes
    ):
        self.map = map
        self.changes = changes
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.max_merged_bytes = max_merged_bytes
        self.run = []
        self.next_horizon_ms = -1

    def __dealloc__(self):
        PyMem_Free(self.stays)

    # ---- remaining records of a batch

    cdef Py_ssize_t examine(self, bytes batch, object decompress, Py_ssize_t work) except? -1:
        """Marks the remaining records of a batch until the work units are used up. Returns the number of unused units.

        If unread records are left, `reader` is set, and the next call continues with them. A batch that has been read
        to its end is not read again.
        """
        cdef RecordReader reader = self.reader
        cdef BatchHeader header
        cdef bint expired
        if self.examined_batch is batch and reader is None:
            return work
        self.reader = None
        if self.examined_batch is not batch:
            reader = open_reader(batch, 0, decompress, max_decompressed_bytes)
            self.begin(reader.header.record_count)
        self.examined_batch = None  # after an exception, the next call begins the batch again
        header = reader.header
        expired = header.attributes & DELETE_HORIZON_BIT and 0 <= header.base_timestamp_ms <= self.now_ms
        while True:
            if work <= 0 and reader.left > 0:
                self.reader = reader
                break
            if not reader.move():
                break
            work -= 1
            self.stays[self.at] = False
            if reader.record.key_size >= 0 and not (expired and reader.record.value_size < 0):
                # A record whose key is not in the map also stays, because the key has no newer record.
                if self.map.latest(reader.record.key, reader.record.key_size) <= (
                    header.base_offset + reader.record.offset_delta
                ):
                    self.stays[self.at] = True
                    self.kept += 1
                    if reader.record.value_size < 0:
                        self.tombstones += 1
            self.at += 1
        self.examined_batch = batch
        return work

    cdef int begin(self, int32_t records) except -1:
        """Resets the counters, and makes room for the marks of a batch with `records` records."""
        cdef unsigned char* stays
        if records > self.stays_room:
            stays = <unsigned char*>PyMem_Realloc(self.stays, records)
            if stays is NULL:
                raise MemoryError
            self.stays = stays
            self.stays_room = records
        self.records = records
        self.at = self.kept = self.tombstones = 0
        return 0

    def remaining_records(self, bytes batch not None, decompress, Py_ssize_t work=NO_LIMIT):
        self.examine(batch, decompress, work)
        if self.reader is not None:
            return None
        return self.kept, self.tombstones, PyBytes_FromStringAndSize(<char*>self.stays, self.records)

    cdef int64_t horizon_of(self, int64_t horizon_ms) noexcept:
        if horizon_ms < 0:
            horizon_ms = self.now_ms + self.delete_retention_ms
        if self.next_horizon_ms < 0 or horizon_ms < self.next_horizon_ms:
            self.next_horizon_ms = horizon_ms
        return horizon_ms

    def horizon(self, int64_t horizon_ms):
        return self.horizon_of(horizon_ms)

    def sweep(self, list run not None, Py_ssize_t index, int64_t position, Py_ssize_t work, decompress):
        cdef const unsigned char* at
        cdef int64_t horizon_ms, was_ms
        cdef int16_t attributes
        cdef bint no_producer
        cdef bytes batch
        while 0 <= index < PyList_GET_SIZE(run) and work > 0:
            batch = <bytes?>PyTuple_GET_ITEM(<tuple?>PyList_GET_ITEM(run, index), 1)
            if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
                break
            at = <const unsigned char*>PyBytes_AS_STRING(batch)
            attributes = read_int16(at + ATTRIBUTES_AT)
            if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) or read_int64(at) < position:
                break
            if attributes & CODEC_BITS and PyBytes_GET_SIZE(batch) > LARGE_PACKED_BYTES:
                break  # the caller decompresses it in slices
            work = self.examine(batch, decompress, work)
            if self.reader is not None or (work <= 0 and self.records > LARGE_BATCH_RECORDS):
                break  # the caller pauses before the rest, or before a large batch is rewritten
            no_producer = read_int64(at + PRODUCER_ID_AT) < 0
            was_ms = read_int64(at + BASE_TIMESTAMP_AT) if attributes & DELETE_HORIZON_BIT else -1
            if self.kept == 0:
                if not no_producer:
                    break
                self.changes[read_int64(at)] = None
            else:
                horizon_ms = was_ms if self.tombstones and was_ms >= 0 else -1
                if self.tombstones and was_ms < 0:
                    horizon_ms = self.now_ms + self.delete_retention_ms
                if self.kept == self.records and horizon_ms == was_ms:
                    self.put(batch, False, attributes == 0 and no_producer)
                elif attributes & CODEC_BITS:
                    break
                else:
                    changed = filter_records(batch, self.stays, self.records, horizon_ms)
                    self.put(changed, True, attributes & ~DELETE_HORIZON_BIT == 0 and horizon_ms < 0 and no_producer)
                if self.tombstones:
                    self.horizon_of(horizon_ms)
            position = read_int64(at) + read_int32(at + LAST_DELTA_AT) + 1
            work -= 1 + PyBytes_GET_SIZE(batch) // WORK_BYTES
            index += 1
        return index, position, work

    # ---- neighbours

    def add(self, bytes batch not None, bint changed, bint may_merge):
        if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
            raise ValueError(f"{PyBytes_GET_SIZE(batch)} bytes are too few for a batch")
        self.put(batch, changed, may_merge)

    cdef int put(self, bytes batch, bint changed, bint may_merge) except -1:
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(batch)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(batch)
        cdef int64_t last = read_int64(at) + read_int32(at + LAST_DELTA_AT)
        if not may_merge or size * 2 >= self.max_merged_bytes:
            self.end_run()
            self.size_bytes += size
            if changed:
                self.changes[read_int64(at)] = batch
            return 0
        if self.run and (
            self.run_leader_epoch != read_int32(at + LEADER_EPOCH_AT)
            or self.run_bytes + size > self.max_merged_bytes
            or last - self.run_base_offset > MAX_OFFSET_DELTA
        ):
            self.end_run()
        if not self.run:
            self.run_base_offset = read_int64(at)
            self.run_leader_epoch = read_int32(at + LEADER_EPOCH_AT)
            self.run_changed = changed
        self.run.append(batch)
        self.run_bytes += size
        return 0

    cdef int end_run(self) except -1:
        cdef list run = self.run
        cdef bytes batch
        cdef Py_ssize_t index
        if not run:
            return 0
        batch = <bytes>run[0]
        if PyList_GET_SIZE(run) > 1:
            # Merge first: if memory runs out, the replaced batches must not be marked as removed.
            batch = merged(run)
            self.run_changed = True
        if self.run_changed:
            self.changes[self.run_base_offset] = batch
        for index in range(1, PyList_GET_SIZE(run)):
            self.changes[read_int64(<const unsigned char*>PyBytes_AS_STRING(<bytes>run[index]))] = None
        self.size_bytes += PyBytes_GET_SIZE(batch)
        self.run = []
        self.run_bytes = 0
        return 0

    def flush(self):
        self.end_run()
