"""The latest offset of each key in a stretch of a log, and which batches of it are wholly superseded."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:
    SHELVES = 64                # tables that grow on their own: none takes long to be made larger


cdef struct Slot:
    uint64_t hash
    int64_t offset              # of the key's latest record
    const unsigned char* key    # NULL: the slot is free
    int32_t key_size
    int32_t batch               # the index of the batch that the latest record stands in


cdef struct Shelf:
    Slot* slots
    size_t mask                 # one less than how many there are, a power of two
    size_t used


cdef struct Surveyed:
    int64_t base_offset
    int32_t live                # records of it that no later one supersedes; one more where it may not go unread
    int32_t padding


@cython.final
cdef class OffsetMap:
    cdef Shelf shelves[SHELVES]
    cdef Surveyed* batches
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t count
    cdef int64_t left_bytes
    cdef list pages             # of keys; they are freed together
    cdef unsigned char* page
    cdef Py_ssize_t page_left

    cdef Slot* find(self, const unsigned char* key, int32_t size, uint64_t hash) noexcept
    cdef int64_t latest(self, const unsigned char* key, int32_t size) noexcept
    cdef int put(self, const unsigned char* key, int32_t size, int64_t offset, int32_t batch) except -1
    cdef int grow(self, Shelf* shelf) except -1
    cdef unsigned char* keep(self, const unsigned char* key, int32_t size) except NULL
    cdef int begin(self, int64_t base_offset, int32_t live) except -1
    cdef Py_ssize_t take(self, bytes batch, bint whole, object decompress) except -1
