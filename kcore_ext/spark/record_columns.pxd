"""Typed columns of internal records; see record_columns.pyx."""

from kcore_ext.codec.plan cimport Plan
from kcore_ext.spark.column_store cimport Bytes, Column, ColumnNode, Input

cdef struct Place:
    Column* column
    Route* nested           # of a struct, or of an array's structs

cdef struct Route:
    Plan* plan
    Column* column          # the struct's own
    Place* ops              # as in the plan
    Place* tags
    Place* absent

cdef enum Status:           # what a row is; the order is that of STATUSES
    OK
    TOMBSTONE
    CONTROL
    NO_RECORD
    UNKNOWN_TYPE
    UNKNOWN_VERSION
    MALFORMED
    OTHER_TOPIC
    BAD_KEY                 # malformed, and not even its key could be read

cdef class Mapped:
    cdef Route route
    cdef ColumnNode node
    cdef list nested            # owns the routes below

cdef class RecordType:
    cdef str name
    cdef bint wanted            # False: read to see whether it can be read, and forgotten
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
    cdef list by_type           # for each topic, record type -> place in `types`
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
