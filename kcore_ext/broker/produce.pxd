"""Fast path of Produce: the limits of a topic's log and the batches of a request."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.runtime.clock cimport Now
from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.runtime.shard cimport PipelineCore

cdef struct Batch:
    Py_ssize_t place            # index of the topic in the request
    PyObject* topic             # borrowed from the request, like index and records
    PyObject* index
    PyObject* records
    PyObject* partition         # a PartitionCore; owned reference
    int64_t producer_id         # -1: no producer
    int16_t producer_epoch
    int32_t base_sequence
    int32_t last_delta
    int64_t max_timestamp_ms
    int codec
    bint transactional


@cython.final
cdef class AppendLimits:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly int64_t before_max_ms
    cdef readonly int64_t after_max_ms
    cdef readonly int codec             # of stored batches; -1: the producer's
    cdef readonly bint needs_keys
    cdef readonly bint create_time


@cython.final
cdef class Batches:
    cdef Batch* items
    cdef Py_ssize_t count, room, size_bytes

    cdef Batch* add(self) except NULL


cdef class ProduceFastPath:
    cdef object _api
    cdef dict _names
    cdef dict _ids
    cdef PipelineCore _pipeline
    cdef Now _now
    cdef object _allowed
    cdef object _forbidden
    cdef object _decompress
    cdef Py_ssize_t _decompress_left        # bytes that may still be decompressed for this request
    cdef public bint declines       # True: serves no request, because the rates of clients are measured
    cdef int64_t _round             # number of checked requests; marks the producers of their partitions
    cdef FieldLayout _request
    cdef FieldLayout _topic
    cdef FieldLayout _data
    cdef FieldLayout _response
    cdef FieldLayout _topic_response
    cdef FieldLayout _partition_response

    cdef bint collect(self, object context, PyObject* request, int version, Batches batches) except -1
    cdef bint collect_topic(
        self, PyObject* topic, Py_ssize_t place, object found, int version, Batches batches
    ) except -1
    cdef bint find_partition(self, Batch* batch, object found) except -1
    cdef bint check_header(self, Batch* batch, AppendLimits limits, int version) except -1
    cdef bint check_producers(self, Batches batches, PyObject* request) except -1
    cdef bint check_records(self, Batch* batch) except -1
    cdef object append(self, object context, object request, Batches batches)
    cdef object append_one(self, Batch* batch)
