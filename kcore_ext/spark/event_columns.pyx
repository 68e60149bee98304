"""Collects records of batches from log bytes as columns of events, without an object per row.

The columns are those of `kcore.spark.events.event.EventRow`, without topic and partition, which the caller adds.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint64_t

from kcore_ext.batch.header cimport BatchHeader, read_whole
from kcore_ext.batch.layout cimport CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, get_varint
from kcore_ext.batch.records cimport RecordReader, RecordView, open_reader
from kcore_ext.codec.plan cimport BOOL, BYTES, INT32, INT64, STRING
from kcore_ext.spark.column_store cimport (
    Column, ColumnNode, array_column, finish_all, pad, scalar_column, put_bytes, put_flag, put_int32, put_int64, put_text,
    reserve, struct_column, truncate,
)

cdef enum:
    LARGEST_MS = 9223372036854775   # the largest number of milliseconds that fits an int64 in microseconds
    MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024


cdef class EventColumns:
    def __cinit__(self):
        cdef ColumnNode header = struct_column([scalar_column(STRING), scalar_column(BYTES)])
        self.key = scalar_column(BYTES)
        self.value = scalar_column(BYTES)
        self.offset = scalar_column(INT64)
        self.timestamp = scalar_column(INT64)
        self.timestamp_type = scalar_column(INT32)
        self.headers = array_column(header)
        self.producer_id = scalar_column(INT64)
        self.producer_epoch = scalar_column(INT32)
        self.last_sequence = scalar_column(INT32)
        self.transactional = scalar_column(BOOL)
        self.control = scalar_column(BOOL)
        self.batch_only = scalar_column(BOOL)
        self.nodes = [
            self.key, self.value, self.offset, self.timestamp, self.timestamp_type, self.headers, self.producer_id,
            self.producer_epoch, self.last_sequence, self.transactional, self.control, self.batch_only,
        ]

    def __len__(self):
        return self.offset.column.length

    def append(self, batch, Py_ssize_t position, int64_t first, int64_t stop, decompress):
        cdef Py_buffer view
        cdef BatchHeader header
        cdef RecordReader reader
        cdef int64_t offset
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            header = read_whole(<const unsigned char*>view.buf, view.len, position)
        finally:
            PyBuffer_Release(&view)
        if header.record_count == 0:
            self._make_room(1)
            offset = header.base_offset + header.last_offset_delta
            if first <= offset < stop:
                try:
                    self._put_nothing(header, offset)
                except MemoryError:
                    self._drop_partial_row()
                    raise
            return
        reader = open_reader(batch, position, decompress, MAX_DECOMPRESSED_BYTES)
        self._make_room(header.record_count)
        try:
            while reader.move():
                offset = <int64_t>(<uint64_t>header.base_offset + <uint64_t><int64_t>reader.record.offset_delta)
                if first <= offset < stop:
                    self._put_record(reader, offset)
        except MemoryError:
            self._drop_partial_row()
            raise

    def _make_room(self, Py_ssize_t count):
        for node in self.nodes:
            if reserve(&(<ColumnNode>node).column, count) < 0:
                raise MemoryError

    cdef void _drop_partial_row(self) noexcept:
        """Removes the fields of an incomplete row; the offset is the last field of a row."""
        for node in self.nodes:
            truncate(&(<ColumnNode>node).column, self.offset.column.length)

    def _put_nothing(self, BatchHeader header, int64_t offset):
        """Appends a row for a batch without records."""
        for node in (self.key, self.value):
            if pad(&(<ColumnNode>node).column, 1, True) < 0:
                raise MemoryError
        if pad(&self.headers.column, 1, False) < 0:
            raise MemoryError
        self._put_row_fields(header, offset, header.max_timestamp_ms, True)

    cdef int _put_record(self, RecordReader reader, int64_t offset) except -1:
        cdef RecordView* record = &reader.record
        cdef BatchHeader header = reader.header
        cdef int64_t timestamp_ms = header.max_timestamp_ms
        if not header.attributes & LOG_APPEND_TIME_BIT:
            timestamp_ms = <int64_t>(<uint64_t>header.base_timestamp_ms + <uint64_t>record.timestamp_delta)
        _put_maybe(&self.key.column, record.key, record.key_size)
        _put_maybe(&self.value.column, record.value, record.value_size)
        if record.header_count:
            self._put_headers(record)
        else:
            pad(&self.headers.column, 1, False)
        return self._put_row_fields(header, offset, timestamp_ms, False)

    cdef int _put_headers(self, RecordView* record) except -1:
        """Appends the headers of a record, which the reader has checked.

        Invalid UTF-8 in names is replaced as in Java.
        """
        cdef Column* column = &self.headers.column
        cdef Column* items = column.children[0]
        cdef const unsigned char* at = record.headers
        cdef int32_t size = 0
        cdef int i
        if reserve(items, record.header_count) < 0:
            raise MemoryError
        for i in range(record.header_count):
            at = get_varint(at, record.end, &size)
            if put_text(items.children[0], at, size, b"replace") < 0:
                raise MemoryError
            at = get_varint(at + size, record.end, &size)
            _put_maybe(items.children[1], at, size)
            at += max(0, size)
            items.length += 1
        column.length += 1
        column.offsets[column.length] = <int32_t>items.length
        return 0

    cdef int _put_row_fields(self, BatchHeader header, int64_t offset, int64_t timestamp_ms, bint batch_only) except -1:
        """Appends the fields of a row besides key, value and headers."""
        cdef Py_ssize_t row = self.offset.column.length
        cdef int32_t last_sequence = -1
        if header.base_sequence >= 0:  # sequence numbers wrap from 2147483647 to 0
            last_sequence = <int32_t>((<int64_t>header.base_sequence + header.last_offset_delta) & 0x7FFFFFFF)
        if 0 <= timestamp_ms <= LARGEST_MS:
            (<int64_t*>self.timestamp.column.values)[row] = timestamp_ms * 1000
            self.timestamp.column.length += 1
        elif pad(&self.timestamp.column, 1, True) < 0:
            raise MemoryError
        put_int32(&self.timestamp_type.column, header.attributes & LOG_APPEND_TIME_BIT != 0)
        put_int64(&self.producer_id.column, header.producer_id)
        put_int32(&self.producer_epoch.column, header.producer_epoch)
        put_int32(&self.last_sequence.column, last_sequence)
        put_flag(&self.transactional.column, header.attributes & TRANSACTIONAL_BIT != 0)
        put_flag(&self.control.column, header.attributes & CONTROL_BIT != 0)
        put_flag(&self.batch_only.column, batch_only)
        put_int64(&self.offset.column, offset)
        return 0

    def take(self):
        return finish_all(self.nodes)


cdef int _put_maybe(Column* column, const unsigned char* at, int32_t size) except -1:
    """Appends bytes, or null for a negative size."""
    if (pad(column, 1, True) if size < 0 else put_bytes(column, at, size)) < 0:
        raise MemoryError
    return 0
