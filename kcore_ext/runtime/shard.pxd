"""What the runtime does once for every request, for other compiled modules."""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.runtime.outcome cimport Outcome, Pending
from kcore_ext.util.java_hash cimport partition_of


@cython.final
cdef class EncodedRecords:
    cdef list encoded
    cdef readonly Py_ssize_t size_bytes


cdef class PipelineCore:
    cdef public dict _participants      # who staged something, as an ordered set
    cdef public list _answers           # (pending, response) in the order in which they are to go out
    cdef public list _background_answers  # the same of the round that is being written; None if there is none
    cdef public bint allows_background_commit  # whether this round may be written beside what is decided next
    cdef public object _on_dirty
    cdef public int changing            # changes of memory that were begun and have not ended
    cdef public bint settling           # a round left `_participants` and is neither durable nor failed

    cpdef enlist(self, participant)
    cpdef answer_later(self, Pending pending, response)
    cpdef answer_after_background(self, Pending pending, response)


cdef class ShardCore:
    cdef public object machine
    cdef public object _log
    cdef public object _now
    cdef public PipelineCore _pipeline
    cdef public BatchBuilder _batch     # the open batch, or None
    cdef public int64_t _next_offset    # of the next record, counting those in the open batch
    cdef public Py_ssize_t _max_batch_bytes
    cdef public list _outbox            # answers of the present decision to requests that were parked
    cdef public dict _parked            # requests that wait for something else than a commit, as an ordered set
    cdef public bint _active            # whether it decides requests
    cdef public bint allows_background_commit  # see `Participant`
    cdef public bint dirty              # whether it enlisted in this round
    cdef public bint committing         # whether it is in the round that is being written
    cdef public bint _reload            # whether memory is to be read from the log behind the next commit
    cdef public int32_t leader_epoch

    cpdef object write(self, Outcome outcome)
    cdef object append(self, Outcome outcome)
    cdef int enlist(self) except -1
    cdef object write_and_respond(self, api, context, request, Outcome outcome)
    cdef object when_durable(self, api, context, request, response)
    cdef int replay(self, object records, int64_t producer_id, int64_t first_offset) except -1
    cdef int collect(self, BatchBuilder batch, object records) except -1


cdef inline ShardCore ready_shard(dict by_partition, str key, int partitions):
    """The shard of a key if it is here and an answer may be made beside `run`, else None.

    It must decide requests, and owe no answers to parked ones: those go out first.
    """
    cdef PyObject* found = PyDict_GetItemWithError(by_partition, partition_of(key, partitions))
    cdef ShardCore shard
    if found is NULL:
        return None
    shard = <ShardCore?><object>found
    return shard if shard._active and not shard._outbox else None
