"""The partition of an internal topic that owns a key, for other compiled modules."""

from libc.stdint cimport int32_t

cdef int32_t hash_of(str text) except? -1
cdef int partition_of(str key, int partitions) except -1
