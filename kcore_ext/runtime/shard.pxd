"""The runtime's work for every request, for other compiled modules."""

cimport cython
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.outcome cimport Outcome, Pending
from kcore_ext.util.java_hash cimport partition_of


@cython.final
cdef class EncodedRecords:
    cdef list encoded
    cdef readonly Py_ssize_t size_bytes


cdef class ParticipantCore:
    cdef public bint allows_background_commit   # see `Participant`
    cdef int64_t _round                         # the number of the last round in which it enlisted; 0: none

    # `seal` and `committed` for the pipeline, without Python's method calls
    cdef int stage(self) except -1
    cdef int end_commit(self) except -1


cdef class ShardLogCore(ParticipantCore):
    # `append_built` and `end_offset` of `ShardLog`
    cdef int64_t append_batch(self, BatchBuilder batch, int32_t leader_epoch) except -1
    cdef int64_t next_offset(self) except -1


cdef class MachineCore:
    # `replay_block` of a state machine
    cdef int replay_records(self, int64_t first_offset, int64_t producer_id, object block) except -1


cdef class PipelineCore:
    cdef public list _participants      # participants with staged records, each once
    cdef int64_t _round                 # the number of the round, different from those of all other pipelines
    cdef int64_t _taken_round           # the number of the last round that `_take_round` has returned
    cdef public list _responses         # the waiting `Pending` objects, in the order in which they are completed
    cdef public list _background_responses  # those of the background commit; None if there is none
    cdef public bint allows_background_commit  # whether this round may be written while the next one is decided
    cdef public object _on_dirty
    cdef public int changing            # changes of memory that have begun and not ended
    cdef public bint interrupted        # a round has left `_participants` and is neither durable nor failed

    cpdef enlist(self, participant)
    cpdef respond_after_commit(self, Pending pending, response)
    cpdef respond_after_background(self, Pending pending, response)


cdef class ShardCore(ParticipantCore):
    cdef public object machine
    cdef public object _log
    cdef public Now _now
    cdef public PipelineCore _pipeline
    cdef public BatchBuilder _batch     # the open batch, or None
    cdef public int64_t _next_offset    # of the next record, after those in the open batch
    cdef public Py_ssize_t _max_batch_bytes
    cdef public int16_t _codec          # of the batches; 0: none
    cdef public object _compress        # (codec, data) -> bytes, if there is a codec
    cdef public list _outbox            # responses of the current decision to parked requests
    cdef public dict _parked            # requests that wait for something other than a commit, as an ordered set
    cdef public bint _active            # whether it handles requests
    cdef public bint dirty              # whether it enlisted in this round
    cdef public bint committing         # whether it is in the background commit
    cdef public bint _reload            # whether to load the log again after the next commit
    cdef public int32_t leader_epoch

    cpdef object write(self, Outcome outcome)
    cdef object append(self, object records, int64_t producer_id, int producer_epoch)
    cdef object _append_transactional(self, object records, object encoded, int64_t producer_id, int producer_epoch)
    cdef int set_codec(self, BatchBuilder batch) except -1
    cdef int enlist(self) except -1
    cdef bint seal_batch(self) except -1
    cdef object write_and_respond(
        self, api, context, request, records, response, int64_t producer_id, int producer_epoch
    )
    cdef object when_durable(self, api, context, request, response)
    cdef int replay(self, object records, int64_t producer_id, int64_t first_offset) except -1
    cdef int collect(self, BatchBuilder batch, object records) except -1


cdef inline ShardCore ready_shard(list by_partition, object key):
    """Returns the shard of a key if a fast path may handle a request without calling `run`, else None.

    The key must be a non-empty string. The shard must be active and have no responses to release, because `run` would
    complete these first.
    """
    cdef ShardCore shard
    if not PyUnicode_CheckExact(key) or not PyUnicode_GET_LENGTH(key):
        return None
    shard = by_partition[partition_of(<str>key, <int>len(by_partition))]
    return shard if shard is not None and shard._active and not shard._outbox else None
