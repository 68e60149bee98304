"""Declarations of record_columns.pyx, which decodes internal records to typed columns."""

from kcore_ext.codec.plan cimport Plan
from kcore_ext.spark.column_store cimport Bytes, Column, ColumnNode, Input

cdef struct Place:
    Column* column
    Route* nested           # for a struct, or an array of structs

cdef struct Route:
    Plan* plan
    Column* column          # the column of the struct itself
    Place* ops              # in the order of the plan
    Place* tags
    Place* absent

cdef enum Status:           # the status of a row, in the order of STATUSES
    OK
    TOMBSTONE
    CONTROL
    NO_RECORD
    UNKNOWN_TYPE
    UNKNOWN_VERSION
    MALFORMED
    OTHER_TOPIC
    BAD_KEY                 # malformed, with an unreadable key

cdef class Mapped:
    cdef Route route
    cdef ColumnNode node
    cdef list nested            # owns the nested routes

cdef class RecordType:
    cdef str name
    cdef bint wanted            # False: records of the type are checked, but get no column
    cdef ColumnNode node        # {key, value}
    cdef Mapped key
    cdef list values            # a Mapped for each version from `low` on
    cdef int low
    cdef int high
    cdef int flexible_since
    cdef int read(self, Bytes* key, Bytes* value, Py_ssize_t row) except -1

cdef class RecordColumns:
    cdef list types             # of RecordType
    cdef list topics            # of bytes
    cdef list by_type           # for each topic: record type -> index in `types`
    cdef ColumnNode status
    cdef ColumnNode kind
    cdef ColumnNode record_type
    cdef ColumnNode version
    cdef list _read(self, Py_ssize_t size, Input topics, Input keys, Input values, Input control, Input batch_only)
    cdef void _discard(self) noexcept
    cdef int _topic(self, Bytes* topic) except -2
    cdef int _row(self, Py_ssize_t row, Bytes* topic, Bytes* key, Bytes* value) except -1
    cdef int _head(self, int status, int place, Bytes* key, Bytes* value) except -1
    cdef int _close(self, Py_ssize_t size) except -1
