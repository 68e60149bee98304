"""The latest offset of each key in a part of a log, and the number of live records of each batch."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from kcore_ext.batch.records cimport RecordReader

cdef enum:
    TABLES = 64                # tables that grow separately, so that growing one is short


cdef struct Slot:
    uint64_t hash
    int64_t offset              # of the key's latest record
    const unsigned char* key    # NULL: the slot is free
    int32_t key_size
    int32_t batch               # the index of the batch with the latest record


cdef struct KeyTable:
    Slot* slots
    size_t mask                 # number of slots, a power of two, minus one
    size_t used


cdef struct Surveyed:
    int64_t base_offset
    int32_t live                # records without a later record of their key; plus one if the batch must be read
    int32_t padding


@cython.final
cdef class OffsetMap:
    cdef KeyTable tables[TABLES]
    cdef Surveyed* batches
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count
    cdef int64_t left_bytes
    cdef list pages             # memory of the keys, freed together
    cdef unsigned char* page
    cdef Py_ssize_t page_left
    cdef RecordReader reader    # of the last batch, if some of its records are not surveyed yet; else None
    cdef bytes unfinished       # that batch

    cdef Slot* find(self, const unsigned char* key, int32_t size, uint64_t hash) noexcept
    cdef int64_t latest(self, const unsigned char* key, int32_t size) noexcept
    cdef int put(self, const unsigned char* key, int32_t size, int64_t offset, int32_t batch) except -1
    cdef int grow(self, KeyTable* table) except -1
    cdef unsigned char* keep(self, const unsigned char* key, int32_t size) except NULL
    cdef int begin(self, int64_t base_offset, int32_t live) except -1
    cdef Py_ssize_t take(self, bytes batch, bint whole, object decompress, Py_ssize_t work) except? -1
