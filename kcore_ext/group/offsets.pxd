"""Committed offsets and their records, for other compiled modules."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    EXPIRING_VERSION = 1    # the versions of written values: with an expiration time, or without
    VALUE_VERSION = 4


@cython.final
cdef class OffsetAndMetadata:
    cdef readonly int64_t record_offset         # offset of its record in the shard's log: later records win
    cdef readonly int64_t committed_offset
    cdef readonly int64_t commit_timestamp_ms
    cdef readonly int64_t expire_timestamp_ms   # -1: expires by its group's retention (KIP-211)
    cdef readonly str metadata
    cdef readonly int32_t leader_epoch          # -1: unknown
    cdef char[16] topic_uuid                    # zeroes: unknown


@cython.final
cdef class CommitKey:
    cdef readonly str group
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef bytes encoded                          # made on first access


@cython.final
cdef class OffsetDecoder:
    cdef bytes names                            # the last key's bytes up to the partition
    cdef str group
    cdef str topic

    cdef bint _read_names(self, const uint8_t* at, Py_ssize_t size) except -1


# The sizes and the bytes of the key and the value of an offset record; `put_` functions return the end of the bytes.
cdef Py_ssize_t key_size(str group, str topic) except -1
cdef uint8_t* put_key(uint8_t* at, str group, str topic, int32_t partition) except NULL
cdef Py_ssize_t value_size(OffsetAndMetadata entry, int version) except -1
cdef uint8_t* put_value(uint8_t* at, OffsetAndMetadata entry, int version) except NULL

# Decodes a value of any version; returns None if its layout is not exactly Kafka's.
cdef OffsetAndMetadata read_value(const uint8_t* at, Py_ssize_t size)
