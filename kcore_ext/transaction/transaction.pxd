"""Transactional ids, their records and their steps, for other compiled modules."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kcore_ext.batch.builder cimport BatchBuilder

cdef enum:          # the states as numbered in records; kcore.transaction.states has the table
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    STATUSES = 8


@cython.final
cdef class Transaction:
    cdef readonly int64_t producer_id
    cdef readonly int64_t previous_producer_id
    cdef readonly int64_t next_producer_id
    cdef readonly int64_t start_ms
    cdef readonly int64_t last_update_ms
    cdef readonly object partitions     # topic -> frozenset of partitions
    cdef readonly int32_t producer_epoch
    cdef readonly int32_t last_producer_epoch
    cdef readonly int32_t timeout_ms
    cdef readonly int32_t client_version
    cdef int status

    cdef Py_ssize_t value_size(self, int version) except -1
    cdef uint8_t* put_value(self, uint8_t* at, int version) except NULL
    cdef uint8_t* put_tags(self, uint8_t* at) noexcept


@cython.final
cdef class TransactionBlock:
    cdef readonly str transactional_id
    cdef readonly Transaction value
    cdef readonly Py_ssize_t size_bytes
    cdef object make_record
    cdef Py_ssize_t key_size
    cdef Py_ssize_t value_size
    cdef int version


cdef bint may_follow(int status, int before) noexcept   # whether a state may follow another one
cdef bint is_prepared(Transaction transaction) noexcept # whether the transaction is prepared, but not complete

cpdef add(Transaction transaction, int64_t producer_id, int64_t producer_epoch, additions, int client_version, int64_t wall_ms)
cpdef Transaction prepare(Transaction transaction, bint commit, int version, int64_t wall_ms, take)
cpdef Transaction complete(Transaction transaction, int64_t wall_ms)
cpdef Transaction prepared(
    Transaction transaction, bint commit, int32_t epoch, int32_t last_epoch, int64_t next_id, int64_t start_ms,
    int64_t wall_ms, int version,
)
