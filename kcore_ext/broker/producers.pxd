"""Declarations of a partition's producers for other compiled modules."""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t

cdef enum:
    CACHED = 5      # stored batches of a producer

cdef struct Written:
    int32_t first_sequence
    int32_t last_sequence
    int64_t base_offset
    int64_t last_offset
    int64_t timestamp_ms

cdef struct State:
    int64_t last_timestamp_ms
    int64_t txn_first_offset
    int32_t coordinator_epoch
    int16_t epoch
    int16_t count               # of batches
    Written batches[CACHED]     # oldest first

cdef struct Note:
    int64_t offset              # of the append that changed the state
    int64_t producer_id
    bint known                  # False: the producer did not exist
    State before


@cython.final
cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef State now


cdef class AbortedCore:
    cdef public list _entries   # of the index, in the order of their markers


cdef class ProducersCore:
    cdef public dict entries
    cdef public dict open_transactions
    cdef public dict verification_guards
    cdef public dict owners     # producer id: the transactional id that the coordinator confirmed for it
    cdef public dict refused    # producer id: epoch and first sequence of a batch that could not be stored
    cdef public AbortedCore aborted
    cdef public list _completing
    cdef Note* notes            # notes before `first` are no longer needed
    cdef Py_ssize_t first, count, room
    cdef int64_t looked_at      # mark of a request's check, which detects two batches for one partition

    cdef bint follows(
        self, int64_t producer_id, int16_t epoch, int32_t first_sequence, bint transactional, object transactional_id
    ) except -1
    cdef int appended(
        self,
        int64_t producer_id,
        int16_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t base_offset,
        int64_t timestamp_ms,
        bint transactional,
    ) except -1
    cdef int put(self, int64_t producer_id, int16_t epoch, Written* batch, bint transactional) except -1
    cdef ProducerEntry prepare_change(self, int64_t producer_id, int64_t offset)
    cdef int settle(self, int64_t high_watermark) except -1
    cdef int make_room(self) except -1
    cdef void forget_notes(self)
    cdef int note_refused(self, object producer_id, int16_t epoch, int32_t sequence) except -1


cdef inline bint any_aborted(ProducersCore producers) noexcept:
    """Returns True if the partition has aborted transactions. The function is inline, because every commit calls it."""
    return producers.aborted is not None and PyList_GET_SIZE(producers.aborted._entries) != 0
