"""Declarations of event_columns.pyx, which collects records of batches as columns of events."""

from libc.stdint cimport int64_t

from kcore_ext.batch.header cimport BatchHeader
from kcore_ext.batch.records cimport RecordReader, RecordView
from kcore_ext.spark.column_store cimport Column, ColumnNode

cdef class EventColumns:
    cdef ColumnNode key
    cdef ColumnNode value
    cdef ColumnNode offset
    cdef ColumnNode timestamp
    cdef ColumnNode timestamp_type
    cdef ColumnNode headers
    cdef ColumnNode producer_id
    cdef ColumnNode producer_epoch
    cdef ColumnNode last_sequence
    cdef ColumnNode transactional
    cdef ColumnNode control
    cdef ColumnNode batch_only
    cdef list nodes             # all columns, in the order of their declaration

    cdef void _drop_partial_row(self) noexcept
    cdef int _put_record(self, RecordReader reader, int64_t offset) except -1
    cdef int _put_headers(self, RecordView* record) except -1
    cdef int _put_row_fields(self, BatchHeader header, int64_t offset, int64_t timestamp_ms, bint batch_only) except -1
